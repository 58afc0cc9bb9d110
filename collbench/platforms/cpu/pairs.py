"""Messages between pairs of ranks, and barriers, as the calls of MPI that OSU's tests make of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from collbench.cases import Case
from collbench.collectives import Flight
from collbench.platforms.cpu import mpi

_TAG = 0


@dataclass(frozen=True)
class PairEnd:
    """One rank's end of its messages: addresses, the handles of type and communicator."""

    case: Case
    rank: int
    send: int
    receive: int
    element: int
    comm: int

    @property
    def large(self) -> bool:
        """Whether counts are more than an int holds."""
        return self.case.block > mpi.LARGEST_COUNT

    def message(self, start: int, flight: Flight, peer: int) -> mpi.Arguments:
        """Return the arguments that all calls of a message begin with."""
        return start, 0 if flight.bare else self.case.block, self.element, peer, _TAG, self.comm


def exchange(end: PairEnd) -> Iterator[mpi.Call]:
    """Yield the calls of all flights in order; no call of a rank that neither sends nor receives."""
    for flight in end.case.collective.flights:
        source, target = flight.source(end.rank, end.case.ranks), flight.to(end.rank, end.case.ranks)
        received = None if source is None else end.message(end.receive, flight, source)
        sent = None if target is None else end.message(end.send, flight, target)
        if flight.count == 1:
            yield from _blocking(end, received, sent)
        else:
            yield from _in_flight(end, received, sent, flight.count)


def _blocking(end: PairEnd, received: mpi.Arguments | None, sent: mpi.Arguments | None) -> Iterator[mpi.Call]:
    if sent:
        yield mpi.mpi_call("MPI_Send", sent, end.large)
    if received:
        yield mpi.mpi_call("MPI_Recv", (*received, mpi.statuses()), end.large)


def _in_flight(
    end: PairEnd, received: mpi.Arguments | None, sent: mpi.Arguments | None, count: int
) -> Iterator[mpi.Call]:
    """Yield calls that begin all messages, the received ones first, and then wait for them."""
    begun = [("MPI_Irecv", received)] * count if received else []
    begun += [("MPI_Isend", sent)] * count if sent else []
    if not begun:
        return
    memory, places = mpi.requests(len(begun))
    for (name, arguments), place in zip(begun, places, strict=True):
        assert arguments
        yield mpi.mpi_call(name, (*arguments, place), end.large)
    yield mpi.mpi_call("MPI_Waitall", (len(begun), places[0], mpi.statuses(len(begun))), held=memory)


def barriers(comm: int, stored: mpi.Call) -> Iterator[mpi.Call]:
    """Two barriers, and between them what must be seen after the second."""
    yield mpi.mpi_call("MPI_Barrier", (comm,))
    yield stored
    yield mpi.mpi_call("MPI_Barrier", (comm,))
