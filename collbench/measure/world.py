"""The processes of a run, and how rank 0 tells the others what to do."""

import os
import time
from typing import Any

_SHORTEST_NAP, _LONGEST_NAP = 50e-6, 5e-3  # seconds between two looks for an order: 5 ms cost 1 % of a core or less


class OneProcess:
    """A run that one process carries out alone; never imports MPI."""

    leader = True

    def broadcast(self, message: Any) -> Any:
        """What the leader says."""
        return message

    def pids(self) -> list[int]:
        """Process ids of all ranks' processes."""
        return [os.getpid()]

    def pin(self) -> list[int]:
        """Its ranks live on devices, which no scheduler moves."""
        return []

    def abort(self) -> None:
        """End every process of the run at once."""
        os._exit(1)


class MpiProcesses:
    """A run whose ranks are MPI processes."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm = MPI.COMM_WORLD
        self._orders = self._comm.Dup()  # so that nothing else can take an order for its own
        self.size, self.rank = self._comm.Get_size(), self._comm.Get_rank()
        self.leader = self.rank == 0

    def broadcast(self, message: Any) -> Any:
        """What the leader says, on every process; who waits for it sleeps.

        A broadcast of MPI would spin instead, and take its core from ranks of another setting that are measured now.
        Each rank gets a message of its own, so that the wait is one nap long and not one for each step of a tree.
        """
        if self.leader:
            for rank in range(1, self.size):
                self._orders.send(message, rank)
            return message
        pause = _SHORTEST_NAP
        while not self._orders.iprobe(0):
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_NAP)
        return self._orders.recv(source=0)

    def gather(self, mine: Any) -> list[Any]:
        """What each process gives, by rank, on every process."""
        return self._comm.allgather(mine)

    def pids(self) -> list[int]:
        """Process ids of all ranks' processes."""
        return self.gather(os.getpid())

    def pin(self) -> list[int]:
        """Keep the calling thread of each rank on one core, in turn; the cores by rank.

        Nothing is done, and the list is empty, where ranks may run on different cores: somebody has bound them already.
        """
        allowed = self._comm.allgather(sorted(os.sched_getaffinity(0)))
        if any(each != allowed[0] for each in allowed):
            return []
        cores = [allowed[0][rank % len(allowed[0])] for rank in range(self.size)]
        os.sched_setaffinity(0, {cores[self.rank]})
        return cores

    def abort(self) -> None:
        """End every process of the run at once."""
        self._comm.Abort(1)


World = OneProcess | MpiProcesses
