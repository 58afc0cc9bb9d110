"""A real Slurm on this machine, with a controller and two nodes that are here both, for tests of what is started by it.

Debian's packages slurm-wlm and munge, and root.  PMI2 and no PMI work; PMIx does not where both nodes are one host.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.programs import program, run

NODES = ("n1", "n2")
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

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Carry a command of Slurm out, to its end."""
        return run(*words, cwd=cwd, env=self.environment(variables))

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment of a user of this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), **more}

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
    conf = _CONF.format(host=host, folder=folder, ports=_free_ports(3), prolog=prolog)
    (folder / "slurm.conf").write_text(conf)
    slurm = Cluster(folder)
    with ExitStack() as stack:
        _start(stack, "munged", "--foreground", "--force", *_authentication(folder))
        wait_for((folder / "munge.socket").exists)
        environment = slurm.environment({})
        for daemon in (("slurmctld", "-D"), *(("slurmd", "-D", "-N", node) for node in NODES)):
            _start(stack, *daemon, env=environment)
        wait_for(lambda: [slurm.says(node, "%t") for node in NODES] == ["idle", "idle"])
        yield slurm


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _authentication(folder: Path) -> list[str]:
    """Options of a munged of this cluster alone, with a key that is made here."""
    for name in (folder, *folder.parents):  # munged wants to be sure that nobody else can write there
        if name.stat().st_uid == 0 and name.stat().st_mode & 0o022 and not name.stat().st_mode & 0o1000:
            name.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    files = {"pid-file": "pid", "log-file": "log", "key-file": "key", "seed-file": "seed", "socket": "socket"}
    return [f"--{name}={folder}/munge.{end}" for name, end in files.items()]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _start(stack: ExitStack, *words: str, env: Mapping[str, str] | None = None) -> None:
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
