"""The CUDA driver through ctypes, for what CuPy does not offer: allocations, virtual memory, multicast objects.

Structures and constants are those of cuda.h; a test compiles that header and compares.  Sizes, offsets and addresses
are bytes, devices are ordinals.  Every method raises PlatformError with the driver's own words.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from collbench.errors import PlatformError

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
        """A number that describes a device."""
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), self._device(device))
        return value.value

    def mem_granularity(self, device: int) -> int:
        """What sizes of allocations on a device had best be multiples of."""
        grain, prop = ctypes.c_size_t(), _allocation(device)
        self._call("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(prop), ctypes.c_int(_RECOMMENDED))
        return grain.value

    def mem_create(self, size: int, device: int) -> int:
        """Physical memory of a device, without an address: a handle."""
        handle, prop = _Handle(), _allocation(device)
        self._call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), _NO_FLAGS)
        return handle.value

    def mem_release(self, handle: int) -> None:
        """Give up a handle of memory, or of a multicast object; what is mapped stays until it is unmapped."""
        self._call("cuMemRelease", _Handle(handle))

    def mem_address_reserve(self, size: int, alignment: int) -> int:
        """Addresses with nothing behind them."""
        address = _Address()
        sizes = ctypes.c_size_t(size), ctypes.c_size_t(alignment)
        self._call("cuMemAddressReserve", ctypes.byref(address), *sizes, _Address(0), _NO_FLAGS)
        return address.value

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
        """Let kernels of these devices load and store at mapped addresses."""
        access = (AccessDesc * len(devices))(*(AccessDesc(_location(device), _READ_AND_WRITE) for device in devices))
        nbytes, count = ctypes.c_size_t(size), ctypes.c_size_t(len(devices))
        self._call("cuMemSetAccess", _Address(address), nbytes, ctypes.byref(access), count)

    def multicast_granularity(self, devices: int, size: int) -> int:
        """What the size of a multicast object of so many devices had best be a multiple of."""
        grain, prop = ctypes.c_size_t(), _multicast(devices, size)
        self._call("cuMulticastGetGranularity", ctypes.byref(grain), ctypes.byref(prop), ctypes.c_int(_RECOMMENDED))
        return grain.value

    def multicast_create(self, devices: int, size: int) -> int:
        """A multicast object for so many devices, which are added next: a handle."""
        handle, prop = _Handle(), _multicast(devices, size)
        self._call("cuMulticastCreate", ctypes.byref(handle), ctypes.byref(prop))
        return handle.value

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
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        return device

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
def load() -> Driver:
    """The driver of this machine; PlatformError if there is none."""
    try:
        return Driver(ctypes.CDLL(LIBRARY))
    except OSError as error:
        raise PlatformError(f"the CUDA driver cannot be loaded ({error})") from error


def _location(device: int) -> Location:
    return Location(_ON_DEVICE, device)


def _allocation(device: int) -> AllocationProp:
    return AllocationProp(_PINNED, _FILE_DESCRIPTOR, _location(device))


def _multicast(devices: int, size: int) -> MulticastProp:
    return MulticastProp(devices, size, _FILE_DESCRIPTOR)
