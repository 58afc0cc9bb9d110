# ruff: noqa: N802, N803, N815 - the names are CuPy's
"""Kernels, memory and devices of the machine of cuda.py: what CuPy offers of the runtime, the driver and NVRTC."""

import os
import signal
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.host.processes import shared_files
from collbench.platforms import compiler
from collbench.platforms.gpu.launch import SPINS
from collbench.platforms.gpu.timing import _TRIES as TRIES
from collbench.platforms.layout import view
from tools.stand_in import errors
from tools.stand_in.errors import CUDADriverError, CUDARuntimeError
from tools.stand_in.streams import Stream

if TYPE_CHECKING:
    from tools.stand_in.cuda import Machine

GRID = ("-DHOST_GRID", "-O1")  # as threads; optimised for the compiler's time, not for theirs
THREADS = 2  # of a block: enough to need every barrier
MEMORY = 2**30
MOST_THREADS = 1024  # of a block
MOST_PEERS = 8  # of a device without a switch


class Function:
    """A kernel on one device."""

    def __init__(self, machine: "Machine", file: str, entry: str, options: tuple[str, ...]) -> None:
        self._machine, self._device = machine, machine.current
        self._file, self._entry, self._options = file, entry, options
        if entry not in compiler.entries(file):
            raise CUDADriverError(errors.NOT_FOUND)
        self.ptr = id(self)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int = 0,
        stream: Stream | None = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        assert stream is not None, "everything has its stream here"
        assert stream.device_id == self._device, "a kernel runs on the device that it was loaded on"
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError("grid and block are tuples")
        if block[0] > MOST_THREADS:
            raise CUDADriverError(errors.INVALID)
        held = tuple(map(by_value, args))
        if enable_cooperative_groups:
            stream.enqueue(self._cooperative(self._clamped(grid[0]), held))
        else:
            stream.enqueue(self._single(held))

    def _clamped(self, blocks: int) -> int:
        room = self._machine.multiprocessors * self._machine.blocks_each
        if blocks > room:
            exceeds = "as the specified grid size exceeds the limit."
            warnings.warn(f"The grid size will be reduced from {blocks} to {room}, {exceeds}", stacklevel=2)
        return min(blocks, room)

    def _cooperative(self, blocks: int, args: tuple[Any, ...]) -> Callable[[], None]:
        kernel = compiler.host_kernel(self._file, self._entry, (*self._options, *GRID))
        windows: list[int] = []
        for world in (arg for arg in args if arg.dtype.names and "window" in arg.dtype.names):
            world["yield_after"] = 1
            if world["spins"] == SPINS:  # a busy machine may keep a rank from its core for long
                world["spins"] = 2**27
            windows += world["window"][: int(world["ranks"])].tolist()
            if self._entry == "nvls":
                self._machine.switch.expect_multicast(world, *map(int, args[1:3]))
        if self._machine.dies:
            return _die
        if self._device in self._machine.dead:
            return lambda: None
        return self._within_reach(windows, lambda: kernel(*args, blocks=blocks, threads=THREADS))

    def _single(self, args: tuple[Any, ...]) -> Callable[[], None]:
        kernel = compiler.host_kernel(self._file, self._entry, self._options)
        if self._entry == "gate" and args[1] == TRIES:
            args = args[0], np.array(2**34, args[1].dtype)  # as above, and so may the host
        target = int(args[0])
        if self._entry == "fill" and (self._device, self._machine.device_of(target)) in self._machine.losing_stores:
            return lambda: None
        return self._within_reach([target], lambda: kernel(*args))

    def _within_reach(self, addresses: Sequence[int], run: Callable[[], None]) -> Callable[[], None]:
        """Return the action to run later: the kernel, or its error if it touches memory that its device may not."""
        if all(self._machine.reaches(self._device, address) for address in addresses):
            return run

        def fault() -> None:
            raise CUDARuntimeError(errors.ILLEGAL_ADDRESS)

        return fault


def by_value(argument: Any) -> np.ndarray[Any, Any]:
    """A kernel's argument as of now: an array of one element, or a number that NumPy knows."""
    if isinstance(argument, np.ndarray):
        if argument.size != 1:
            raise TypeError(f"You are trying to pass a numpy.ndarray of shape {argument.shape} as a kernel parameter.")
    elif not isinstance(argument, int | float | complex | np.number | np.bool_):
        raise TypeError(f"Unsupported type {type(argument)}")
    return np.array(argument)


class RawModule:
    """Finds the file that a source text came from, to compile that for the host."""

    def __init__(self, machine: "Machine", code: str, options: tuple[str, ...]) -> None:
        if not isinstance(options, tuple):
            raise TypeError(f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__})")
        assert "-std=c++17" in options
        files = [path.name for path in compiler.folder().glob("*.cu")]
        self._file = next(file for file in files if compiler.source(file) == code)
        self._machine = machine
        self._options = tuple(option for option in options if option.startswith("-D"))

    def get_function(self, name: str) -> Any:
        """Compiled for the current device and loaded there, before it is returned."""
        found = RawKernel(self, name)
        assert found.kernel
        return found


class RawKernel:
    def __init__(self, module: RawModule, name: str) -> None:
        self._module, self._name = module, name
        self._loaded: dict[int, Function] = {}

    @property
    def kernel(self) -> Function:
        """On the current device, for which it is compiled and loaded at the first request."""
        module, machine = self._module, self._module._machine
        machine.refuse_broken()
        if machine.current not in self._loaded:
            if machine.current in machine.refusals:
                raise machine.refusals[machine.current]
            self._loaded[machine.current] = Function(machine, module._file, self._name, module._options)
        return self._loaded[machine.current]


def alive(function: Any) -> Any:
    """A function of the runtime, which does nothing once a kernel has broken the device."""

    @wraps(function)
    def call(runtime: "Runtime", *arguments: Any, **named: Any) -> Any:
        runtime._machine.refuse_broken()
        return function(runtime, *arguments, **named)

    return call


class Runtime:
    """The functions of cupy.cuda.runtime."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice, memcpyDeviceToHost, memcpyDefault = 1, 2, 4
    hostAllocPortable, hostAllocMapped = 1, 2
    cudaDevAttrMultiProcessorCount = 16
    cudaDevAttrL2CacheSize = 38

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine

    def getDeviceCount(self) -> int:
        if not self._machine.devices:
            raise CUDARuntimeError(errors.NO_DEVICE)
        return self._machine.devices

    @alive
    def setDevice(self, device: int) -> None:
        self._refuse_unknown(device)
        self._machine.current = device

    def _refuse_unknown(self, device: int) -> None:
        if not 0 <= device < self._machine.devices:
            raise CUDARuntimeError(errors.NOT_A_DEVICE)

    def deviceGetAttribute(self, attrib: int, device: int) -> int:
        self._refuse_unknown(device)
        answers = {
            self.cudaDevAttrMultiProcessorCount: self._machine.multiprocessors,
            self.cudaDevAttrL2CacheSize: self._machine.cache,
        }
        return answers[attrib]

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self._refuse_unknown(device)
        uuid = self._machine.uuids.get(device, bytes([device + 1] * 16))
        return {"name": b"Test GPU"} | ({} if uuid is None else {"uuid": uuid})

    def deviceGetPCIBusId(self, device: int) -> str:
        self._refuse_unknown(device)
        return f"0000:{self._machine.buses.get(device, device):02x}:00.0"

    def runtimeGetVersion(self) -> int:
        return 12090

    def driverGetVersion(self) -> int:
        return 12080

    @alive
    def memGetInfo(self) -> tuple[int, int]:
        opened = self._machine.shared.opened if self._machine.shared else {}
        own = [block for address, block in self._machine.blocks.items() if address not in opened]
        used = sum(block.nbytes for device, block in own if device == self._machine.current)
        return self._machine.free - used, MEMORY

    @alive
    def malloc(self, size: int) -> int:
        if not size:
            return 0
        if size > self.memGetInfo()[0]:
            raise CUDARuntimeError(errors.OUT_OF_MEMORY)
        return self._allocate(self._machine.current, size)

    def _allocate(self, device: int, size: int) -> int:
        if self._machine.shared and device >= 0:
            address, piece = self._machine.shared.allocate(device, size)
            self._machine.blocks[address] = device, piece
            return address
        block = np.full(size + 256, 0xEE, np.uint8)
        address = -(-block.ctypes.data // 256) * 256
        self._machine.blocks[address] = device, block[address - block.ctypes.data :][:size]
        return address

    @alive
    def free(self, ptr: int) -> None:
        if not ptr:
            return
        if ptr not in self._machine.blocks:
            raise CUDARuntimeError(errors.INVALID)
        for device in range(self._machine.devices):
            self._machine.settle(device)
        del self._machine.blocks[ptr]
        if self._machine.shared:
            self._machine.shared.free(ptr)

    @alive
    def hostAlloc(self, size: int, flags: int) -> int:
        assert flags == self.hostAllocPortable | self.hostAllocMapped
        return self._allocate(-1, size)

    freeHost = free

    @alive
    def memset(self, ptr: int, value: int, size: int) -> None:
        """On the device's default stream, for which neither the host waits nor any other stream."""
        waiting = self._machine.zeroing.setdefault(self._machine.current, [])
        waiting.append(lambda: _fill(ptr, value, size))

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        self._machine.stream(stream).enqueue(lambda: _fill(ptr, value, size))

    def streamQuery(self, stream: int) -> int:
        return self._machine.stream(stream)._query()

    @alive
    def memcpy(self, dst: int, src: int, size: int, kind: int) -> None:
        """Behind what the device's default stream was given; what goes to a device is staged and lands there later."""
        if kind == self.memcpyHostToDevice:
            staged = view(src, size).copy()
            landing = self._machine.zeroing.setdefault(self._machine.current, [])
            landing.append(lambda: _copy(dst, staged.ctypes.data, size))
            return
        self._machine.settle(self._machine.current)
        _copy(dst, src, size)

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        found = self._machine.stream(stream)
        if (self._machine.device_of(src), self._machine.device_of(dst)) not in self._machine.losing_copies:
            found.enqueue(lambda: _copy(dst, src, size))

    @alive
    def ipcGetMemHandle(self, devPtr: int) -> bytes:
        if not self._machine.shares_memory:
            raise CUDARuntimeError(errors.NOT_SUPPORTED)
        assert self._machine.shared
        return self._machine.shared.handle(devPtr)

    @alive
    def ipcOpenMemHandle(self, handle: bytes, flags: int = 1) -> int:
        assert self._machine.shared
        assert flags == 1, "peer access is not switched on otherwise"
        if not isinstance(handle, bytes):
            raise TypeError("a handle is of bytes")
        address, bus, block = self._machine.shared.open(handle)
        visible = {self._machine.buses.get(device, device): device for device in range(self._machine.devices)}
        owner = visible.get(bus, -1)
        pair = self._machine.current, owner
        if owner < 0 or pair in self._machine.without_peers:
            self._machine.shared.close(address)
            raise CUDARuntimeError(errors.INVALID if owner < 0 else errors.NO_PEER)
        self._machine.enabled.add(pair)
        self._machine.blocks[address] = owner, block
        return address

    @alive
    def ipcCloseMemHandle(self, devPtr: int) -> None:
        assert self._machine.shared
        del self._machine.blocks[devPtr]
        self._machine.shared.close(devPtr)

    @alive
    def deviceSynchronize(self) -> None:
        """For all of the current device; while any of its streams is captured that cannot be."""
        here = [stream for stream in self._machine.streams.values() if stream.device_id == self._machine.current]
        if any(stream._capture for stream in here):
            raise CUDARuntimeError(errors.CAPTURING)
        self._machine.settle(self._machine.current)
        for stream in here:
            stream.synchronize()

    def deviceCanAccessPeer(self, device: int, peerDevice: int) -> int:
        return int((device, peerDevice) not in self._machine.without_peers)

    @alive
    def deviceEnablePeerAccess(self, peerDevice: int) -> None:
        pair = self._machine.current, peerDevice
        if pair in self._machine.without_peers:
            raise CUDARuntimeError(errors.NO_PEER)
        if pair in self._machine.enabled:
            raise CUDARuntimeError(errors.ALREADY_ENABLED)
        if sum(first == pair[0] for first, _ in self._machine.enabled) == MOST_PEERS and not self._machine.switch:
            raise CUDARuntimeError(errors.TOO_MANY_PEERS)
        self._machine.enabled.add(pair)


def _fill(address: int, value: int, size: int) -> None:
    view(address, size)[:] = value


def _copy(target: int, source: int, size: int) -> None:
    if size:
        view(target, size)[:] = view(source, size).copy()


class Driver:
    """The functions of cupy.cuda.driver."""

    CUDADriverError = CUDADriverError

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine

    def occupancyMaxActiveBlocksPerMultiprocessor(self, func: int, blockSize: int, dynamicSMemSize: int) -> int:
        if blockSize > MOST_THREADS:
            raise CUDADriverError(errors.INVALID)
        return self._machine.blocks_each


class Nvrtc:
    """The functions of cupy.cuda.nvrtc."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine

    def getVersion(self) -> tuple[int, int]:
        return self._machine.nvrtc_version


def _die() -> None:
    """As a crash, but for MPI's named shared memory, which mpirun would leave behind."""
    for path in shared_files():
        Path(path).unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)
