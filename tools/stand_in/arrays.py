"""Arrays on the machine of cuda.py: what collbench computes with CuPy, on host memory, one stream at a time.

As in CuPy (13.3 to 14.2: cupy/cuda/stream.pyx, cupy/_core/core.pyx, cupy_backends/cuda/libs/cublas.pyx) what is done
goes to the stream that is current for the current device, behind what that stream was given, and nobody waits for it
but who asks for the numbers.  An array holds no numbers before a stream has written some, so a wait that is missing
shows.  What differs on purpose:

* Stricter: an array is used on its own device only, and there is no default stream.
* A product takes as long as the machine says (`Machine.product_seconds`), and tells whoever wants to know.
"""

import ctypes
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


class Ndarray:
    """Numbers on a device."""

    def __init__(self, machine: Any, like: Any) -> None:
        self._machine, self._device = machine, machine.current
        self._numbers = np.empty(like.shape, like.dtype)
        self._numbers.view(np.uint8).fill(0xFF)  # in a float: no number
        self.data = SimpleNamespace(ptr=self._numbers.ctypes.data)
        machine.arrays[self.data.ptr] = self

    def __setitem__(self, key: Any, value: "Ndarray") -> None:
        assert key is Ellipsis, "the whole array is replaced here"
        self._enqueue(lambda: np.copyto(self._numbers, value._numbers), value)

    def fill(self, value: Any) -> None:
        self._enqueue(lambda: self._numbers.fill(value))

    def _enqueue(self, run: Callable[[], None], *others: "Ndarray") -> None:
        assert {array._device for array in (self, *others)} == {self._machine.current}, "an array of another device"
        self._machine.current_stream().enqueue(run)


class Arrays:
    """The arrays of the module cupy."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def asarray(self, a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: Any = False) -> Any:
        """The host's numbers are taken at once, into memory that is pinned; the device has them later."""
        assert (dtype, order, copy, blocking) == (None, None, None, False)
        made, staged = Ndarray(self._machine, a), np.array(a)
        made._enqueue(lambda: np.copyto(made._numbers, staged))
        return made

    def empty_like(self, prototype: Any, dtype: Any = None, order: Any = "K", subok: Any = None) -> Any:
        assert (dtype, order, subok) == (None, "K", None)
        return Ndarray(self._machine, prototype._numbers)

    def get_cublas_handle(self) -> int:
        """One for every device and thread; CuPy loads cuBLAS here."""
        if self._machine.without_cublas:
            raise ImportError('Failure finding "libcublasLt.so.13": No such file')
        return 0xB1A5 + int(self._machine.current)

    def sgemm(
        self, handle: int, transa: int, transb: int, m: int, n: int, k: int,
        alpha: int, A: int, lda: int, B: int, ldb: int, beta: int, C: int, ldc: int,  # noqa: N803
    ) -> None:  # fmt: skip
        """C = A B of columns; square and whole, not scaled, added to nothing, and the result no operand."""
        assert handle == self.get_cublas_handle(), "the handle of another device"
        assert (transa, transb) == (0, 0)
        assert {m, n, k, lda, ldb, ldc} == {m}
        assert (ctypes.c_float.from_address(alpha).value, ctypes.c_float.from_address(beta).value) == (1.0, 0.0)
        one, other, result = (self._machine.arrays[pointer] for pointer in (A, B, C))
        assert result not in (one, other)
        assert result._numbers.shape == (m, m)
        stream = self._machine.current_stream()
        result._enqueue(lambda: self._multiply(stream, one, other, result), one, other)

    def _multiply(self, stream: Any, one: Ndarray, other: Ndarray, out: Ndarray) -> None:
        self._machine.noted("product begins", stream)
        time.sleep(self._machine.product_seconds)
        with np.errstate(all="ignore"):  # whatever the operands hold
            np.matmul(one._numbers.T, other._numbers.T, out=out._numbers.T)
        self._machine.noted("product ends", stream)

    def asnumpy(self, a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: Any = True) -> Any:
        """Behind what the stream was given; the host waits for it."""
        assert (order, out, blocking) == ("C", None, True)
        assert a._device == self._machine.current
        took: list[Any] = []
        chosen = stream or self._machine.current_stream()
        chosen.enqueue(lambda: took.append(a._numbers.copy()))
        chosen.synchronize()
        self._machine.taken += took[0].nbytes
        return took[0]
