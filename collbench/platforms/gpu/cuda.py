"""CuPy, imported in one place and its errors translated in one place; streams, memory, kernels.

CuPy finds NCCL in the wheel nvidia-nccl-cu12 (or -cu13) or on the system.  Where another NCCL is wanted, name it:
COLLBENCH_NCCL=/path/libnccl.so.2 is loaded first, and the loader then takes it for every later request of that name.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CollbenchError, PlatformError
from collbench.platforms import kernels
from collbench.platforms.gpu.cures import CACHE, cure, why
from collbench.platforms.gpu.statuses import beyond_cupy

NCCL_LIBRARY = "COLLBENCH_NCCL"

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_MOST_CONNECTIONS = "32"
"""Streams beyond this number share a hardware queue, where one rank's kernel would wait behind that of a rank which
waits for it.  CUDA reads it once, when it starts; the default is 8."""

FIRST, USUAL = -1000, 0
"""Priorities of streams: smaller numbers go first, and CUDA takes the nearest in a device's range, which ends at 0."""


def load_cupy() -> Any:
    """The module cupy; PlatformError, with what to install, where it cannot be imported."""
    os.environ.setdefault(_CONNECTIONS, _MOST_CONNECTIONS)
    if library := os.environ.get(NCCL_LIBRARY):
        try:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise PlatformError(f"{NCCL_LIBRARY}={library} cannot be loaded ({error}): correct or unset it") from error
    try:
        import cupy
        import cupy.cuda.nccl
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise PlatformError("platform 'gpu' needs CuPy: pip install 'collbench[cuda12]' (or cuda13)") from error
        raise _unusable(error) from error
    except OSError as error:  # CuPy makes its folder for compiled kernels as soon as it is imported
        raise PlatformError(f"CuPy cannot be imported ({error}): {CACHE}") from error
    return cupy


def _unusable(error: ImportError) -> PlatformError:
    """CuPy is there, and something that it needs is not: its own error is a page of advice, raised from what failed."""
    reason = str(error.__cause__ or error).strip().splitlines()[-1]
    return PlatformError(f"CuPy cannot be imported ({reason}): install the one CuPy of your CUDA")


class Cuda:
    """The CUDA that one process uses through CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        self.nccl = cupy.cuda.nccl
        self.errors: tuple[type[Exception], ...] = (
            self.runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
        )
        if self.nccl.available:
            self.errors += (self.nccl.NcclError,)

    @contextmanager
    def failing_as(self, kind: type[CollbenchError], doing: str) -> Iterator[None]:
        """Turn what CUDA or NCCL raise inside into an error of collbench, in one line."""
        try:
            yield
        except self.errors as error:
            raise kind(f"{doing}: {error}") from error
        except KeyError as error:
            if not (status := beyond_cupy(error)):
                raise
            raise kind(f"{doing}: {status}") from error

    def count(self) -> int:
        """How many GPUs there are; PlatformError if none."""
        try:
            devices: int = self.runtime.getDeviceCount()
            reason = "the driver shows none"
        except self.errors as error:
            devices, reason = 0, str(error)
        if not devices:
            fix = f"{cure(reason)}, or " if cure(reason) else ""
            raise PlatformError(f"no GPU found ({reason}): {fix}use --on cpu")
        return devices

    def compiler_version(self) -> tuple[int, int]:
        """NVRTC's; PlatformError, with what to install, where it cannot be loaded."""
        try:
            major, minor = self.cupy.cuda.nvrtc.getVersion()
        except (RuntimeError, OSError) as error:
            raise PlatformError(why(error)) from error
        return major, minor

    def name(self, device: int) -> str:
        """What the driver calls a GPU."""
        name = self.runtime.getDeviceProperties(device)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def uuid(self, device: int) -> str:
        """A GPU's UUID in hexadecimal, of a MIG slice its own; "" where CUDA is too old to say.

        CUDA's runtime asks for the newest cuDeviceGetUuid, which tells slices apart since CUDA 11.4.  CuPy takes its 16
        bytes for a string in C, which ends with the first zero: some UUIDs are cut short, others followed by more.
        """
        uuid: bytes = self.runtime.getDeviceProperties(device).get("uuid", b"")
        return uuid[:16].hex()

    def multiprocessors(self, device: int) -> int:
        """How many blocks a GPU runs at once, if each needs all of one."""
        return int(self.runtime.deviceGetAttribute(self.runtime.cudaDevAttrMultiProcessorCount, device))

    def cache(self, device: int) -> int:
        """Bytes of a GPU's L2 cache."""
        return int(self.runtime.deviceGetAttribute(self.runtime.cudaDevAttrL2CacheSize, device))

    def resident_blocks(self, function: Any, device: int, threads: int) -> int:
        """How many blocks of a kernel a GPU holds at once."""
        self.runtime.setDevice(device)
        blocks = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, 0)
        return int(blocks) * self.multiprocessors(device)


class Queue:
    """The stream of one rank, and the two events that time it."""

    def __init__(self, cuda: Cuda, device: int, priority: int = USUAL) -> None:
        self._runtime = cuda.runtime
        self._event = cuda.cupy.cuda.Event
        self.device = device
        cuda.runtime.setDevice(device)
        self.stream = cuda.cupy.cuda.Stream(non_blocking=True, priority=priority)
        self.start, self.end = cuda.cupy.cuda.Event(), cuda.cupy.cuda.Event()
        self.used = False

    def enter(self) -> Any:
        """The stream, with its device made current."""
        self._runtime.setDevice(self.device)
        return self.stream

    def use(self) -> Any:
        """The same, to enqueue an operation that is to be timed."""
        self.used = True
        return self.enter()

    def mark(self) -> Any:
        """An event behind all that was enqueued; a new one each time, since a capture's is of no use outside it."""
        stream, event = self.enter(), self._event(disable_timing=True)
        event.record(stream)
        return event

    def fetch(self, address: int, into: Array) -> Array:
        """Bytes from this device's memory, filling the array; whoever wrote them is done."""
        self.enter()
        self._runtime.memcpy(into.ctypes.data, address, into.nbytes, self._runtime.memcpyDeviceToHost)
        return into


class Memory:
    """An allocation on the device of each rank, zeroed.

    Not from CuPy's pool: the driver hands out a pool's block as a whole only, so a part of it can be neither shared
    with another process nor registered with a library.
    """

    def __init__(self, cuda: Cuda, devices: Sequence[int], nbytes: int) -> None:
        self._runtime = cuda.runtime
        self.base: list[int] = []
        for device in devices:
            cuda.runtime.setDevice(device)
            self.base.append(cuda.runtime.malloc(nbytes))
            cuda.runtime.memset(self.base[-1], 0, nbytes)
        for device in set(devices):
            cuda.runtime.setDevice(device)
            cuda.runtime.deviceSynchronize()  # no stream of ours waits for the default stream, which did the zeroing

    def free(self) -> None:
        """Give it back."""
        while self.base:
            self._runtime.free(self.base.pop())


@dataclass(frozen=True)
class GpuKernel:
    """A kernel, loaded on every device: CUDA would else load it at its first launch, perhaps while a peer spins."""

    name: str
    functions: tuple[Any, ...]  # cupy.cuda.Function, by device


def compile_kernel(
    cuda: Cuda,
    devices: Sequence[int],
    file: str,
    entry: str,
    dtype: Datatype,
    redop: Reduction,
    more: Sequence[str] = (),
) -> GpuKernel:
    """An entry of kernels/<file> through NVRTC, for each device's architecture, and loaded on each.

    PlatformError in one line: no rung is measured by a machine that cannot compile the project's own sources, and a row
    that said `skipped` would hide it.

    CuPy's flag for cooperative groups is not for the module: it would ask for a CUDA toolkit to link against, which
    only a kernel needs that synchronises its whole grid.  The launch alone is cooperative.
    """
    options = (*kernels.defines(dtype, redop), *more, "-std=c++17")
    compiler = cuda.cupy.cuda.compiler
    functions = []
    try:
        cuda.runtime.setDevice(devices[0])  # get_function compiles for the current device, and makes a context there
        raw = cuda.cupy.RawModule(code=kernels.source(file), options=options).get_function(entry)
        for device in devices:
            cuda.runtime.setDevice(device)
            functions.append(raw.kernel)  # through cuModuleGetFunction, which loads it, lazy loading or not
    except (compiler.CompileException, RuntimeError, OSError) as error:
        raise PlatformError(f"{file} could not be compiled for {dtype.name} {redop.name}: {why(error)}") from error
    return GpuKernel(entry, tuple(functions))
