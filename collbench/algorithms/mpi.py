"""`mpi`: the MPI library's collectives, called from a compiled loop.

It calls the same functions as mpi4py, without the interpreter. An average is a sum that each rank with a result then
divides. Types that the library cannot add use a user-defined operation. A broadcast in MPI is always in place; out of
place the root also copies, as in NCCL.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import COLLECTIVES, Flight
from collbench.datatypes import REDUCTIONS, Datatype, Reduction
from collbench.errors import Unsupported
from collbench.platforms.cpu import mpi, mpi_libraries
from collbench.platforms.cpu.mpi import Arguments
from collbench.platforms.interface import Pending, Platform, Prepared
from collbench.platforms.layout import buffers
from collbench.results import Note

ELEMENTS = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "half": "FLOAT16_T",
    "bfloat16": "UINT16_T",  # its bits; MPICH names a BFLOAT16_T but aborts when it is to be added
    **{name: f"{name.upper()}_T" for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")},
}
_BITS = "UINT16_T"  # of a type that a library does not know; all others are in every library
_OPERATIONS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN", "avg": "SUM"}


@dataclass(frozen=True)
class _CallEnds:
    """One rank's end of a collective in words for C: addresses, handles and counts; `own` is its input, or in place."""

    case: Case
    rank: int
    send: int
    receive: int
    own: int
    element: int
    operation: int
    comm: int

    @property
    def at_root(self) -> bool:
        return self.rank == self.case.root

    @property
    def large(self) -> bool:
        """Whether counts are more than an int holds."""
        return self.case.block > mpi.LARGEST_COUNT

    @property
    def block(self) -> tuple[int, int]:
        """Count and type of a block."""
        return self.case.block, self.element

    @property
    def gathered(self) -> tuple[int, int, int]:
        """The receive buffer of a root; others have none."""
        return (self.receive, *self.block) if self.at_root else (0, 0, self.element)


def _gather(end: _CallEnds) -> Arguments:
    send = end.own if end.at_root else end.send
    return send, *end.block, *end.gathered, end.case.root, end.comm


def _reduce(end: _CallEnds) -> Arguments:
    send, receive = (end.own, end.receive) if end.at_root else (end.send, 0)
    return send, receive, *end.block, end.operation, end.case.root, end.comm


def _scatter(end: _CallEnds) -> Arguments:
    send = (end.send, *end.block) if end.at_root else (0, 0, end.element)
    receive = end.own if end.at_root and end.case.in_place else end.receive
    return *send, receive, *end.block, end.case.root, end.comm


def _sendrecv(end: _CallEnds) -> Arguments:
    right, left = (end.rank + 1) % end.case.ranks, (end.rank - 1) % end.case.ranks
    return end.send, *end.block, right, 0, end.receive, *end.block, left, 0, end.comm, mpi.statuses()


_CALLS: dict[str, tuple[str, Callable[[_CallEnds], Arguments]]] = {
    "allreduce": ("MPI_Allreduce", lambda end: (end.own, end.receive, *end.block, end.operation, end.comm)),
    "broadcast": ("MPI_Bcast", lambda end: (end.receive, *end.block, end.case.root, end.comm)),
    "allgather": ("MPI_Allgather", lambda end: (end.own, *end.block, end.receive, *end.block, end.comm)),
    "reducescatter": (
        "MPI_Reduce_scatter_block",
        lambda end: (end.own, end.receive, *end.block, end.operation, end.comm),
    ),
    "reduce": ("MPI_Reduce", _reduce),
    "alltoall": ("MPI_Alltoall", lambda end: (end.own, *end.block, end.receive, *end.block, end.comm)),
    "gather": ("MPI_Gather", _gather),
    "scatter": ("MPI_Scatter", _scatter),
    "sendrecv": ("MPI_Sendrecv", _sendrecv),
}


def supports(case: Case) -> None:
    """Raise Unsupported for cases that no MPI supports."""
    if case.in_place and case.collective.name == "reducescatter":
        raise Unsupported("MPI leaves an in-place result at the buffer's start, not in the rank's own block")


def library() -> str:
    """The library that mpi4py loaded, and its version."""
    return mpi_libraries.short_name(_said())


@cache
def _said() -> str:
    from mpi4py import MPI

    return MPI.Get_library_version()


def communicator(platform: Platform) -> Any:
    """Return the mpi4py communicator of the ranks; Unsupported where they were started without MPI."""
    if platform.comm is None:
        raise Unsupported("the ranks were started without MPI: start them with mpirun, or with srun and its PMI")
    return platform.comm


def element(dtype: Datatype) -> Any:
    """Return MPI's type, or bits of the same size if the library cannot add it."""
    from mpi4py import MPI

    if dtype.name == "half" and not mpi_libraries.adds_half(_said()):
        return getattr(MPI, _BITS)
    return getattr(MPI, ELEMENTS[dtype.name])


def operation(case: Case) -> Any:
    """MPI's operation; one of our own for elements that MPI does not add, such as bfloat16's bits."""
    from mpi4py import MPI

    redop = REDUCTIONS["sum"] if case.redop.name == "avg" else case.redop
    if case.collective.reduces and case.dtype.itemsize == 2 and element(case.dtype) == getattr(MPI, _BITS):
        return _own_operation(case.dtype, redop, case.block > mpi.LARGEST_COUNT)
    return getattr(MPI, _OPERATIONS.get(redop.name, "SUM"))


@cache
def _own_operation(dtype: Datatype, redop: Reduction, large: bool) -> Any:
    """Return our kernels' addition; made once, since MPI has room for a few user-defined operations."""
    from mpi4py import MPI

    handle = np.zeros(1, np.uint64)
    arguments = mpi.combining(dtype, redop, large), 1, handle.ctypes.data
    mpi.succeed(mpi.Repeated([mpi.mpi_call("MPI_Op_create", arguments, large)])(1))
    return MPI.Op.fromhandle(int(handle[0]))


def _prepare(case: Case, platform: Platform) -> Prepared:
    comm = communicator(platform)
    from mpi4py import MPI  # the import starts MPI

    (rank,) = platform.local
    send, receive = buffers(platform.memory, case, rank)

    # The compiled loop calls the functions as C does: by addresses and the library's handles.
    handles = (MPI._handleof(handle) for handle in (element(case.dtype), operation(case), comm))
    end = _CallEnds(case, rank, send, receive, int(MPI.IN_PLACE) if case.in_place else send, *handles)
    sequence = list(_sequence(end, platform))
    division = _division(case, platform, rank, receive)
    repeated = mpi.Repeated([*sequence, *division])
    pending = _pending(end, division) if len(sequence) == 1 and case.collective.name in _CALLS else None

    def launch(launches: int) -> None:
        mpi.succeed(repeated(launches))

    def refuse() -> None:
        mpi.succeed(repeated.error)

    note = Note.of("sum, then divided") if case.redop.name == "avg" else Note()
    return Prepared(launch, note=note, library=library(), loop=repeated.loop, pending=pending, refuse=refuse)


def _sequence(end: _CallEnds, platform: Platform) -> Iterator[mpi.Call]:
    case, rank = end.case, end.rank
    if case.collective.flights:
        for flight in case.collective.flights:
            yield from _messages(end, flight)

    # Two barriers with a store between them, which must be visible after the second.
    elif case.collective.name == "barrier":
        neighbour = buffers(platform.memory, case, (rank + 1) % case.ranks)[1]
        yield mpi.mpi_call("MPI_Barrier", (end.comm,))
        yield mpi.memcpy_call(neighbour, end.send, case.nbytes)
        yield mpi.mpi_call("MPI_Barrier", (end.comm,))
    else:
        if case.collective.name == "broadcast" and rank == case.root and not case.in_place:
            yield mpi.memcpy_call(end.receive, end.send, case.nbytes)
        name, arguments = _CALLS[case.collective.name]
        yield mpi.mpi_call(name, arguments(end), end.large)


def _messages(end: _CallEnds, flight: Flight) -> Iterator[mpi.Call]:
    """Yield the calls of a flight, as OSU's tests make them: of a single message, or of several begun and awaited."""
    ranks, count = end.case.ranks, 0 if flight.bare else end.case.block
    source, target = flight.source(end.rank, ranks), flight.to(end.rank, ranks)
    received = None if source is None else (end.receive, count, end.element, source, 0, end.comm)
    sent = None if target is None else (end.send, count, end.element, target, 0, end.comm)
    if flight.count == 1:
        if sent:
            yield mpi.mpi_call("MPI_Send", sent, end.large)
        if received:
            yield mpi.mpi_call("MPI_Recv", (*received, mpi.statuses()), end.large)
        return

    # Receives first: a message that comes before its receive has to be buffered.
    begun = [("MPI_Irecv", received)] * flight.count if received else []
    begun += [("MPI_Isend", sent)] * flight.count if sent else []
    if begun:
        memory, places = mpi.requests(len(begun))
        for (name, arguments), place in zip(begun, places, strict=True):
            yield mpi.mpi_call(name, (*arguments, place), end.large)
        yield mpi.mpi_call("MPI_Waitall", (len(begun), places[0], mpi.statuses(len(begun))), held=memory)


def _pending(end: _CallEnds, division: list[mpi.Call]) -> Pending | None:
    """Return the non-blocking form, MPI_Iallreduce and the like; None where there is none."""
    case = end.case
    name, arguments = _CALLS[case.collective.name][0], _CALLS[case.collective.name][1](end)
    # Largest number of arguments of the loop in C; the request is one more.
    if len(arguments) >= mpi.MOST_ARGUMENTS:
        return None
    request = np.zeros(1, np.uint64)
    arguments = (*arguments, request.ctypes.data)
    try:
        begin = mpi.mpi_call(f"MPI_I{name.removeprefix('MPI_').lower()}", arguments, end.large, request)
    except Unsupported:
        return None
    finish = mpi.mpi_call("MPI_Wait", (request.ctypes.data, mpi.statuses()), held=request)
    begins, finishes = mpi.Repeated([begin]), mpi.Repeated([finish, *division])
    return Pending(lambda: mpi.succeed(begins(1)), lambda: mpi.succeed(finishes(1)))


def _division(case: Case, platform: Platform, rank: int, receive: int) -> list[mpi.Call]:
    if case.redop.name != "avg" or not case.collective.moves(rank, case.ranks, case.root):
        return []
    complete = platform.launcher.kernel("steps.cu", "complete", case.dtype, case.redop)
    return [mpi.kernel_call(complete, np.uint64(receive), np.uint64(case.receive_count), np.uint32(case.ranks))]


IMPLEMENTATION = Implementation(
    name="mpi",
    summary="the MPI library's own collectives",
    platforms=("cpu",),
    collectives=tuple(COLLECTIVES),
    prepare=_prepare,
    supports=supports,
)
