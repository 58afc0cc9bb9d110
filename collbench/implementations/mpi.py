"""`mpi`: the MPI library's own collectives, called from the same compiled loop as the rungs beside it.

Its functions are the ones that mpi4py calls; only the interpreter is left out (`mpi-python` has it).  What MPI lacks is
made of what it has, as its users do: the average is the sum, divided afterwards by each rank that holds a result, and
what the library cannot add is added by a user-defined operation.  A broadcast in MPI is always in place; out of place
the root also copies, as NCCL's does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import REDUCTIONS, Datatype, Reduction
from collbench.errors import CaseFailed, Unsupported
from collbench.implementations import Implementation
from collbench.note import Note
from collbench.platforms.cpu import calls, libraries
from collbench.platforms.layout import buffers
from collbench.platforms.roles import Launching, Pending, Prepared

ELEMENTS = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "half": "FLOAT16_T",
    "bfloat16": "UINT16_T",  # its bits; MPICH names a BFLOAT16_T but aborts when it is to be added
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "uint32": "UINT32_T",
    "int64": "INT64_T",
    "uint64": "UINT64_T",
}
_BITS = "UINT16_T"  # of a type that a library does not know; all others are in every library
_OPERATIONS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN", "avg": "SUM"}
_LARGEST_COUNT = 2**31 - 1  # of an int; above, functions that take an MPI_Count are called


@dataclass(frozen=True)
class _Ends:
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
    def block(self) -> tuple[int, int]:
        """Count and type of a block."""
        return self.case.block, self.element

    @property
    def gathered(self) -> tuple[int, int, int]:
        """The receive buffer of a root; others have none."""
        return (self.receive, *self.block) if self.at_root else (0, 0, self.element)


Arguments = tuple[int, ...]


def _gather(end: _Ends) -> Arguments:
    send = end.own if end.at_root else end.send
    return send, *end.block, *end.gathered, end.case.root, end.comm


def _reduce(end: _Ends) -> Arguments:
    send, receive = (end.own, end.receive) if end.at_root else (end.send, 0)
    return send, receive, *end.block, end.operation, end.case.root, end.comm


def _scatter(end: _Ends) -> Arguments:
    send = (end.send, *end.block) if end.at_root else (0, 0, end.element)
    receive = end.own if end.at_root and end.case.in_place else end.receive
    return *send, receive, *end.block, end.case.root, end.comm


def _sendrecv(end: _Ends) -> Arguments:
    right, left = (end.rank + 1) % end.case.ranks, (end.rank - 1) % end.case.ranks
    return end.send, *end.block, right, 0, end.receive, *end.block, left, 0, end.comm, _status()


_CALLS: dict[str, tuple[str, Callable[[_Ends], Arguments]]] = {
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
    """Unsupported for what no MPI can do."""
    if case.in_place and case.collective.name == "reducescatter":
        raise Unsupported("MPI leaves an in-place result at the buffer's start, not in the rank's own block")


def library() -> str:
    """The library that mpi4py loaded, and its version."""
    return libraries.short_name(_said())


@cache
def _said() -> str:
    from mpi4py import MPI

    return MPI.Get_library_version()


def element(dtype: Datatype) -> Any:
    """MPI's type, or bits of the same size where the library cannot add it."""
    from mpi4py import MPI

    known = dtype.name != "half" or libraries.adds_half(_said())
    return getattr(MPI, ELEMENTS[dtype.name] if known else _BITS)


def operation(case: Case) -> Any:
    """MPI's operation; one of our own for elements that MPI does not add, such as bfloat16's bits."""
    from mpi4py import MPI

    redop = REDUCTIONS["sum"] if case.redop.name == "avg" else case.redop
    if case.collective.reduces and case.dtype.itemsize == 2 and element(case.dtype) == getattr(MPI, _BITS):
        return _own_operation(case.dtype, redop, case.block > _LARGEST_COUNT)
    return getattr(MPI, _OPERATIONS.get(redop.name, "SUM"))


@cache
def _own_operation(dtype: Datatype, redop: Reduction, large: bool) -> Any:
    """The ladder's addition; made once, since MPI has room for a few user-defined operations."""
    from mpi4py import MPI

    handle = np.zeros(1, np.uint64)
    arguments = calls.combining(dtype, redop, large), 1, handle.ctypes.data
    _succeed(calls.repeated([_call("MPI_Op_create", large, arguments)])(1))
    return MPI.Op.fromhandle(int(handle[0]))


@cache
def _status() -> int:
    """Where a receive may write its status; MPI_STATUS_IGNORE has another value in every library."""
    from mpi4py import MPI

    _status.kept = MPI.Status()  # type: ignore[attr-defined]
    return int(MPI._addressof(_status.kept))  # type: ignore[attr-defined]


def _call(name: str, large: bool, arguments: Arguments) -> calls.Call:
    """A call of the library that mpi4py loaded; of its form for large counts, where one is needed."""
    from mpi4py import MPI

    wanted = f"{name}_c" if large else name
    if (address := calls.symbol(MPI.__file__, wanted)) is None:
        raise Unsupported(f"the MPI library has no {wanted}, which blocks of more than {_LARGEST_COUNT} elements need")
    return calls.Call(address, arguments, errors=calls.INTEGER_STATUS)


def _succeed(code: int) -> None:
    if code:
        from mpi4py import MPI

        raise CaseFailed(f"MPI says: {MPI.Get_error_string(code)}")


def _prepare(case: Case, platform: Launching) -> Prepared:
    from mpi4py import MPI

    (rank,) = platform.local
    send, receive = buffers(platform, case, rank)
    handles = (MPI._handleof(handle) for handle in (element(case.dtype), operation(case), platform.comm))
    name, arguments = _CALLS[case.collective.name]
    end = _Ends(case, rank, send, receive, int(MPI.IN_PLACE) if case.in_place else send, *handles)
    sequence = [_call(name, case.block > _LARGEST_COUNT, arguments(end))]
    if case.collective.name == "broadcast" and rank == case.root and not case.in_place:
        sequence.insert(0, calls.copy(receive, send, case.nbytes))
    division = _division(case, platform, rank, receive)
    repeated = calls.repeated([*sequence, *division])
    pending = _pending(case, arguments(end), division) if len(sequence) == 1 else None

    def launch(launches: int) -> None:
        _succeed(repeated(launches))

    def refuse() -> None:
        _succeed(repeated.error)

    note = Note.of("sum, then divided") if case.redop.name == "avg" else Note()
    return Prepared(launch, note=note, library=library(), loop=repeated.loop, pending=pending, refuse=refuse)


def _pending(case: Case, arguments: Arguments, division: list[calls.Call]) -> Pending | None:
    """The non-blocking form, MPI_Iallreduce and the like; None where the library has none, or C is not called so."""
    if len(arguments) >= calls.MOST_ARGUMENTS:
        return None
    name = _CALLS[case.collective.name][0].removeprefix("MPI_").lower()
    request, flag = np.zeros(1, np.uint64), np.zeros(1, np.int32)
    try:
        begin = _call(f"MPI_I{name}", case.block > _LARGEST_COUNT, (*arguments, request.ctypes.data))
    except Unsupported:
        return None
    poll = _call("MPI_Test", False, (request.ctypes.data, flag.ctypes.data, _status()))
    finish = _call("MPI_Wait", False, (request.ctypes.data, _status()))
    begins, polls, finishes = (calls.repeated(parts) for parts in ([begin], [poll], [finish, *division]))
    held = request, flag
    return Pending(
        lambda: _succeed(begins(1) if held else 0), lambda: _succeed(polls(1)), lambda: _succeed(finishes(1))
    )


def _division(case: Case, platform: Launching, rank: int, receive: int) -> list[calls.Call]:
    """What turns the sum into the average on a rank that holds it."""
    if case.redop.name != "avg" or not case.collective.moves(rank, case.ranks, case.root):
        return []
    complete = platform.kernel("steps.cu", "complete", case.dtype, case.redop)
    return [calls.kernel(complete, np.uint64(receive), np.uint64(case.receive_count), np.uint32(case.ranks))]


IMPLEMENTATION = Implementation(
    name="mpi",
    summary="the MPI library's own collectives",
    platforms=("cpu",),
    collectives=tuple(COLLECTIVES),
    prepare=_prepare,
    supports=supports,
)
