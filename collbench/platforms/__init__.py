"""One file a kind of hardware: memory, launches and clocks, all that an implementation needs to run and be timed.

An implementation is written once against `Platform`; whether a process holds one rank (cpu) or all of them (gpu)
is the platform's business, which is why everything here is said "for every local rank".
"""

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from collbench.cases import Case, Sweep
from collbench.collectives import chunk_elements
from collbench.cost import Hardware
from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import unknown
from collbench.measurement import Mismatch
from collbench.note import NO_NOTE, Note
from collbench.platforms import tracelog

PLATFORMS = ("gpu", "cpu")
_HOMES = {"gpu": "gpu.platform", "cpu": "cpu"}

MAX_RANKS = 128  # of one World, unless it is compiled for fewer; the same number stands in kernels/world.cuh
WINDOW_HEAD = 65536  # bytes of flags before the FIFOs of a window; likewise
LINE = 128  # bytes: regions start at multiples of it
PACK = 16  # bytes of a kernel's widest access
_WARP = 32  # threads


def world_type(most: int = MAX_RANKS) -> np.dtype[np.void]:
    """`struct World` of kernels/world.cuh, field by field, as compiled with -DMAX_RANKS=most."""
    return np.dtype(
        [
            ("window", np.uint64, most),
            ("send", np.uint64, most),
            ("receive", np.uint64, most),
            ("spins", np.uint64),
            ("trace", np.uint64),
            ("ranks", np.uint32),
            ("first", np.uint32),
            ("stride", np.uint32),
            ("blocks", np.uint32),
            ("yield_after", np.uint32),
            ("reserved", np.uint32),
        ]
    )


WORLD = world_type()


class Region(Enum):
    """The memory of one rank; every region but SEND and RECEIVE is private to the hand-written implementations."""

    SEND = "send"
    RECEIVE = "receive"
    STAGING = "staging"  # one chunk: where host-driven rungs copy to before they add
    WINDOW = "window"  # flags, then FIFOs; peers write into it


def needed_memory(sweep: Sweep, fifos: Mapping[str, int]) -> Mapping[Region, int]:
    """Bytes of each region that every rank needs for these cases; `fifos` is what each implementation wants."""
    need = dict.fromkeys(Region, LINE)
    need[Region.WINDOW] = WINDOW_HEAD + sum(fifos.values())
    for case in sweep.cases():
        size = case.dtype.itemsize
        send, receive = case.send_count * size, case.receive_count * size
        staging = chunk_elements(case.block, case.ranks, size) * size
        for region, nbytes in (
            (Region.SEND, LINE if case.in_place else send),
            (Region.RECEIVE, max(send, receive) if case.in_place else receive),
            (Region.STAGING, staging),
        ):
            need[region] = max(need[region], nbytes)
    return {region: -(-nbytes // LINE) * LINE for region, nbytes in need.items()}


def fifo_starts(fifos: Mapping[str, int]) -> Mapping[str, int]:
    """Where in a window each implementation's FIFO starts, in bytes behind the flags."""
    return dict(zip(fifos, accumulate(fifos.values(), initial=0), strict=False))


@dataclass(frozen=True)
class Prepared:
    """A case ready to run: `launch(n)` carries out n operations back to back, or enqueues them.

    `host_driven` operations wait on the host between their steps, so they can't be captured in a graph.  Those in
    `one_graph` wait for each other's events, and CUDA has no such wait between one graph and another: the queues of
    all ranks are captured together.  All others must not be: their kernels wait for each other while they run, and
    CUDA may put two branches of a graph into one hardware queue, one after the other.
    """

    launch: Callable[[int], None]
    host_driven: bool = False
    one_graph: bool = False
    note: Note = NO_NOTE
    estimate: float | None = None  # seconds that a library itself expects of an operation
    watched: Callable[["Watch"], None] | None = None  # one operation, with each action of a rank inside a watch


Watch = Callable[[int, str], AbstractContextManager[None]]
"""`with watch(rank, phase):` around what is enqueued for that rank."""

Moment = Callable[[], float]
"""When something was reached on a rank's queue, in seconds of a clock that all ranks share; asked once it was."""


class Platform(Protocol):
    """Ranks on one kind of hardware, as one process sees them.

    Methods marked *collective* are called by every process of the run and return the same on each.
    """

    name: str
    ranks: int
    local: Sequence[int]  # the ranks that this process holds
    note: Note  # what a reader of any number from here must know
    hardware: Hardware  # what the model of costs takes it for; the same on every process
    region: float  # seconds that a sample lasts at least, so that what starts and ends it does not count
    comm: Any  # what the library implementation talks to: an mpi4py communicator, or None
    tracing: bool  # whether kernels that are prepared now keep a log

    def agreeing(self) -> AbstractContextManager[None]:
        """*Collective*: run what is inside; if it fails on any process, raise the same error on all of them."""

    def address(self, region: Region, rank: int) -> int:
        """Where a region of any rank starts, as this process's kernels may load and store it."""

    def multicast(self, region: Region) -> int:
        """Where a region of all ranks starts for a switch that loads and stores them at once; Unsupported without."""

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> Any:
        """An entry of `kernels/<file>`, compiled for these ranks, this hardware, dtype and reduction, with more -D."""

    def fifo(self, implementation: str) -> int:
        """Where in every window an implementation's own FIFO starts, in bytes behind the flags."""

    def blocks(self, most: int) -> int:
        """How many blocks a rank gets of a kernel that would use so many: what surely is co-resident."""

    def cache(self) -> int | None:
        """Bytes of a device's last cache that each rank can count on; None where that is not known."""

    def bind(self, kernel: Any, case: Case, blocks: int, threads: int, *arguments: Any) -> Callable[[int], None]:
        """A function that enqueues `kernel(world, *arguments)` n times for every local rank.

        A device's ranks run together, `blocks` blocks each, all of them co-resident; Unsupported if they can't be.
        Arguments are NumPy scalars.
        """

    def bind_one(self, kernel: Any, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """A function that enqueues `kernel(*arguments)` on a local rank's queue, with threads for `count` elements."""

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """Enqueue a copy on the queue of a local rank, by whatever copies fastest here (copy engine, memcpy)."""

    def mark(self, rank: int) -> Any:
        """A token for everything enqueued on a local rank's queue so far; good for `after`, in the same launch only."""

    def after(self, rank: int, token: Any) -> None:
        """What is enqueued on a local rank's queue from now on waits for that; the host does not."""

    def synchronize(self) -> None:
        """*Collective*: wait until everything enqueued by every rank is done."""

    def time(self, prepared: Prepared, launches: int) -> float:
        """*Collective*: seconds per operation of the slowest rank, over that many operations back to back.

        CaseFailed if a kernel gave up waiting, or the hardware failed.
        """

    def fill(self, case: Case, seed: int) -> None:
        """*Collective*: write every local rank's input, and a pattern that is no result over its receive buffer."""

    def check(self, case: Case, seed: int) -> Mismatch | None:
        """*Collective*: the first mismatch over all ranks, or None if every rank holds what it must."""

    def take_logs(self, rank: int) -> Array:
        """The logs that traced kernels left in a local rank's window, which are cleared: shape (blocks,), dtype LOG."""

    def moment(self, rank: int) -> Moment:
        """Note the time on a local rank's queue."""

    def gather(self, mine: list[Any]) -> list[Any]:
        """*Collective*: the lists of all processes, one behind the other."""

    def topology(self) -> dict[str, Any]:
        """*Collective*: what connects the ranks, for the run file's header and the plots (collbench.topology)."""

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that are measured here, for the run file's header."""

    def close(self) -> None:
        """*Collective*: give the memory back."""


def grid(units: int, threads: int, blocks: int) -> tuple[int, int]:
    """Threads of a block, in whole warps, and blocks: no more of either than there are units of work, but one warp.

    Each block more is one more that must be started, counted and waited for.
    """
    wanted = max(1, min(blocks, -(-units // threads)))
    return (threads if wanted > 1 else min(threads, max(1, -(-units // _WARP)) * _WARP)), wanted


def buffers(platform: Platform, case: Case, rank: int) -> tuple[int, int]:
    """Where the send and the receive buffer of a rank start; in place, both lie in the receive region."""
    send, receive = case.places(rank)
    home = platform.address(Region.RECEIVE, rank)
    origin = home if case.in_place else platform.address(Region.SEND, rank)
    return origin + send * case.dtype.itemsize, home + receive * case.dtype.itemsize


def view(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes at an address of this process as an array, shape (nbytes,); the owner must outlive it."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def platform_module(name: str) -> Any:
    """The module of a platform, which has, besides `open_platform(sweep, need)`, what is known without opening it.

    `available() -> bool`, whether the hardware is there; `refusal() -> str`, why its driver shows none, or nothing
    where it does or there is no driver; `missing() -> str`, what to install before it can be used, or nothing;
    `broken() -> str`, why what is installed does not work; `default_ranks() -> int`; `LAST`, the largest size of a
    default sweep in bytes; `STARTUP`, the seconds that ranks may take to get ready; and `refuse_too_large(need,
    ranks)`, which raises PlatformError as early as it can.
    """
    if name not in PLATFORMS:
        raise unknown("platform", name, PLATFORMS)
    return importlib.import_module(f"{__name__}.{_HOMES[name]}")


def on_auto() -> str:
    """The first platform that this machine has and that can be used."""
    return next(name for name in PLATFORMS if not obstacle(name) and platform_module(name).available())


def obstacle(name: str) -> str:
    """Why a platform cannot be used although its driver is there, in one line; nothing if it can, or has no driver."""
    module = platform_module(name)
    if (reason := module.refusal()) or not module.available():
        return str(reason)
    missing = module.missing()
    return f"install {missing}" if missing else str(module.broken())


def open_platform(sweep: Sweep, fifos: Mapping[str, int], name: str) -> Platform:
    """The platform of that name, with memory for the sweep's cases and `fifos` on every rank this process holds."""
    if sweep.sampling.traced:
        fifos = {tracelog.FIFO: tracelog.NBYTES, **fifos}
    platform: Platform = platform_module(name).open_platform(sweep, needed_memory(sweep, fifos), fifo_starts(fifos))
    return platform
