"""Calls of C functions from the compiled loop: what reaches them, how often, and what comes back."""

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.platforms import compiler
from collbench.platforms.cpu.mpi import (
    INTEGER_STATUS,
    Call,
    Repeated,
    address,
    combining,
    kernel_call,
    memcpy_call,
    symbol,
)

SEEN = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_longlong] * 12)


class Function:
    """A C function that notes its arguments, and returns the statuses that it is given, the last for ever."""

    def __init__(self, statuses: Sequence[int] = (0,)) -> None:
        self.calls: list[tuple[int, ...]] = []
        self._statuses = list(statuses)
        self.pointer = SEEN(self._called)

    def _called(self, *arguments: int) -> int:
        self.calls.append(arguments)
        return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]


def test_every_argument_arrives_in_every_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLBENCH_KERNELS", "/no/such/kernels")  # the loop is ours, whatever kernels are on trial
    function, arguments = Function(), (-1, 2**63 - 1, 1, -(2**63), *range(5, 13))
    launch = Repeated([Call(address(function.pointer), arguments), Call(address(function.pointer), (7,))])
    assert launch(3) == 0
    wanted = [arguments, (7, *[0] * 5)] * 3
    assert [call[: len(words)] for call, words in zip(function.calls, wanted, strict=True)] == wanted


def test_a_status_that_is_an_error_is_told_whenever_it_came() -> None:
    for statuses, found in (((0, 0, 0), 0), ((0, 13, 0), 13), ((5, 13, 0), 13), ((0, 0, 6), 6)):
        function = Function(statuses)
        assert Repeated([Call(address(function.pointer), (), errors=INTEGER_STATUS)])(3) == found, statuses


def test_kernels_and_functions_follow_each_other_in_order() -> None:
    source, target = np.array([8, 6], np.int32), np.zeros(2, np.int32)
    complete = compiler.host_kernel("steps.cu", "complete", compiler.defines(DATATYPES["int32"], REDUCTIONS["avg"]))
    divided = kernel_call(complete, np.uint64(target.ctypes.data), np.uint64(2), np.uint32(2))
    assert Repeated([memcpy_call(target.ctypes.data, source.ctypes.data, 8), divided])(5) == 0
    assert target.tolist() == [4, 3]


def test_an_operation_of_our_own_combines_as_the_ladder_does() -> None:
    dtype = DATATYPES["bfloat16"]
    for large in (False, True):
        for redop, wanted in (("sum", [3.0, 3.0]), ("max", [2.0, 3.0])):
            source, target = dtype.encode(np.array([2.0, 0.0, 9.0])), dtype.encode(np.array([1.0, 3.0, 5.0]))
            count = np.array([2], np.int64 if large else np.int32)
            places = (array.ctypes.data for array in (source, target, count))
            Repeated([Call(combining(dtype, REDUCTIONS[redop], large), (*places, 0))])(1)
            assert dtype.decode(target).tolist() == [*wanted, 5.0], (redop, large)


def test_a_symbol_is_the_one_that_the_extension_itself_calls() -> None:
    from numpy.linalg import _umath_linalg

    assert symbol(_umath_linalg.__file__, "PyInit__umath_linalg")
    assert symbol(_umath_linalg.__file__, "MPI_Frobnicate") is None
