"""What an outside launcher (mpirun, srun, torchrun) told this process by its environment."""

import os
import re
from collections.abc import Mapping

_SIZE_AND_RANK = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # of a step: SLURM_NTASKS speaks of processes that nobody started
    ("WORLD_SIZE", "RANK"),
)
_TOLD = re.compile(
    r"(PMI2?|PMIX|OMPI|PRTE|PALS|HYDI|HYDRA|MPIEXEC|SLURMD?|LSB|LOADL)_(?!MCA_)|(OMPI_MCA_(orte|ess)|MV2_COMM_WORLD|MPI_LOCAL)"
    r"|(PBS_NODEFILE|COBALT_NODEFILE|PE_HOSTFILE)$"
)
"""Names of variables of launchers and batch systems; MCA are settings of Open MPI that a user may have made."""


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank and number of processes where an outside launcher started several; None where this process is alone.

    One process is not launched, whoever started it: a shell by `srun --pty bash` has all variables of a step, and
    `mpirun -n 1 collbench` does what `collbench` does.  Of nested launchers the one counts that started several.
    """
    for size, rank in _SIZE_AND_RANK:
        count, own = environment.get(size, ""), environment.get(rank, "")
        if count.isdecimal() and own.isdecimal() and int(count) > 1:
            return int(own), int(count)
    return None


def unlaunched(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a launcher or batch system put there, for an mpiexec that starts ranks here.

    With it mpiexec would ask the batch system for hosts and have its own launcher (srun) start the ranks there.
    """
    return {name: value for name, value in environment.items() if not _TOLD.match(name)}
