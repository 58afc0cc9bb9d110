"""Environment variables of an outside launcher (mpirun, srun, torchrun, Kubernetes)."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class _Launcher(NamedTuple):
    """The variables by which a launcher identifies a process."""

    size: str
    rank: str
    neighbours: str  # the number of processes on this machine
    marks: tuple[str, ...] = ()  # one of these is set if the launcher started this process
    mpi: tuple[str, ...] = ()  # one of these is set if MPI can start


_PMI = ("PMI_RANK", "PMI_ID", "PMI_PORT", "PMIX_RANK")
_OMPI = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_MV2 = ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE")
_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE")
_LAUNCHERS = (
    # First, since srun often starts a torchrun on each node.
    _Launcher(*_TORCHRUN, marks=("TORCHELASTIC_RUN_ID",)),
    _Launcher(*_OMPI, mpi=_OMPI[:1]),
    _Launcher("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", mpi=_PMI),
    _Launcher(*_MV2, mpi=_MV2[:1]),
    # Variables of a step: SLURM_NTASKS also counts processes that were not started.
    _Launcher("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", mpi=_PMI),
    _Launcher(*_TORCHRUN),
    _Launcher("WORLD_SIZE", "JOB_COMPLETION_INDEX", "LOCAL_WORLD_SIZE"),  # a pod of an indexed Job of Kubernetes
)
_OF_A_START = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")
_FIX = "unset it, or leave it to a launcher (mpirun, srun, torchrun)"
RENDEZVOUS = "COLLBENCH_RENDEZVOUS"
"""The variable that names the rendezvous folder of processes without MPI; `--rendezvous` sets it."""
_NAMES = re.compile(
    r"(PMI2?|PMIX|OMPI|PRTE|PALS|HYDI|HYDRA|MPIEXEC|SLURMD?|LSB|LOADL)_(?!MCA_)|(OMPI_MCA_(orte|ess)|MV2_COMM_WORLD|MPI_LOCAL)"
    r"|(PBS_NODEFILE|COBALT_NODEFILE|PE_HOSTFILE)$"
)
"""Prefixes of launchers' and batch systems' variables; MCA variables are the user's Open MPI settings."""


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return rank and number of processes if an outside launcher started several, else None.

    With nested launchers, the first in the table that started several processes counts.
    """
    # A single process is not launched: a shell from `srun --pty bash` has all variables of a step, and `mpirun -n 1
    # collbench` equals `collbench`.
    return next(((rank, count) for rank, count, _ in _launchers(environment)), None)


def neighbours(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes on this machine; all of the launcher's if it does not say."""
    for _, _, launcher in _launchers(environment):
        if local := re.findall(r"(?:^|,)(\d+)", environment.get(launcher.neighbours, "")):  # Slurm's: 4(x2),3
            return max(map(int, local))
    _, everywhere = launched(environment) or (0, 1)
    return everywhere


def starts_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI can start under the launcher, and no rendezvous folder is set."""
    if environment.get(RENDEZVOUS):
        return False
    return any(mark in environment for _, _, launcher in [*_launchers(environment)][:1] for mark in launcher.mpi)


def start(environment: Mapping[str, str] = os.environ) -> str:
    """Return text that identifies a start: shared by its processes, and different for other starts if possible."""
    return "-".join(re.sub(r"[^\w.]", "_", environment[name]) for name in _OF_A_START if environment.get(name))


def _launchers(environment: Mapping[str, str]) -> Iterator[tuple[int, int, _Launcher]]:
    """Yield every launcher that started several processes, with rank and number of processes."""
    for launcher in _LAUNCHERS:
        size, rank = _number(environment.get(launcher.size, "")), _number(environment.get(launcher.rank, ""))
        marked = not launcher.marks or any(mark in environment for mark in launcher.marks)
        if marked and size is not None and size > 1 and rank is not None:
            yield rank, size, launcher


def complaint(environment: Mapping[str, str] = os.environ) -> str:
    """Return a complaint about impossible launcher variables, with the fix, or ""."""
    for size_name, rank_name, _, marks, _ in _LAUNCHERS:
        if marks and not any(mark in environment for mark in marks):
            continue
        size, rank = environment.get(size_name, ""), environment.get(rank_name, "")
        if size and not _number(size):
            return f"{size_name}={size} is no number of processes (1 or more); {_FIX}"
        if size and rank and _number(rank) is None:
            return f"{rank_name}={rank} is no rank of {size_name}={size} processes (0 or more); {_FIX}"

        # Launchers after the one that started several processes are not checked.
        if rank and size not in ("", "1"):
            break
    return ""


def _number(word: str) -> int | None:
    return int(word) if re.fullmatch("[0-9]{1,9}", word) else None


def unlaunched(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables of launchers and batch systems, to start ranks on this machine."""
    # With them mpiexec would start the ranks on the batch system's hosts, by srun.
    return {name: value for name, value in environment.items() if not _NAMES.match(name)}
