"""The interface of a platform: small objects, each testable with a stand-in.

An implementation is written once against `Platform.memory` and `Platform.launcher`.  A process holds one rank (cpu) or
all of them (gpu), so methods speak of every local rank.  Methods marked *collective* are called by every process of the
run and return the same on each.  Methods with a default are for some platforms only.

Ranks compute matrix products with an exactly known result.  Each product of a chain multiplies the last result by the
same signed permutation matrix, dense and in float32, so the multiplying library knows nothing of it.  Every sum has one
term that is not zero, so it is exact in any order and any format that holds small integers.  After n products every
element is known: a product that was left out, made twice or made wrong is seen.
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
"""When something was reached on a rank's queue, in seconds of a clock that all ranks share; `at` tells once it was.

Where it is known at once it is that number: a call for it would cost more than a clock, and so would its memory.
"""

_LARGEST = 8  # magnitude of an element; TF32 and all wider formats hold it


class Products(Protocol):
    """The matrices of the ranks that a process holds; computing has a queue of its own for every rank."""

    def enqueue(self, rank: int, count: int) -> None:
        """Enqueue `count` products on the computing queue of a local rank."""

    def moment(self, rank: int) -> Moment:
        """When that queue gets here."""

    def hand_over(self, rank: int) -> None:
        """Make the rank's next collectives wait for the computing that it has enqueued so far."""
        return

    def take_over(self, rank: int) -> None:
        """Make the rank's next computing wait for the collectives that it has enqueued so far."""
        return

    def reset(self) -> None:
        """Start the chains anew."""

    def check(self) -> GemmMismatch | None:
        """*Collective*: the first wrong element over all ranks, or None if every product was made."""


def at(moment: Moment) -> float:
    """Seconds, once the queue has got there."""
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
        """Return the row of the start that each row of the result equals after `count` products: from 1, signed."""
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
        """Return the fault of a result after `count` products, or None."""
        rows = self.rows(count)
        expected = np.sign(rows).astype(np.float32)[:, None] * self.start[np.abs(rows) - 1]

        # Not `!=`: NaN must differ, which is equal to nothing.
        places: Sequence[NDArray[np.int64]] = np.nonzero(~(got == expected))
        if not len(places[0]):
            return None
        row, column = int(places[0][0]), int(places[1][0])
        values = f"{got[row, column]:g}", f"{expected[row, column]:g}"
        return GemmMismatch(self.rank, count, row, column, *values, wrong=len(places[0]))


if TYPE_CHECKING:  # the ranks' side, which what starts them never needs
    from collbench.platforms.checking import StressPlan


@dataclass(frozen=True)
class FastPath:
    """A way to have NCCL know buffers beforehand, and to tell it how many CTAs it may use."""

    name: str
    summary: str
    symmetric: bool  # whether they are a window of the same layout on every rank; else registered by each alone
    policy: int | None = None  # on CTAs, by NCCL's number; None for its own
    reference: bool = False  # as in Implementation

    @property
    def buffers(self) -> str:
        """How the buffers were allocated, and as what NCCL knows them."""
        return f"ncclMemAlloc, {'a symmetric window' if self.symmetric else 'registered'}"


class Ran(NamedTuple):
    """A library's operation: `ring`, `nvls`, ... and a protocol; `symm` and its kernel, `ce` for copy engines."""

    algorithm: str = ""
    protocol: str = ""
    channels: int | None = None  # CTAs of a rank; None where copy engines work


NOT_SAID = Ran()

Watch = Callable[[int, str], AbstractContextManager[None]]
"""`with watch(rank, phase):` around what is enqueued for that rank."""


@dataclass(frozen=True)
class Limits:
    """Speeds that no hardware of this kind reaches, with room to spare; a faster result was not really computed."""

    latency: float  # seconds of an operation in which ranks need each other's data
    rate: float  # bytes per second that one rank can take in
    measured: str = ""  # where the rate comes from


@dataclass(frozen=True)
class Pending:
    """A non-blocking operation; both parts raise CaseFailed if the library says that it failed."""

    begin: Callable[[], None]
    finish: Callable[[], None]


@dataclass(frozen=True)
class Prepared:
    """A case ready to run: `launch(n)` carries out n operations back to back, or enqueues them.

    `host_driven` operations wait on the host between their steps, so they can't be captured in a graph.  `one_graph`
    operations wait for each other's events, which CUDA does not offer between graphs, so the streams of all ranks are
    captured together.  The others are not: CUDA may put two branches of a graph into one hardware queue, and their
    kernels wait for each other.
    """

    launch: Callable[[int], None]
    host_driven: bool = False
    one_graph: bool = False
    groups: int = 1  # launches of an operation on a stream one after the other, where a library makes several
    note: Note = NO_NOTE
    estimate: float | None = None  # seconds that a library itself expects of an operation
    ran: Ran = NOT_SAID
    library_bytes: int | None = None  # of a rank's device that the library has taken so far
    library: str = ""  # name and version of what carries it out, if the implementation's name leaves it open
    wire: Wire | None = None  # the format that ranks exchange, if narrower than the arrays: then results have a bound
    watched: Callable[[Watch], None] | None = None  # one operation, with each action of a rank inside a watch
    notes_moments: bool = False  # as it is enqueued, so it can't be captured in a graph either
    loop: Callable[[int], None] | None = None  # on a CPU: the call into C that `launch` makes, if it does more besides
    pending: Pending | None = None  # the non-blocking form, if there is one
    refuse: Callable[[], None] | None = None  # raise if operations made by `loop` have failed


class Launcher(Protocol):
    """How kernels, copies and events get to the ranks."""

    memory: Memory
    options: tuple[str, ...] = ()  # of the compiler, for every kernel
    lost: int = 0  # nanoseconds that delayed kernels lose

    def altered(self, memory: Memory, options: tuple[str, ...] = (), lost: int = 0) -> Self:
        """Return the same launcher for buffers elsewhere, or with options of the compiler for every kernel."""
        other = copy.copy(self)
        other.memory, other.options, other.lost = memory, options or self.options, lost or self.lost
        return other

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> Any:
        """Return an entry of `kernels/<file>`, compiled for these ranks, this hardware, dtype and reduction."""

    def blocks(self, most: int) -> int:
        """Return the number of co-resident blocks that a rank gets of a kernel that would use `most`."""

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
        """Enqueue a copy on the stream of a local rank, by whatever copies fastest here (copy engine, memcpy)."""

    def store(self, rank: int, address: int, data: Array) -> None:
        """Write an array to an address of a local rank, after all that was enqueued for it."""

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """Return the bytes at an address of a local rank, after all that was enqueued for it: shape (nbytes,)."""

    def refuse_apart(self) -> None:
        """Raise Unsupported where ranks cannot use each other's memory, with the reason."""

    def mark(self, rank: int) -> Any:
        """Return an event after everything enqueued on a local rank's stream; for `after`, in the same launch only.

        By default neither does anything: launches are synchronous.
        """
        return None

    def after(self, rank: int, event: Any) -> None:
        """Make what is enqueued on a local rank's stream from now on wait for an event; the host does not wait."""
        return

    def synchronize(self) -> None:
        """*Collective*: wait until everything enqueued by every rank is done."""


class Clock(Protocol):
    """Times operations."""

    region: float  # seconds that a sample lasts at least, so that what starts and ends it does not count
    limits: Limits
    scheduled: SchedulingWatch  # whether the ranks had their cores, in the last region that was timed
    graphs: bool = False  # whether `time` replays graphs that it captures

    def time(self, prepared: Prepared, launches: int) -> float:
        """*Collective*: return seconds per operation of the slowest rank, over `launches` operations back to back.

        CaseFailed if a kernel gave up waiting, or the hardware failed.
        """

    def time_each(self, prepared: Prepared, launches: int) -> Mapping[int, float]:
        """Return seconds of all these launches on each local rank by itself.

        *Collective* where ranks are on devices, so those without a part in it call it too: all enqueue first.
        """

    def most_held(self, prepared: Prepared) -> int:
        """Return how many launches `time_each` can start together."""
        return sys.maxsize  # the host carries them out

    def moment(self, rank: int) -> "Moment":
        """Note the time on a local rank's stream."""

    def set_clocks(self) -> float:
        """Set idle local ranks' clocks by their process's, around a series of moments; return seconds of error."""
        return 0.0  # there is no clock but the process's

    def enqueue_seconds(self, prepared: Prepared) -> float | None:
        """*Collective*: return the host's seconds to enqueue an operation; None where the host carries it out."""
        return None

    def singly(self, prepared: Prepared) -> Prepared | None:
        """Return the same operations repeated by a loop of this package; None where there is no other loop."""
        return None

    def barrier(self) -> Prepared | None:
        """Return a barrier of the ranks by flags in shared memory, which tells how far their cores are apart.

        None where ranks are on devices or on several nodes, or take turns on a core.
        """
        return None

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Return ways to move as many bytes as a case must move through memory, and nothing else.

        Empty where these bytes are not known, or caches may hold the buffers.  They overwrite the buffers.
        """
        return ()


class Checker(Protocol):
    """Writes known inputs, and compares results with what they must be."""

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """*Collective*: write every local rank's input, and a pattern that is no result over its receive buffer.

        For a wire that rounds, magnitudes differ from group to group, so that no group's scale serves another.
        """

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """*Collective*: return the first mismatch over all ranks, or None if every result is right.

        With a wire: results must be within its bound, and have the same bits on every rank.
        CaseFailed if the comparison did not look at every element.
        """

    def stress(self, case: Case, prepared: Prepared, plan: "StressPlan") -> Mismatch | None:
        """*Collective*: carry out calls back to back as planned; return the first mismatch over all ranks, or None.

        CaseFailed as in `Clock.time`, and as in `check`.
        """

    def overrun(self, case: Case) -> Overrun | None:
        """*Collective*: return the first write outside the buffers since they were filled, over all ranks; or None."""


class Logs(Protocol):
    """The logs that traced kernels keep of what they did when."""

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Return seconds from the clock of logs to that of moments, by groups of local ranks with one clock."""

    def take_logs(self, rank: int) -> Array:
        """Return and clear the logs that traced kernels left in a local rank's window: shape (blocks,), dtype LOG."""


class Compute(Protocol):
    """The ranks' computing in training steps, and its order with their communication."""

    queued: bool  # whether there are streams; else every call is done when it returns, and a process holds one rank

    def products(self, size: int, begin: Callable[[str], None] = lambda phase: None) -> "Products":
        """Return square matrices of `size` rows on every local rank; `begin` gets each phase that may last."""

    def join_streams(self) -> None:
        """Make the next operation of each local rank wait for all streams of its device."""
        return

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context in which failures of the hardware become CaseFailed, on this process alone."""
        return nullcontext()

    def refuse_given_up(self) -> None:
        """Raise CaseFailed, on this process alone, if a kernel of a local rank waited in vain."""


class Platform(Protocol):
    """Ranks on one kind of hardware, as one process sees them."""

    name: str
    team: Team  # the processes of the run
    ranks: int
    local: Sequence[int]  # the ranks that this process holds
    layout: MemoryLayout  # of the memory of every rank
    note: Note  # caveats for every number of this platform
    hardware: Hardware  # constants of the cost model; the same on every process
    cache: int | None  # bytes of a device's last cache that each rank can count on; None where that is not known
    comm: Any  # the library's communicator: an mpi4py communicator, or NCCL's
    memory: Memory
    launcher: Launcher
    clock: Clock
    checker: Checker
    logs: Logs
    compute: Compute

    def topology(self) -> TopologyPart:
        """*Collective*: return what connects the ranks, for the run file's header and the plots."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries that are measured here, for the run file's header."""

    def altered(self, memory: Memory, options: tuple[str, ...] = (), lost: int = 0) -> Self:
        """Return the same ranks with a launcher that is altered so."""
        other = copy.copy(self)
        other.memory, other.launcher = memory, self.launcher.altered(memory, options, lost)
        return other

    def traced(self) -> Self:
        """Return the same ranks and memory with kernels that keep a log; opened for a sweep that is traced."""
        return self.altered(self.memory, (tracelog.TRACED,))

    def with_delays(self, seconds: float) -> Self | None:
        """Return the same ranks with kernels that are delayed in the middle of operations of `seconds`.

        None where calls begin so promptly that a rank which comes late is enough.
        """
        return None

    def shifted(self, offset: int) -> Self:
        """Return the same ranks with buffers that start `offset` bytes after those of the checked case."""
        return self.altered(self.memory.shifted(offset))

    def on_path(self, path: FastPath) -> Self:
        """*Collective*: return the same ranks with buffers that NCCL knows beforehand; Unsupported with its reason."""
        raise Unsupported("no NCCL here")

    def on_switch(self) -> Self:
        """*Collective*: return the same ranks with memory that a switch knows; Unsupported without a switch."""
        raise Unsupported("no switch adds here")

    def waits(self) -> str:
        """Return which rank waits for which, as far as it is known; called from a thread while ranks hang."""
        return ""

    def close(self) -> bool:
        """*Collective*: give the memory back; False where something hangs, for which no process may wait at its end."""
