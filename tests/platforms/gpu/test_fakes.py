"""What the tests make up behaves as what it stands for: CuPy and NVML.

Errors are compared with the installed packages; names and parameters a real GPU has tried (2026-11-26).  What CUDA
documents of the behaviour stands below as tests of the made-up machine.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collbench.platforms.compiler import source
from tools.stand_in import errors, real_names
from tools.stand_in.cuda import Machine
from tools.stand_in.errors import (
    DRIVER,
    ILLEGAL_ADDRESS,
    ILLEGAL_STATE,
    INVALID,
    NO_PEER,
    NOT_A_DEVICE,
    RUNTIME,
    CUDADriverError,
    CUDARuntimeError,
)
from tools.stand_in.nvml import FakeNvml


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine(2)
    yield made
    made.stop()


def test_errors_have_the_types_and_words_of_the_real_ones() -> None:
    real = real_names.cupy().cuda
    for status in RUNTIME:
        error = real.runtime.CUDARuntimeError(status)
        assert (str(CUDARuntimeError(status)), CUDARuntimeError(status).status) == (str(error), error.status)
    for mine, theirs in (
        (CUDARuntimeError, real.runtime.CUDARuntimeError),
        (CUDADriverError, real.driver.CUDADriverError),
        (errors.CompileException, real.compiler.CompileException),
    ):
        assert [ancestor.__name__ for ancestor in mine.__mro__] == [ancestor.__name__ for ancestor in theirs.__mro__]
    for kind in (errors.CompileException, real.compiler.CompileException):
        error = kind("two\nlines", "source", "kernel.cu", ("-O1",))
        assert (str(error), error.options, error.args) == ("two\nlines", ("-O1",), ())


def test_the_made_up_nvml_takes_what_the_real_one_takes() -> None:
    """So many arguments, whatever they are called; the rest may be left out."""
    import pynvml

    asked = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert len(asked) > 20
    for name in asked:
        mine = len(inspect.signature(getattr(FakeNvml, name)).parameters) - 1
        theirs = [*inspect.signature(getattr(pynvml, name)).parameters.values()]
        assert mine <= len(theirs), name
        assert all(peer.default is not peer.empty for peer in theirs[mine:]), name


def refused(status: int, kind: type[Exception] = CUDARuntimeError) -> Any:
    names = RUNTIME if kind is CUDARuntimeError else DRIVER
    return pytest.raises(kind, match=f"^{names[status][0]}: ")


def test_calls_that_cuda_refuses_are_refused(machine: Machine) -> None:
    cupy = machine.cupy()
    cuda, runtime = cupy.cuda, cupy.cuda.runtime
    stream = cuda.Stream(non_blocking=True)
    kernel = cupy.RawModule(code=source("gate.cu"), options=("-std=c++17",)).get_function("gate").kernel
    assert runtime.malloc(0) == 0  # cudaMalloc of 0 bytes gives a null pointer, which cudaFree takes
    runtime.free(0)
    far = Machine(2, without_peers={(0, 1)}).cupy().cuda.runtime
    assert (far.deviceCanAccessPeer(0, 1), far.deviceCanAccessPeer(1, 0)) == (0, 1)
    for call, status in (
        (lambda: runtime.setDevice(2), NOT_A_DEVICE),
        (lambda: runtime.free(4096), INVALID),
        (stream.end_capture, ILLEGAL_STATE),
        (lambda: far.deviceEnablePeerAccess(1), NO_PEER),
    ):
        with refused(status):
            call()
    with refused(INVALID, CUDADriverError):
        kernel((1,), (1025,), (), stream=stream)
    for argument in (np.zeros(2, np.uint64), np.zeros(1, "V8")[0], "text"):  # single values, and numbers, only
        with pytest.raises(TypeError):
            kernel((1,), (1,), (argument,), stream=stream)
    for made in (cupy, real_names.cupy()):
        with pytest.raises(TypeError, match=r"expected tuple, got list"):
            made.RawModule(code=source("gate.cu"), options=["-std=c++17"])


def test_after_an_illegal_address_nothing_works_any_more(machine: Machine) -> None:
    """CUDA: the error comes with the next call that waits, and with every other from then on."""
    cuda = machine.cupy().cuda
    address = cuda.runtime.malloc(64)
    stream = cuda.Stream(non_blocking=True)
    cuda.runtime.setDevice(1)
    far = cuda.Stream(non_blocking=True)
    kernel = machine.cupy().RawModule(code=source("check.cu"), options=("-std=c++17",)).get_function("fill").kernel
    kernel((1,), (256,), (np.uint64(address),), stream=far)  # without peer access
    calls = [far.synchronize, stream.synchronize, lambda: cuda.runtime.malloc(64), lambda: cuda.runtime.setDevice(0)]
    for call in (*calls, lambda: cuda.Stream(non_blocking=True), cuda.Event, lambda: cuda.runtime.free(address)):
        with refused(ILLEGAL_ADDRESS):
            call()
