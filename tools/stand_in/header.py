"""Assumptions of collbench.platforms.gpu.cuda about libcuda, as C: structures, numbers and functions."""

import ctypes
from collections.abc import Iterator

from collbench.platforms.gpu import cuda

STRUCTURES = {
    "CUmemLocation": cuda.Location,
    "CUmemAllocationProp": cuda.AllocationProp,
    "CUmemAccessDesc": cuda.AccessDesc,
    "CUmulticastObjectProp": cuda.MulticastProp,
}
NESTED = dict.fromkeys(("compressionType", "gpuDirectRDMACapable", "usage", "reserved"), "allocFlags.")
NUMBERS = {
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": cuda.COMPUTE_CAPABILITY_MAJOR,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": cuda.COMPUTE_CAPABILITY_MINOR,
    "CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED": cuda.MULTICAST_SUPPORTED,
    "CU_MEM_ALLOCATION_TYPE_PINNED": cuda.PINNED,
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": cuda.FILE_DESCRIPTOR,
    "CU_MEM_LOCATION_TYPE_DEVICE": cuda.ON_DEVICE,
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": cuda.READ_AND_WRITE,
    "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED": cuda.RECOMMENDED,
    "CU_MULTICAST_GRANULARITY_RECOMMENDED": cuda.RECOMMENDED,
    "sizeof(CUdeviceptr)": ctypes.sizeof(cuda.Address),
    "sizeof(CUmemGenericAllocationHandle)": ctypes.sizeof(cuda.Handle),
    "sizeof(CUdevice)": ctypes.sizeof(ctypes.c_int),
    "sizeof(CUresult)": ctypes.sizeof(ctypes.c_int),
}
CALLS = {  # as Driver makes them
    "cuDeviceGet": "CUdevice *, int",
    "cuDeviceGetAttribute": "int *, CUdevice_attribute, CUdevice",
    "cuMemGetAllocationGranularity": "size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags",
    "cuMemCreate": "CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long",
    "cuMemRelease": "CUmemGenericAllocationHandle",
    "cuMemAddressReserve": "CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long",
    "cuMemAddressFree": "CUdeviceptr, size_t",
    "cuMemMap": "CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long",
    "cuMemUnmap": "CUdeviceptr, size_t",
    "cuMemSetAccess": "CUdeviceptr, size_t, const CUmemAccessDesc *, size_t",
    "cuMulticastGetGranularity": "size_t *, const CUmulticastObjectProp *, CUmulticastGranularity_flags",
    "cuMulticastCreate": "CUmemGenericAllocationHandle *, const CUmulticastObjectProp *",
    "cuMulticastAddDevice": "CUmemGenericAllocationHandle, CUdevice",
    "cuMulticastBindMem": "CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,"
    " unsigned long long",
    "cuMulticastUnbind": "CUmemGenericAllocationHandle, CUdevice, size_t, size_t",
    "cuMemGetAddressRange_v2": "CUdeviceptr *, size_t *, CUdeviceptr",
    "cuGetErrorString": "CUresult, const char **",
}


def expected() -> Iterator[tuple[str, int]]:
    """C expressions, and their values in Python."""
    yield from NUMBERS.items()
    for name, structure in STRUCTURES.items():
        yield f"sizeof({name})", ctypes.sizeof(structure)
        for field, *_ in structure._fields_:
            place = f"{name}, {NESTED.get(field, '')}{field}"
            yield f"offsetof({place})", getattr(structure, field).offset
            yield f"sizeof((({name} *)0)->{NESTED.get(field, '')}{field})", getattr(structure, field).size
