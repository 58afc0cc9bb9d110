"""What an outside launcher (mpirun, srun, torchrun) says to this process in its environment."""

import os
import re
from collections.abc import Iterator, Mapping

_SIZE_RANK_AND_LOCAL_SIZE = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    # Of a step: SLURM_NTASKS speaks of processes that nobody started.
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"),
    ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"),
)
_NAMES = re.compile(
    r"(PMI2?|PMIX|OMPI|PRTE|PALS|HYDI|HYDRA|MPIEXEC|SLURMD?|LSB|LOADL)_(?!MCA_)|(OMPI_MCA_(orte|ess)|MV2_COMM_WORLD|MPI_LOCAL)"
    r"|(PBS_NODEFILE|COBALT_NODEFILE|PE_HOSTFILE)$"
)
"""Names of variables of launchers and batch systems; MCA are settings of Open MPI that a user may have made."""
_FIX = "unset it, or leave it to a launcher (mpirun, srun, torchrun)"


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return rank and number of processes of an outside launcher that started several, else None.

    One process alone does not count as launched: a shell by `srun --pty bash` has all variables of a step, and
    `mpirun -n 1 collbench` does what `collbench` does.  Of nested launchers the one counts that started several.
    """
    return next(((rank, count) for rank, count, _ in _launchers(environment)), None)


def neighbours(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes the launcher started on this machine; all of them where it does not say."""
    for _, _, words in _launchers(environment):
        if local := re.findall(r"(?:^|,)(\d+)", words):  # Slurm's: 4(x2),3
            return max(map(int, local))
    _, everywhere = launched(environment) or (0, 1)
    return everywhere


def _launchers(environment: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield rank and number of processes by every launcher that started several, and its words on how many are here."""
    for size_name, rank_name, local_name in _SIZE_RANK_AND_LOCAL_SIZE:
        size, rank = _number(environment.get(size_name, "")), _number(environment.get(rank_name, ""))
        if size is not None and size > 1 and rank is not None:
            yield rank, size, environment.get(local_name, "")


def complaint(environment: Mapping[str, str] = os.environ) -> str:
    """Return what no launcher sets its variables to, and the fix; empty if there is nothing of the kind.

    Behind the launcher that started several processes nothing is looked at.
    """
    for size_name, rank_name, _ in _SIZE_RANK_AND_LOCAL_SIZE:
        size, rank = environment.get(size_name, ""), environment.get(rank_name, "")
        if size and not _number(size):
            return f"{size_name}={size} is no number of processes, which is 1 or more; {_FIX}"
        if size and rank and _number(rank) is None:
            return f"{rank_name}={rank} is no rank of {size_name}={size} processes, which is 0 or more; {_FIX}"
        if rank and size not in ("", "1"):
            break
    return ""


def _number(word: str) -> int | None:
    return int(word) if re.fullmatch("[0-9]{1,9}", word) else None


def unlaunched(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what a launcher or batch system put there, for an mpiexec that starts ranks here.

    With it mpiexec would ask the batch system for hosts and have its own launcher (srun) start the ranks there.
    """
    return {name: value for name, value in environment.items() if not _NAMES.match(name)}
