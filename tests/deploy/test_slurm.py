"""Slurm's prolog and epilog drain a node that fails a check, with the reason, in bounded time, and no other node."""

import json
import os
import re
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT
from tests.deploy.programs import DEPLOY, run, stand_in

pytestmark = pytest.mark.deploy

SCRIPT = DEPLOY / "slurm" / "prolog-epilog.sh"
PROLOG, EPILOG = "prolog", "epilog"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with a `scontrol` that writes down how it is called."""
    stand_in(tmp_path / "bin", "scontrol", f'printf "%s\\n" "$@" >> {tmp_path}/scontrol')
    return tmp_path


def carried_out(node: Path, name: str, **more: str) -> CompletedProcess[str]:
    """The script as slurmd starts it as prolog or epilog: without PATH and HOME."""
    given = {"SLURMD_NODENAME": "node7", "SLURM_JOB_ID": "42", "PYTHONPATH": str(ROOT)}
    given |= {"COLLBENCH_BIN": str(node / "bin"), "FOLDER": str(node / "state")}
    return run("/bin/bash", SCRIPT, env=given | {"SLURM_SCRIPT_CONTEXT": f"{name}_slurmd"} | more, cwd=node)


def told(node: Path) -> list[str]:
    """What scontrol was called with since this was last asked."""
    path = node / "scontrol"
    words = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return words


def fails(node: Path, what: str = "allreduce 2 ranks", reason: str = "slow", where: str = "2 ranks") -> None:
    """Let collbench be one whose check fails, and which counts its calls."""
    (node / "verdict").write_text(json.dumps({"word": "SLOW", "what": what, "reason": reason, "where": where}))
    stand_in(node / "bin", "collbench", f'echo checked >> {node}/calls; cp {node}/verdict "$3"; exit 3')


def test_a_node_on_which_nothing_can_be_checked_says_why_and_is_drained_only_if_that_is_chosen(node: Path) -> None:
    """As after an update that lost the program: a cluster without any node is worse.  A check that hangs is ended."""
    for program, why, counts in (
        ("exec sleep 100", "did not end within 1 s", True),
        ("echo no such GPU >&2; exit 2", "no verdict, exit status 2: no such GPU", True),
        ("exit 126", "this node is not checked", False),
    ):
        stand_in(node / "bin", "collbench", program)
        for name, status, stamp in ((PROLOG, 1, "checked"), (EPILOG, 0, "checked-at-length")):
            shutil.rmtree(node / "state", ignore_errors=True)
            done = carried_out(node, name, LIMIT="1")
            assert (done.returncode, done.stderr.count("\n"), told(node)) == (0, 1, []), done.stderr
            assert why in done.stderr
            assert why in (node / "state" / f"{name}.log").read_text()
            assert (node / "state" / stamp).exists() is counts, "the next job tries again what costs it nothing"
            shutil.rmtree(node / "state")
            assert carried_out(node, name, NO_VERDICT="drain", LIMIT="1").returncode == status
            *_, state, reason = told(node)
            assert state == "state=drain"
            assert why in reason


def test_a_node_is_checked_once_in_a_while(node: Path) -> None:
    """A long check counts as a short one; a node that failed is checked at the next occasion."""
    fails(node)
    calls = []
    for name in (PROLOG, PROLOG, EPILOG, EPILOG, PROLOG):
        if len(calls) == 2:
            stand_in(node / "bin", "collbench", f"echo checked >> {node}/calls")
        carried_out(node, name)
        calls.append((node / "calls").read_text().count("checked"))
    assert calls == [1, 2, 3, 3, 3]
    for stamp in ("checked", "checked-at-length"):
        os.utime(node / "state" / stamp, (0, 0))
    carried_out(node, EPILOG)
    carried_out(node, PROLOG)
    assert (node / "calls").read_text().count("checked") == 4


def test_a_reason_is_short_and_plain_whatever_the_verdict_says_and_without_jq_there_is_one(node: Path) -> None:
    """In 100 signs that Slurm and shells take; also where the controller does not answer, the job goes elsewhere."""
    hostile = '8 x "H100" | $(id) `id` \'é\n'
    for names, said in (
        ("allreduce", "collbench: SLOW allreduce: 469.8 of 939.5 GB/s expected at 1 GiB (50 %), a b c"),
        ("allreduce,allgather,alltoall,broadcast,reduce", "collbench: SLOW several collectives: 469.8 of 939.5 GB/s"),
    ):
        figures = "469.8 of 939.5 GB/s expected at 1 GiB (50 %)"
        fails(node, f"{names} {hostile}", f"{figures}, a$'b'\\;c {'long ' * 50}", hostile)
        carried_out(node, PROLOG)
        update, told_of, state, reason = told(node)
        assert (update, told_of, state) == ("update", "nodename=node7", "state=drain")
        reason = reason.removeprefix("reason=")
        assert reason.startswith(said)
        assert len(reason) <= 100
        assert re.fullmatch(r"[A-Za-z0-9 .,_:@/#%()-]+", reason), reason
    stand_in(node / "bin", "jq", "exit 127")
    carried_out(node, PROLOG)
    assert told(node)[-1].startswith("reason=collbench: SLOW or WRONG")
    stand_in(node / "bin", "scontrol", "exec false")
    assert [carried_out(node, name).returncode for name in (PROLOG, EPILOG)] == [1, 0]


def test_batch_scripts_check_one_node_and_pass_options_on(node: Path) -> None:
    """A folder of results for each job; a check of a fleet that dies leaves no verdict of another night."""
    stand_in(node / "bin", "srun", 'printf "srun "; printf "%s " "$@"')
    given = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "node7", "PATH": f"{node}/bin:/usr/bin:/bin"}
    verdict = node / "fleet" / "node7" / "check.json"

    def batch(name: str, *words: str) -> CompletedProcess[str]:
        # Slurm's script begins with the folder of collbench; here the stand-in is first.
        text = (DEPLOY / "slurm" / f"{name}.sbatch").read_text().replace("/opt/collbench/bin", f"{node}/bin")
        return run("/bin/bash", "-c", text, name, *words, env=given, cwd=node)

    stand_in(node / "bin", "collbench", 'printf "%s " "$@"')
    for name, words in {
        "check": "check --out check-42 -b 1M",
        "fleet": "check --json fleet/node7/check.json -b 1M",
        "check-pyxis": f"srun --container-image=registry.example.com#collbench:latest --container-mounts={node}:/work "
        "--container-workdir=/work collbench check --out check-42 -b 1M",
        "sweep": "srun --mpi=pmix --cpu-bind=none collbench sweep --out sweep-42 -b 1M",
    }.items():
        done = batch(name, "-b", "1M")
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, words.split(), ""), name
    assert batch("sweep").stdout.endswith("--out sweep-42 --op=allreduce ")
    verdict.write_text("OK")
    stand_in(node / "bin", "collbench", "exit 1")
    assert batch("fleet").returncode == 1
    assert not verdict.exists()
