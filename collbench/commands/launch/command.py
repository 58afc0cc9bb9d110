"""Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

For example:
  collbench launch --go -- sweep --op allreduce,broadcast -e 64M
  collbench launch --hosts node1,node2 --ranks-per-node 8 -- check
  collbench launch --launcher srun --hosts node1:8,node2:4
"""

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from typing import Any

import click

from collbench.cli.options import PATH, option
from collbench.errors import PlatformError, UsageError, unknown
from collbench.host.launcher import launched
from collbench.host.sanitize import read_lines
from collbench.platforms import find_platform, on_auto
from collbench.platforms.cpu.mpi_libraries import ALIASES, KINDS, MpiKind, find, own
from collbench.presence import found, shared
from collbench.runfile.schema import variables
from collbench.topology.discover_cpu import read_text
from collbench.units import counted

_OPTIONS = [
    click.Argument(["words"], nargs=-1, metavar="[-- COMMAND...]"),
    option("--hosts", "Hosts, with their numbers of ranks if these differ, or a FILE.", metavar="HOST[:N],...|FILE"),
    option("--nodes", "Only the first N hosts.", type=click.IntRange(1), metavar="N"),
    option("--hostfile", "A file with one host per line: `node slots=8` or `node:8`.", type=PATH, metavar="FILE"),
    option("--ranks-per-node", "Ranks per host; default: one per GPU.", type=click.IntRange(1), metavar="N"),
    option("--launcher", "Launcher of the ranks: srun, openmpi, torchrun, ...", default="auto", metavar="NAME"),
    option("--go", "Run the command.", is_flag=True),
]

_HOST = re.compile(  # a line of Hydra's or Open MPI's hostfile; no name begins like an option
    r"(\[[\w:.%]+\]|\w[\w.@-]*)(?::([1-9]\d{0,5}))?(?:\s+(?:slots\s*=\s*([1-9]\d{0,5})|[\w-]+\s*=\s*\w+))*", re.ASCII
)
_PASSED_ON = ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "PYTHONPATH")  # in addition to the variables in a run's header


@click.command("launch", params=_OPTIONS)
def command(words: tuple[str, ...], launcher: str, go: bool, **where: Any) -> None:
    """Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

    The ranks run the command after `--`, by default `sweep --op allreduce`.  The default hosts are those of the batch
    system (Slurm, PBS, LSF), or this machine.
    """
    if words and Path(words[0]).name == "collbench":
        words = words[1:]
    words = words or ("sweep", "--op", "allreduce")
    record = found(words[0])
    if not record or not record.together:
        raise UsageError(f"{words[0]!r} is no command for several processes; choose from: {', '.join(shared())}")
    program = [sys.executable, "-P", "-m", "collbench", *words]
    on = re.search(r"(?<= --on[= ])\S+", shlex.join(words))
    ranks_per_node, lines = where["ranks_per_node"], _lines(where["hosts"], where["hostfile"])
    job = job_of(program, on[0] if on else "auto", lines, ranks_per_node, os.environ)
    job = job.on_first(where["nodes"] or len(job.hosts))
    if lines and not on and not ranks_per_node and on_auto() == "cpu" and None in hosts_of(lines).values():
        click.echo("no GPU is visible here, so 2 ranks per host; --ranks-per-node 8 for nodes of 8 GPUs", err=True)
    usable, refused = commands(job, launcher)
    if not usable:
        raise UsageError(f"no launcher can be used: {'; '.join(f'{name}: {why}' for name, why in refused.items())}")
    name, made = next(iter(usable.items()))
    about = "binds no rank, since collbench does (--bind)" + "; run this on each host" * (name == "torchrun")
    click.echo(f"{name}: {about}", err=True)
    click.echo(shlex.join(made), err=go)
    if go:
        os.execvp(made[0], made)


def _lines(hosts: str | None, hostfile: Path | None) -> list[str] | None:
    if hosts and not hostfile and Path(hosts).is_file():
        hostfile, hosts = Path(hosts), None
    lines = None if hosts is None else hosts.split(",")
    if hostfile:
        lines = (lines or []) + [line.decode(errors="replace") for _, line in read_lines(hostfile, UsageError)]
    return lines


@dataclass(frozen=True)
class LaunchedJob:
    """The ranks to start: program, ranks by host, and environment."""

    program: tuple[str, ...]
    hosts: Mapping[str, int]  # ranks of each
    environment: Mapping[str, str]  # to find launchers, and to pass on

    @property
    def each(self) -> int:
        """Ranks per host; 0 if hosts differ."""
        first, *others = set(self.hosts.values())
        return 0 if others else first

    def on_first(self, nodes: int) -> "LaunchedJob":
        """Return the job on the first hosts; UsageError if there are fewer."""
        if nodes > len(self.hosts):
            known = f"--nodes {nodes} exceeds the {counted(len(self.hosts), 'host')} known here"
            raise UsageError(f"{known}; name {nodes} with --hosts or --hostfile, or allocate: salloc --nodes={nodes}")
        return replace(self, hosts=dict(islice(self.hosts.items(), nodes)))

    def without_mpi(self) -> list[str]:
        """Return the program for a launcher without MPI: ranks connect through torch, or a shared folder."""
        if "--rendezvous" in self.program or importlib.util.find_spec("torch"):
            return [*self.program]
        return [*self.program, "--rendezvous", "./"]


def _srun(job: LaunchedJob, program: str) -> list[str]:
    """Return Slurm's command, with a PMI that the ranks' MPI library knows."""
    listed = run((program, "--mpi=list"), stdout=PIPE, stderr=STDOUT, text=True, check=False)
    offered = re.findall(r"[\w-]+", listed.stdout)
    pmi = next((name for name in _usual(job.environment).slurm if name in offered), "none")
    words = [program, f"--nodes={len(job.hosts)}", f"--ntasks={sum(job.hosts.values())}"]
    if job.each:
        words.append(f"--ntasks-per-node={job.each}")
    if str(len(job.hosts)) != job.environment.get("SLURM_JOB_NUM_NODES"):
        words.append(f"--nodelist={','.join(job.hosts)}")
    words += [f"--mpi={pmi}", "--cpu-bind=none", "--export=ALL"]
    return [*words, *(job.without_mpi() if pmi == "none" else job.program)]


def _mpi(kind: MpiKind, job: LaunchedJob, program: str) -> list[str]:
    """Return the command of an MPI library's launcher; it names the variables to pass on, if needed."""
    flags, local = kind.flags, [*job.hosts] == ["localhost"]
    if not job.each and not flags.slots:
        raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
    words = [f"{name}={value}" for name, value in kind.environment.items() if name not in job.environment]
    # Open MPI refuses root unless two variables allow it, as in a container.
    words = ["env", *words, program] if words and os.geteuid() == 0 else [program]
    words += ["-n", str(sum(job.hosts.values()))]
    hosts = ",".join(f"{name}:{count}" if flags.slots else name for name, count in job.hosts.items())
    words += flags.here if local and flags.here else (flags.hosts, hosts)
    if job.each:
        words += flags.each.format(job.each).split()
    words += flags.fixed.split()
    if flags.variable and not local:
        for name in sorted(variables(job.environment, _PASSED_ON)):
            # The visible GPUs are a property of this host.
            if name != "CUDA_VISIBLE_DEVICES":
                words += [flags.variable, name]
    return [*words, *job.program]


def _torchrun(job: LaunchedJob, program: str) -> list[str]:
    """Return the command of PyTorch's launcher, to run on each host; hosts wait for each other at the first."""
    if not job.each:
        raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
    words = [program, "--nnodes", str(len(job.hosts)), "--nproc-per-node", str(job.each)]
    if len(job.hosts) == 1:
        words.append("--standalone")
    else:
        # By default at port 29400 of the first host.
        words += ["--rdzv-id", "collbench", "--rdzv-backend", "c10d", "--rdzv-endpoint", next(iter(job.hosts))]
    return [*words, "--no-python", *job.without_mpi()]


LAUNCHERS: dict[str, Callable[[LaunchedJob, str], list[str]]] = {
    "srun": _srun,
    **{key: partial(_mpi, kind) for key, kind in KINDS.items()},
    "torchrun": _torchrun,
}
"""Functions by launcher that return the command for a job and program; UsageError if it cannot start the job."""


def commands(job: LaunchedJob, word: str = "auto") -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the commands of the launchers that `--launcher` names, and the reasons of unusable ones, by launcher.

    `auto` names all launchers; the best one is first.
    """
    usual = _usual(job.environment).key
    names = [usual if word == "mpirun" else ALIASES.get(word, word)]
    if word == "auto":
        names = list(dict.fromkeys(("srun", usual, *LAUNCHERS)))
    made: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for name in names:
        if name not in LAUNCHERS:
            raise unknown("launcher", word, ("auto", "mpirun", *LAUNCHERS))
        try:
            made[name] = LAUNCHERS[name](job, _program(name, job.environment))
        except UsageError as reason:
            refused[name] = str(reason)
    return made, refused


def _usual(environment: Mapping[str, str]) -> MpiKind:
    """Return the MPI library of the ranks; without a launcher, the library with a variable for its folder."""
    with suppress(PlatformError):
        return own(environment).kind
    return next((kind for kind in KINDS.values() if any(map(environment.get, kind.roots))), KINDS["mpich"])


def _program(name: str, environment: Mapping[str, str]) -> str:
    if name in KINDS:
        return str(find(name, environment).launcher)
    if name == "srun" and not environment.get("SLURM_JOB_ID"):
        raise UsageError("no allocation of Slurm (SLURM_JOB_ID is not set); fix: salloc or sbatch")
    path = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    if program := shutil.which(name, path=path):
        return program
    raise UsageError(f"no {name} next to this Python or on the PATH")


def hosts_of(lines: Iterable[str]) -> dict[str, int | None]:
    """Return ranks by host from lines like `node slots=8`, `node:8`, or a repeated `node`; None if not given."""
    hosts: dict[str, int | None] = {}
    unless_given: int | None = None  # 1 in a file with a line for each rank
    for text in filter(None, (line.partition("#")[0].strip() for line in lines)):
        match = _HOST.fullmatch(text)
        if not match:
            fix = "write node, node:8 or node slots=8; `scontrol show hostnames` lists node[1-4]"
            raise UsageError(f"{text!r} is no host; {fix}")
        name, count = match[1], int(match[2] or match[3] or 0) or None
        if name in hosts:
            unless_given = unless_given if count else 1
            count = (hosts[name] or 1) + (count or 1)
        hosts[name] = count
    return {name: count or unless_given for name, count in hosts.items()}


def job_of(
    program: Sequence[str], on: str, hosts: Iterable[str] | None, per_node: int | None, environment: Mapping[str, str]
) -> LaunchedJob:
    """Return the job that starts a program's ranks on hosts.

    Hosts: the given lines, else the batch system's, else this machine.  Ranks per host: `per_node`, else the line's
    number, else one for each GPU visible here (two on a CPU).
    """
    if launched(environment):
        raise UsageError("a launcher (mpirun, srun) already started this; fix: leave `launch` out under a launcher")
    name = on_auto() if on == "auto" else on
    kind = find_platform(name)
    counts = _batch(environment) if hosts is None else hosts_of(hosts)
    if not counts:
        raise UsageError("there is no host in --hosts or --hostfile; write node, node:8 or node slots=8")
    # A batch system counts cores, not GPUs.
    if per_node or (hosts is None and name != "cpu"):
        counts = dict.fromkeys(counts, per_node)
    usual = 0
    if None in counts.values():
        if not kind.available():
            raise UsageError(f"no {name.upper()} is visible here to count ranks by; fix: --ranks-per-node N")
        usual = kind.default_ranks()
        # On one host two ranks may share a GPU, since one has no peer; on several hosts each GPU has one rank.
        if len(counts) > 1:
            usual = len(kind.discover(None)[0].gpus) or usual
    return LaunchedJob(tuple(program), {host: count or usual for host, count in counts.items()}, environment)


def _batch(environment: Mapping[str, str]) -> dict[str, int | None]:
    """Return the slots (mostly cores) of the batch system's hosts, else this machine."""
    if nodes := environment.get("SLURM_JOB_NODELIST"):
        program = _program("scontrol", environment)
        names = run((program, "show", "hostnames", nodes), stdout=PIPE, text=True, check=False).stdout.split()
        counts: list[int] = []
        # For example 4(x2),3 for three nodes.
        tasks = environment.get("SLURM_TASKS_PER_NODE", f"1(x{len(names)})")
        for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):
            counts += [int(count)] * int(times or 1)
        return dict(zip(names, counts, strict=False))
    hosts = environment.get("LSB_HOSTS", "")
    if file := environment.get("PBS_NODEFILE") or environment.get("LSB_DJOB_HOSTFILE"):
        hosts = read_text(Path(file))
    return hosts_of(hosts.split() or ["localhost"])
