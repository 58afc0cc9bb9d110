"""What deploy/slurm starts, on a real Slurm of two nodes: sweeps by srun, an array of checks, a prolog that drains.

Its controller and both nodes are on this machine, by Debian's packages slurm-wlm and munge, and for root.  PMI2 and no
PMI work; PMIx does not where both nodes are one host.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from collbench.results import Measurement, Skipped
from collbench.runfile.store import read
from tests.conftest import ROOT
from tests.deploy.programs import DEPLOY, program, run, stand_in

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

COLLBENCH = str(Path(sys.executable).with_name("collbench"))
SWEEP = (COLLBENCH, "sweep", "--on", "cpu", "-b", "64", "-e", "64", "-n", "3", "--no-plot", "--out", "out")
PROLOG = """
[ -e {folder}/kernels ] || exit 0
export COLLBENCH_BIN={bin} FOLDER={folder}/$SLURMD_NODENAME
export CHECK="--impl ring-flags -b 4020 -e 4020 --budget 10s --reference {folder}/floors.toml"
[ "$SLURMD_NODENAME" = n2 ] && export COLLBENCH_KERNELS={folder}/kernels
exec /bin/bash {script}
"""
NODES = ("n1", "n2")
SECONDS = 250  # for a command; daemons start in one or two

CONF = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=nohold_on_prolog_fail
ReturnToService=2
MpiDefault=pmi2
MessageTimeout=100
BatchStartTimeout=100
KillWait=5
Prolog={prolog}
PrologFlags=Alloc
PrologEpilogTimeout=120
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(*words, cwd=cwd, env=self.environment | variables)

    def says(self, node: str, what: str) -> str:
        """The state of a node (`%t`: idle, alloc, drain, ...), or the reason why it is drained (`%E`)."""
        return self.run("sinfo", "-h", "-n", node, "-o", what).stdout.strip().rstrip("*~#")


@contextmanager
def cluster(folder: Path, prolog: Path) -> Iterator[Cluster]:
    """Start a Slurm in a new folder; it ends with the context."""
    for name in ("slurmctld", "slurmd", "srun", "sbatch", "munged"):
        program(name)
    (folder / "state").mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    conf = CONF.format(host=host, folder=folder, ports=free_ports(3), prolog=prolog)
    (folder / "slurm.conf").write_text(conf)
    slurm = Cluster(folder)
    with ExitStack() as stack:
        start(stack, "munged", "--foreground", "--force", *authentication(folder))
        wait_for((folder / "munge.socket").exists)
        for daemon in (("slurmctld", "-D"), *(("slurmd", "-D", "-N", node) for node in NODES)):
            start(stack, *daemon, env=slurm.environment)
        wait_for(lambda: [slurm.says(node, "%t") for node in NODES] == ["idle", "idle"])
        yield slurm


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def authentication(folder: Path) -> list[str]:
    """Options of a munged of this cluster alone, with a key that is made here."""
    for name in (folder, *folder.parents):  # munged wants to be sure that nobody else can write there
        if name.stat().st_uid == 0 and name.stat().st_mode & 0o022 and not name.stat().st_mode & 0o1000:
            name.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    files = {"pid-file": "pid", "log-file": "log", "key-file": "key", "seed-file": "seed", "socket": "socket"}
    return [f"--{name}={folder}/munge.{end}" for name, end in files.items()]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def start(stack: ExitStack, *words: str, env: Mapping[str, str] | None = None) -> None:
    """Start a daemon that ends with the context, if need be by force."""
    process = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With a prolog that checks nothing as long as there are no kernels beside it."""
    folder = tmp_path_factory.mktemp("cluster")
    script = DEPLOY / "slurm" / "prolog-epilog.sh"
    # How fast two cores of a virtual machine reach each other is not what is tried.
    floor = '[[floor]]\ncollective = "allreduce"\nsize = 4020\nvalue = 1.0\nunit = "s"\n'
    (folder / "floors.toml").write_text(floor)
    stand_in(folder, "prolog", PROLOG.format(bin=Path(COLLBENCH).parent, folder=folder, script=script))
    with cluster(folder / "slurm", folder / "prolog") as started:
        yield started


def test_srun_measures_mpi_between_nodes_by_a_pmi_and_without_one_meets_in_a_folder(
    slurm: Cluster, tmp_path: Path
) -> None:
    for pmi, more in (("pmi2", ()), ("none", ("--rendezvous", "meet"))):
        words = ("srun", "-n2", "-N2", f"--mpi={pmi}", *SWEEP, "--impl", "mpi,ring-flags", *more)
        (tmp_path / pmi).mkdir()
        done = slurm.run(*words, cwd=tmp_path / pmi)
        made = read(tmp_path / pmi / "out")
        assert done.returncode == (pmi == "none"), done.stdout + done.stderr
        assert "on 2 nodes" in made.header.topology.name, pmi
        results = {result.implementation: result for result in made.results}
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
    table = slurm.run(COLLBENCH, "check", "--fleet", "fleet", cwd=tmp_path)
    assert table.returncode in (0, 4), table.stderr
    assert "2 nodes: " in table.stdout


def test_the_prolog_drains_a_node_whose_results_are_wrong_with_the_reason_and_the_job_runs_elsewhere(
    slurm: Cluster,
) -> None:
    kernels = shutil.copytree(ROOT / "kernels", slurm.folder.parent / "kernels")
    text = (kernels / "ring.cu").read_text()
    assert "count - tail, world.ranks);" in text
    (kernels / "ring.cu").write_text(text.replace("count - tail, world.ranks);", "0, world.ranks);"))
    here = slurm.run("srun", "-w", "n1", "hostname")
    assert here.returncode == 0, here.stderr
    job = subprocess.Popen(("srun", "-w", "n2", "hostname"), env=slurm.environment, stderr=subprocess.DEVNULL)
    wait_for(lambda: slurm.says("n2", "%t") in ("drain", "drng", "drained"))
    job.terminate()
    job.wait(60)
    reason = slurm.says("n2", "%E")
    assert "WRONG: rank" in reason
    assert reason.startswith("collbench: WRONG allreduce")
    assert slurm.run("srun", "-n1", "hostname").returncode == 0, "the job goes to the node that is right"
