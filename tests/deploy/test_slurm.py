"""Slurm's prolog and epilog drain a node that fails a check, with the reason, in bounded time, and no other node."""

import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT
from tests.deploy.programs import DEPLOY, run, stand_in

pytestmark = pytest.mark.deploy

SCRIPT = DEPLOY / "slurm" / "prolog-epilog.sh"
PROLOG, EPILOG = "prolog", "epilog"
FAILS = """echo '{"line": "collbench: FAIL allreduce 2 ranks: slow", "where": "2 ranks"}' > "$3"; exit 3"""
LEAST = '[[floor]]\ncollective = "allreduce"\nsize = "4K"\nvalue = 1e9\nunit = "us"\n'


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with a `scontrol` that writes down how it is called, and the real collbench."""
    stand_in(tmp_path / "bin", "scontrol", f'printf "%s\\n" "$@" >> {tmp_path}/scontrol')
    stand_in(tmp_path / "bin", "collbench", f'exec {sys.executable} -m collbench "$@"')
    return tmp_path


def carried_out(node: Path, name: str, **more: str) -> CompletedProcess[str]:
    """The script as slurmd starts it as prolog or epilog: without PATH and HOME."""
    given = {"SLURMD_NODENAME": "node7", "SLURM_JOB_ID": "42", "PYTHONPATH": str(ROOT)}
    given |= {
        "COLLBENCH_BIN": str(node / "bin"),
        "FOLDER": str(node / "state"),
        "SLURM_SCRIPT_CONTEXT": f"{name}_slurmd",
    }
    return run("/bin/bash", SCRIPT, env=given | more, cwd=node)


def told(node: Path) -> list[str]:
    """What scontrol was called with."""
    path = node / "scontrol"
    return path.read_text().splitlines() if path.exists() else []


def wrong_kernels(folder: Path) -> dict[str, str]:
    """Variables with which an all-reduce leaves the end of the result out."""
    kernels = shutil.copytree(ROOT / "kernels", folder / "kernels")
    text = (kernels / "ring.cu").read_text()
    assert "count - tail, world.ranks);" in text
    (kernels / "ring.cu").write_text(text.replace("count - tail, world.ranks);", "0, world.ranks);"))
    return {"COLLBENCH_KERNELS": str(kernels), "CHECK": "--impl ring-flags -b 4020 -e 4020 --budget 1s"}


def test_a_node_that_computes_wrong_is_drained_with_the_reason(node: Path) -> None:
    """The prolog fails, too, so that the job goes elsewhere; the epilog must not: its status is a reason."""
    wrong = wrong_kernels(node)
    for name, status in ((PROLOG, 1), (EPILOG, 0)):
        done = carried_out(node, name, **wrong)
        assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), name
        update, told_of, state, reason = told(node)
        assert (update, told_of, state) == ("update", "nodename=node7", "state=drain")
        assert reason.startswith("reason=collbench: allreduce: "), reason
        assert "WRONG: rank" in reason
        (node / "scontrol").unlink()


def test_a_node_that_is_right_stays(node: Path) -> None:
    (node / "floors.toml").write_text(LEAST)
    words = f"--reference {node}/floors.toml -b 4K -e 4K --budget 1s"
    for name in (PROLOG, EPILOG):
        done = carried_out(node, name, CHECK=words, EVERY="0")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name
    assert told(node) == []
    assert {path.name for path in (node / "state").iterdir()} >= {"checked", "checked-at-length", "cache"}


def test_a_check_that_does_not_end_is_ended_and_drains_nothing(node: Path) -> None:
    stand_in(node / "bin", "collbench", "exec sleep 100")
    for name in (PROLOG, EPILOG):
        begun = time.monotonic()
        assert carried_out(node, name, LIMIT="1").returncode == 0
        assert time.monotonic() - begun < 60
    assert told(node) == []


def test_a_node_on_which_nothing_can_be_checked_says_why_and_is_drained_only_if_that_is_chosen(node: Path) -> None:
    """As after an update that lost the program: a cluster without any node is worse."""
    for program, why, counts in (
        ("echo no such GPU >&2; exit 2", "no verdict, exit status 2: no such GPU", True),
        ("exit 126", "this node is not checked", False),
        (None, "this node is not checked", False),
    ):
        if program:
            stand_in(node / "bin", "collbench", program)
        else:
            (node / "bin" / "collbench").unlink()
        for name, status, stamp in ((PROLOG, 1, "checked"), (EPILOG, 0, "checked-at-length")):
            shutil.rmtree(node / "state", ignore_errors=True)
            done = carried_out(node, name)
            assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
            assert done.stderr.startswith("collbench: "), done.stderr
            assert why in done.stderr
            assert why in (node / "state" / f"{name}.log").read_text()
            assert (node / "state" / stamp).exists() is counts, "the next job tries again what costs it nothing"
            assert told(node) == []
            shutil.rmtree(node / "state")
            assert carried_out(node, name, NO_VERDICT="drain").returncode == status
            *_, state, reason = told(node)
            assert state == "state=drain"
            assert why in reason
            (node / "scontrol").unlink()


def test_a_node_of_a_fleet_whose_check_dies_leaves_no_verdict_of_another_night(node: Path) -> None:
    text = (DEPLOY / "slurm" / "fleet.sbatch").read_text().replace("/opt/collbench/bin", f"{node}/bin")
    given = {"SLURMD_NODENAME": "node7", "USER": "u", "PATH": "/usr/bin:/bin"}
    verdict = node / "fleet" / "node7" / "check.json"
    verdict.parent.mkdir(parents=True)
    stand_in(node / "bin", "collbench", "exit 1")
    for missing in (False, True):
        verdict.write_text("OK")
        if missing:
            (node / "bin" / "collbench").unlink()
        assert run("/bin/bash", "-c", text, env=given, cwd=node).returncode == (127 if missing else 1)
        assert not verdict.exists()


def test_a_node_is_checked_once_in_a_while(node: Path) -> None:
    """A long check counts as a short one; a node that failed is checked at the next occasion."""
    stand_in(node / "bin", "collbench", f"echo checked >> {node}/calls; {FAILS}")
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


def test_a_controller_that_does_not_answer_delays_nothing_and_the_job_goes_elsewhere(node: Path) -> None:
    stand_in(node / "bin", "collbench", FAILS)
    stand_in(node / "bin", "scontrol", "exec false")
    assert carried_out(node, PROLOG).returncode == 1
    assert carried_out(node, EPILOG).returncode == 0


def test_a_reason_is_short_and_plain_whatever_the_verdict_says_and_without_jq_there_is_one(node: Path) -> None:
    """In 100 signs that Slurm and shells take, without the topology and with the figure."""
    hostile = '8 x "H100" | $(id) `id` \'é\n'
    for names, said in (
        ("allreduce", "collbench: allreduce: 469.8 of 939.5 GB/s expected at 1 GiB (50 %), a b c"),
        ("allreduce,allgather", "collbench: allreduce,allgather: 469.8 of 939.5 GB/s"),
        ("allreduce,allgather,alltoall,broadcast,reduce", "collbench: several collectives: 469.8 of 939.5 GB/s"),
    ):
        line = (
            f"collbench: FAIL {names} {hostile}: 469.8 of 939.5 GB/s expected at 1 GiB (50 %), a$'b'\\;c {'long ' * 50}"
        )
        (node / "verdict.json").write_text(json.dumps({"line": line, "where": hostile}))
        stand_in(node / "bin", "collbench", f'cp {node}/verdict.json "$3"; exit 3')
        carried_out(node, PROLOG)
        reason = told(node)[-1].removeprefix("reason=")
        assert reason.startswith(said)
        assert len(reason) <= 100
        assert re.fullmatch(r"[A-Za-z0-9 .,_:@/#%()-]+", reason), reason
    stand_in(node / "bin", "jq", "exit 127")
    carried_out(node, PROLOG)
    assert told(node)[-1].startswith("reason=collbench: FAIL")


def test_batch_scripts_check_one_node_and_pass_options_on(node: Path) -> None:
    """A folder of results for each node and job, also where the folder of the fleet is not there yet."""
    stand_in(node / "bin", "collbench", 'printf "%s " "$@"')
    stand_in(node / "bin", "srun", 'printf "srun "; printf "%s " "$@"')
    given = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "node7", "USER": "u", "PATH": f"{node}/bin:/usr/bin:/bin"}
    expected = {
        "check": "check --out check-42 -b 1M",
        "fleet": "check --json fleet/node7/check.json -b 1M",
        "check-pyxis": f"srun --container-image=registry.example.com#collbench:latest --container-mounts={node}:/work "
        "--container-workdir=/work collbench check --out check-42 -b 1M",
        "sweep": "srun --mpi=pmix --cpu-bind=none collbench sweep --out sweep-42 -b 1M",
    }
    for name, words in expected.items():
        # Slurm's script begins with the folder of collbench; here the stand-in is first.
        text = (DEPLOY / "slurm" / f"{name}.sbatch").read_text().replace("/opt/collbench/bin", f"{node}/bin")
        done = run("/bin/bash", "-c", text, name, "-b", "1M", env=given, cwd=node)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, words.split(), ""), name
    assert (node / "fleet" / "node7").is_dir()
    text = (DEPLOY / "slurm" / "sweep.sbatch").read_text()
    assert run("/bin/bash", "-c", text, env=given, cwd=node).stdout.endswith("--out sweep-42 --op=allreduce ")


def test_every_line_for_slurm_is_an_option_of_sbatch() -> None:
    known = {"job-name", "nodes", "ntasks", "ntasks-per-node", "exclusive", "gpus-per-node", "time", "output"}
    for path in sorted((DEPLOY / "slurm").glob("*.sbatch")):
        lines = [line for line in path.read_text().splitlines() if line.startswith("#SBATCH")]
        asked = {shlex.split(line)[1].removeprefix("--").partition("=")[0] for line in lines}
        assert {"time", "exclusive", "nodes"} <= asked <= known, path
