"""A real Slurm on this machine, with a controller and two nodes that are here both, for tests of what is started by it.

Debian's packages slurm-wlm and munge, and root.  PMI2 and no PMI work; PMIx does not where both nodes are one host.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2")
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo", "munged", "munge")
SECONDS = 250  # for a command; daemons start in one or two

_CONF = """
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
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=nohold_on_prolog_fail
ReturnToService=2
SwitchType=switch/none
MpiDefault=pmi2
MessageTimeout=100
BatchStartTimeout=100
KillWait=5
{more}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs."""

    folder: Path

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Carry a command of Slurm out, to its end."""
        return subprocess.run(
            words, cwd=cwd, env=self.environment(env), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a user of this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), **(more or {})}

    def state(self, node: str) -> str:
        """The state of a node, in short: idle, alloc, drain, ..."""
        return self.run("sinfo", "-h", "-n", node, "-o", "%t").stdout.strip().rstrip("*~#")

    def reason(self, node: str) -> str:
        """Why a node is drained."""
        return self.run("sinfo", "-h", "-n", node, "-o", "%E").stdout.strip()


def lacking() -> str:
    """The programs that this machine has not; empty where all are there."""
    return ", ".join(name for name in PROGRAMS if not shutil.which(name))


@contextmanager
def cluster(folder: Path, *settings: str) -> Iterator[Cluster]:
    """Start a Slurm in a new folder, with more lines of slurm.conf; it ends with the context."""
    (folder / "state").mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    conf = _CONF.format(host=host, folder=folder, ports=_free_ports(3), more="\n".join(settings))
    (folder / "slurm.conf").write_text(conf)
    slurm = Cluster(folder)
    with ExitStack() as stack:
        _authenticate(folder, stack)
        for daemon in (("slurmctld", "-D"), *(("slurmd", "-D", "-N", node) for node in NODES)):
            stack.callback(_end, subprocess.Popen(daemon, env=slurm.environment(), stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + 60
        while [slurm.state(node) for node in NODES] != ["idle", "idle"]:
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.2)
        yield slurm


def _authenticate(folder: Path, stack: ExitStack) -> None:
    """Start a munged of this cluster alone, by a key that it makes."""
    for name in (folder, *folder.parents):  # munged wants to be sure that nobody else can write there
        if name.stat().st_uid == 0 and name.stat().st_mode & 0o022 and not name.stat().st_mode & 0o1000:
            name.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    files = [f"--{name}={folder}/munge.{end}" for name, end in (("pid-file", "pid"), ("log-file", "log"))]
    files += [f"--key-file={key}", f"--seed-file={folder}/munge.seed", f"--socket={folder}/munge.socket"]
    stack.callback(_end, subprocess.Popen(["munged", "--foreground", "--force", *files], stderr=subprocess.DEVNULL))
    deadline = time.monotonic() + 30
    while not (folder / "munge.socket").exists():
        assert time.monotonic() < deadline, "munged does not start"
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
