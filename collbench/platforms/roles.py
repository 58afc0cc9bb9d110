"""What a platform must bring: memory, launches, clocks, checks and logs of the ranks that one process holds.

An implementation is written once against `Launching`; whether a process holds one rank (cpu) or all of them (gpu) is
the platform's business, which is why everything here is said "for every local rank".  Methods marked *collective* are
called by every process of the run and return the same on each.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from collbench.cases import Case
from collbench.datatypes import Array, Datatype, Reduction, Wire
from collbench.platforms import scheduling
from collbench.platforms.cost import Hardware
from collbench.platforms.layout import Addresses, Layout, Region
from collbench.platforms.processes import Team
from collbench.platforms.products import Moment, Products
from collbench.platforms.stress import Plan
from collbench.results import NO_NOTE, CheckFailure, Mismatch, Note, Overrun

Watch = Callable[[int, str], AbstractContextManager[None]]
"""`with watch(rank, phase):` around what is enqueued for that rank."""


@dataclass(frozen=True)
class Limits:
    """What no hardware of this kind does, with room to spare: whoever seems to has not done what was timed."""

    latency: float  # seconds of an operation in which ranks need each other's data
    rate: float  # bytes per second that one rank can take in
    measured: str = ""  # where the rate comes from


@dataclass(frozen=True)
class Pending:
    """An operation that can be begun and finished later; all raise CaseFailed if the library says that it failed."""

    begin: Callable[[], None]
    poll: Callable[[], None]  # have it go on, for those that do so only when they are asked
    finish: Callable[[], None]


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
    library: str = (
        ""  # as in a measurement: whose product carries it out, where the implementation's name leaves it open
    )
    wire: Wire | None = None  # what passes between ranks, if it is narrower than the arrays: then results have a bound
    watched: Callable[[Watch], None] | None = None  # one operation, with each action of a rank inside a watch
    loop: Callable[[int], None] | None = None  # on a CPU: the call into C that `launch` makes, if it does more besides
    pending: Pending | None = None  # one operation in two parts, of those that can
    refuse: Callable[[], None] | None = None  # what it does besides: raise if the operations have failed


class Memory(Addresses, Protocol):
    """Regions of memory on every rank, which kernels load and store."""

    ranks: int
    local: Sequence[int]  # the ranks that this process holds
    layout: Layout  # of the memory of every rank, with where in its window an implementation's own FIFO starts

    def multicast(self, region: Region) -> int:
        """Where a region of all ranks starts for a switch that loads and stores them at once; Unsupported without."""


class Launching(Memory, Protocol):
    """How kernels and copies get to the ranks: all that an implementation needs."""

    name: str
    hardware: Hardware  # what the model of costs takes it for; the same on every process
    cache: int | None  # bytes of a device's last cache that each rank can count on; None where that is not known
    comm: Any  # what the library implementation talks to: an mpi4py communicator, or NCCL's
    team: Team  # the processes of the run

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> Any:
        """An entry of `kernels/<file>`, compiled for these ranks, this hardware, dtype and reduction, with more -D."""

    def blocks(self, most: int) -> int:
        """How many blocks a rank gets of a kernel that would use so many: what surely is co-resident."""

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


class Timing(Protocol):
    """A clock for operations."""

    region: float  # seconds that a sample lasts at least, so that what starts and ends it does not count
    limits: Limits  # what no operation can be faster than
    scheduled: scheduling.Watch  # whether the ranks had their cores, in the last region that was timed

    def time(self, prepared: Prepared, launches: int) -> float:
        """*Collective*: seconds per operation of the slowest rank, over that many operations back to back.

        CaseFailed if a kernel gave up waiting, or the hardware failed.
        """

    def singly(self, prepared: Prepared) -> Prepared | None:
        """The same operations, repeated by a loop of the package's own; None where there is no other way."""

    def barrier(self) -> Prepared | None:
        """A barrier of the ranks by flags in shared memory, to tell how far their cores are apart.

        None where ranks are on devices or on several nodes, or take turns on a core.
        """

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Ways to move the fewest bytes that a case must move through memory, and nothing else: it cannot be faster.

        None where nobody knows them, or caches may hold the buffers.  They spoil what lies in the buffers.
        """


class Checking(Protocol):
    """Inputs that are known, and results held against what they must be."""

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """The bytes at an address of a local rank, behind all that was enqueued for it: shape (nbytes,)."""

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """*Collective*: write every local rank's input, and a pattern that is no result over its receive buffer.

        For a wire that rounds, magnitudes differ from group to group, so that one's scale does not do for another.
        """

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """*Collective*: the first mismatch over all ranks, or None if every rank holds what it must.

        With a wire: what it must within the wire's bound, and every rank the same bits.

        CaseFailed if the comparison did not look at every element.
        """

    def stress(self, case: Case, prepared: Prepared, plan: Plan) -> Mismatch | None:
        """*Collective*: carry out calls back to back as planned; the first mismatch over all ranks, or None.

        CaseFailed as in `time`, and as in `check`.
        """

    def hesitant(self, seconds: float) -> Self | None:
        """The same ranks and memory, for kernels that lose time in the middle of operations of so many seconds.

        None where ranks can be halted within the kernels that are measured.
        """

    def overrun(self, case: Case) -> Overrun | None:
        """*Collective*: what was written beside the buffers since they were filled, over all ranks; or None."""


class Logging(Protocol):
    """What ranks did when, for explanations."""

    local: Sequence[int]
    team: Team

    def traced(self) -> Self:
        """The same ranks and memory, for kernels that keep a log; opened for a sweep that is traced."""

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """By idle local ranks whose logs are taken and go by one clock: seconds from that to the clock of moments."""

    def take_logs(self, rank: int) -> Array:
        """The logs that traced kernels left in a local rank's window, which are cleared: shape (blocks,), dtype LOG."""

    def set_clocks(self) -> float:
        """Hold the clocks of idle local ranks against their process's, before moments and after them.

        Seconds by which it may be off; moments between two such times are off by no more than the larger of theirs.
        """

    def moment(self, rank: int) -> Moment:
        """Note the time on a local rank's queue."""


class Computing(Protocol):
    """What ranks compute in steps, and how that is ordered with what they communicate."""

    queued: bool  # without queues whatever is called is done when it returns, and a process holds one rank

    def products(self, size: int) -> Products:
        """Square matrices of that many rows on every local rank, and their products."""

    def shifted(self, offset: int) -> Self:
        """The same ranks, for operations whose buffers start so many bytes behind those of the case that is checked."""

    def gather_queues(self) -> None:
        """What is enqueued next waits for the queues of all local ranks of its device, which may run it together."""

    def spread_queues(self) -> None:
        """What is enqueued next for any local rank waits for what was enqueued on another queue of its device."""

    def stepping(self) -> AbstractContextManager[None]:
        """Around what is enqueued for steps: what the hardware fails in meanwhile is a CaseFailed, on this process."""

    def refuse_given_up(self) -> None:
        """CaseFailed, on this process alone, if a kernel of a local rank waited in vain."""


class Platform(Launching, Timing, Checking, Logging, Computing, Protocol):
    """Ranks on one kind of hardware, as one process sees them."""

    note: Note  # what a reader of any number from here must know

    def topology(self) -> dict[str, Any]:
        """*Collective*: what connects the ranks, for the run file's header and the plots (collbench.topology)."""

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that are measured here, for the run file's header."""

    def close(self) -> bool:
        """*Collective*: give the memory back; False where something hangs, for which no exit of a process may wait."""
