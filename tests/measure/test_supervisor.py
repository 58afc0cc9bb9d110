"""The supervisor's ranks between orders: they sleep, and live in the environment that they were given."""

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cases import Sampling
from collbench.errors import PlatformError
from collbench.measure import cleanup, start, workers
from collbench.measure.installation import UNKNOWN, installation
from collbench.measure.supervisor import Supervisor
from collbench.measurement import Measurement
from collbench.platforms import platforms
from collbench.runs.environment import UNCHANGED, Setting, variables
from tests.cli.test_sweep import alive, wait_for
from tests.conftest import ROOT, case
from tests.test_cases import sweep


def cpu_seconds(pid: int) -> float:
    """What a process has spent, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ranks_without_an_order_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first case and after it: a few per cent of a core each, where a rank that spins takes all of it."""
    monkeypatch.setenv("XYZZY", "1")
    asked = sweep(1024)
    with Supervisor("cpu", asked, Setting((("XYZZY", "2"),)), ("XYZZY",), pinned=True) as ranks:
        pids = ranks.greeting.pids
        assert len(pids) == asked.ranks
        for _ in range(2):
            before = [cpu_seconds(pid) for pid in pids]
            time.sleep(0.8)
            spent = [cpu_seconds(pid) - start for pid, start in zip(pids, before, strict=True)]
            assert max(spent) <= 0.08
            (result,) = ranks.measure(case(), ["mpi"], Sampling(iters=3), {"mpi": 64})
            assert isinstance(result, Measurement)
            assert len(result.seconds) == 3
            assert result.launches >= 64
        cores = ranks.greeting.cores
        assert ranks.greeting.variables["XYZZY"] == "2"
    allowed = sorted(os.sched_getaffinity(0))
    assert cores == tuple(allowed[rank % len(allowed)] for rank in range(asked.ranks))


def test_ranks_that_refuse_to_start_leave_no_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and their launcher are ended before it is said why; a killed rank removes nothing itself."""
    ended: list[set[int]] = []
    end = cleanup.end

    def noted(pids: set[int], known: list[str]) -> None:
        ended.append(pids)
        assert not [name for pid in pids for name in cleanup.shared_files(pid)]  # MPI's has no name any more
        end(pids, known)

    monkeypatch.setattr(cleanup, "end", noted)
    asked = sweep(1024)
    with (
        pytest.raises(PlatformError, match="no-such-compiler"),
        Supervisor("cpu", asked, Setting((("CXX", "no-such-compiler"),))),
    ):
        pass
    (pids,) = ended
    assert len(pids) >= asked.ranks
    wait_for(lambda: not alive(list(pids)), 5)


def test_launchers_are_asked_before_there_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That takes a tenth of a second, in which a command that is killed has nobody who would remove it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    there = []

    def ask(*asked: object) -> list[str]:
        there.extend(tmp_path.iterdir())
        return [str(tmp_path / "no launcher")]

    monkeypatch.setattr(start, "command", ask)
    with pytest.raises(PlatformError, match="no launcher"), Supervisor("cpu", sweep(1024)):
        pass
    assert [*there, *tmp_path.iterdir()] == []


def test_ranks_that_are_not_ready_in_time_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how long they had; how long that is, each platform knows."""
    monkeypatch.setitem(platforms(), "cpu", replace(platforms()["cpu"], startup=0.05))
    ranks = Supervisor("cpu", sweep(1024))
    with pytest.raises(PlatformError, match=r"did not start within 0\.05 s"):
        ranks.__enter__()
    assert ranks._workers is None


@pytest.mark.parametrize("paths", [None, "", os.pathsep])
def test_a_copy_in_the_working_folder_is_not_what_ranks_run(
    paths: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither of collbench nor of what it imports: `python -m` and an empty entry of PYTHONPATH would look there."""
    (tmp_path / "collbench").mkdir()
    for name in ("collbench/__init__.py", "numpy.py", "mpi4py.py"):
        (tmp_path / name).write_text("raise SystemExit('ImportError: a copy in the working folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if paths is not None:
        monkeypatch.setenv("PYTHONPATH", paths)
    with Supervisor("cpu", sweep(1024)) as ranks:
        assert len(ranks.greeting.pids) == sweep(1024).ranks  # those of another copy would have been refused


def test_other_folders_of_the_path_come_after_the_commands_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a user put there is kept."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/mine", "", "/too"]))
    paths = start.environment("cpu", tmp_path, UNCHANGED)["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(ROOT), "/mine", "/too"]


def test_ranks_of_another_copy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an edit of the code between the command's start and theirs."""
    edited = installation()._replace(code="0" * 64)
    monkeypatch.setattr(workers, "installation", lambda: edited)
    ranks = Supervisor("cpu", sweep(1024))
    with pytest.raises(PlatformError, match="keep one of them on PYTHONPATH") as error:
        ranks.__enter__()
    assert str(error.value).startswith(f"a rank runs {installation()}, but its command runs {edited}: ")
    assert ranks._workers is None


GREETING = """
import sys; sys.path.insert(0, {root!r})
from collbench.measure import link, worker
channel = link.connect(worker.Path(worker.os.environ[worker.FOLDER]))
channel.receive()
channel.send({{"pids": [], "files": []}} | {greeting!r})
channel.receive()
"""


@pytest.mark.parametrize(
    ("greeting", "theirs"),
    [
        ({}, UNKNOWN),
        *(
            ({"installation": theirs}, theirs)
            for theirs in (installation()._replace(code="0" * 64), installation()._replace(version="0.0.1"))
        ),
    ],
    ids=["too old to say", "other code", "other version"],
)
def test_ranks_that_do_not_look_are_looked_at(
    greeting: dict[str, object], theirs: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a time before ranks compared is the most different of all."""
    script = GREETING.format(root=str(ROOT), greeting={name: list(value) for name, value in greeting.items()})  # type: ignore[call-overload]
    monkeypatch.setattr(start, "command", lambda *ignored: [sys.executable, "-c", script])
    ranks = Supervisor("cpu", sweep(1024))
    with pytest.raises(PlatformError, match="keep one of them on PYTHONPATH") as error:
        ranks.__enter__()
    assert str(error.value).startswith(f"a rank runs {theirs}, but this command runs {installation()}: ")
    assert ranks._workers is None


def test_a_setting_sets_empties_and_unsets() -> None:
    """And leaves the rest as it is."""
    setting = Setting((("NEW", "1"), ("EMPTY", ""), ("GONE", None), ("NEVER", None)))
    assert setting.applied({"EMPTY": "x", "GONE": "y", "KEPT": "z"}) == {"EMPTY": "", "KEPT": "z", "NEW": "1"}


def test_only_what_matters_or_was_named_is_told() -> None:
    """An environment holds secrets."""
    environment = {"SECRET": "hush", "NCCL_ALGO": "Ring", "MINE": "1"}
    assert variables(environment) == {"NCCL_ALGO": "Ring"}
    assert variables(environment, ["MINE", "NOT_SET"]) == {"MINE": "1", "NCCL_ALGO": "Ring"}
