"""What deploy/slurm starts, on a real Slurm of two nodes: sweeps by srun, an array of checks, a prolog that drains."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.results import Measurement, Skipped
from collbench.runfile.store import read
from tests.conftest import ROOT
from tests.deploy.cluster import Cluster, cluster, wait_for
from tests.deploy.programs import DEPLOY, stand_in

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

COLLBENCH = str(Path(sys.executable).with_name("collbench"))
SWEEP = (COLLBENCH, "sweep", "--on", "cpu", "-b", "64", "-e", "64", "-n", "3", "--no-plot", "--out", "out")
PROLOG = """
[ -e {folder}/kernels ] || exit 0
export COLLBENCH_BIN={bin} FOLDER={folder}/$SLURMD_NODENAME CHECK="--impl ring-flags -b 4020 -e 4020 --budget 1s"
[ "$SLURMD_NODENAME" = n2 ] && export COLLBENCH_KERNELS={folder}/kernels
exec /bin/bash {script}
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With a prolog that checks nothing as long as there are no kernels beside it."""
    folder = tmp_path_factory.mktemp("cluster")
    script = DEPLOY / "slurm" / "prolog-epilog.sh"
    stand_in(folder, "prolog", PROLOG.format(bin=Path(COLLBENCH).parent, folder=folder, script=script))
    with cluster(folder / "slurm", folder / "prolog") as started:
        yield started


def test_srun_measures_mpi_between_nodes_by_a_pmi_and_without_one_meets_in_a_folder(
    slurm: Cluster, tmp_path: Path
) -> None:
    """What needs one memory is skipped with the reason; if all is, the status is 1."""
    for pmi, more in (("pmi2", ()), ("none", ("--rendezvous", "meet"))):
        words = ("srun", "-n2", "-N2", f"--mpi={pmi}", *SWEEP, "--impl", "mpi,ring-flags", *more)
        (tmp_path / pmi).mkdir()
        done = slurm.run(*words, cwd=tmp_path / pmi)
        run = read(tmp_path / pmi / "out")
        assert done.returncode == (pmi == "none"), done.stdout + done.stderr
        assert "on 2 nodes" in run.header.topology.name, pmi
        results = {result.implementation: result for result in run.results}
        library, ring = results["mpi"], results["ring-flags"]
        assert isinstance(ring, Skipped)
        if pmi == "none":
            assert isinstance(library, Skipped)
            assert "started without MPI" in library.reason
        else:
            assert isinstance(library, Measurement)
            assert library.right
            assert "is on another node" in ring.reason


def test_every_node_of_an_array_checks_itself_and_the_fleet_is_one_table(slurm: Cluster, tmp_path: Path) -> None:
    text = (DEPLOY / "slurm" / "fleet.sbatch").read_text()
    script = tmp_path / "fleet.sbatch"
    script.write_text(re.sub(r"^#SBATCH --gpus.*\n", "", text, flags=re.MULTILINE))  # of which nodes here have none
    given = {"PATH": f"{Path(COLLBENCH).parent}:{os.environ['PATH']}", "COLLBENCH_STATE": str(tmp_path / "state")}
    some = ("-b", "4K", "-e", "4K", "--budget", "1s")
    done = slurm.run("sbatch", "--wait", "--array=1-2", str(script), *some, cwd=tmp_path, **given)
    assert done.returncode in (0, 4), done.stderr  # nobody knows what to expect of a node that is new
    verdicts = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("fleet/*/check.json")}
    assert set(verdicts) == {"n1", "n2"}, done.stderr
    table = slurm.run(COLLBENCH, "runs", "--fleet", "fleet", cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert "2" in table.stdout


def test_the_prolog_drains_a_node_whose_results_are_wrong_with_the_reason_and_the_job_runs_elsewhere(
    slurm: Cluster,
) -> None:
    kernels = shutil.copytree(ROOT / "kernels", slurm.folder.parent / "kernels")
    text = (kernels / "ring.cu").read_text()
    assert "count - tail, world.ranks);" in text
    (kernels / "ring.cu").write_text(text.replace("count - tail, world.ranks);", "0, world.ranks);"))
    here = slurm.run("srun", "-w", "n1", "hostname")
    assert here.returncode == 0, here.stderr
    job = subprocess.Popen(("srun", "-w", "n2", "hostname"), env=slurm.environment({}), stderr=subprocess.DEVNULL)
    wait_for(lambda: slurm.says("n2", "%t") in ("drain", "drng", "drained"))
    job.terminate()
    job.wait(60)
    reason = slurm.says("n2", "%E")
    assert "WRONG: rank" in reason
    assert reason.startswith("collbench: allreduce")
    assert slurm.run("srun", "-n1", "hostname").returncode == 0, "the job goes to the node that is right"
