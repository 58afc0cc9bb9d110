"""The command line that starts ranks: which hosts there are, and what each launcher is told.

Launchers are records (`LAUNCHERS`): how each is recognised here, and how its command is made of the ranks' places.
Those of MPI libraries are the libraries' records, in collbench/platforms/cpu/mpi_libraries.py.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from collbench.errors import PlatformError, UsageError, unknown
from collbench.host.launcher import launched
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.cpu.mpi_libraries import ALIASES, KINDS, Flags, Kind, nearest, own
from collbench.runfile.environment import variables
from collbench.topology.discover_cpu import cpu_list, read_text
from collbench.topology.discovered import Gpu

HERE = "localhost"
_HOST = re.compile(r"(\[[\w:.%]+\]|\w[\w.@-]*)(?::(\d{1,6}))?((?:\s+[\w-]+\s*=\s*\w+)*)", re.ASCII)
_SLOTS = re.compile(r"\sslots\s*=\s*(\d{1,6})\b")
"""A line of a file of hosts, in Hydra's words or in Open MPI's; no name begins as an option of a launcher does."""
_SRUN = Flags(even="--cpu-bind=none", near="--cpu-bind=map_ldom:{numas}", uneven="--cpu-bind=none")
_PORT = 29400  # torchrun's choice where none is given
_PASSED_ON = ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "PYTHONPATH")  # beside the variables that a run's header names


@dataclass(frozen=True)
class Job:
    """The ranks to start: their program, and how many on which host."""

    program: tuple[str, ...]
    counts: tuple[int, ...]  # ranks of each host
    names: tuple[str, ...]  # of the hosts; none where only the batch system knows them
    environment: Mapping[str, str]  # where launchers are looked for, and what they pass on
    numas: tuple[int, ...] = ()  # by rank of a host, the NUMA node near its GPU; none where that is not known

    @property
    def each(self) -> int:
        """Ranks of every host; 0 where hosts differ."""
        return self.counts[0] if len(set(self.counts)) == 1 else 0

    def without_mpi(self) -> "Job":
        """Return the job where the launcher brings no MPI: its ranks meet by torch, or in a folder that all see."""
        met = "--rendezvous" in self.program or importlib.util.find_spec("torch")
        return self if met else replace(self, program=(*self.program, "--rendezvous", "./"))

    def placed(self, flags: Flags) -> tuple[list[str], str]:
        """Return the words that say how many ranks go where, and which cores they may use; and that in words."""
        if not self.each:
            if not flags.uneven:
                raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
            return flags.uneven.split(), "hosts with different numbers of ranks"
        shares = set(Counter(self.numas).values())
        in_order = self.numas == tuple(sorted(self.numas)) and set(self.numas) == set(range(len(set(self.numas))))
        cpus = [read_text(Path(f"/sys/devices/system/node/node{numa}/cpulist")) for numa in self.numas]
        known = {
            "numas": ",".join(map(str, self.numas)),
            "lists": ":".join(cpus) if all(cpus) else "",
            "cores": ",".join("+".join(map(str, cpu_list(text))) for text in cpus) if all(cpus) else "",
            "share": str(shares.pop()) if len(shares) == 1 and in_order else "",
            "each": str(self.each),
        }
        near = flags.near and self.numas and all(known[name] for name in re.findall(r"\{(\w+)\}", flags.near))
        words = (flags.near if near else flags.even).format_map(known).split()
        return words, "each rank near its GPU" if near else "ranks not bound"


class Made(NamedTuple):
    """A command, and a line on why it is so; no words, and why not, where there can be none."""

    words: list[str]
    why: str


@dataclass(frozen=True)
class Launcher:
    """A way to start ranks."""

    name: str
    find: Callable[[Mapping[str, str]], str]  # the program; UsageError says why it cannot be used here
    make: Callable[[Job, str], Made]  # UsageError where it cannot start such a job


def _find_srun(environment: Mapping[str, str]) -> str:
    program = shutil.which("srun", path=environment.get("PATH"))
    if not program:
        raise UsageError("no srun on the PATH")
    if not environment.get("SLURM_JOB_ID"):
        raise UsageError("no allocation of Slurm (SLURM_JOB_ID is not set); fix: salloc or sbatch")
    return program


def _srun(job: Job, program: str) -> Made:
    """Ranks by Slurm, which knows the hosts; they find each other by the PMI that their MPI library knows."""
    done = subprocess.run([program, "--mpi=list"], capture_output=True, text=True, errors="replace", check=False)
    known = re.findall(r"[\w-]+", done.stdout + done.stderr)
    library = _usual(job.environment)
    pmi = next((name for name in library.slurm if name in known), "none")
    placed, where = job.placed(_SRUN)
    counts = [f"--nodes={len(job.counts)}", f"--ntasks={sum(job.counts)}"]
    counts += [f"--ntasks-per-node={job.each}"] if job.each else []
    counts += [f"--nodelist={','.join(job.names)}"] if job.names and job.names != (HERE,) else []
    counts += [f"--gpus-per-node={gpus}"] if (gpus := job.environment.get("SLURM_GPUS_ON_NODE")) else []
    words = [program, *counts, f"--mpi={pmi}", *placed, "--export=ALL"]
    meets = f"{pmi} is what {library.name} knows" if pmi != "none" else f"no PMI of {library.name} is in --mpi=list"
    return Made([*words, *(job if pmi != "none" else job.without_mpi()).program], f"{meets}, {where}")


def _usual(environment: Mapping[str, str]) -> Kind:
    """Return the MPI library that ranks load; where no launcher is here, the library whose folder is named."""
    try:
        return own(environment).kind
    except PlatformError:
        return next((kind for kind in KINDS.values() if any(map(environment.get, kind.roots))), KINDS["mpich"])


def _find_mpi(kind: Kind, environment: Mapping[str, str]) -> str:
    if library := nearest(kind, environment):
        return str(library.launcher)
    raise UsageError(f"no {kind.name} {', '.join(('beside this Python', 'on the PATH', *kind.roots))}")


def _mpi(kind: Kind, job: Job, program: str) -> Made:
    """Ranks by the launcher of an MPI library, with the variables that matter where it passes on none by itself."""
    flags, local = kind.flags, job.names == (HERE,)
    words = [f"{name}={value}" for name, value in kind.environment.items() if name not in job.environment]
    words = ["env", *words, program] if words and os.geteuid() == 0 else [program]
    words += ["-n", str(sum(job.counts))]
    if local and flags.here:
        words += flags.here
    elif job.names:
        pairs = zip(job.names, job.counts, strict=True)
        words += [flags.hosts, ",".join(f"{name}:{count}" if flags.slots else name for name, count in pairs)]
    placed, where = job.placed(flags)
    words += [*placed, *flags.everything.split()]
    if flags.variable and not local:
        names = variables(job.environment, _PASSED_ON).keys() - {"CUDA_VISIBLE_DEVICES"}  # which is this host's alone
        words += [word for name in sorted(names) for word in (flags.variable, name)]
    return Made([*words, *job.program], f"the launcher of {kind.name}, {where}")


def _find_torchrun(environment: Mapping[str, str]) -> str:
    beside = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    program = shutil.which("torchrun", path=beside)
    if not program:
        raise UsageError("no torch here: no torchrun beside this Python or on the PATH; fix: pip install torch")
    return program


def _torchrun(job: Job, program: str) -> Made:
    """Ranks by PyTorch's launcher: a command for each host, which wait for each other at the first."""
    if not job.each:
        raise UsageError("it starts as many ranks on every host; fix: --ranks-per-node N")
    words = [program, "--nnodes", str(len(job.counts)), "--nproc-per-node", str(job.each)]
    why = "ranks not bound, which meet without MPI"
    if len(job.counts) == 1:
        words += ["--standalone"]
    elif not job.names:
        raise UsageError("only Slurm knows the names of its hosts; fix: --hosts, or srun")
    else:
        words += ["--rdzv-id", "collbench", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{job.names[0]}:{_PORT}"]
        why += f"; to be given on each of {', '.join(job.names)}"
    return Made([*words, "--no-python", *job.without_mpi().program], why)


LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher("srun", _find_srun, _srun),
        *(Launcher(kind.key, partial(_find_mpi, kind), partial(_mpi, kind)) for kind in KINDS.values()),
        Launcher("torchrun", _find_torchrun, _torchrun),
    )
}
"""By name; without a choice the first that can be used, and of MPI libraries the one that ranks load by themselves."""


def commands(job: Job, names: Iterable[str]) -> dict[str, Made]:
    """Return by launcher what it makes of the job, or why it cannot be used."""
    made = {}
    for name in names:
        try:
            made[name] = LAUNCHERS[name].make(job, LAUNCHERS[name].find(job.environment))
        except UsageError as reason:
            made[name] = Made([], str(reason))
    return made


def choices(word: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the launchers that a word of `--launcher` means; of `auto` all, the preferred first."""
    usual = _usual(environment).key
    word = {"mpirun": usual, "mpiexec": usual, "pals": "cray"}.get(word, ALIASES.get(word, word))
    if word == "auto":
        return list(dict.fromkeys(("srun", usual, *LAUNCHERS)))
    if word not in LAUNCHERS:
        raise unknown("launcher", word, ("auto", "mpirun", *LAUNCHERS))
    return [word]


def hosts_of(lines: Iterable[str]) -> dict[str, int | None]:
    """Return ranks by host: `node slots=8` and `node:8` say them, and so does a node that is written several times."""
    hosts: dict[str, int | None] = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        match = _HOST.fullmatch(text)
        if text and not match:
            raise UsageError(f"{text!r} is no host; write node, node:8 or node slots=8")
        if match:
            slots = _SLOTS.search(match[3])
            name, count = match[1], match[2] or (slots and slots[1])
            again = name in hosts
            hosts[name] = (hosts[name] or 1) + int(count or 1) if again else int(count) if count else None
    return hosts


def job_of(
    program: Sequence[str],
    on: str = "auto",
    hosts: Iterable[str] | None = None,
    per_node: int | None = None,
    ranks: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Job:
    """Return the job that starts ranks on a platform of these hosts (lines), else of the batch system's, else here.

    Ranks of a host are `per_node`, else what its line says, else one for each GPU seen here, on a CPU two; `ranks` are
    those of all hosts together.
    """
    if launched(environment):
        raise UsageError("a launcher (mpirun, srun) started this already; fix: collbench without `launch` under it")
    name = on_auto() if on == "auto" else on
    if name not in platforms():
        raise UsageError(f"nothing runs on {on}, so there are no ranks to start; choose from: {', '.join(platforms())}")
    kind, places = find_platform(name), hosts_of(hosts or ())
    if hosts is not None and not places:
        raise UsageError("there is no host in --hosts or --hostfile; write node, node:8 or node slots=8")
    names, said = (tuple(places), list(places.values())) if places else _batch(environment, name, on)
    gpus: Sequence[Gpu] = ()
    if not kind.process_per_rank:
        with suppress(PlatformError):  # none here, or a driver that does not tell where they are
            gpus = kind.discover(None)[0].gpus
    if not per_node and not ranks and None in said and not kind.available():
        raise UsageError(f"no {name.upper()} is seen here, so how many ranks is not known; fix: --ranks-per-node N")
    # A rank alone has no peer, so on one host two may share a GPU.
    usual = per_node or (len(gpus) if len(said) > 1 and gpus else kind.default_ranks())
    counts = [usual if per_node or count is None else count for count in said]
    if ranks:
        counts = [(ranks + place) // len(said) for place in reversed(range(len(said)))]
    if not all(counts):
        raise UsageError(f"some hosts have no rank; fix: --ranks {len(said)} or more, or leave these hosts out")
    numas = tuple(gpu.numa for gpu in gpus if gpu.numa is not None)
    known = len(numas) == len(gpus) and set(counts) == {len(gpus)}
    return Job(tuple(program), tuple(counts), names, environment, numas if known else ())


def _batch(environment: Mapping[str, str], name: str, on: str) -> tuple[tuple[str, ...], list[int | None]]:
    """Return the hosts of the batch system, without names where it is Slurm, and the ranks that each is to have.

    Slots are cores mostly, so on GPUs they say nothing.
    """
    if environment.get("SLURM_JOB_ID"):
        gpus = environment.get("SLURM_GPUS_ON_NODE") if on != "cpu" else None
        tasks = re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_TASKS_PER_NODE", "1"))  # 4(x2),3
        counts = [int(gpus or count) for count, times in tasks for _ in range(int(times or 1))]
        return (), [count if gpus or name == "cpu" else None for count in counts]
    file = environment.get("PBS_NODEFILE") or environment.get("LSB_DJOB_HOSTFILE")
    lines = read_text(Path(file)).split() if file else environment.get("LSB_HOSTS", "").split()
    places = hosts_of(lines) or {HERE: None}
    return tuple(places), [count if name == "cpu" else None for count in places.values()]
