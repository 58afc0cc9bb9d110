"""Peer access: switched on, and proved before it is trusted.

Drivers offer it on machines where it silently loses data (an IOMMU in the way, consumer cards, virtual machines).  So
a pattern is written and read back, by a kernel's stores, a kernel's loads and a copy, in both directions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.datatypes import DATATYPES, NONE, recipe
from collbench.platforms import checking
from collbench.platforms.gpu.cuda import Cuda, Memory, Queue, compile_kernel

_COUNT = 2**16  # elements of the pattern
_WORD = DATATYPES["uint32"]
NBYTES = _COUNT * _WORD.itemsize  # of the pattern
VERIFIED = True, "stores, loads and a copy verified"
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled

Probed = dict[tuple[int, int], tuple[bool, str]]


def probe(cuda: Cuda, devices: Sequence[int]) -> Probed:
    """For each ordered pair, whether the first can use the second's memory, and why (not); access stays enabled."""
    pairs = [(first, second) for first in devices for second in devices if first != second]
    if not pairs:
        return {}
    prober = _Prober(cuda, devices)
    try:
        return {pair: prober.pair(*pair) for pair in pairs}
    finally:
        prober.close()


class Hand:
    """Writes patterns with kernels of one GPU wherever that GPU reaches, and looks for them there."""

    def __init__(self, cuda: Cuda, device: int, verdict_at: int, kernels: "Kernels") -> None:
        self._runtime = cuda.runtime
        self._queue = Queue(cuda, device)
        self._verdict = verdict_at  # in this GPU's memory
        self._fill, self._compare = (kernel.functions[kernels.devices.index(device)] for kernel in kernels.both)

    def write(self, target: int, seed: int) -> None:
        """Store the pattern of that number."""
        self._run(self._fill, (np.uint64(target), np.uint64(_COUNT), _recipe(seed), np.uint32(0), np.uint64(0)))

    def holds(self, source: int, seed: int) -> bool:
        """Load it, and whether it is that of this number."""
        found = checking.CLEAN.copy()
        stream, there = self._queue.enter(), self._verdict
        to_device = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(there, found.ctypes.data, found.nbytes, to_device, stream.ptr)
        first, none = np.uint64(0), np.uint32(0)
        recipe_and_source = _recipe(seed), np.int32(0)
        self._run(
            self._compare, (np.uint64(source), np.uint64(_COUNT), *recipe_and_source, first, none, np.uint64(there))
        )
        self._queue.fetch(there, found)
        return not found["wrong"]

    def copy(self, target: int, source: int) -> None:
        """Have the driver copy a pattern."""
        stream = self._queue.enter()
        self._runtime.memcpyAsync(target, source, NBYTES, self._runtime.memcpyDefault, stream.ptr)
        stream.synchronize()

    def _run(self, function: Any, arguments: tuple[Any, ...]) -> None:
        stream = self._queue.enter()
        function((_COUNT // 256,), (256,), arguments, stream=stream)
        stream.synchronize()


class Kernels:
    """Those of kernels/check.cu that write and compare a pattern."""

    def __init__(self, cuda: Cuda, devices: Sequence[int]) -> None:
        self.devices = devices
        self.both = [compile_kernel(cuda, devices, "check.cu", entry, _WORD, NONE) for entry in ("fill", "compare")]


def _recipe(seed: int) -> Any:
    how = recipe(_WORD, NONE, 1, seed)
    return np.array((how.seed, how.ranks, how.bits, how.stride), checking.RECIPE)


class _Prober:
    """A buffer with a verdict behind it on each device, and a hand there."""

    def __init__(self, cuda: Cuda, devices: Sequence[int]) -> None:
        self._cuda = cuda
        self._memory = Memory(cuda, devices, NBYTES + checking.VERDICT.itemsize)
        self._buffer = dict(zip(devices, self._memory.base, strict=True))
        kernels = Kernels(cuda, devices)
        self._hands = {device: Hand(cuda, device, at + NBYTES, kernels) for device, at in self._buffer.items()}
        self._seed = 0

    def pair(self, first: int, second: int) -> tuple[bool, str]:
        """One direction: what `first` does to the memory of `second`."""
        runtime = self._cuda.runtime
        if not runtime.deviceCanAccessPeer(first, second):
            return False, "the driver offers no peer access"
        try:
            self._enable(first, second)
            ways = {"a kernel's stores": self._store, "a kernel's loads": self._load, "a copy": self._copy}
            for what, correct in ways.items():
                self._seed += 1
                if not correct(first, second):
                    return False, f"{what} gave wrong data"
        except self._cuda.errors as error:
            return False, str(error)
        return VERIFIED

    def close(self) -> None:
        """Give the buffers back."""
        self._memory.free()

    def _enable(self, first: int, second: int) -> None:
        runtime = self._cuda.runtime
        runtime.setDevice(first)
        try:
            runtime.deviceEnablePeerAccess(second)
        except runtime.CUDARuntimeError as error:
            if error.status != _ALREADY_ENABLED:
                raise

    def _store(self, first: int, second: int) -> bool:
        self._hands[first].write(self._buffer[second], self._seed)
        return self._hands[second].holds(self._buffer[second], self._seed)

    def _load(self, first: int, second: int) -> bool:
        self._hands[second].write(self._buffer[second], self._seed)
        return self._hands[first].holds(self._buffer[second], self._seed)

    def _copy(self, first: int, second: int) -> bool:
        self._hands[first].write(self._buffer[first], self._seed)
        self._hands[first].copy(self._buffer[second], self._buffer[first])
        return self._hands[second].holds(self._buffer[second], self._seed)
