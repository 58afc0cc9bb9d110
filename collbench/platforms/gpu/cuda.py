"""CuPy, imported in one place and its errors translated in one place: streams, memory, kernels.

The CUDA driver through ctypes, for what CuPy does not offer: allocations, virtual memory, multicast objects.
Structures and constants are those of cuda.h; a test compiles that header and compares.  Sizes, offsets and addresses
are bytes, devices are ordinals.  Every method raises PlatformError with the driver's own words.

CuPy finds NCCL in the wheel nvidia-nccl-cu12 (or -cu13) or on the system.  To load another NCCL, name it:
COLLBENCH_NCCL=/path/libnccl.so.2 is loaded first, and the loader then takes it for every later request of that name.
"""

import ctypes
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CollbenchError, PlatformError, SourceError
from collbench.platforms import compiler

_NVRTC = "nvidia-cuda-nvrtc-cu12 (for CUDA 13: nvidia-cuda-nvrtc)"
_HEADERS = "nvidia-cuda-runtime-cu12 (for CUDA 13: nvidia-cuda-runtime)"
_CUBLAS = "nvidia-cublas-cu12 (for CUDA 13: nvidia-cublas)"
CACHE = "set CUPY_CACHE_DIR (and TMPDIR) to folders that can be written"
_MISMATCH = f"update the driver, or pip install --upgrade {_NVRTC}"
_HINTS = {  # by words of CuPy, NVRTC or the driver
    "--gpu-architecture": f"it does not know this GPU (sm_70: CUDA 12's does): pip install --upgrade {_NVRTC}",
    "libnvrtc": f"it compiles the kernels: pip install {_NVRTC}",
    "libcublas": f"matrix products need it: pip install {_CUBLAS}",
    "CUDA root directory": f"CuPy looks for CUDA's headers: pip install {_HEADERS}",
    "open source file": f"CUDA's headers are missing: pip install {_HEADERS}",
    "cudaErrorInsufficientDriver": "update the driver (`nvidia-smi` shows up to which CUDA it goes)",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": _MISMATCH,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": _MISMATCH,
    "CUDA_ERROR_INVALID_PTX": _MISMATCH,
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": _MISMATCH,
    "CUDA_ERROR_INVALID_IMAGE": _MISMATCH,
}

_COMPLAINT = re.compile(r"\b(error|fatal)\s*:")  # of NVRTC, among warnings and lines of the source


def hint(reason: str) -> str:
    """Return what helps; "" where that is not known."""
    return next((fix for words, fix in _HINTS.items() if words in reason), "")


def why(error: Exception) -> str:
    """Return the message of CuPy, NVRTC or the driver in one line, and what helps."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    plain = isinstance(error, RuntimeError | OSError)  # CuPy's and CUDA's own errors begin with what is wrong
    reason = next((line for line in lines if not plain and _COMPLAINT.search(line)), lines[0]).strip()
    fix = hint(reason) or (CACHE if isinstance(error, OSError) else "")
    return f"{reason}: {fix}" if fix else reason


_NEW = {7: "ncclInProgress", 8: "ncclTimeout"}
"""Of nccl.h 2.32; CuPy 14.2 (cupy_backends/cuda/libs/nccl.pyx, ERROR2) knows those up to 6."""


def beyond_cupy(error: KeyError) -> str:
    """Return the status of NCCL for which CuPy has no name; "" for any other KeyError."""
    *_, last = traceback.extract_tb(error.__traceback__)
    name = _NEW.get(error.args[0], "") if last.filename.endswith("nccl.pyx") else ""
    return f"NCCL says {name}" if name else ""


LIBRARY = "libcuda.so.1"

COMPUTE_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_...
COMPUTE_CAPABILITY_MINOR = 76
MULTICAST_SUPPORTED = 132

_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_FILE_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MULTICAST_GRANULARITY_RECOMMENDED

_Address = _Handle = ctypes.c_ulonglong  # CUdeviceptr, CUmemGenericAllocationHandle
_NO_FLAGS = ctypes.c_ulonglong(0)


class Location(ctypes.Structure):
    """`CUmemLocation`."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProp(ctypes.Structure):
    """`CUmemAllocationProp`, with the fields of allocFlags in place."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("requestedHandleTypes", ctypes.c_int),
        ("location", Location),
        ("win32HandleMetaData", ctypes.c_void_p),
        ("compressionType", ctypes.c_ubyte),
        ("gpuDirectRDMACapable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class AccessDesc(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class MulticastProp(ctypes.Structure):
    """`CUmulticastObjectProp`."""

    _fields_ = [
        ("numDevices", ctypes.c_uint),
        ("size", ctypes.c_size_t),
        ("handleTypes", ctypes.c_ulonglong),
        ("flags", ctypes.c_ulonglong),
    ]


class Driver:
    """The functions of libcuda, one method a call."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def allocation(self, address: int) -> tuple[int, int]:
        """Start and bytes of the allocation, as the driver knows it, that holds an address of this process.

        cudaMalloc cuts small pieces out of larger allocations, and shares with other processes the whole ones only.
        """
        start, nbytes = _Address(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(nbytes), _Address(address))
        return start.value, nbytes.value

    def attribute(self, which: int, device: int) -> int:
        """Return a number that describes a device."""
        return self._number_by_call("cuDeviceGetAttribute", ctypes.c_int, ctypes.c_int(which), self._device(device))

    def mem_granularity(self, device: int) -> int:
        """Return the number of which sizes of allocations on a device should be multiples."""
        prop = ctypes.byref(_allocation(device))
        return self._number_by_call("cuMemGetAllocationGranularity", ctypes.c_size_t, prop, ctypes.c_int(_RECOMMENDED))

    def mem_create(self, size: int, device: int) -> int:
        """Physical memory of a device, without an address: a handle."""
        prop = ctypes.byref(_allocation(device))
        return self._number_by_call("cuMemCreate", _Handle, ctypes.c_size_t(size), prop, _NO_FLAGS)

    def mem_release(self, handle: int) -> None:
        """Give up a handle of memory, or of a multicast object; what is mapped stays until it is unmapped."""
        self._call("cuMemRelease", _Handle(handle))

    def mem_address_reserve(self, size: int, alignment: int) -> int:
        """Addresses with nothing behind them."""
        sizes = ctypes.c_size_t(size), ctypes.c_size_t(alignment)
        return self._number_by_call("cuMemAddressReserve", _Address, *sizes, _Address(0), _NO_FLAGS)

    def mem_address_free(self, address: int, size: int) -> None:
        """Give reserved addresses back."""
        self._call("cuMemAddressFree", _Address(address), ctypes.c_size_t(size))

    def mem_map(self, address: int, size: int, handle: int) -> None:
        """Put memory, or a multicast object to which all devices were added, behind reserved addresses."""
        self._call("cuMemMap", _Address(address), ctypes.c_size_t(size), ctypes.c_size_t(0), _Handle(handle), _NO_FLAGS)

    def mem_unmap(self, address: int, size: int) -> None:
        """Undo mem_map."""
        self._call("cuMemUnmap", _Address(address), ctypes.c_size_t(size))

    def mem_set_access(self, address: int, size: int, devices: Sequence[int]) -> None:
        """Let kernels of these devices load_driver and store at mapped addresses."""
        every = (AccessDesc(Location(_ON_DEVICE, device), _READ_AND_WRITE) for device in devices)
        access = (AccessDesc * len(devices))(*every)
        nbytes, count = ctypes.c_size_t(size), ctypes.c_size_t(len(devices))
        self._call("cuMemSetAccess", _Address(address), nbytes, ctypes.byref(access), count)

    def multicast_granularity(self, devices: int, size: int) -> int:
        """Return the number of which the size of a multicast object of so many devices should be a multiple."""
        prop = ctypes.byref(_multicast(devices, size))
        return self._number_by_call("cuMulticastGetGranularity", ctypes.c_size_t, prop, ctypes.c_int(_RECOMMENDED))

    def multicast_create(self, devices: int, size: int) -> int:
        """Return the handle of a multicast object for so many devices, which are added next."""
        return self._number_by_call("cuMulticastCreate", _Handle, ctypes.byref(_multicast(devices, size)))

    def multicast_add_device(self, team: int, device: int) -> None:
        """Add a device; before all are, binding and mapping would wait for ever."""
        self._call("cuMulticastAddDevice", _Handle(team), self._device(device))

    def multicast_bind_mem(self, team: int, memory: int, size: int) -> None:
        """Make a device's memory its part of a multicast object, both from their start on."""
        start = ctypes.c_size_t(0)
        self._call("cuMulticastBindMem", _Handle(team), start, _Handle(memory), start, ctypes.c_size_t(size), _NO_FLAGS)

    def multicast_unbind(self, team: int, device: int, size: int) -> None:
        """Undo multicast_bind_mem."""
        place = ctypes.c_size_t(0), ctypes.c_size_t(size)
        self._call("cuMulticastUnbind", _Handle(team), self._device(device), *place)

    def _device(self, ordinal: int) -> ctypes.c_int:
        return ctypes.c_int(self._number_by_call("cuDeviceGet", ctypes.c_int, ctypes.c_int(ordinal)))

    def _number_by_call(self, name: str, kind: type[Any], *arguments: Any) -> int:
        """Return what a function stores at its first argument, a number of that kind."""
        value = kind()
        self._call(name, ctypes.byref(value), *arguments)
        return int(value.value)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise PlatformError(f"the driver is too old to have {name}: update it") from None
        if status := function(*arguments):
            raise PlatformError(f"{name}: {self._in_words(status)}")

    def _in_words(self, status: int) -> str:
        text = ctypes.c_char_p()
        failed = self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        return f"CUDA error {status}" if failed or text.value is None else text.value.decode()


@cache
def load_driver() -> Driver:
    """The driver of this machine; PlatformError if there is none."""
    try:
        return Driver(ctypes.CDLL(LIBRARY))
    except OSError as error:
        raise PlatformError(f"the CUDA driver cannot be loaded ({error})") from error


def _allocation(device: int) -> AllocationProp:
    return AllocationProp(_PINNED, _FILE_DESCRIPTOR, Location(_ON_DEVICE, device))


def _multicast(devices: int, size: int) -> MulticastProp:
    return MulticastProp(devices, size, _FILE_DESCRIPTOR)


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
        # Something that CuPy needs is not there: its own error is a page of advice, raised from what failed.
        reason = str(error.__cause__ or error).strip().splitlines()[-1]
        raise PlatformError(f"CuPy cannot be imported ({reason}): install the one CuPy of your CUDA") from error
    except OSError as error:  # CuPy makes its folder for compiled kernels as soon as it is imported
        raise PlatformError(f"CuPy cannot be imported ({error}): {CACHE}") from error
    return cupy


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
            fix = f"{hint(reason)}, or " if hint(reason) else ""
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
        """Return the driver's name of a GPU."""
        name = self.runtime.getDeviceProperties(device)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def uuid(self, device: int) -> str:
        """Return a GPU's or MIG slice's UUID in hexadecimal; "" where CUDA is too old to say.

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


class Stream:
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
        """Return the stream, to enqueue an operation that is to be timed."""
        self.used = True
        return self.enter()

    def mark(self) -> Any:
        """Return a new event behind all that was enqueued; an event of a capture is of no use outside it."""
        stream, event = self.enter(), self._event(disable_timing=True)
        event.record(stream)
        return event

    def fetch(self, address: int, into: Array) -> Array:
        """Fill the array from this device's memory, after what wrote there is done."""
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
    functions: tuple[Any, ...]  # cuda.cupy.cuda.Function, by device


def compile_kernel(
    cuda: Cuda,
    devices: Sequence[int],
    file: str,
    entry: str,
    dtype: Datatype,
    redop: Reduction,
    more: Sequence[str] = (),
) -> GpuKernel:
    """Return an entry of kernels/<file>, compiled by NVRTC for each device's architecture and loaded on each.

    PlatformError in one line, SourceError where the source is at fault: no implementation is measured on a machine that
    cannot compile the project's own sources, and a row that said `skipped` would hide it.

    CuPy's flag for cooperative groups is not for the module: it would ask for a CUDA toolkit to link against, which
    only a kernel needs that synchronises its whole grid.  The launch alone is cooperative.
    """
    compiler.require(file, entry)
    options = (*compiler.defines(dtype, redop), *more, "-std=c++17")
    failures = cuda.cupy.cuda.compiler.CompileException, RuntimeError, OSError
    functions = []
    try:
        cuda.runtime.setDevice(devices[0])  # get_function compiles for the current device, and makes a context there
        raw = cuda.cupy.RawModule(code=compiler.source(file), options=options).get_function(entry)
        for device in devices:
            cuda.runtime.setDevice(device)
            functions.append(raw.kernel)  # through cuModuleGetFunction, which loads it, lazy loading or not
    except failures as error:
        what = f"{file} could not be compiled for {dtype.name} {redop.name}"
        if place := compiler.first_error(file, str(error)):
            raise SourceError(": ".join(filter(None, (what, place, hint(place))))) from error
        raise PlatformError(f"{what}: {why(error)}") from error
    return GpuKernel(entry, tuple(functions))
