"""What deploy/slurm starts, on a real Slurm of two nodes: sweeps by srun, an array of checks, a prolog that drains."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.results import Failed, Measurement, Skipped
from collbench.runfile.store import Run, read
from tests.conftest import ROOT
from tests.deploy.cluster import SECONDS, Cluster, cluster, lacking

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

COLLBENCH = str(Path(sys.executable).with_name("collbench"))
SWEEP = (COLLBENCH, "sweep", "--on", "cpu", "-b", "64", "-e", "64", "-n", "3", "--no-plot", "--out", "out")


def _needed() -> None:
    missing = lacking()
    if missing and "CI" in os.environ:
        pytest.fail(f"no {missing}: apt-get install slurm-wlm munge")
    if missing:
        pytest.skip(f"no {missing}: apt-get install slurm-wlm munge")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    _needed()
    with cluster(tmp_path_factory.mktemp("cluster") / "slurm") as started:
        yield started


def swept(slurm: Cluster, folder: Path, *words: str, more: tuple[str, ...] = ()) -> Run:
    """The run of a sweep by srun with these options of it, and `more` of the sweep; status 1 if all was skipped."""
    done = slurm.run("srun", "-n2", *words, *SWEEP, *more, cwd=folder)
    run = read(folder / "out")
    skipped = all(isinstance(result, Skipped) for result in run.results)
    assert done.returncode == skipped, done.stdout + done.stderr
    return run


def test_srun_with_a_pmi_measures_mpi_between_nodes_and_skips_the_rest_with_the_reason(
    slurm: Cluster, tmp_path: Path
) -> None:
    run = swept(slurm, tmp_path, "-N2", "--mpi=pmi2", more=("--impl", "mpi,ring-flags"))
    assert "on 2 nodes" in run.header.topology.name
    results = {result.implementation: result for result in run.results}
    library, ring = results["mpi"], results["ring-flags"]
    assert isinstance(library, Measurement)
    assert library.right
    assert isinstance(ring, Skipped)
    assert "is on another node" in ring.reason


def test_srun_without_a_pmi_meets_in_a_folder(slurm: Cluster, tmp_path: Path) -> None:
    """On one node the hand-written implementations run, and MPI nowhere."""
    for nodes, why in ((1, ""), (2, "is on another node")):
        folder = tmp_path / str(nodes)
        folder.mkdir()
        words = (f"-N{nodes}", "--overcommit", "--mpi=none")
        run = swept(slurm, folder, *words, more=("--impl", "mpi,ring-flags", "--rendezvous", "meet"))
        library, ring = run.results
        assert isinstance(library, Skipped)
        assert "started without MPI" in library.reason
        assert ("on 2 nodes" in run.header.topology.name) == (nodes == 2)
        if why:
            assert isinstance(ring, Skipped)
            assert why in ring.reason
        else:
            assert isinstance(ring, Measurement)
            assert ring.right


def test_srun_without_a_pmi_and_without_a_place_is_told_what_to_do(slurm: Cluster, tmp_path: Path) -> None:
    done = slurm.run("srun", "-N2", "-n2", "--mpi=none", *SWEEP, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("fix: --rendezvous FOLDER") == 1
    assert "Traceback" not in done.stderr


def test_a_rank_of_srun_that_is_killed_ends_all_and_resume_completes_the_run(slurm: Cluster, tmp_path: Path) -> None:
    words = ("--on", "cpu", "--impl", "ring-flags,two-shot", "-b", "64", "-e", "16K", "--budget", "1", "--no-plot")
    step = ("srun", "-N1", "-n2", "--overcommit", "--mpi=none", COLLBENCH, "sweep")
    meeting = ("--rendezvous", "meet")
    with subprocess.Popen(
        (*step, *words, *meeting, "--out", "out"), cwd=tmp_path, env=slurm.environment(), stderr=subprocess.PIPE
    ) as started:
        os.kill(rank_of("SLURM_PROCID=1", tmp_path), signal.SIGKILL)
        _, errors = started.communicate(timeout=SECONDS)
    assert started.returncode != 0
    assert b"rank 1 is gone" in errors
    cut = read(tmp_path / "out")
    assert isinstance(cut.results[-1], Failed)
    done = slurm.run(*step, "--resume", "out", "--no-plot", *meeting, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = read(tmp_path / "out")
    assert whole.whole
    assert len(whole.results) == 2 * 5
    assert all(isinstance(result, Measurement) and result.right for result in whole.results)


def rank_of(variable: str, folder: Path) -> int:
    """The process of a rank that has this variable and works in this folder, once the run file has a result."""
    deadline = time.monotonic() + SECONDS
    file = folder / "out" / "run.jsonl"
    while not file.exists() or file.read_text().count("\n") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = (process / "cwd").resolve() == folder and variable in (process / "environ").read_text().split("\0")
            if mine and "sweep" in (process / "cmdline").read_text():
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process has {variable}")


def without_gpus(script: Path, folder: Path) -> Path:
    """A batch script for nodes that have none."""
    text = re.sub(r"^#SBATCH --gpus.*\n", "", script.read_text(), flags=re.MULTILINE)
    (folder / script.name).write_text(text)
    return folder / script.name


def test_every_node_of_an_array_checks_itself_and_the_fleet_is_one_table(slurm: Cluster, tmp_path: Path) -> None:
    script = without_gpus(ROOT / "deploy" / "slurm" / "fleet.sbatch", tmp_path)
    given = {"PATH": f"{Path(COLLBENCH).parent}:{os.environ['PATH']}", "COLLBENCH_STATE": str(tmp_path / "state")}
    some = ("-b", "4K", "-e", "4K", "--budget", "1s")
    done = slurm.run("sbatch", "--wait", "--array=1-2", str(script), *some, cwd=tmp_path, env=given)
    assert done.returncode in (0, 4), done.stderr  # nobody knows what to expect of a node that is new
    verdicts = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("fleet/*/check.json")}
    assert set(verdicts) == {"n1", "n2"}, done.stderr
    table = slurm.run(COLLBENCH, "runs", "--fleet", "fleet", cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert "2" in table.stdout


PROLOG = """#!/bin/bash
export COLLBENCH_BIN={bin} FOLDER={folder}/$SLURMD_NODENAME CHECK="{check}"
[ "$SLURMD_NODENAME" = n2 ] && export COLLBENCH_KERNELS={folder}/kernels
exec {prolog}
"""


def test_the_prolog_drains_a_node_whose_results_are_wrong_with_the_reason_and_the_job_runs_elsewhere(
    tmp_path: Path,
) -> None:
    _needed()
    kernels = shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    text = (kernels / "ring.cu").read_text()
    assert "count - tail, world.ranks);" in text
    (kernels / "ring.cu").write_text(text.replace("count - tail, world.ranks);", "0, world.ranks);"))
    script = tmp_path / "prolog"
    prolog = ROOT / "deploy" / "slurm" / "prolog-epilog.sh"
    check = "--impl ring-flags -b 4020 -e 4020 --budget 1s"
    script.write_text(
        PROLOG.format(bin=Path(COLLBENCH).parent, folder=tmp_path, check=check, prolog=f"/bin/bash {prolog}")
    )
    script.chmod(0o755)
    settings = (f"Prolog={script}", "PrologFlags=Alloc", "PrologEpilogTimeout=120")
    with cluster(tmp_path / "slurm", *settings) as slurm:
        here = slurm.run("srun", "-w", "n1", "hostname")
        assert here.returncode == 0, here.stderr
        assert slurm.state("n1") in ("idle", "comp")
        job = subprocess.Popen(("srun", "-w", "n2", "hostname"), env=slurm.environment(), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        while slurm.state("n2") not in ("drain", "drng", "drained"):
            assert time.monotonic() < deadline, (slurm.state("n2"), slurm.reason("n2"))
            time.sleep(0.5)
        job.terminate()
        job.wait(60)
        assert "WRONG: rank" in slurm.reason("n2"), slurm.reason("n2")
        assert slurm.reason("n2").startswith("collbench: allreduce")
        assert slurm.state("n1") == "idle"
        assert slurm.run("srun", "-n1", "hostname").returncode == 0, "the job goes to the node that is right"
