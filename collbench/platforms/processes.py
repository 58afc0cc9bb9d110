"""What the processes of a run tell each other, and how they fail together.

Whatever one process finds out alone (no memory, a GPU that does not answer, an implementation that cannot run there)
must reach all of them before anyone acts on it: the others would wait for ever for a process that took another way.
So there is one way to speak, the exchange, and every exchange first asks whether somebody failed.  A process that fails
inside `agreeing` takes part in one more exchange, whichever the others come to next, and all of them raise its error.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from collbench.errors import CollbenchError, PlatformError

Told = tuple[type[CollbenchError], str]


class Alone:
    """The one process of a run, which holds every rank; never imports MPI."""

    rank = 0

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


class Processes:
    """Processes that hold one rank each, of an mpi4py communicator; only what the host knows passes through it."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self._failed = np.zeros(1, np.int32), np.zeros(1, np.int32)

    def local(self, ranks: int) -> Sequence[int]:
        """The rank of this process."""
        return (self.rank,)

    def exchange(self, mine: Any) -> list[Any]:
        """What each process gives, by rank; the error of one that failed instead."""
        self.meet()
        found: list[Any] = self._comm.allgather(mine)
        return found

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
        """A number first, since nearly always nobody failed and some operations are timed with this in them."""
        mine, all_of_them = self._failed
        mine[0] = error is not None
        self._comm.Allreduce(mine, all_of_them)
        if all_of_them[0]:
            raise _common(self._comm.allgather(_told(error))) from error


def _told(error: Exception | None) -> Told | None:
    """An error in a form that can be sent; whatever collbench does not raise itself is the platform's."""
    if error is None:
        return None
    if isinstance(error, CollbenchError):
        return type(error), str(error)
    return PlatformError, f"{type(error).__name__}: {error}"


def _common(told: Sequence[Told | None]) -> CollbenchError:
    """What all raise: the lowest rank's error, with its rank unless everyone says the same."""
    rank, (kind, text) = next((rank, each) for rank, each in enumerate(told) if each)
    error = kind(text if len(set(told)) == 1 else f"rank {rank}: {text}")
    error.agreed = True
    return error


Team = Alone | Processes


def of_launcher(ranks: int) -> Processes:
    """The processes that an outside launcher started; PlatformError if they are not as many as the ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() != ranks:
        raise PlatformError(f"world size {comm.Get_size()} although {ranks} ranks were asked for")
    return Processes(comm)
