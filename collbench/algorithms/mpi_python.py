"""`mpi-python`: the same collectives of the MPI library called from Python, as a program with mpi4py does.

What the interpreter adds to a call shows in comparison with `mpi`, which is the library alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collbench.algorithms import Implementation
from collbench.algorithms.mpi import communicator, element, library, operation, supports
from collbench.cases import Case
from collbench.collectives import COLLECTIVES, Flight
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view
from collbench.results import Note

Action = Callable[[], Any]


@dataclass(frozen=True)
class _BufferEnds:
    """One rank's end of a collective, in mpi4py's terms; `own` is its input, or MPI.IN_PLACE."""

    comm: Any
    case: Case
    rank: int
    send: list[Any]
    receive: list[Any]
    own: Any
    operation: Any

    @property
    def at_root(self) -> bool:
        return self.rank == self.case.root


def _reduce(end: _BufferEnds) -> Action:
    send, receive = (end.own, end.receive) if end.at_root else (end.send, None)
    return partial(end.comm.Reduce, send, receive, end.operation, end.case.root)


def _gather(end: _BufferEnds) -> Action:
    send, receive = (end.own, end.receive) if end.at_root else (end.send, None)
    return partial(end.comm.Gather, send, receive, end.case.root)


def _scatter(end: _BufferEnds) -> Action:
    send = end.send if end.at_root else None
    receive = end.own if end.at_root and end.case.in_place else end.receive
    return partial(end.comm.Scatter, send, receive, end.case.root)


def _sendrecv(end: _BufferEnds) -> Action:
    right, left = (end.rank + 1) % end.case.ranks, (end.rank - 1) % end.case.ranks
    return partial(end.comm.Sendrecv, end.send, right, 0, end.receive, left, 0)


def _messages(end: _BufferEnds, flight: Flight) -> Iterator[Action]:
    """Yield the actions of a flight: a single message by Send or Recv, several begun and then waited for."""
    source, target = flight.source(end.rank, end.case.ranks), flight.to(end.rank, end.case.ranks)
    received, sent = end.receive, end.send
    if flight.bare:
        received, sent = [received[0], 0, received[2]], [sent[0], 0, sent[2]]
    if flight.count == 1:
        if target is not None:
            yield partial(end.comm.Send, sent, target)
        if source is not None:
            yield partial(end.comm.Recv, received, source)
        return
    begun = [partial(end.comm.Irecv, received, source)] * flight.count if source is not None else []
    begun += [partial(end.comm.Isend, sent, target)] * flight.count if target is not None else []
    if begun:
        from mpi4py import MPI

        yield lambda: MPI.Request.Waitall([begin() for begin in begun])


def _actions(end: _BufferEnds, platform: Platform) -> Iterator[Action]:
    """Yield the actions of an operation, in order."""
    case = end.case
    send, receive = buffers(platform.memory, case, end.rank)
    if case.collective.flights:
        for flight in case.collective.flights:
            yield from _messages(end, flight)

    # Two barriers, and between them a store that must be seen after the second.
    elif case.collective.name == "barrier":
        neighbour = buffers(platform.memory, case, (end.rank + 1) % case.ranks)[1]
        yield end.comm.Barrier
        yield partial(platform.launcher.copy, end.rank, neighbour, send, case.nbytes)
        yield end.comm.Barrier
    else:
        if case.collective.name == "broadcast" and end.at_root and not case.in_place:
            yield partial(platform.launcher.copy, end.rank, receive, send, case.nbytes)
        yield _CALLS[case.collective.name](end)

    # MPI has no average: the sum is divided by each rank that holds it.
    if case.redop.name == "avg" and any(case.pieces(end.rank)):
        complete = platform.launcher.kernel("steps.cu", "complete", case.dtype, case.redop)
        arguments = np.uint64(receive), np.uint64(case.receive_count), np.uint32(case.ranks)
        yield platform.launcher.bind_one(complete, end.rank, case.receive_count, *arguments)


_CALLS: dict[str, Callable[[_BufferEnds], Action]] = {
    "allreduce": lambda end: partial(end.comm.Allreduce, end.own, end.receive, end.operation),
    "broadcast": lambda end: partial(end.comm.Bcast, end.receive, end.case.root),
    "allgather": lambda end: partial(end.comm.Allgather, end.own, end.receive),
    "reducescatter": lambda end: partial(end.comm.Reduce_scatter_block, end.own, end.receive, end.operation),
    "reduce": _reduce,
    "alltoall": lambda end: partial(end.comm.Alltoall, end.own, end.receive),
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
}


def _prepare(case: Case, platform: Platform) -> Prepared:
    comm = communicator(platform)
    from mpi4py import MPI

    (rank,) = platform.local
    datatype = element(case.dtype)
    size = case.dtype.itemsize
    send_address, receive_address = buffers(platform.memory, case, rank)
    send = [view(send_address, case.send_count * size), case.block, datatype]
    receive = [view(receive_address, case.receive_count * size), case.block, datatype]
    own = MPI.IN_PLACE if case.in_place else send
    end = _BufferEnds(comm, case, rank, send, receive, own, operation(case))
    actions = list(_actions(end, platform))
    note = Note.of("sum, then divided") if case.redop.name == "avg" else Note()
    return Prepared(_repeat(actions), note=note, library=library())


def _repeat(actions: list[Action]) -> Callable[[int], None]:
    """Return the loop that is timed."""
    # As lean as a hand-written loop, since MPI takes a few microseconds a call.
    if len(actions) == 1:
        (action,) = actions

        def launch(launches: int) -> None:
            for _ in range(launches):
                action()
    else:

        def launch(launches: int) -> None:
            for _ in range(launches):
                for action in actions:
                    action()

    return launch


IMPLEMENTATION = Implementation(
    name="mpi-python",
    summary="the same, called from Python: what the interpreter adds",
    platforms=("cpu",),
    collectives=tuple(COLLECTIVES),
    calls="mpi",
    prepare=_prepare,
    supports=supports,
)
