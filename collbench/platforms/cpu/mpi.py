"""Calls of the MPI library that mpi4py loaded, made from C: by name, with the handles and counts that they take."""

from functools import cache

import numpy as np

from collbench.errors import CaseFailed, Unsupported
from collbench.platforms.cpu import calls

LARGEST_COUNT = 2**31 - 1  # of an int; above, functions that take an MPI_Count are called
_STATUS = 128  # bytes: more than an MPI_Status has in any library

Arguments = tuple[int, ...]


Memory = np.ndarray[tuple[int], np.dtype[np.uint64]]


def call(name: str, arguments: Arguments, large: bool = False, held: Memory | None = None) -> calls.Call:
    """A call of that function; of its form for large counts, where one is needed.  `held` lives as long as it does."""
    from mpi4py import MPI

    wanted = f"{name}_c" if large else name
    if (address := calls.symbol(MPI.__file__, wanted)) is None:
        raise Unsupported(f"the MPI library has no {wanted}, which blocks of more than {LARGEST_COUNT} elements need")
    return calls.Call(address, arguments, errors=calls.INTEGER_STATUS, held=held)


def succeed(code: int) -> None:
    """CaseFailed with MPI's words, unless it is its code for success."""
    if code:
        from mpi4py import MPI

        raise CaseFailed(f"MPI says: {MPI.Get_error_string(code)}")


@cache
def statuses(count: int = 1) -> int:
    """Where so many receives may write their statuses; MPI_STATUS_IGNORE has another value in every library."""
    _STATUSES[count] = _memory(count * _STATUS)
    return int(_STATUSES[count].ctypes.data)


_STATUSES: dict[int, Memory] = {}  # nobody reads them, so all receives of so many share them


def requests(count: int) -> tuple[Memory, list[int]]:
    """Room for requests as one array of the library's, to be held while they are used, and where each of them is."""
    from mpi4py import MPI

    size = MPI._sizeof(MPI.Request)
    memory = _memory(count * size)
    return memory, [int(memory.ctypes.data) + place * size for place in range(count)]


def _memory(nbytes: int) -> Memory:
    return np.zeros(-(-nbytes // 8), np.uint64)
