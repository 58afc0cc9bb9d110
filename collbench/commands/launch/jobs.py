"""The command line that starts ranks: which hosts there are, and what each launcher needs to know.

A launcher is a function in `LAUNCHERS`; of an MPI library it follows the library's record in
collbench/platforms/cpu/mpi_libraries.py.  None binds ranks: collbench does that itself, near their GPUs or to cores.
"""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT, run

from collbench.errors import PlatformError, UsageError, unknown
from collbench.host.launcher import launched
from collbench.platforms import find_platform, on_auto
from collbench.platforms.cpu.mpi_libraries import ALIASES, KINDS, MpiKind, find, own
from collbench.runfile.environment import variables
from collbench.topology.discover_cpu import read_text

_HOST = re.compile(  # a line in Hydra's words or in Open MPI's; no name begins as an option of a launcher does
    r"(\[[\w:.%]+\]|\w[\w.@-]*)(?::([1-9]\d{0,5}))?(?:\s+(?:slots\s*=\s*([1-9]\d{0,5})|[\w-]+\s*=\s*\w+))*", re.ASCII
)
_PASSED_ON = ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "PYTHONPATH")  # besides the variables that a run's header names


@dataclass(frozen=True)
class Job:
    """The ranks to start: their program, and how many on which host."""

    program: tuple[str, ...]
    hosts: Mapping[str, int]  # ranks of each
    environment: Mapping[str, str]  # where launchers are looked for, and what they pass on

    @property
    def each(self) -> int:
        """Ranks of every host; 0 where hosts differ."""
        return next(iter(self.hosts.values())) if len(set(self.hosts.values())) == 1 else 0

    def without_mpi(self) -> list[str]:
        """Return the program where the launcher brings no MPI: ranks meet by torch, or in a folder that all see."""
        met = "--rendezvous" in self.program or importlib.util.find_spec("torch")
        return [*self.program] if met else [*self.program, "--rendezvous", "./"]


def _srun(job: Job, program: str) -> list[str]:
    """Ranks by Slurm; they find each other by the PMI that their MPI library knows."""
    listed = run((program, "--mpi=list"), stdout=PIPE, stderr=STDOUT, text=True, check=False)
    known = re.findall(r"[\w-]+", listed.stdout)
    pmi = next((name for name in _usual(job.environment).slurm if name in known), "none")
    words = [program, f"--nodes={len(job.hosts)}", f"--ntasks={sum(job.hosts.values())}"]
    words += [f"--ntasks-per-node={job.each}"] if job.each else []
    if str(len(job.hosts)) != job.environment.get("SLURM_JOB_NUM_NODES"):
        words += [f"--nodelist={','.join(job.hosts)}"]
    words += [f"--mpi={pmi}", "--cpu-bind=none", "--export=ALL"]
    return words + (job.without_mpi() if pmi == "none" else [*job.program])


def _mpi(kind: MpiKind, job: Job, program: str) -> list[str]:
    """Ranks by the launcher of an MPI library, with the variables that matter where it passes on none by itself."""
    flags, local = kind.flags, [*job.hosts] == ["localhost"]
    if not job.each and not flags.slots:
        raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
    words = [f"{name}={value}" for name, value in kind.environment.items() if name not in job.environment]
    words = ["env", *words, program] if words and os.geteuid() == 0 else [program]
    hosts = ",".join(f"{name}:{count}" if flags.slots else name for name, count in job.hosts.items())
    words += ["-n", str(sum(job.hosts.values())), *(flags.here if local and flags.here else (flags.hosts, hosts))]
    words += [*(flags.each.format(job.each).split() if job.each else ()), *flags.fixed.split()]
    if flags.variable and not local:
        names = variables(job.environment, _PASSED_ON).keys() - {"CUDA_VISIBLE_DEVICES"}  # which is this host's alone
        words += [word for name in sorted(names) for word in (flags.variable, name)]
    return [*words, *job.program]


def _torchrun(job: Job, program: str) -> list[str]:
    """Ranks by PyTorch's launcher: a command to be given on each host, which wait for each other at the first."""
    if not job.each:
        raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
    words = [program, "--nnodes", str(len(job.hosts)), "--nproc-per-node", str(job.each)]
    meeting = f"--rdzv-id collbench --rdzv-backend c10d --rdzv-endpoint {next(iter(job.hosts))}".split()  # port 29400
    return [*words, *(meeting if len(job.hosts) > 1 else ["--standalone"]), "--no-python", *job.without_mpi()]


LAUNCHERS: dict[str, Callable[[Job, str], list[str]]] = {
    "srun": _srun,
    **{key: partial(_mpi, kind) for key, kind in KINDS.items()},
    "torchrun": _torchrun,
}
"""By name, what makes the command of a job and the launcher's program; UsageError where it cannot start such a job."""


def commands(job: Job, word: str = "auto") -> dict[str, list[str] | str]:
    """Return the command of each launcher that `--launcher` means (`auto`: all, best first), or why there is none."""
    usual = _usual(job.environment).key
    name = usual if word == "mpirun" else ALIASES.get(word, word)
    if name not in ("auto", *LAUNCHERS):
        raise unknown("launcher", word, ("auto", "mpirun", *LAUNCHERS))
    made: dict[str, list[str] | str] = {}
    for key in dict.fromkeys(("srun", usual, *LAUNCHERS)) if name == "auto" else (name,):
        try:
            made[key] = LAUNCHERS[key](job, _program(key, job.environment))
        except UsageError as reason:
            made[key] = str(reason)
    return made


def _usual(environment: Mapping[str, str]) -> MpiKind:
    """Return the MPI library that ranks load; where no launcher is here, the library whose folder is named."""
    with suppress(PlatformError):
        return own(environment).kind
    return next((kind for kind in KINDS.values() if any(map(environment.get, kind.roots))), KINDS["mpich"])


def _program(name: str, environment: Mapping[str, str]) -> str:
    """Return the program of a launcher; UsageError where it is not here, or cannot be used."""
    if name in KINDS:
        return str(find(name, environment).launcher)
    if name == "srun" and not environment.get("SLURM_JOB_ID"):
        raise UsageError("no allocation of Slurm (SLURM_JOB_ID is not set); fix: salloc or sbatch")
    path = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    if program := shutil.which(name, path=path):
        return program
    raise UsageError(f"no {name} next to this Python or on the PATH")


def hosts_of(lines: Iterable[str]) -> dict[str, int | None]:
    """Return ranks by host: `node slots=8` and `node:8` say them, and so does a node that is written several times."""
    hosts: dict[str, int | None] = {}
    for text in filter(None, (line.partition("#")[0].strip() for line in lines)):
        if not (match := _HOST.fullmatch(text)):
            fix = "write node, node:8 or node slots=8; `scontrol show hostnames` lists node[1-4]"
            raise UsageError(f"{text!r} is no host; {fix}")
        name, count = match[1], int(match[2] or match[3] or 0) or None
        hosts[name] = (hosts[name] or 1) + (count or 1) if name in hosts else count
    return hosts


def job_of(
    program: Sequence[str], on: str, hosts: Iterable[str] | None, per_node: int | None, environment: Mapping[str, str]
) -> Job:
    """Return the job that starts ranks on a platform of these hosts (lines), else of the batch system's, else here.

    Ranks of a host are `per_node`, else what its line says, else one for each GPU seen here, on a CPU two.
    """
    if launched(environment):
        raise UsageError("a launcher (mpirun, srun) started this already; fix: collbench without `launch` under it")
    name = on_auto() if on == "auto" else on
    kind, places = find_platform(name), _batch(environment) if hosts is None else hosts_of(hosts)
    if not places:
        raise UsageError("there is no host in --hosts or --hostfile; write node, node:8 or node slots=8")
    if per_node or (hosts is None and name != "cpu"):
        places = dict.fromkeys(places, per_node)
    if None in places.values() and not kind.available():
        raise UsageError(f"no {name.upper()} is seen here, so how many ranks is not known; fix: --ranks-per-node N")
    # A rank alone has no peer, so on one host two may share a GPU.
    gpus = len(kind.discover(None)[0].gpus) if None in places.values() and len(places) > 1 else 0
    ranks = {place: count or gpus or kind.default_ranks() for place, count in places.items()}
    return Job(tuple(program), ranks, environment)


def _batch(environment: Mapping[str, str]) -> dict[str, int | None]:
    """Return the slots (cores mostly) of the batch system's hosts, else this machine."""
    if nodes := environment.get("SLURM_JOB_NODELIST"):
        program = _program("scontrol", environment)
        names = run((program, "show", "hostnames", nodes), stdout=PIPE, text=True, check=False).stdout.split()
        tasks = re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_TASKS_PER_NODE", f"1(x{len(names)})"))
        counts = [int(count) for count, times in tasks for _ in range(int(times or 1))]  # of 4(x2),3
        return dict(zip(names, counts, strict=False))
    file = environment.get("PBS_NODEFILE") or environment.get("LSB_DJOB_HOSTFILE")
    lines = read_text(Path(file)).split() if file else environment.get("LSB_HOSTS", "").split()
    return hosts_of(lines or ["localhost"])
