"""Kernels that cannot be compiled or loaded: one line that says what, why and what helps.

What NVRTC complains of is its own words, where it and CuPy are installed; what needs a GPU or a missing library is what
CuPy's and CUDA's sources say.
"""

import pytest

from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import PlatformError, SourceError
from collbench.platforms.compiler import entries
from collbench.platforms.gpu.cuda import Cuda, GpuKernel, compile_kernel
from tools.stand_in import real_names
from tools.stand_in.cuda import Machine
from tools.stand_in.errors import NO_BINARY, CUDADriverError

NVRTC = "pip install nvidia-cuda-nvrtc-cu12 (for CUDA 13: nvidia-cuda-nvrtc)"
UPGRADE = NVRTC.replace("install", "install --upgrade")
HEADERS = "pip install nvidia-cuda-runtime-cu12 (for CUDA 13: nvidia-cuda-runtime)"
CACHE = "set CUPY_CACHE_DIR (and TMPDIR) to folders that can be written"

SAID: list[tuple[Exception, str, str]] = [  # what CuPy raises, what of it the line has, and what helps
    (CUDADriverError(NO_BINARY), "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available", UPGRADE),
    (
        RuntimeError('Failure finding "libnvrtc.so": No such file: libnvrtc.so*\n  listdir("/usr/lib"):\n    error: x'),
        'Failure finding "libnvrtc.so": No such file',
        NVRTC,
    ),
    (RuntimeError("Failed to auto-detect CUDA root directory. Please specify `CUDA_PATH`"), "Failed to auto", HEADERS),
    (OSError(28, "No space left on device"), "No space left on device", CACHE),
]
SOURCES = [  # what NVRTC is given, and the same of what it says
    ('extern "C" __global__ void f() { int unused; int x = ; }', "-arch=sm_90", "error: expected an expression", ""),
    ('extern "C" __global__ void f() {}', "-arch=sm_30", "invalid value for --gpu-architecture (-arch)", UPGRADE),
    ("#include <cuda_fp16.h>", "-arch=sm_90", 'could not open source file "cuda_fp16.h"', HEADERS),
]


def compiled(machine: Machine, *devices: int, entry: str = entries("ring.cu")[0]) -> GpuKernel:
    cuda = Cuda(machine.cupy())
    return compile_kernel(cuda, devices or (0,), "ring.cu", entry, DATATYPES["float"], REDUCTIONS["sum"])


def refusal(error: Exception) -> str:
    with pytest.raises(PlatformError) as caught:
        compiled(Machine(refusals={0: error}))
    line = str(caught.value)
    assert line.startswith("ring.cu could not be compiled for float sum: ")
    assert len(line.splitlines()) == 1
    return line


def test_what_keeps_a_kernel_from_its_gpu_is_said_in_one_line() -> None:
    for error, reason, cure in SAID:
        line = refusal(error)
        assert reason in line
        assert cure in line


def test_the_line_of_a_log_that_says_what_is_wrong_is_shown() -> None:
    compiler = real_names.cupy().cuda.compiler
    for source, arch, reason, cure in SOURCES:
        with pytest.raises(compiler.CompileException) as caught:
            compiler._NVRTCProgram(source, "kernel.cu", method="cubin").compile(("-std=c++17", arch))
        line = refusal(Machine().cupy().cuda.compiler.CompileException(str(caught.value), source, "k.cu", (arch,)))
        assert reason in line
        assert line.endswith(cure)


def test_an_error_in_a_source_is_found_in_its_file_at_its_line() -> None:
    compiler = real_names.cupy().cuda.compiler
    for wrong, words in (
        ("__device__ int x = ;", "expected an expression"),
        ("#include <gone.h>", 'could not open source file "gone.h"'),
    ):
        source = f'#line 1 "ring.cu"\n#line 41 "flags.cuh"\n\n{wrong}\n#line 7 "ring.cu"\n'
        with pytest.raises(compiler.CompileException) as caught:
            compiler._NVRTCProgram(source, "kernel.cu", method="cubin").compile(("-std=c++17", "-arch=sm_90"))
        raised = Machine().cupy().cuda.compiler.CompileException(str(caught.value), source, "k.cu", ())
        with pytest.raises(SourceError, match=f"/flags.cuh:42: {words}"):
            compiled(Machine(refusals={0: raised}))


def test_every_device_that_is_used_and_no_other_has_its_kernel_before_the_first_launch() -> None:
    assert [function._device for function in compiled(Machine(3), 2, 0).functions] == [2, 0]
    with pytest.raises(PlatformError, match=r"^ring\.cu could not be compiled for float sum: CUDA_ERROR_NO_BINARY"):
        compiled(Machine(2, refusals={1: CUDADriverError(NO_BINARY)}), 0, 1)
    machine = Machine(2, refusals={0: CUDADriverError(NO_BINARY)})
    machine.cupy().cuda.runtime.setDevice(0)
    assert compiled(machine, 1).functions
    with pytest.raises(SourceError, match=r"/ring\.cu has no kernel no_such_ring"):
        compiled(Machine(), entry="no_such_ring")
