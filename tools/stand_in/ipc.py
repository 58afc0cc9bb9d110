"""Device memory that processes share, for the machine of cuda.py: CUDA IPC over memory files.

As CUDA does, it hands out a piece of a larger allocation and shares the whole: who ignores the offset meets strangers'
bytes.  A page behind each allocation says which processes have it open, so that freeing it too early is found out.
"""

import ctypes
import mmap
import os
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench.platforms.compiler import compiler

BEFORE = 3 * 256  # bytes of somebody else in front of each piece
PAGE = mmap.PAGESIZE
HANDLE = struct.Struct("=qqqq")  # process, file, bytes, bus


class Allocation:
    """A memory file, mapped: an allocation of the driver, and a byte for each process that has it open."""

    def __init__(self, process: int, file: int, nbytes: int, bus: int) -> None:
        self.handle = process, file, nbytes, bus
        self.nbytes, self.bus = nbytes, bus
        self._map = mmap.mmap(file, nbytes + PAGE)
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.address = self.bytes.ctypes.data
        self.openers = self.bytes[nbytes:]

    @classmethod
    def make(cls, nbytes: int, bus: int) -> "Allocation":
        nbytes = -(-nbytes // PAGE) * PAGE
        file = os.memfd_create("made-up-gpu")
        os.ftruncate(file, nbytes + PAGE)
        made = cls(os.getpid(), file, nbytes, bus)
        made.bytes[:nbytes] = 0xEE
        return made

    @classmethod
    def open(cls, handle: bytes) -> "Allocation":
        process, _, nbytes, bus = held = HANDLE.unpack(handle[: HANDLE.size])
        file = os.open(f"/proc/{process}/fd/{held[1]}", os.O_RDWR)
        try:
            return cls(process, file, nbytes, bus)
        finally:
            os.close(file)


class SharedMemory:
    """Memory that one process has allocated and opened; `process` is its number among those of the run."""

    def __init__(self, machine: Any, process: int) -> None:
        self._machine, self._process = machine, process
        self._driver = ctypes.CDLL("libcuda.so.1")  # the made-up one below, which is asked for allocations
        self.allocated: dict[int, Allocation] = {}  # by the address of the piece
        self.opened: dict[int, Allocation] = {}

    def allocate(self, device: int, size: int) -> tuple[int, np.ndarray[Any, Any]]:
        made = Allocation.make(BEFORE + size, self._machine.buses.get(device, device))
        self._driver.made_up_allocate(ctypes.c_uint64(made.address), ctypes.c_size_t(made.nbytes))
        self.allocated[made.address + BEFORE] = made
        return made.address + BEFORE, made.bytes[BEFORE:][:size]

    def free(self, address: int) -> None:
        gone = self.allocated.pop(address, None)
        if gone is None:
            return
        assert not gone.openers.any(), "memory is freed that another process still has open"
        os.close(gone.handle[1])

    def handle(self, address: int) -> bytes:
        owner = next(one for one in self.allocated.values() if one.address <= address < one.address + one.nbytes)
        return HANDLE.pack(*owner.handle).ljust(64, b"\0")

    def open(self, handle: bytes) -> tuple[int, int, np.ndarray[Any, Any]]:
        """Address, bus and bytes of the whole allocation."""
        found = Allocation.open(handle)
        assert found.handle[0] != os.getpid(), "CUDA opens no handle of the same process"
        found.openers[self._process] = 1
        self.opened[found.address] = found
        return found.address, found.bus, found.bytes[: found.nbytes]

    def close(self, address: int) -> None:
        time.sleep(0.02 * self._process)  # whoever frees without waiting for all is caught
        gone = self.opened.pop(address)
        gone.openers[self._process] = 0


DRIVER = """
#include <map>
static std::map<unsigned long, unsigned long> allocations;
extern "C" {
void made_up_allocate(unsigned long start, unsigned long nbytes) { allocations[start] = nbytes; }
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { *count = DEVICES; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
// An H100 without a switch: capability 9.0, and no to all else.
int cuDeviceGetAttribute(int* value, int which, int) { *value = which == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long* nbytes, int) { *nbytes = 1UL << 30; return 0; }
int cuGetErrorString(int error, const char** name) { *name = "invalid argument"; return error != 1; }
int cuMemGetAddressRange_v2(unsigned long* start, unsigned long* nbytes, unsigned long address) {
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return 1;
  auto found = --next;
  if (address >= found->first + found->second) return 1;
  *start = found->first, *nbytes = found->second;
  return 0;
}
}
"""


def build_driver(folder: Path, devices: int) -> Path:
    """The made-up libcuda.so.1, which knows the allocations of its process."""
    source, library = folder / "driver.cpp", folder / "libcuda.so.1"
    source.write_text(DRIVER)
    options: Sequence[Any] = (f"-DDEVICES={devices}", "-shared", "-fPIC", "-o", library, source)
    subprocess.run([*compiler(), *options], check=True)
    return library
