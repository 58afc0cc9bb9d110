"""Requests to measure: a case with its work, sampling, and sweeps."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta

from collbench.collectives import REDUCED, Collective
from collbench.datatypes import GRADES, NONE, Datatype, Recipe, Reduction, Wire, recipe
from collbench.errors import UsageError
from collbench.notebook import Shown
from collbench.properties import PROPERTIES, Property
from collbench.records import Record
from collbench.units import Count

MOST_SIZES = 10_000  # of a sweep
PACK = 16  # bytes of a kernel's widest access, and of what libraries align


@dataclass(frozen=True)
class Work(ABC):
    """The ranks' work in addition to the collective of a case, such as a training step.

    Commands define kinds of work, and list them in `works` of their record for run files.
    """

    FIELD: ClassVar[str]  # its field in rows; the sweep of a header has the plural, with an s
    MODULE: ClassVar[str]  # the module with `measure` and `needs`, imported when needed
    several: ClassVar[bool] = False  # whether an implementation has several results
    resumable: ClassVar[bool] = False  # whether an interrupted run can be resumed

    def resumed(self, results: Sequence[Any], lost: int | None = None) -> Self:
        """Return the work that remains after these results, and without a lost rank."""
        return self

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The work for titles; all after the first string distinguishes forms of the same work."""


class Case(Shown, Record, frozen=True):
    """One collective at one size, with everything that determines the data sent and received.

    `nbytes` is the size of the whole logical array as in nccl-tests, a whole number of elements (per rank, if sharded).
    """

    SHOWN = ("title", "nbytes")
    collective: Collective
    nbytes: Annotated[int, Meta(ge=0, le=2**62)]
    dtype: Datatype
    redop: Reduction
    root: Count
    ranks: Annotated[int, Meta(ge=1, le=2**30)]
    in_place: bool
    work: Work | None = None  # additional work; None: the collective alone
    unalign: Count = 0  # elements by which every buffer is misaligned

    @property
    def properties(self) -> dict[str, Any]:
        """The values of all properties by name."""
        return {name: getattr(self, name) for name in PROPERTIES}

    @property
    def unusual(self) -> list[tuple[Property, Any]]:
        """The properties with unusual values."""
        return [(PROPERTIES[name], value) for name, value in self.properties.items() if value != PROPERTIES[name].usual]

    @property
    def kind(self) -> "Case":
        """The case without its size, as all points of a curve share it."""
        return replace(self, nbytes=0)

    @property
    def title(self) -> str:
        """The case without its size, as text: `allreduce, float, sum, 2 ranks`."""
        words = [self.collective.name, self.dtype.name]
        words += [self.redop.name] if self.collective.reduces else []
        words += [f"root {self.root}"] if self.collective.rooted else []
        words += [each.title(value) for each, value in self.unusual]
        words += [f"{count} in flight" for count in {flight.count for flight in self.collective.flights} if count > 1]
        words += [f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"]
        return ", ".join([*words, *(self.work.words if self.work else ())])

    @property
    def block(self) -> int:
        """Elements in one block of the send and receive buffers."""
        return self.nbytes // self.granule

    @property
    def granule(self) -> int:
        """The smallest size of the case in bytes; all sizes are multiples of it."""
        return self.dtype.itemsize * (self.ranks if self.collective.sharded else 1)

    @property
    def send_count(self) -> int:
        """Elements in each rank's send buffer."""
        return self.block * self.collective.send_blocks(self.ranks)

    @property
    def receive_count(self) -> int:
        """Elements in each rank's receive buffer."""
        return self.block * self.collective.receive_blocks(self.ranks)

    @property
    def misalignment(self) -> int:
        """Bytes by which every buffer is misaligned."""
        return sum(each.shift(value) for each, value in self.unusual) * self.dtype.itemsize

    def places(self, rank: int) -> tuple[int, int]:
        """Return the first elements of send and receive buffer; in place, both are offsets in the shared buffer."""
        if not self.in_place or self.collective.in_place is None:
            return 0, 0
        send, receive = self.collective.in_place(rank, self.ranks)
        return send * self.block, receive * self.block

    def pieces(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Yield the blocks that a rank receives: (first received element, source or REDUCED, first sent element)."""
        for block, source, sent in self.collective.moves(rank, self.ranks, self.root):
            yield block * self.block, source, sent * self.block

    @property
    def traffic(self) -> tuple[int, int]:
        """Minimum bytes that all ranks together read and write with any algorithm.

        Every block that a rank needs is read once, and every block of a result is written once.  In place, a block that
        is already in its position is not counted.
        """
        read: set[tuple[int, int]] = set()  # owner, and the first element sent
        written = 0
        for rank in range(self.ranks):
            send, receive = self.places(rank)
            for first, source, sent in self.pieces(rank):
                alone = source == REDUCED and self.ranks == 1
                if self.in_place and (source == rank or alone) and send + sent == receive + first:
                    continue
                written += 1
                read |= {(peer, sent) for peer in (range(self.ranks) if source == REDUCED else (source,))}
        size = self.block * self.dtype.itemsize
        return len(read) * size, written * size

    def recipe(self, seed: int, wire: Wire | None = None) -> Recipe:
        """Return the parameters of the inputs, apart from rank and index; with a wire format, groups differ in size."""
        how = recipe(self.dtype, self.redop, self.ranks, seed)
        return replace(how, grades=GRADES) if wire else how


@dataclass(frozen=True)
class Sampling:
    """The sampling of a case: until the median is precise enough, or the budget is spent."""

    budget: float = 0.5  # seconds for a case, all its implementations together
    precision: float = 0.02  # requested half-width of the 95 % interval of the median, relative to the median
    minimum: int = 7  # samples of each implementation, however slow; six are needed for a 95 % interval
    region: float | None = None  # target seconds of one sample; by default that of the platform
    iters: int | None = None  # exactly this many samples instead
    # Steps of a series of a case with work, unless that lasts too long; None: until the budget is spent.
    steps: int | None = None
    warmup: int = 1  # untimed samples of each implementation first
    timeout: float = 30.0  # seconds without progress after which a case counts as hung
    check_only: bool = False  # one checked run of each implementation, and no samples
    traced: bool = False  # trace the parts of an operation instead (collbench/measure/tracing.py)
    graph: bool = True  # on a GPU: replay a captured graph rather than launch one by one


@dataclass(frozen=True)
class SizeRange:
    """Requested message sizes, from the first up to the last."""

    first: int  # bytes
    last: int
    factor: float = 0.0  # between sizes (nccl-tests' -f); 0 with a step
    step: int = 0  # bytes between sizes (-i)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes in bytes; UsageError for more than MOST_SIZES."""
        found: list[int] = []
        size: float = self.first
        while size <= self.last:
            found.append(int(size))
            size = int(size) + self.step if self.step else max(size * self.factor, int(size) + 1)
            if len(found) > MOST_SIZES:
                larger = "-i, or -f 2" if self.step else "-f, such as 2"
                sizes = f"more than {MOST_SIZES} sizes from {self.first} to {self.last} bytes"
                raise UsageError(f"{sizes}; give a larger {larger}")
        return tuple(found)


ROUNDS = 8  # of sets of ranks that measure a case in turn; with several starts, each has one round
SPINS = ("auto", "yield", "busy")  # when a waiting rank yields its core: if cores are few, always, never
USUAL_STARTS = 3  # default starts of the ranks, if a start is quick and memory suffices
BINDS = ("core", "none")  # bind each rank to its own core if there are enough; or leave it to the scheduler


class Sweep(Shown, Record, frozen=True):
    """The cases to measure and their implementations, in the order of the table.

    A run's header contains its sweep; in an imported run, unknown fields have the defaults.
    """

    collectives: tuple[Collective, ...] = ()
    sizes: tuple[int, ...] = ()
    dtypes: tuple[Datatype, ...] = ()
    redops: tuple[Reduction, ...] = ()
    ranks: int = 0
    implementations: tuple[str, ...] = ()
    root: int = 0
    in_place: bool = False
    both_places: bool = False  # every size out of place, and then in place if the collective can be
    spin: str = ""  # on a CPU, how a waiting rank spins: SPINS
    bind: str = ""  # on a CPU, what ranks are bound to: BINDS
    starts: int = 1  # starts of the ranks, to include differences between starts; 0: the default
    unalign: int = 0  # elements by which every buffer is misaligned
    sampling: Sampling = Sampling(graph=False)
    works: tuple[Work | None, ...] = (None,)  # additional work, in order within each size
    requested: SizeRange | None = None  # the range of the sizes

    def cases(self) -> Iterator[Case]:
        """Yield every case once, with sizes rounded down to at least one whole element, and without duplicates.

        Sharded collectives round down to blocks of whole packs, as in nccl-tests, so that neighbouring blocks are
        aligned.  Blocks smaller than a pack stay, and so do sizes that are only checked, as these are odd on purpose.
        """
        for collective in self.collectives:
            for dtype, redop in product(self.dtypes, self.redops if collective.reduces else (NONE,)):
                yield from self._sizes(collective, dtype, redop)

    def rounded(self) -> str:
        """Return a note on the first rounded size and the number of others; "" if no size is rounded."""
        found: dict[int, int] = {}
        for size in self.sizes if not self.sampling.check_only else ():
            for case in replace(self, sizes=(size,)).cases():
                if case.collective.sized and case.nbytes != size:
                    found.setdefault(size, case.nbytes)
        more = f"; {len(found) - 1} more sizes are rounded" if len(found) > 1 else ""
        for size, nbytes in found.items():
            return f"{nbytes:,} B instead of {size:,} B, as every rank needs whole elements{more}"
        return ""

    def _sizes(self, collective: Collective, dtype: Datatype, redop: Reduction) -> Iterator[Case]:
        seen = set()
        places = (False, True)[: 2 if collective.in_place else 1] if self.both_places else (self.in_place,)
        root = self.root if collective.rooted else 0
        properties = {name: getattr(self, name) for name in PROPERTIES}
        for size in self.sizes if collective.sized else (1,):
            case = Case(collective, size, dtype, redop, root, self.ranks, **properties)
            pack = PACK // dtype.itemsize if collective.sharded and not self.sampling.check_only else 1
            block = case.block - case.block % pack if case.block >= pack else case.block
            nbytes = max(block, 1) * case.granule
            if nbytes not in seen:
                seen.add(nbytes)
                for place, work in product(places, self.works):
                    yield replace(case, nbytes=nbytes, in_place=place, work=work)
