"""The processes of a run: how many an outside launcher started, and how rank 0 tells the others what to do."""

import os
from collections.abc import Mapping
from typing import Any

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank and number of processes as an outside launcher (mpirun, srun, torchrun) gave them; None without one.

    Slurm counts only inside a step: in a batch script SLURM_NTASKS speaks of processes that nobody started.
    """
    for size, rank in zip(_SIZES, _RANKS, strict=True):
        if size in environment and rank in environment:
            return int(environment[rank]), int(environment[size])
    return None


class OneProcess:
    """A run that one process carries out alone; never imports MPI."""

    leader = True

    def broadcast(self, message: Any) -> Any:
        """What the leader says."""
        return message

    def pids(self) -> list[int]:
        """Process ids of all ranks' processes."""
        return [os.getpid()]

    def abort(self) -> None:
        """End every process of the run at once."""
        os._exit(1)


class MpiProcesses:
    """A run whose ranks are MPI processes."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm = MPI.COMM_WORLD
        self.size, self.rank = self._comm.Get_size(), self._comm.Get_rank()
        self.leader = self.rank == 0

    def broadcast(self, message: Any) -> Any:
        """What the leader says, on every process."""
        return self._comm.bcast(message)

    def pids(self) -> list[int]:
        """Process ids of all ranks' processes."""
        return self._comm.allgather(os.getpid())

    def abort(self) -> None:
        """End every process of the run at once."""
        self._comm.Abort(1)


World = OneProcess | MpiProcesses
