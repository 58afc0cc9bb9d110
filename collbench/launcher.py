"""What an outside launcher (mpirun, srun, torchrun) says of the processes that it started."""

import os
from collections.abc import Mapping

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank and number of processes as an outside launcher gave them; None without one.

    Slurm counts only inside a step: in a batch script SLURM_NTASKS speaks of processes that nobody started.
    """
    for size, rank in zip(_SIZES, _RANKS, strict=True):
        if size in environment and rank in environment:
            return int(environment[rank]), int(environment[size])
    return None
