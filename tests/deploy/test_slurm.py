"""Slurm's prolog and epilog in bounded time, and batch scripts; tests/deploy/test_cluster.py has a real Slurm."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.programs import DEPLOY, run, stand_in

pytestmark = pytest.mark.deploy

SCRIPT = DEPLOY / "slurm" / "prolog-epilog.sh"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with a `scontrol` that writes down how it is called."""
    stand_in(tmp_path / "bin", "scontrol", f'printf "%s\\n" "$@" > {tmp_path}/scontrol')
    return tmp_path


def carried_out(node: Path, name: str, **more: str) -> tuple[int, str]:
    """Exit status of the script as slurmd starts it, without PATH and HOME, and the reason for which it drains."""
    given = {"SLURMD_NODENAME": "node7", "SLURM_SCRIPT_CONTEXT": f"{name}_slurmd"}
    given |= {"COLLBENCH_BIN": str(node / "bin"), "FOLDER": str(node / "state")}
    (node / "scontrol").unlink(missing_ok=True)
    status = run("/bin/bash", SCRIPT, env=given | more, cwd=node).returncode
    if not (node / "scontrol").exists():
        return status, ""
    *update, reason = (node / "scontrol").read_text().splitlines()
    assert update == ["update", "nodename=node7", "state=drain"]
    return status, reason.removeprefix("reason=")


def test_a_node_that_cannot_be_checked_is_drained_only_if_that_is_chosen(node: Path) -> None:
    for program, why, counts in (
        ("exec sleep 100", "did not end within 1 s", True),
        ("echo no such GPU >&2; exit 2", "no verdict, exit status 2: no such GPU", True),
        ("exit 126", "this node is not checked", False),
    ):
        stand_in(node / "bin", "collbench", program)
        assert carried_out(node, "prolog", LIMIT="1") == (0, "")
        assert why in (node / "state" / "prolog.log").read_text()
        assert (node / "state" / "checked").exists() is counts, "the next job tries again"
        shutil.rmtree(node / "state")
        for name, status in (("prolog", 1), ("epilog", 0)):
            assert carried_out(node, name, NO_VERDICT="drain", LIMIT="1")[0] == status
        assert why in carried_out(node, "prolog", NO_VERDICT="drain", LIMIT="1")[1]


def test_a_node_is_checked_once_in_a_while_and_a_long_check_counts_as_a_short_one(node: Path) -> None:
    stand_in(node / "bin", "collbench", f"echo checked >> {node}/calls")
    for name, calls in (("prolog", 1), ("prolog", 1), ("epilog", 2), ("epilog", 2), ("prolog", 2)):
        assert carried_out(node, name) == (0, "")
        assert (node / "calls").read_text().count("checked") == calls, name


def test_a_reason_is_short_and_plain_whatever_the_verdict_says(node: Path) -> None:
    hostile = '8 x "H100" | $(id) `id` \'é\n'
    figures = f"469.8 of 939.5 GB/s expected at 1 GiB (50 %), a$'b'\\;c {'long ' * 50}"
    for names in ("allreduce", "allreduce,allgather,alltoall,broadcast,reduce"):
        verdict = {"word": "SLOW", "what": f"{names} {hostile}", "reason": figures, "where": hostile}
        (node / "verdict").write_text(json.dumps(verdict))
        stand_in(node / "bin", "collbench", f'cp {node}/verdict "$3"; exit 3')
        status, reason = carried_out(node, "prolog")
        shown = "several collectives" if "," in names else names
        assert (status, len(reason) <= 100) == (1, True)
        assert reason.startswith(f"collbench: SLOW {shown}: 469.8 of 939.5 GB/s")
        assert re.fullmatch(r"[A-Za-z0-9 .,_:@/#%()-]+", reason), reason


def test_batch_scripts_pass_options_on(node: Path) -> None:
    stand_in(node / "bin", "srun", 'printf "srun "; printf "%s " "$@"')
    stand_in(node / "bin", "collbench", 'printf "%s " "$@"')
    given = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "node7", "PATH": f"{node}/bin:/usr/bin:/bin"}
    for name, words in {
        "check": "check --out check-42 -b 1M",
        "fleet": "check --json fleet/node7/check.json -b 1M",
        "check-pyxis": f"srun --container-image=registry.example.com#collbench:latest --container-mounts={node}:/work "
        "--container-workdir=/work collbench check --out check-42 -b 1M",
        "sweep": "srun --mpi=pmix --cpu-bind=none collbench sweep --out sweep-42 -b 1M",
    }.items():
        text = (DEPLOY / "slurm" / f"{name}.sbatch").read_text().replace("/opt/collbench/bin", f"{node}/bin")
        done = run("/bin/bash", "-c", text, name, "-b", "1M", env=given, cwd=node)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, words.split(), ""), name
