"""Processes that MPI started, connected by an mpi4py communicator."""

import os
import select
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from collbench.datatypes import Array
from collbench.platforms.processes import Team, crowded

_SHORTEST_NAP, _LONGEST_NAP = 50e-6, 5e-3  # seconds between two looks for an order: 5 ms cost 1 % of a core or less
_LONGEST_SLEEP = 0.1  # seconds, where a bell ends it


class MpiProcesses(Team):
    """The processes of an mpi4py communicator."""

    start_as = "start with the mpiexec of the MPI that mpi4py loads (python -m mpi4py --mpi-library)"

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        super().__init__(comm.Get_rank(), comm.Get_size())
        self._largest = MPI.MAX
        self.comm = comm
        self._orders = comm.Dup()  # so that nothing else can take an order for its own
        self._bells: list[int] = []  # of the leader: a pipe to each other rank; of another rank: its end
        self._failed = np.zeros(1, np.int32), np.zeros(1, np.int32)

    @classmethod
    def of_world(cls) -> Self:
        """Return all processes that the launcher started; this starts MPI."""
        import mpi4py

        # One thread calls MPI, as in most programs: if several might, MPI locks, and MPICH takes three times as long
        # for a small message.  But only then does it ever yield, without which ranks that share a core wait for the
        # scheduler's next tick, milliseconds.
        mpi4py.rc.thread_level = "multiple" if crowded() else "funneled"
        from mpi4py import MPI

        return cls(MPI.COMM_WORLD)

    def gather(self, mine: Any) -> list[Any]:
        """Return what each process gives, by rank."""
        gathered: list[Any] = self.comm.allgather(mine)
        return gathered

    def any_of(self, mine: bool) -> bool:
        """Add a number for each."""
        failed, count = self._failed
        failed[0] = mine
        self.comm.Allreduce(failed, count)
        return bool(count[0])

    def slowest(self, mine: Array) -> Array:
        """Return the largest of each number over all processes."""
        largest = np.empty_like(mine)
        self.comm.Allreduce(mine, largest, self._largest)
        return largest

    def neighbours(self) -> list[int]:
        """Return the ranks that MPI takes to share memory with this one."""
        from mpi4py import MPI

        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        ranks: list[int] = node.allgather(self.rank)
        node.Free()
        return ranks

    def send(self, numbers: Array, rank: int) -> None:
        """Send an array."""
        self.comm.Send(numbers, rank)

    def receive(self, numbers: Array, rank: int) -> None:
        """Receive into an array."""
        self.comm.Recv(numbers, rank)

    def sleep_until_sent(self) -> None:
        """Look in naps, since a probe that waits would spin."""
        while not self.comm.Iprobe(0):
            time.sleep(_SHORTEST_NAP)

    def hang_bells(self, folder: Path) -> None:
        """*Collective*: let ranks that wait for an order sleep in the kernel, by pipes in a folder of their machine."""
        path = folder / f"bell-{self.rank}"
        if not self.leader:
            os.mkfifo(path)
            self._bells = [os.open(path, os.O_RDWR)]  # a reader that is its own writer never sees an end
        self.meet()
        if self.leader:
            self._bells = [os.open(folder / f"bell-{rank}", os.O_WRONLY) for rank in range(1, self.size)]

    def broadcast(self, message: Any) -> Any:
        """Return the leader's value on every process; a process that waits for it sleeps.

        A broadcast of MPI would spin instead, and take its core from other ranks that are measured now: those of
        another start, or of another setting.
        """
        if self.leader:
            # Each rank gets a message of its own, which costs one nap, where a tree would cost one at every step.
            # A message that is not small is only announced until its receiver is awake: ring before waiting for that.
            sends = [self._orders.isend(message, rank) for rank in range(1, self.size)]
            for bell in self._bells:
                os.write(bell, b"!")
            for request in sends:
                request.wait()
            return message

        # A nap ends when the bell rings; without bells (under an outside launcher) naps are short.  MPI is looked at
        # after each, since most libraries go on with what other ranks wait for only while they are called.
        pause, longest = _SHORTEST_NAP, _LONGEST_SLEEP if self._bells else _LONGEST_NAP
        while not self._orders.iprobe(0):
            select.select(self._bells, (), (), pause)
            pause = min(2 * pause, longest)
        for bell in self._bells:
            os.read(bell, 1)
        return self._orders.recv(source=0)

    def abort(self) -> None:
        """End every process of the run at once."""
        self.comm.Abort(1)
