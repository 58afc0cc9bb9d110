"""The processes of a run: who they are, what they tell each other, and how they fail together.

Whatever one process finds out alone (no memory, a GPU that does not answer, an implementation that cannot run there)
must reach all of them before anyone acts on it: the others would wait for ever for a process that took another way.
So there is one way to speak, the exchange, and every exchange first asks whether somebody failed.  A process that fails
inside `agreeing` takes part in one more exchange, whichever the others come to next, and all of them raise its error.
Orders are apart from that: a process that waits for one sleeps.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from collbench.errors import CollbenchError, PlatformError
from collbench.host.launcher import neighbours

_SHORTEST_NAP, _LONGEST_NAP = 50e-6, 5e-3  # seconds between two looks for an order: 5 ms cost 1 % of a core or less

SentError = tuple[type[CollbenchError], str]


class Alone:
    """The one process of a run, which holds every rank; never imports MPI."""

    rank, size = 0, 1
    leader = True

    def local(self, ranks: int) -> Sequence[int]:
        """The ranks that this process holds."""
        return range(ranks)

    def exchange(self, mine: Any) -> list[Any]:
        """*Collective*: what each process gives, by rank; the error of one that failed instead."""
        return [mine]

    def meet(self) -> None:
        """*Collective*: come back once every process has come here."""

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """*Collective*: run what is inside; if it fails on any process, raise the same error on all of them."""
        yield

    def broadcast(self, message: Any) -> Any:
        """*Collective*: what the leader says."""
        return message

    def bind(self, cores: Sequence[int]) -> None:
        """Do nothing: the ranks of this process live on devices, which no scheduler moves."""

    def abort(self) -> None:
        """End every process of the run at once."""
        os._exit(1)


@cache
def usable_cores() -> frozenset[int]:
    """Return the cores that this process may run on, as they were before its rank was bound to one of them."""
    return frozenset(os.sched_getaffinity(0))


def crowded() -> bool:
    """Whether the launcher started more processes on this machine than there are cores for them, as far as it says.

    One that a launcher bound to a core may not look at the others' yet; its parent was there before it was bound.
    """
    cores = [len(os.sched_getaffinity(0))]
    with suppress(OSError):  # a parent outside this container
        cores.append(len(os.sched_getaffinity(os.getppid())))
    return neighbours() > max(cores)


class Processes:
    """Processes that hold one rank each, of an mpi4py communicator; only what the host knows passes through it."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.leader = self.rank == 0
        self.trouble = ""  # what this one failed of, for as long as the others have not come to hear it
        self._orders = comm.Dup()  # so that nothing else can take an order for its own
        self._bells: list[int] = []  # of the leader: a pipe to each other rank; of another rank: its end
        self._failed = np.zeros(1, np.int32), np.zeros(1, np.int32)

    @classmethod
    def of_world(cls) -> Self:
        """Return all processes that the launcher started; this starts MPI.

        One thread calls it, as in most programs: if several might, MPI locks, and MPICH takes three times as
        long for a small message.  But only then does it ever yield, without which ranks that share a core wait for the
        scheduler's next tick, milliseconds.
        """
        import mpi4py

        mpi4py.rc.thread_level = "multiple" if crowded() else "funneled"
        from mpi4py import MPI

        return cls(MPI.COMM_WORLD)

    def local(self, ranks: int) -> Sequence[int]:
        """The rank of this process; PlatformError if there are not as many processes as ranks."""
        if self.size != ranks:
            raise PlatformError(
                f"world size {self.size} although {ranks} ranks were asked for: "
                "start with the mpiexec of the MPI that mpi4py loads (python -m mpi4py --mpi-library)"
            )
        return (self.rank,)

    def exchange(self, mine: Any) -> list[Any]:
        """Return what each process gives, by rank; the error of a process that failed instead."""
        self.meet()
        gathered: list[Any] = self.comm.allgather(mine)
        return gathered

    def meet(self) -> None:
        """Come back once every process has come here; the error of one that failed instead."""
        self._settle(None)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Run what is inside; if it fails on any process, raise the same error on all of them."""
        try:
            yield
        except Exception as error:
            if getattr(error, "agreed", False):
                raise
            self._settle(error)
        else:
            self._settle(None)

    def _settle(self, error: Exception | None) -> None:
        """Exchange a number first: nearly always nothing failed, and some operations are timed with this in them."""
        mine, all_of_them = self._failed
        mine[0] = error is not None
        if error:
            self.trouble = str(error)
        self.comm.Allreduce(mine, all_of_them)
        self.trouble = ""
        if not all_of_them[0]:
            return
        failures: list[SentError | None] = self.comm.allgather(_sendable(error))
        rank, (kind, text) = next((rank, failure) for rank, failure in enumerate(failures) if failure)
        # The lowest rank's error, with its rank unless all errors are alike.
        common = kind(text if len(set(failures)) == 1 else f"rank {rank}: {text}")
        common.agreed = True
        raise common from error

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
        another start, or of another setting.  Without bells (under an outside launcher) the wait is made of naps; each
        rank gets a message of its own, so that it is one nap long and not one for each step of a tree.
        """
        if self.leader:
            for rank in range(1, self.size):
                self._orders.send(message, rank)
            for bell in self._bells:
                os.write(bell, b"!")
            return message
        if self._bells:
            os.read(self._bells[0], 1)
            return self._orders.recv(source=0)
        pause = _SHORTEST_NAP
        while not self._orders.iprobe(0):
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_NAP)
        return self._orders.recv(source=0)

    def bind(self, cores: Sequence[int]) -> None:
        """Keep the calling thread on the core that is this rank's; without cores it stays where it may run."""
        if cores and usable_cores():
            with suppress(OSError):  # a control group may have taken the core away
                os.sched_setaffinity(0, {cores[self.rank]})

    def cores_to_bind(self, choose: Callable[[int], Sequence[int]]) -> list[int]:
        """*Collective*: a core for each rank of a launcher that has not bound them; empty where one was bound.

        `choose` returns so many cores of a machine, and is asked on every machine for the ranks there.
        """
        places = self.exchange((platform.node(), sorted(os.sched_getaffinity(0))))
        here = [rank for rank, (node, _) in enumerate(places) if node == places[self.rank][0]]
        alike = all(places[rank] == places[self.rank] for rank in here)
        # The first rank of a machine chooses for all: each would see another load, and two might choose one core.
        chosen = self.exchange(choose(len(here)) if alike and here[0] == self.rank else ())[here[0]]
        cores = self.exchange(chosen[here.index(self.rank)] if chosen else None)
        return [] if None in cores else cores

    def abort(self) -> None:
        """End every process of the run at once."""
        self.comm.Abort(1)


Team = Alone | Processes


def _sendable(error: Exception | None) -> SentError | None:
    """Return an error in a form that can be sent; any error but collbench's becomes the platform's."""
    if error is None:
        return None
    if isinstance(error, CollbenchError):
        return type(error), str(error)
    return PlatformError, f"{type(error).__name__}: {error}"
