"""GPU memory of every rank: local, mapped from other processes, or multicast.

A process exports its rank's memory as a CUDA IPC handle of the allocation, with an offset. Every process closes it
before the owner frees it. It is used only after a test of stores and loads in both directions of every pair,
including two ranks of one GPU.

Multicast memory has one address for the same offset on every rank's GPU, where the NVSwitch adds and broadcasts. It
needs a GPU for each rank, all at one switch, and one process that holds them. Only implementations that need the
switch use it: it is separate from the ordinary memory, since NCCL's speed depends on the allocation of its buffers.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain

from collbench.errors import PlatformError, Unsupported
from collbench.platforms import checking
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu.cuda import AccessDesc, AllocationProp, Cuda, DeviceMemory, Driver, Location, MulticastProp
from collbench.platforms.gpu.discover import NBYTES, Hand, Placement, pattern_kernels
from collbench.platforms.layout import Memory, MemoryLayout, Region
from collbench.platforms.processes import Team
from collbench.topology.products import ADDING, capability

Exported = tuple[bytes, int] | str
"""Handle of the allocation and offset in it, or why there is none."""


class Reach:
    """Where the memory of every rank starts, as this process may load and store it; only its own if there are nodes.

    Making and closing one is *collective*, and `refusal`, why other ranks' memory is out of reach, the same everywhere.
    """

    def __init__(self, cuda: Cuda, team: Team, places: Placement, bases: Sequence[int]) -> None:
        self._cuda, self._team, self._places = cuda, team, places
        self.base = dict(zip(places.local, bases, strict=True))
        self.refusal = ""
        self._opened: list[int] = []
        if len(self.base) < len(places.places):
            self._reach_out()

    def at(self, rank: int) -> int:
        """The start of a rank's memory; Unsupported, with the reason, if it is out of reach."""
        if rank not in self.base:
            raise Unsupported(self.refusal)
        return self.base[rank]

    def refuse(self, reason: str) -> None:
        """Give up the others' memory; on every process with the same reason."""
        self._release()
        self.refusal = reason

    def close(self) -> None:
        """Let go of the others' memory; afterwards nobody holds this process's, which may be freed."""
        self._release()
        self._team.meet()

    def _reach_out(self) -> None:
        if self._places.nodes > 1:
            self.refuse(f"the ranks are on {self._places.nodes} nodes, and a kernel reaches its own node's memory only")
            return
        (rank,) = self.base
        exported: list[Exported] = self._team.exchange(self._export(self.base[rank]))
        failures = []
        for owner, reason in enumerate(exported):
            if isinstance(reason, str):
                failures.append(f"rank {owner} cannot share its memory: {reason}")

        # Every process takes part in both exchanges, and the first failure of all is everybody's.
        failures += self._team.exchange("" if failures else self._open(rank, exported))
        if any(failures):
            self.refuse(next(filter(None, failures)))

    def _export(self, address: int) -> Exported:
        failures: tuple[type[Exception], ...] = (PlatformError, *self._cuda.errors)
        try:
            start = gpu_cuda.load_driver().start_of_allocation(address)
            return self._cuda.runtime.ipcGetMemHandle(start), address - start
        except failures as error:
            return str(error)

    def _open(self, rank: int, exported: list[Exported]) -> str:
        """Open every other rank's memory on this rank's device; why not, or nothing."""
        self._cuda.runtime.setDevice(self._places.device[rank])
        for owner, memory in enumerate(exported):
            if owner == rank or isinstance(memory, str):
                continue
            handle, offset = memory
            try:
                self._opened.append(self._cuda.runtime.ipcOpenMemHandle(handle))
            except self._cuda.errors as error:
                # By NCCL's source some drivers share memory of hidden GPUs too, so that alone is no reason to refuse.
                reasons = gpu_cuda.why(error), self._places.hidden(self._cuda, owner)
                return f"rank {rank} cannot open the memory of rank {owner}: {'; '.join(filter(None, reasons))}"
            self.base[owner] = self._opened[-1] + offset
        return ""

    def _release(self) -> None:
        while self._opened:
            with suppress(*self._cuda.errors):  # after a failure CUDA refuses even that
                self._cuda.runtime.ipcCloseMemHandle(self._opened.pop())
        self.base = {rank: at for rank, at in self.base.items() if rank in self._places.local}


def reach(cuda: Cuda, team: Team, places: Placement, bases: Sequence[int]) -> Reach:
    """*Collective*: return every rank's memory, of which this process holds that at `bases`."""
    reached = Reach(cuda, team, places, bases)
    if len(reached.base) == len(places.local):
        return reached

    # Others' memory is trusted only once a trial on a small piece has shown that it can be.
    piece = DeviceMemory(cuda, places.devices, 2 * NBYTES + checking.VERDICT.itemsize)
    tried = Reach(cuda, team, places, piece.base)
    reason = tried.refusal
    if not reason:
        (functions,) = pattern_kernels(cuda, places.devices)
        hand = Hand(cuda, places.devices[0], piece.base[0] + 2 * NBYTES, functions)
        reason = _failure(cuda, team, tried, hand)
    tried.close()
    piece.free()
    if reason:
        reached.refuse(reason)
    return reached


def _failure(cuda: Cuda, team: Team, reached: Reach, hand: Hand) -> str:
    """*Collective*: use every other rank's memory; return the first of all that went wrong, or nothing.

    Each rank has two boxes: it writes into its outbox itself, and others into its inbox.
    """
    mine, ranks, number = team.rank, len(reached.base), 0
    wrong: list[tuple[int, int, str]] = []  # who, whose memory, what

    def attempt(who: int, whose: int, act: Callable[[], bool | None], what: str = "") -> None:
        try:
            if act() is False:
                wrong.append((who, whose, f"{what} gave wrong data"))
        except cuda.errors as error:
            wrong.append((who, whose, str(error)))

    # All ranks do the same at one time, each to the rank at the same distance to its right.
    for distance in range(1, ranks):
        right, left = (mine + distance) % ranks, (mine - distance) % ranks
        inbox, outbox = reached.at(mine), reached.at(mine) + NBYTES
        theirs = reached.at(right)
        for what in ("a kernel's stores", "a copy"):
            number += 1
            seed = 1 + number * ranks  # with the writer's number, of a pattern that was not written before
            attempt(mine, right, partial(hand.write, outbox, seed + mine))
            if what == "a copy":
                attempt(mine, right, partial(hand.copy, theirs, outbox))
            else:
                attempt(mine, right, partial(hand.write, theirs, seed + mine))
            team.meet()
            attempt(left, mine, partial(hand.holds, inbox, seed + left), what)
            attempt(mine, right, partial(hand.holds, theirs + NBYTES, seed + right), "a kernel's loads")
            team.meet()  # before the boxes are used again
    failures = sorted(chain.from_iterable(team.exchange(wrong)))
    return next((f"rank {who} cannot use the memory of rank {whose}: {what}" for who, whose, what in failures), "")


OLDEST = min(map(capability, ADDING))  # multimem instructions, as of kernels/multimem.cu
_OLDEST_COMPILER = (12, 2)  # NVRTC with PTX 8.2: sums of 16-bit types in fp32


class SwitchMemory:
    """As cuda.DeviceMemory, on different devices, with a multicast address; PlatformError, all undone, if refused."""

    def __init__(self, cuda: Cuda, driver: Driver, devices: Sequence[int], nbytes: int) -> None:
        self._driver, self._devices = driver, devices
        self._undo = ExitStack()
        self.base: list[int] = []
        try:
            self.multicast = self._make(cuda, nbytes)
        except BaseException:
            self.free()
            raise

    def _make(self, cuda: Cuda, nbytes: int) -> int:
        """Make the object and map it; return its multicast address."""
        call, devices = self._driver.call, self._devices
        placed = {}
        for device in devices:
            location = Location(gpu_cuda.ON_DEVICE, device)
            placed[device] = AllocationProp(gpu_cuda.PINNED, gpu_cuda.FILE_DESCRIPTOR, location)
        shape = MulticastProp(len(devices), nbytes, gpu_cuda.FILE_DESCRIPTOR)

        # All granularities are powers of two, so the largest serves memory and multicast object alike.
        grains = [call("cuMemGetAllocationGranularity", prop, gpu_cuda.RECOMMENDED) for prop in placed.values()]
        grain = max(call("cuMulticastGetGranularity", shape, gpu_cuda.RECOMMENDED), *grains)
        size = -(-nbytes // grain) * grain
        team = call("cuMulticastCreate", MulticastProp(len(devices), size, gpu_cuda.FILE_DESCRIPTOR))
        self._undo.callback(call, "cuMemRelease", team)

        # All devices join before memory is bound or mapped, since the driver would wait for them.
        for device in devices:
            call("cuMulticastAddDevice", team, self._driver.device(device))
        for device, prop in placed.items():
            cuda.runtime.setDevice(device)
            part = call("cuMemCreate", size, prop, 0)
            self._undo.callback(call, "cuMemRelease", part)
            call("cuMulticastBindMem", team, 0, part, 0, size, 0)
            self._undo.callback(lambda on: call("cuMulticastUnbind", team, self._driver.device(on), 0, size), device)
            self.base.append(self._mapped(part, size, grain))
        multicast = self._mapped(team, size, grain)
        for device, address in zip(devices, self.base, strict=True):
            cuda.runtime.setDevice(device)
            cuda.runtime.memset(address, 0, size)
            cuda.runtime.deviceSynchronize()
        return multicast

    def _mapped(self, handle: int, size: int, grain: int) -> int:
        """Return an address for memory, or a multicast object, that kernels of all devices may load and store at."""
        call = self._driver.call
        address = call("cuMemAddressReserve", size, grain, 0, 0)
        self._undo.callback(call, "cuMemAddressFree", address, size)
        call("cuMemMap", address, size, 0, handle, 0)
        self._undo.callback(call, "cuMemUnmap", address, size)
        every = (AccessDesc(Location(gpu_cuda.ON_DEVICE, device), gpu_cuda.READ_AND_WRITE) for device in self._devices)
        access = (AccessDesc * len(self._devices))(*every)
        call("cuMemSetAccess", address, size, access, len(access))
        return address

    def free(self) -> None:
        """Undo every step, the last first; what the driver refuses to undo ends with the process."""
        with suppress(PlatformError):
            self._undo.close()


def switch_driver(cuda: Cuda, devices: Sequence[int], ranks: int) -> Driver:
    """Return the driver, if it and the GPUs can make such memory; Unsupported with what is missing."""
    if len(devices) < ranks:
        raise Unsupported("memory for the switch is made by one process that holds all ranks: start it without mpirun")
    if len(set(devices)) < 2:
        raise Unsupported("a switch needs ranks on two GPUs or more, and these are on one")
    if len(set(devices)) < len(devices):
        raise Unsupported(f"ranks share a GPU, and a switch adds one input of each: use --ranks {len(set(devices))}")
    compiler = cuda.compiler_version()
    if compiler < _OLDEST_COMPILER:
        raise Unsupported(
            f"NVRTC {'.'.join(map(str, compiler))} lacks the instructions: use the one of CUDA 12.2 or newer"
        )
    driver = gpu_cuda.load_driver()
    for device in devices:
        major = driver.attribute(gpu_cuda.COMPUTE_CAPABILITY_MAJOR, device)
        minor = driver.attribute(gpu_cuda.COMPUTE_CAPABILITY_MINOR, device)
        if 10 * major + minor < OLDEST:
            reason = f"is an sm_{major}{minor}, and multimem instructions need sm_{OLDEST} or newer"
            raise Unsupported(f"GPU {device} {reason}")
        if not driver.attribute(gpu_cuda.MULTICAST_SUPPORTED, device):
            raise Unsupported(f"GPU {device} has no multicast, which needs an NVSwitch and its fabric manager running")
    return driver


class RankMemory(Memory):
    """The regions of every rank one after the other, and behind them the verdicts of a check.

    Making and closing it is *collective*; PlatformError if a GPU has too little free.
    """

    def __init__(self, cuda: Cuda, team: Team, places: Placement, layout: MemoryLayout) -> None:
        self._cuda, self.layout = cuda, layout
        self.ranks, self.local = len(places.places), places.local

        # All look at what is free before anyone takes of it.
        places.refuse_too_large(cuda, layout.nbytes)
        team.meet()
        nbytes = layout.nbytes + self.ranks * checking.VERDICT.itemsize
        self._own = self._allocate(list(places.device.values()), nbytes)
        self._reach = reach(cuda, team, places, self._own.base)

    def _allocate(self, devices: Sequence[int], nbytes: int) -> DeviceMemory | SwitchMemory:
        return DeviceMemory(self._cuda, devices, nbytes)

    @property
    def refusal(self) -> str:
        """Why the memory of other processes is out of reach, or nothing."""
        return self._reach.refusal

    def address(self, region: Region, rank: int) -> int:
        """Return where a region starts; Unsupported if that rank's memory is out of reach."""
        return self._reach.at(rank) + self._start(region)

    def verdicts(self, rank: int) -> int:
        """Return where a local rank has room for a verdict on each piece."""
        return self._reach.at(rank) + self.layout.nbytes

    def close(self) -> None:
        """Give everything back, as far as CUDA still does that."""
        self._reach.close()
        with suppress(*self._cuda.errors):
            self._own.free()


class SwitchedRankMemory(RankMemory):
    """As RankMemory, known to the switch; Unsupported, with the reason and without leftovers, where that cannot be."""

    def __init__(self, cuda: Cuda, team: Team, places: Placement, layout: MemoryLayout) -> None:
        failures: tuple[type[Exception], ...] = (PlatformError, *cuda.errors)
        try:
            self._driver = switch_driver(cuda, list(places.device.values()), len(places.places))
            super().__init__(cuda, team, places, layout)
        except failures as error:
            raise Unsupported(f"no multicast memory in addition to the other rows' buffers: {error}") from None

    def _allocate(self, devices: Sequence[int], nbytes: int) -> SwitchMemory:
        memory = SwitchMemory(self._cuda, self._driver, devices, nbytes)
        self._multicast = memory.multicast
        return memory

    def multicast(self, region: Region) -> int:
        """Return where a region of all ranks starts in the eyes of the switch."""
        return self._multicast + self._start(region)
