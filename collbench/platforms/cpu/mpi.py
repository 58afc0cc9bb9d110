"""Calls of MPI functions from a compiled loop (kernels/host/library.cpp)."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.datatypes import Datatype, Reduction
from collbench.errors import CaseFailed, Unsupported
from collbench.platforms import compiler

INTEGER_STATUS = 0xFFFFFFFF  # all bits of an int: any but 0 is an error
LIBRARY_FILE = str(compiler.own_folder() / "host/library.cpp")  # independent of COLLBENCH_KERNELS: it measures kernels

MOST_ARGUMENTS = 12  # of a function
LARGEST_COUNT = 2**31 - 1  # of an int; above, functions that take an MPI_Count are called
_STATUS = 128  # bytes: more than an MPI_Status has in any library
_CALL = np.dtype(
    [("function", np.uint64), ("count", np.uint64), ("arguments", np.uint64, MOST_ARGUMENTS), ("errors", np.uint64)]
)

Arguments = tuple[int, ...]
Words = np.ndarray[tuple[int], np.dtype[np.uint64]]


@dataclass(frozen=True)
class Call:
    """A function at an address, and its arguments: integers, pointers, and handles of the library."""

    function: int
    arguments: tuple[int, ...]
    errors: int = 0  # the bits of what it returns that say it failed; none for one that returns no status
    held: Any = None  # keeps alive the targets of the arguments


def address(function: Any) -> int:
    """Return the address of a function of ctypes."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def memcpy_call(target: int, source: int, nbytes: int) -> Call:
    """Return the call of a memcpy."""
    return Call(address(ctypes.CDLL(None).memmove), (target, source, nbytes))


def kernel_call(compiled: compiler.HostKernel, *arguments: Any) -> Call:
    """Return the call of a kernel."""
    bound: Any = compiled.bind(*arguments)
    pointers, blocks, threads = bound.args
    return Call(address(compiled.function), (ctypes.addressof(pointers), blocks, threads, 1), held=pointers)


class Repeated:
    """Calls that form one operation, repeated in one call into C; the objects that they point to are kept alive."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._failure, records = np.zeros(1, np.uint64), call_records(calls)
        self._held = records, tuple(calls)
        places = (np.uint64(number) for number in (records.ctypes.data, len(calls), self._failure.ctypes.data))
        self.loop = compiler.host_kernel(LIBRARY_FILE, "call_library").bind(*places)

    def __call__(self, launches: int) -> int:
        """Repeat the calls `launches` times; return the last error so far, or 0."""
        self.loop(launches)
        return self.error

    @property
    def error(self) -> int:
        """The last error so far, or 0."""
        return int(self._failure[0])


def combining(dtype: Datatype, redop: Reduction, large: bool) -> int:
    """Return the address of an MPI_User_function (if `large`, MPI_User_function_c) that combines as our kernels do."""
    library = ctypes.CDLL(str(compiler.host_library(LIBRARY_FILE, compiler.defines(dtype, redop))))
    return address(library.combine_elements_c if large else library.combine_elements)


def call_records(calls: Sequence[Call]) -> NDArray[np.void]:
    """Return the calls as `struct Call` of kernels/host/library.cpp has them, shape (calls,)."""
    records = np.zeros(len(calls), _CALL)
    for record, call in zip(records, calls, strict=True):
        record["function"], record["errors"], record["count"] = call.function, call.errors, len(call.arguments)

        # As words of 64 bits, negative numbers too: C takes of each what it needs.
        record["arguments"][: len(call.arguments)] = [argument % 2**64 for argument in call.arguments]
    return records


def symbol(extension: str, name: str) -> int | None:
    """Return the address of the function that a loaded extension module calls by that name; None if there is none."""
    # In the order of the dynamic linker: libraries loaded globally (a profiler) first, then the module's own.
    for loaded in (ctypes.CDLL(None), ctypes.CDLL(extension, os.RTLD_NOW | os.RTLD_NOLOAD)):
        if function := getattr(loaded, name, None):
            return address(function)
    return None


def mpi_call(name: str, arguments: Arguments, large: bool = False, held: Words | None = None) -> Call:
    """Return a call of an MPI function, in its form for large counts where needed; `held` lives as long as it does."""
    from mpi4py import MPI

    # Functions that take an MPI_Count came with MPI 4.0; not every library has them.
    form = f"{name}_c" if large else name
    if (address := symbol(MPI.__file__, form)) is None:
        raise Unsupported(f"the MPI library has no {form}, which blocks of more than {LARGEST_COUNT} elements need")
    return Call(address, arguments, errors=INTEGER_STATUS, held=held)


def succeed(code: int) -> None:
    """CaseFailed with MPI's words, unless it is its code for success."""
    if code:
        from mpi4py import MPI

        raise CaseFailed(f"MPI says: {MPI.Get_error_string(code)}")


def statuses(count: int = 1) -> int:
    """Return a place for the statuses of `count` receives, unread: MPI_STATUS_IGNORE differs between libraries."""
    return int(_shared(count * _STATUS).ctypes.data)


def requests(count: int) -> tuple[Words, list[int]]:
    """Room for requests as one array of the library's, to be held while they are used, and where each of them is."""
    from mpi4py import MPI

    size = MPI._sizeof(MPI.Request)
    memory = _memory(count * size)
    return memory, [int(memory.ctypes.data) + number * size for number in range(count)]


def _memory(nbytes: int) -> Words:
    return np.zeros(-(-nbytes // 8), np.uint64)


_shared = cache(_memory)
