"""The shared window: real ranks map one memory, which has no name and ends with them, however they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, mpiexec, of_a_user


def command(how: str, ranks: int, nbytes: int) -> list[str]:
    return [mpiexec(), "-n", str(ranks), sys.executable, "-m", "tools.ranks.window", how, str(nbytes)]


def ranks_say(how: str = "", ranks: int = 2, nbytes: int = 4096, **variables: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        command(how, ranks, nbytes), cwd=ROOT, env=of_a_user() | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


def test_ranks_store_into_each_others_memory_which_has_no_name() -> None:
    """The last line of every part is that rank's alone, and what others stored there came.

    The kernel shows the memory as deleted: nothing is there to be left behind, or to be opened by its name.
    """
    for ranks, nbytes in ((1, 4096), (3, 5000), (2, 2**21 + 128)):  # the last with huge pages
        for said in ranks_say(ranks=ranks, nbytes=nbytes):
            assert said["came"] == [100, 101, 102][:ranks], (ranks, nbytes)
            assert said["ranks"] == [0, 1, 2][:ranks], (ranks, nbytes)
            assert said["aligned"], nbytes
            assert said["names"]
            assert all("/memfd:collbench" in line and line.endswith("(deleted)") for line in said["names"])


def test_what_fails_on_one_rank_is_one_error_on_all() -> None:
    for how, reason in (
        ("nomap", "cannot share memory: Cannot allocate memory"),  # on the last rank
        ("nofile", "no shared memory of 8 KiB: File too large; lower -e or --ranks"),
        ("foreign", "cannot share memory"),  # what lies there in another container
    ):
        said = ranks_say(how, ranks=2)
        assert len({one["error"] for one in said}) == 1, how
        assert reason in said[0]["error"]
        assert "\n" not in said[0]["error"], how


def test_ranks_of_several_machines_share_within_theirs_alone() -> None:
    said = ranks_say(ranks=4, MPIR_CVAR_ODD_EVEN_CLIQUES="1")
    assert [one["ranks"] for one in said] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert said[2]["came"] == [100, 0, 102, 0]
    assert said[1]["came"] == [0, 101, 0, 103]


def maps(pid: int | str) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    return {int(line.split()[4]) for line in lines if "/memfd:collbench" in line}


def descendants(pid: int) -> list[int]:
    own = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    return own + [further for child in own for further in descendants(child)]


def test_kill_9_of_all_ranks_at_once_leaves_no_memory() -> None:
    held = subprocess.Popen(command("hold", 2, 2**22), cwd=ROOT, env=of_a_user(), stdout=subprocess.PIPE, text=True)
    assert held.stdout
    assert [held.stdout.readline(), held.stdout.readline()] == ["ready\n", "ready\n"]
    pids = descendants(held.pid)
    mine = set().union(*map(maps, pids))
    for pid in (held.pid, *pids):
        os.kill(pid, signal.SIGKILL)
    held.communicate()
    assert len(mine) == 1, "one memory for both"
    deadline = time.monotonic() + 60
    while any(mine & maps(folder.name) for folder in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline, "the memory outlives its ranks"
        time.sleep(0.02)
    assert not list(Path("/dev/shm").glob("*collbench*"))
