# ruff: noqa: N802, N803 - the names are those of the library
"""libcuda for the made-up machine (cuda.py): virtual memory and multicast objects, on host memory.

Physical memory is an anonymous file and an address a mapping of it, so that two addresses of one place are aliases.  A
multicast address cannot be touched: a kernel that took it for an ordinary one would crash.  An endless wait or
undefined behaviour of the driver is an AssertionError.

Stricter than the real one on purpose: a handle is released only once nothing is mapped or bound, and every size is a
multiple of what was said.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from collbench.platforms.gpu import cuda
from collbench.platforms.layout import view
from tools.stand_in.cuda import Machine

GRAIN, TEAM_GRAIN = 2**16, 2**17  # bytes
INVALID, OUT_OF_MEMORY, BROKEN = 1, 2, 802
WORDS = {OUT_OF_MEMORY: b"out of memory", BROKEN: b"system not yet initialized"}
UNDOING = ("cuMemRelease", "cuMemAddressFree", "cuMemUnmap", "cuMulticastUnbind")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FIXED, _NOTHING = 0x10, 0  # MAP_FIXED, PROT_NONE


def _mapping(address: int, size: int, protection: int, flags: int, file: int) -> int:
    found = _libc.mmap(address or None, size, protection, flags | (_FIXED if address else 0), file, 0)
    assert found != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return int(found)


@dataclass
class Part:
    """Memory of one device."""

    device: int
    size: int
    file: int


@dataclass
class Team:
    """A multicast object."""

    expected: int
    size: int
    devices: list[int] = field(default_factory=list)
    bound: dict[int, int] = field(default_factory=dict)  # device: handle of its part


@dataclass
class Library:
    """The functions that collbench.platforms.gpu.cuda calls, with checks of their arguments."""

    machine: Machine
    capability: tuple[int, int] = (9, 0)
    without_multicast: set[int] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    failing: int = -1  # which call fails, of those that undo nothing, from zero
    failed: str = ""  # and its name, once it has
    undoing_fails: bool = False
    calls: list[str] = field(default_factory=list)  # but for those that undo
    handles: dict[int, Part | Team] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)  # address: size
    mapped: dict[int, int] = field(default_factory=dict)  # address: handle
    made: int = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        """A function of the library, by its name in C; its arguments are ctypes objects, some by reference."""
        if not name.startswith("cu") or name in self.missing:
            raise AttributeError(name)
        function: Callable[..., int | None] = getattr(self, "_" + name)

        def call(*arguments: Any) -> int:
            if name in UNDOING:
                return BROKEN if self.undoing_fails else function(*arguments) or 0
            if name != "cuGetErrorString":
                self.calls.append(name)
                if len(self.calls) - 1 == self.failing:
                    self.failed = name
                    return BROKEN
            return function(*arguments) or 0

        return call

    @property
    def empty(self) -> bool:
        return not self.handles and not self.reserved and not self.mapped

    def behind(self, address: int, device: int) -> tuple[Part, int]:
        """The memory behind an address, on a device where several share it, and how far in."""
        start = next(start for start in self.mapped if start <= address < start + self.reserved[start])
        found = self.handles[self.mapped[start]]
        part = self.handles[found.bound[device]] if isinstance(found, Team) else found
        assert isinstance(part, Part)
        return part, address - start

    def expect_multicast(self, world: Any, inputs: int, results: int) -> None:
        """The two addresses are multicast, and behind them are the buffers of the ranks, a device each."""
        for multicast, own in ((inputs, world["send"]), (results, world["receive"])):
            start = max(begin for begin in self.mapped if begin <= multicast)
            assert isinstance(self.handles[self.mapped[start]], Team)
            for rank in range(int(world["ranks"])):
                assert self.behind(multicast, rank) == self.behind(int(own[rank]), rank)
                assert self.behind(multicast, rank)[0].device == rank

    def _cuGetErrorString(self, error: Any, pStr: Any) -> int:
        pStr._obj.value = WORDS.get(error.value)
        return 0 if error.value in WORDS else INVALID

    def _cuDeviceGet(self, device: Any, ordinal: Any) -> None:
        assert ordinal.value < self.machine.devices
        device._obj.value = ordinal.value

    def _cuDeviceGetAttribute(self, pi: Any, attrib: Any, dev: Any) -> None:
        pi._obj.value = {
            cuda.COMPUTE_CAPABILITY_MAJOR: self.capability[0],
            cuda.COMPUTE_CAPABILITY_MINOR: self.capability[1],
            cuda.MULTICAST_SUPPORTED: dev.value not in self.without_multicast,
        }[attrib.value]

    def _cuMemGetAllocationGranularity(self, granularity: Any, prop: Any, option: Any) -> None:
        granularity._obj.value = GRAIN

    def _cuMulticastGetGranularity(self, granularity: Any, prop: Any, option: Any) -> None:
        granularity._obj.value = TEAM_GRAIN

    def _keep(self, handle: Any, what: Part | Team) -> None:
        self.made += 1
        self.handles[self.made] = what
        handle._obj.value = self.made

    def _cuMemCreate(self, handle: Any, size: Any, prop: Any, flags: Any) -> int:
        wanted, device = prop._obj, prop._obj.location.id
        assert (wanted.type, wanted.requestedHandleTypes, wanted.location.type, flags.value) == (1, 1, 1, 0)
        assert size.value % GRAIN == 0
        taken = sum(
            handle.size for handle in self.handles.values() if isinstance(handle, Part) and handle.device == device
        )
        if taken + size.value > self.machine.free:
            return OUT_OF_MEMORY
        file = os.memfd_create("part")
        os.ftruncate(file, size.value)
        self._keep(handle, Part(device, size.value, file))
        return 0

    def _cuMemRelease(self, handle: Any) -> None:
        assert handle.value not in self.mapped.values()
        what = self.handles.pop(handle.value)
        if isinstance(what, Part):
            teams = [handle for handle in self.handles.values() if isinstance(handle, Team)]
            assert all(handle.value not in team.bound.values() for team in teams)
            os.close(what.file)

    def _cuMemAddressReserve(self, ptr: Any, size: Any, alignment: Any, addr: Any, flags: Any) -> None:
        assert size.value % GRAIN == alignment.value % GRAIN == addr.value == flags.value == 0
        found = _mapping(0, size.value, _NOTHING, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        self.reserved[found] = size.value
        ptr._obj.value = found

    def _cuMemAddressFree(self, ptr: Any, size: Any) -> None:
        assert ptr.value not in self.mapped
        assert self.reserved.pop(ptr.value) == size.value
        _libc.munmap(ptr.value, size.value)

    def _cuMemMap(self, ptr: Any, size: Any, offset: Any, handle: Any, flags: Any) -> None:
        what = self.handles[handle.value]
        assert self.reserved[ptr.value] == size.value == what.size
        assert offset.value == flags.value == 0
        assert not isinstance(what, Team) or len(what.devices) == what.expected, "the driver would wait for ever"
        self.mapped[ptr.value] = handle.value

    def _cuMemUnmap(self, ptr: Any, size: Any) -> None:
        del self.mapped[ptr.value]
        self.machine.blocks.pop(ptr.value, None)
        self.machine.access.pop(ptr.value, None)
        _mapping(ptr.value, size.value, _NOTHING, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)

    def _cuMemSetAccess(self, ptr: Any, size: Any, desc: Any, count: Any) -> None:
        what = self.handles[self.mapped[ptr.value]]
        assert count.value == len(desc._obj)
        assert all((grant.location.type, grant.flags) == (1, 3) for grant in desc._obj)
        if isinstance(what, Part):
            _mapping(ptr.value, size.value, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, what.file)
            self.machine.blocks[ptr.value] = what.device, view(ptr.value, size.value)
            self.machine.access[ptr.value] = {grant.location.id for grant in desc._obj}
            view(ptr.value, size.value)[:] = 0xEE

    def _cuMulticastCreate(self, mcHandle: Any, prop: Any) -> None:
        wanted = prop._obj
        assert (wanted.handleTypes, wanted.flags) == (1, 0)
        assert wanted.numDevices > 1
        assert wanted.size % TEAM_GRAIN == 0
        self._keep(mcHandle, Team(wanted.numDevices, wanted.size))

    def _team(self, handle: Any) -> Team:
        found = self.handles[handle.value]
        assert isinstance(found, Team)
        return found

    def _cuMulticastAddDevice(self, mcHandle: Any, dev: Any) -> None:
        assert dev.value not in self._team(mcHandle).devices
        self._team(mcHandle).devices.append(dev.value)

    def _cuMulticastBindMem(
        self, mcHandle: Any, mcOffset: Any, memHandle: Any, memOffset: Any, size: Any, flags: Any
    ) -> None:
        part, whole = self.handles[memHandle.value], self._team(mcHandle)
        assert isinstance(part, Part)
        assert len(whole.devices) == whole.expected, "the driver would wait for ever"
        assert part.device in whole.devices
        assert part.device not in whole.bound
        assert mcOffset.value == memOffset.value == flags.value == 0
        assert size.value == part.size == whole.size
        whole.bound[part.device] = memHandle.value

    def _cuMulticastUnbind(self, mcHandle: Any, dev: Any, mcOffset: Any, size: Any) -> None:
        assert (mcOffset.value, size.value) == (0, self._team(mcHandle).size)
        del self._team(mcHandle).bound[dev.value]
