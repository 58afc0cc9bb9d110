"""CuPy behind one module: streams, memory, kernels, and translated errors.

It calls the CUDA driver through ctypes for features that CuPy lacks: allocations, virtual memory, multicast objects.
A test compares its structures and constants with cuda.h. Sizes, offsets and addresses are in bytes, devices are
ordinals. Every method raises PlatformError with the driver's message.

CuPy finds NCCL in its wheel or on the system; COLLBENCH_NCCL=/path/libnccl.so.2 is loaded first and takes its place.
"""

import ctypes
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CollbenchError, PlatformError, SourceError
from collbench.platforms import compiler

CACHE = "set CUPY_CACHE_DIR (and TMPDIR) to folders that can be written"
_HINTS = tomllib.loads(Path(__file__).with_name("hints.toml").read_text(encoding="utf-8"))["hint"]
_COMPLAINT = re.compile(r"\b(error|fatal)\s*:")  # of NVRTC, among warnings and lines of the source


def hint(reason: str) -> str:
    """Return what helps; "" where that is not known."""
    return next((each["fix"] for each in _HINTS if re.search(each["of"], reason)), "")


def why(error: Exception) -> str:
    """Return the message of CuPy, NVRTC or the driver in one line, and what helps."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    plain = isinstance(error, RuntimeError | OSError)  # CuPy's and CUDA's own errors begin with what is wrong
    reason = next((line for line in lines if not plain and _COMPLAINT.search(line)), lines[0]).strip()
    fix = hint(reason) or (CACHE if isinstance(error, OSError) else "")
    return f"{reason}: {fix}" if fix else reason


NEWER_STATUSES = {7: "ncclInProgress", 8: "ncclTimeout"}
"""NCCL's statuses that CuPy 14's NcclError has no name for: the constructor raises KeyError with the status instead."""
_NCCL_OF_CUPY = "cupy_backends/cuda/libs/nccl.pyx"


def _in_words(error: Exception) -> str:
    """Return the message of CUDA or NCCL in one line; raise a KeyError again that is not of CuPy's NcclError."""
    if not isinstance(error, KeyError):
        return str(error)
    *_, (innermost, _) = walk_tb(error.__traceback__)
    if innermost.f_code.co_filename != _NCCL_OF_CUPY:
        raise error
    status = error.args[0]
    return f"{NEWER_STATUSES.get(status, 'an error that CuPy does not know')} (NCCL's status {status})"


LIBRARY = "libcuda.so.1"

COMPUTE_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_...
COMPUTE_CAPABILITY_MINOR = 76
MULTICAST_SUPPORTED = 132

PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
FILE_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MULTICAST_GRANULARITY_RECOMMENDED

Address = Handle = Flags = ctypes.c_ulonglong  # CUdeviceptr, CUmemGenericAllocationHandle, unsigned long long
Device, Size = ctypes.c_int, ctypes.c_size_t


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


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGet": (Device, ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.c_int, ctypes.c_int, Device),
    "cuMemGetAddressRange_v2": (Address, ctypes.byref, Address),
    "cuMemGetAllocationGranularity": (Size, ctypes.byref, ctypes.c_int),
    "cuMemCreate": (Handle, Size, ctypes.byref, Flags),
    "cuMemRelease": (None, Handle),
    "cuMemAddressReserve": (Address, Size, Size, Address, Flags),
    "cuMemAddressFree": (None, Address, Size),
    "cuMemMap": (None, Address, Size, Size, Handle, Flags),
    "cuMemUnmap": (None, Address, Size),
    "cuMemSetAccess": (None, Address, Size, ctypes.byref, Size),
    "cuMulticastGetGranularity": (Size, ctypes.byref, ctypes.c_int),
    "cuMulticastCreate": (Handle, ctypes.byref),
    "cuMulticastAddDevice": (None, Handle, Device),
    "cuMulticastBindMem": (None, Handle, Size, Handle, Size, Size, Flags),
    "cuMulticastUnbind": (None, Handle, Device, Size, Size),
}
"""Functions of libcuda: the type stored at the first argument, if any, and the types of the other arguments."""


class Driver:
    """The functions of libcuda, called by name with plain numbers and the structures above."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function; return the number that it stores at its first argument, 0 if it stores none."""
        stored, *kinds = FUNCTIONS[name]
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise PlatformError(f"the driver is too old to have {name}: update it") from None
        value = stored() if stored else ctypes.c_int()
        converted = [kind(argument) for kind, argument in zip(kinds, arguments, strict=True)]
        if status := function(*([ctypes.byref(value)] if stored else []), *converted):
            raise PlatformError(f"{name}: {self._in_words(status)}")
        return int(value.value)

    def device(self, ordinal: int) -> int:
        """Return the CUdevice of a device."""
        return self.call("cuDeviceGet", ordinal)

    def attribute(self, which: int, ordinal: int) -> int:
        """Return a number that describes a device."""
        return self.call("cuDeviceGetAttribute", which, self.device(ordinal))

    def start_of_allocation(self, address: int) -> int:
        """Return where the allocation starts, as the driver knows it, that holds an address of this process.

        cudaMalloc cuts small pieces out of larger allocations, and shares with other processes the whole ones only.
        """
        return self.call("cuMemGetAddressRange_v2", ctypes.c_size_t(), address)

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
        # Where something else than CuPy is missing, its own error is a page of advice, raised from what failed.
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise PlatformError("platform 'gpu' needs CuPy: pip install 'collbench[cuda12]' (or cuda13)") from error
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
        self.errors: tuple[type[Exception], ...] = (self.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
        if self.nccl.available:
            self.errors += (self.nccl.NcclError,)

    @contextmanager
    def failing_as(self, kind: type[CollbenchError], doing: str) -> Iterator[None]:
        """Turn what CUDA or NCCL raise inside into an error of collbench, in one line."""
        failures: tuple[type[Exception], ...] = (*self.errors, KeyError)
        try:
            yield
        except failures as error:
            raise kind(f"{doing}: {_in_words(error)}") from error

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
        """Return a GPU's or MIG slice's UUID in hexadecimal; "" where CUDA is too old to say."""
        # CUDA's runtime asks for the newest cuDeviceGetUuid, which tells slices apart since CUDA 11.4.  CuPy takes its
        # 16 bytes for a string in C, which ends with the first zero: some UUIDs are cut short, others followed by more.
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


class DeviceMemory:
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

        # No stream of ours waits for the default stream, which does the zeroing.
        for device in set(devices):
            cuda.runtime.setDevice(device)
            cuda.runtime.deviceSynchronize()

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
    """
    compiler.require(file, entry)
    options = (*compiler.defines(dtype, redop), *more, "-std=c++17")
    failures = cuda.cupy.cuda.compiler.CompileException, RuntimeError, OSError
    functions = []

    # CuPy's flag for cooperative groups is not for the module: it would ask for a CUDA toolkit to link against, which
    # only a kernel needs that synchronises its whole grid.  The launch alone is cooperative.
    try:
        cuda.runtime.setDevice(devices[0])  # get_function compiles for the current device, and makes a context there
        raw = cuda.cupy.RawModule(code=compiler.source(file), options=options).get_function(entry)
        for device in devices:
            cuda.runtime.setDevice(device)
            functions.append(raw.kernel)  # through cuModuleGetFunction, which loads it, lazy loading or not
    except failures as error:
        what = f"{file} could not be compiled for {dtype.name} {redop.name}"
        if first := compiler.first_error(file, str(error)):
            raise SourceError(": ".join(filter(None, (what, first, hint(first))))) from error
        raise PlatformError(f"{what}: {why(error)}") from error
    return GpuKernel(entry, tuple(functions))
