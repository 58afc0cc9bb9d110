"""The interface of a platform: small objects, each testable with a stand-in.

An implementation is written once against `Platform.memory` and `Platform.launcher`. A process holds one rank (cpu) or
all ranks (gpu), so methods cover every local rank. Every process of the run calls methods marked *collective*, which
return the same on each. Only some platforms override methods with a default.

Ranks compute matrix products with an exactly known result.  Each product of a chain multiplies the last result by the
same signed permutation matrix, stored dense in float32, so the library cannot take shortcuts. Every sum has one
nonzero term, so it is exact in any order and any format that holds small integers. After n products every element is
known, so a missing, repeated or wrong product is detected.
"""

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.datatypes import Array, Datatype, Reduction, Wire
from collbench.errors import Unsupported
from collbench.platforms import tracelog
from collbench.platforms.cost import Hardware
from collbench.platforms.layout import Memory, MemoryLayout, grid
from collbench.platforms.processes import SchedulingWatch, Team
from collbench.results.facts import NO_NOTE, CheckFailure, GemmMismatch, Mismatch, Note, Overrun
from collbench.runfile.schema import TopologyPart

Matrix = NDArray[np.float32]
Moment = float | Callable[[], float]
"""The time at which a rank's queue reaches a point, in seconds of the common clock; `at` returns it afterwards.

A time that is known at once is a plain number, which is cheaper than a call.
"""

_LARGEST = 8  # magnitude of an element; TF32 and all wider formats hold it


class Products(Protocol):
    """The matrices of a process's ranks; each rank has its own queue for computing."""

    def enqueue(self, rank: int, count: int) -> None:
        """Enqueue `count` products on the computing queue of a local rank."""

    def moment(self, rank: int) -> Moment:
        """Return the time at which that queue reaches this point."""

    def hand_over(self, rank: int) -> None:
        """Make the rank's next collectives wait for its enqueued computing."""
        return

    def take_over(self, rank: int) -> None:
        """Make the rank's next computing wait for its enqueued collectives."""
        return

    def reset(self) -> None:
        """Start the chains anew."""

    def check(self) -> GemmMismatch | None:
        """*Collective*: return the first wrong element over all ranks, or None."""


def at(moment: Moment) -> float:
    """Return the time in seconds, once the queue has reached it."""
    return moment if isinstance(moment, float) else moment()


@dataclass(frozen=True)
class Chain:
    """The matrices of one rank, shape (size, size) each."""

    size: int
    rank: int

    @cached_property
    def _random(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Matrix]:
        draws = np.random.default_rng((self.size, self.rank))
        order, signs = draws.permutation(self.size), draws.choice([-1, 1], self.size)
        return order, signs, draws.integers(-_LARGEST, _LARGEST + 1, (self.size, self.size)).astype(np.float32)

    @property
    def factor(self) -> Matrix:
        """The left factor of every product."""
        order, signs, _ = self._random
        matrix = np.zeros((self.size, self.size), np.float32)
        matrix[np.arange(self.size), order] = signs
        return matrix

    @property
    def start(self) -> Matrix:
        """The right factor of the first product."""
        return self._random[2]

    def rows(self, count: int) -> NDArray[np.int32]:
        """Return, for each row of the result after `count` products, the equal row of the start, signed and from 1."""
        order, signs, _ = self._random
        row, sign = np.arange(self.size), np.ones(self.size, np.int64)

        # By squaring: `order` is the permutation of 1, 2, 4, 8, ... products.
        while count:
            if count & 1:
                row, sign = order[row], sign * signs[row]
            order, signs = order[order], signs * signs[order]
            count >>= 1
        return (sign * (row + 1)).astype(np.int32)

    def failure(self, count: int, got: Matrix) -> GemmMismatch | None:
        """Return the failure of a result after `count` products, or None."""
        rows = self.rows(count)
        expected = np.sign(rows).astype(np.float32)[:, None] * self.start[np.abs(rows) - 1]

        # Not `!=`: NaN must count as wrong.
        places: Sequence[NDArray[np.int64]] = np.nonzero(~(got == expected))
        if not len(places[0]):
            return None
        row, column = int(places[0][0]), int(places[1][0])
        values = f"{got[row, column]:g}", f"{expected[row, column]:g}"
        return GemmMismatch(self.rank, count, row, column, *values, wrong=len(places[0]))


if TYPE_CHECKING:  # only needed in ranks
    from collbench.platforms.checking import StressPlan


@dataclass(frozen=True)
class FastPath:
    """A way to register buffers with NCCL, and to set its policy on CTAs."""

    name: str
    summary: str
    symmetric: bool  # whether buffers form a symmetric window; else each rank registers its own
    policy: int | None = None  # NCCL's number of the CTA policy; None for its default
    reference: bool = False  # as in Implementation

    @property
    def buffers(self) -> str:
        """The allocation and registration of the buffers, in words."""
        return f"ncclMemAlloc, {'a symmetric window' if self.symmetric else 'registered'}"


class Ran(NamedTuple):
    """A library's method: `ring`, `nvls`, ... with a protocol; `symm` with its kernel; `ce` for copy engines."""

    algorithm: str = ""
    protocol: str = ""
    channels: int | None = None  # CTAs of a rank; None for copy engines


NOT_SAID = Ran()

Watch = Callable[[int, str], AbstractContextManager[None]]
"""`with watch(rank, phase):` surrounds the actions enqueued for that rank."""


@dataclass(frozen=True)
class Limits:
    """Speeds beyond any hardware of this kind; a faster result was not computed."""

    latency: float  # least seconds of an operation in which ranks exchange data
    rate: float  # most bytes per second that a rank can receive
    measured: str = ""  # source of the rate


@dataclass(frozen=True)
class Pending:
    """A non-blocking operation; both parts raise CaseFailed if the library reports a failure."""

    begin: Callable[[], None]
    finish: Callable[[], None]


@dataclass(frozen=True)
class Prepared:
    """A case ready to run: `launch(n)` carries out n operations back to back, or enqueues them.

    `host_driven` operations wait on the host between their steps, so they can't be captured in a graph.  `one_graph`
    operations wait for each other's events, which is impossible between graphs, so all ranks' streams are captured
    together. Others are captured apart: CUDA may put two branches of a graph into one hardware queue, where kernels
    that wait for each other deadlock.
    """

    launch: Callable[[int], None]
    host_driven: bool = False
    one_graph: bool = False
    groups: int = 1  # consecutive launches of an operation on a stream
    note: Note = NO_NOTE
    estimate: float | None = None  # the library's own estimate, in seconds per operation
    ran: Ran = NOT_SAID
    library_bytes: int | None = None  # device memory used by the library so far, per rank
    library: str = ""  # name and version of the library, if the implementation's name lacks them
    wire: Wire | None = None  # the format on the wire, if narrower than the arrays; then results have a bound
    watched: Callable[[Watch], None] | None = None  # one operation, with each action of a rank inside a watch
    notes_moments: bool = False  # records times when enqueued, so it cannot be captured in a graph
    loop: Callable[[int], None] | None = None  # on a CPU: the call into C within `launch`, if that does more
    pending: Pending | None = None  # the non-blocking form, if there is one
    refuse: Callable[[], None] | None = None  # raise if operations made by `loop` have failed


class Launcher(Protocol):
    """Launches kernels, copies and events on the ranks."""

    memory: Memory
    options: tuple[str, ...] = ()  # of the compiler, for every kernel
    lost: int = 0  # nanoseconds that delayed kernels lose

    def altered(self, memory: Memory, options: tuple[str, ...] = (), lost: int = 0) -> Self:
        """Return the same launcher with other buffers, or with compiler options for every kernel."""
        other = copy.copy(self)
        other.memory, other.options, other.lost = memory, options or self.options, lost or self.lost
        return other

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> Any:
        """Return an entry of `kernels/<file>`, compiled for these ranks, this hardware, dtype and reduction."""

    def blocks(self, most: int) -> int:
        """Return the number of co-resident blocks of a rank, at most `most`."""

    def grid(self, units: int, threads: int, most: int) -> tuple[int, int]:
        """Return a rank's blocks, at most `most`, and the threads of each, for `units` units of work."""
        threads, blocks = grid(units, threads, most)
        return self.blocks(blocks), threads

    def bind(self, kernel: Any, case: Case, blocks: int, threads: int, *arguments: Any) -> Callable[[int], None]:
        """Return a function that enqueues `kernel(world, *arguments)` n times for every local rank.

        A device's ranks run together, `blocks` blocks each, all of them co-resident; Unsupported if they can't be.
        Arguments are NumPy scalars.
        """

    def bind_one(self, kernel: Any, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """Return a function that enqueues `kernel(*arguments)` for a local rank, with threads for `count` elements."""

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """Enqueue a copy on a local rank's stream, by the fastest method (copy engine, memcpy)."""

    def store(self, rank: int, address: int, data: Array) -> None:
        """Write an array to an address of a local rank, after its enqueued work."""

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """Return the bytes at an address of a local rank, after its enqueued work: shape (nbytes,)."""

    def refuse_apart(self) -> None:
        """Raise Unsupported, with the reason, if ranks cannot use each other's memory."""

    def mark(self, rank: int) -> Any:
        """Return an event after everything enqueued on a local rank's stream; for `after`, in the same launch only.

        By default neither does anything: launches are synchronous.
        """
        return None

    def after(self, rank: int, event: Any) -> None:
        """Make later work on a local rank's stream wait for an event; the host does not wait."""
        return

    def synchronize(self) -> None:
        """*Collective*: wait until everything enqueued by every rank is done."""


class Clock(Protocol):
    """Times operations."""

    region: float  # least seconds of a sample, to make its start and end negligible
    limits: Limits
    scheduled: SchedulingWatch  # whether ranks kept their cores in the last timed region
    graphs: bool = False  # whether `time` replays graphs that it captures

    def time(self, prepared: Prepared, launches: int) -> float:
        """*Collective*: return seconds per operation of the slowest rank, over `launches` operations back to back.

        CaseFailed if a kernel timed out, or the hardware failed.
        """

    def time_each(self, prepared: Prepared, launches: int) -> Mapping[int, float]:
        """Return the seconds of all these launches on each local rank separately.

        *Collective* on devices, where all ranks enqueue first, so ranks without a part call it too.
        """

    def most_held(self, prepared: Prepared) -> int:
        """Return the most launches that `time_each` can start together."""
        return sys.maxsize  # the host carries them out

    def moment(self, rank: int) -> "Moment":
        """Note the time on a local rank's stream."""

    def set_clocks(self) -> float:
        """Synchronise idle local ranks' clocks with their process's; return the error in seconds."""
        return 0.0  # the process's clock is the only one

    def enqueue_seconds(self, prepared: Prepared) -> float | None:
        """*Collective*: return the host's seconds to enqueue an operation; None if the host executes it."""
        return None

    def singly(self, prepared: Prepared) -> Prepared | None:
        """Return the same operations repeated by this package's loop; None if no other loop exists."""
        return None

    def barrier(self) -> Prepared | None:
        """Return a barrier by flags in shared memory, which measures the latency between cores.

        None if ranks are on devices or several nodes, or share cores.
        """
        return None

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Return ways to move only a case's fewest bytes through memory.

        Empty if these bytes are unknown, or caches may hold the buffers. They overwrite the buffers.
        """
        return ()


class Checker(Protocol):
    """Writes known inputs, and compares results with the expected ones."""

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """*Collective*: write every local rank's input, and fill its receive buffer with an invalid pattern.

        For a rounding wire, magnitudes differ between groups, so that each group needs its own scale.
        """

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """*Collective*: return the first mismatch over all ranks, or None if every result is right.

        With a wire, results must be within its bound and bitwise equal on all ranks. CaseFailed if the comparison
        missed elements.
        """

    def stress(self, case: Case, prepared: Prepared, plan: "StressPlan") -> Mismatch | None:
        """*Collective*: carry out calls back to back as planned; return the first mismatch over all ranks, or None.

        CaseFailed as in `Clock.time`, and as in `check`.
        """

    def overrun(self, case: Case) -> Overrun | None:
        """*Collective*: return the first write outside the buffers since they were filled, over all ranks; or None."""


class Logs(Protocol):
    """The logs of traced kernels."""

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Return the offset in seconds from the logs' clock to the common one, by groups of local ranks."""

    def take_logs(self, rank: int) -> Array:
        """Return and clear the logs that traced kernels left in a local rank's window: shape (blocks,), dtype LOG."""


class Compute(Protocol):
    """The ranks' computing in training steps, ordered with their communication."""

    queued: bool  # whether streams exist; else calls are synchronous, and a process holds one rank

    def products(self, size: int, begin: Callable[[str], None] = lambda phase: None) -> "Products":
        """Return square matrices of `size` rows on every local rank; `begin` is called with each long phase."""

    def join_streams(self) -> None:
        """Make the next operation of each local rank wait for all streams of its device."""
        return

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context in which failures of the hardware become CaseFailed, on this process alone."""
        return nullcontext()

    def refuse_given_up(self) -> None:
        """Raise CaseFailed, on this process alone, if a local rank's kernel timed out."""


class Platform(Protocol):
    """Ranks on one kind of hardware, as one process sees them."""

    name: str
    team: Team  # the processes of the run
    ranks: int
    local: Sequence[int]  # the ranks that this process holds
    layout: MemoryLayout  # of the memory of every rank
    note: Note  # caveats for every number of this platform
    hardware: Hardware  # constants of the cost model; the same on every process
    cache: int | None  # bytes of the device's last cache available to each rank; None if unknown
    comm: Any  # the library's communicator: an mpi4py communicator, or NCCL's
    memory: Memory
    launcher: Launcher
    clock: Clock
    checker: Checker
    logs: Logs
    compute: Compute

    def topology(self) -> TopologyPart:
        """*Collective*: return the connection of the ranks, for the run file's header and the plots."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the measured libraries, for the run file's header."""

    def altered(self, memory: Memory, options: tuple[str, ...] = (), lost: int = 0) -> Self:
        """Return the same ranks with an altered launcher."""
        other = copy.copy(self)
        other.memory, other.launcher = memory, self.launcher.altered(memory, options, lost)
        return other

    def traced(self) -> Self:
        """Return the same ranks and memory with logging kernels, for a traced sweep."""
        return self.altered(self.memory, (tracelog.TRACED,))

    def with_delays(self, seconds: float) -> Self | None:
        """Return the same ranks with kernels delayed in the middle of operations of `seconds`.

        None if calls begin so promptly that late ranks suffice.
        """
        return None

    def shifted(self, offset: int) -> Self:
        """Return the same ranks with buffers shifted by `offset` bytes."""
        return self.altered(self.memory.shifted(offset))

    def on_path(self, path: FastPath) -> Self:
        """*Collective*: return the same ranks with buffers of that fast path; Unsupported with the reason."""
        raise Unsupported("no NCCL here")

    def on_switch(self) -> Self:
        """*Collective*: return the same ranks with multicast memory; Unsupported without a switch."""
        raise Unsupported("no switch adds here")

    def waits(self) -> str:
        """Return which rank waits for which, if known; called from a thread while ranks hang."""
        return ""

    def close(self) -> bool:
        """*Collective*: free the memory; return False if a resource hangs and would block the process's exit."""
