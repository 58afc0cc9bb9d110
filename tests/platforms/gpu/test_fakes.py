"""What the tests make up behaves as what it stands for: CuPy, NCCL through it, libcuda and NVML.

Names, parameters, their order and defaults, constants and errors are compared with the installed packages, none of
which needs a GPU for that.  What CUDA documents of the behaviour stands below as tests of the made-up machine.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collbench.platforms.compiler import source
from tools.stand_in import errors, real_names
from tools.stand_in.cuda import Machine
from tools.stand_in.driver import WORDS, Library
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
from tools.stand_in.ipc import DRIVER as SHARED_DRIVER
from tools.stand_in.nccl import NAMES
from tools.stand_in.nvml import FakeNvml
from tools.stand_in.parameters import documented, expect_the_same, offered, signature


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine(2)
    yield made
    made.stop()


def test_the_made_up_cupy_has_the_names_parameters_defaults_and_numbers_of_the_real_one(machine: Machine) -> None:
    real = real_names.cupy()
    compared = []
    for name, mine, theirs in offered(machine, real):
        if isinstance(theirs, int):
            assert mine == theirs, name
        elif callable(theirs) and not name.endswith("Error"):
            expect_the_same(name, signature(mine), signature(theirs), real.cuda.runtime)
            compared.append(name)
    assert {"cupy_backends.cuda.api.runtime.memcpyAsync", "Stream.begin_capture", "Graph.launch"} <= {*compared}
    assert {"cupy.RawModule", "cupy.cuda.Event", "cupy.cuda.compiler.CompileException"} <= {*compared}
    assert {"cupy.asarray", "cupy.asnumpy", "ndarray.fill", "cupy.cuda.get_cublas_handle"} <= {*compared}


def test_the_made_up_nccl_and_cublas_have_the_names_and_parameters_of_the_real_ones(machine: Machine) -> None:
    """CuPy's module for it, which is asked beside a library whose functions do nothing."""
    told, mine = real_names.nccl(), machine.cupy().cuda.nccl
    for name in (name for name in dir(mine) if not name.startswith("_")):
        assert name in told["module"], name
        if inspect.isroutine(getattr(mine, name)):
            expect_the_same(name, signature(getattr(mine, name)), documented(told["module"][name]))
    made = mine.NcclCommunicator
    for name in (name for name in dir(made) if not name.startswith("_")):
        expect_the_same(name, signature(getattr(made, name)), documented(told["communicator"][name]))
    expect_the_same("NcclCommunicator", signature(made), documented(told["module"]["NcclCommunicator"]))
    assert type(mine.get_unique_id()).__name__ == told["id"]
    assert vars(Machine(has_nccl=False).cupy().cuda.nccl) == {"available": False}, "the word alone, as of the real one"
    for name, function in vars(machine.cupy().cuda.cublas).items():
        expect_the_same(name, signature(function), documented(real_names.cublas()[name]))


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
    told = real_names.nccl()
    assert [words.partition(":")[0] for words in told["errors"]] == [*NAMES]
    assert told["base"] == "RuntimeError"


def test_the_made_up_driver_has_the_functions_parameters_and_errors_of_the_header() -> None:
    text = real_names.header().read_text()
    for name, function in inspect.getmembers(Library, inspect.isfunction):
        if name.startswith("_cu"):
            assert [*inspect.signature(function).parameters][1:] == real_names.driver()[name[1:]], name
    shared = re.findall(r"^int (cu\w+)\(([^)]*)\)", SHARED_DRIVER, flags=re.MULTILINE)
    assert len(shared) >= 6
    for name, parameters in shared:
        assert len(parameters.split(",")) == len(real_names.driver()[name]), name
    for status, (name, _) in DRIVER.items():
        assert re.search(rf"\b{name}\s*= {status},", text), name
    real = real_names.cupy().cuda.runtime.CUDARuntimeError
    for status, words in WORDS.items():
        assert str(real(status)).endswith(f": {words.decode()}")


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
