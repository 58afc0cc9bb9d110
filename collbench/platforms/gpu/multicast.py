"""Memory that an NVSwitch adds and hands round: one multicast address for the same place on every rank's GPU.

It needs a GPU for each rank, all of them at one switch, and one process that holds them.  Where that is not so, or the
driver fails at any step, memory is allocated as ever and only what needs the switch goes without.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from collbench.errors import PlatformError, Unsupported
from collbench.platforms.gpu import driver as gpu_driver
from collbench.platforms.gpu.cuda import Cuda, Memory
from collbench.platforms.gpu.driver import Driver
from collbench.topology.products import ADDING, capability

OLDEST = min(map(capability, ADDING))  # multimem instructions, as of kernels/multimem.cu
_OLDEST_COMPILER = (12, 2)  # NVRTC with PTX 8.2: sums of 16-bit types in fp32


Multicast = int | str
"""Where the ranks' memory starts in the eyes of the switch, or why there is no such address."""


class SwitchMemory:
    """As cuda.Memory, and with a multicast address; the devices are all different.

    PlatformError if the driver refuses a step; those before it are undone.
    """

    def __init__(self, cuda: Cuda, driver: Driver, devices: Sequence[int], nbytes: int) -> None:
        self._driver, self._devices = driver, devices
        self._undo: list[Callable[[], None]] = []
        self.base: list[int] = []
        try:
            self.multicast = self._make(cuda, nbytes)
        except BaseException:
            self.free()
            raise

    def _make(self, cuda: Cuda, nbytes: int) -> int:
        """All devices join before any memory is bound or mapped: the driver would wait for them."""
        driver, devices = self._driver, self._devices
        grains = [driver.mem_granularity(device) for device in devices]
        grain = max(driver.multicast_granularity(len(devices), nbytes), *grains)  # all of them are powers of two
        size = -(-nbytes // grain) * grain
        team = self._keep(driver.multicast_create(len(devices), size), driver.mem_release)
        for device in devices:
            driver.multicast_add_device(team, device)
        for device in devices:
            cuda.runtime.setDevice(device)
            part = self._keep(driver.mem_create(size, device), driver.mem_release)
            driver.multicast_bind_mem(team, part, size)
            self._undo.append(partial(driver.multicast_unbind, team, device, size))
            self.base.append(self._mapped(part, size, grain))
        multicast = self._mapped(team, size, grain)
        for device, address in zip(devices, self.base, strict=True):
            cuda.runtime.setDevice(device)
            cuda.runtime.memset(address, 0, size)
            cuda.runtime.deviceSynchronize()
        return multicast

    def _keep(self, handle: int, release: Callable[[int], None]) -> int:
        self._undo.append(partial(release, handle))
        return handle

    def _mapped(self, handle: int, size: int, grain: int) -> int:
        """An address for memory that all devices may use."""
        driver = self._driver
        address = driver.mem_address_reserve(size, grain)
        self._undo.append(partial(driver.mem_address_free, address, size))
        driver.mem_map(address, size, handle)
        self._undo.append(partial(driver.mem_unmap, address, size))
        driver.mem_set_access(address, size, self._devices)
        return address

    def free(self) -> None:
        """Undo every step, the last first; what the driver refuses to undo ends with the process."""
        while self._undo:
            with suppress(PlatformError):
                self._undo.pop()()


def allocate(
    cuda: Cuda, devices: Sequence[int], ranks: int, nbytes: int, users: Sequence[str]
) -> tuple[Memory | SwitchMemory, Multicast]:
    """Zeroed memory on the device of each rank of this process; with a multicast address, if implementations use one.

    Others would pay the coarser sizes for nothing.
    """
    failures: tuple[type[Exception], ...] = (Unsupported, PlatformError, *cuda.errors)
    reason = "memory was made without a multicast address: no implementation of the sweep was known to use one"
    if users:
        try:
            memory = SwitchMemory(cuda, _driver(cuda, devices, ranks), devices, nbytes)
            return memory, memory.multicast
        except failures as error:
            reason = str(error)
    return Memory(cuda, devices, nbytes), reason


def _driver(cuda: Cuda, devices: Sequence[int], ranks: int) -> Driver:
    """The driver, if it and the GPUs can do it; Unsupported with what is missing."""
    if len(devices) < ranks:
        raise Unsupported("memory for the switch is made by one process that holds all ranks: start it without mpirun")
    if len(set(devices)) < 2:
        raise Unsupported("a switch adds what is on two GPUs or more, and the ranks are on one")
    if len(set(devices)) < len(devices):
        raise Unsupported(f"ranks share a GPU, and a switch adds one input of each: use --ranks {len(set(devices))}")
    compiler = cuda.compiler_version()
    if compiler < _OLDEST_COMPILER:
        raise Unsupported(
            f"NVRTC {'.'.join(map(str, compiler))} lacks the instructions: use the one of CUDA 12.2 or newer"
        )
    driver = gpu_driver.load()
    for device in devices:
        _refuse(driver, device)
    return driver


def _refuse(driver: Driver, device: int) -> None:
    """Unsupported if a GPU has no multicast."""
    major = driver.attribute(gpu_driver.COMPUTE_CAPABILITY_MAJOR, device)
    minor = driver.attribute(gpu_driver.COMPUTE_CAPABILITY_MINOR, device)
    if 10 * major + minor < OLDEST:
        raise Unsupported(f"GPU {device} is an sm_{major}{minor}, and multimem instructions need sm_{OLDEST} or newer")
    if not driver.attribute(gpu_driver.MULTICAST_SUPPORTED, device):
        raise Unsupported(f"GPU {device} has no multicast, which needs an NVSwitch and its fabric manager running")
