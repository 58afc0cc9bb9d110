"""The request to measure: a case, the work that may be part of it, how to sample it, and a sweep over many."""

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
    """The ranks' work besides the collective of a case: a step of training, say.

    Commands define kinds of work; run files know them by `works` of a command's record.
    """

    FIELD: ClassVar[str]  # that has it in lines of cases; the sweep of a header has several in the plural, with an s
    MODULE: ClassVar[str]  # the module with `measure` and `needs`, imported when needed
    several: ClassVar[bool] = False  # whether an implementation has several results
    resumable: ClassVar[bool] = False  # whether a run of it can go on

    def resumed(self, results: Sequence[Any], lost: int | None = None) -> Self:
        """Return the work that is left to do after these results of it, and without a rank that was lost."""
        return self

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The work for titles; what comes after the first word tells ways to carry the same work out apart."""


class Case(Shown, Record, frozen=True):
    """One collective at one size: everything that decides what is sent, and what must arrive.

    `nbytes` is the whole logical array as nccl-tests counts it, a whole number of elements (per rank, if sharded).
    """

    SHOWN = ("title", "nbytes")
    collective: Collective
    nbytes: Annotated[int, Meta(ge=0, le=2**62)]
    dtype: Datatype
    redop: Reduction
    root: Count
    ranks: Annotated[int, Meta(ge=1, le=2**30)]
    in_place: bool
    work: Work | None = None  # work besides the collective; None: the collective alone
    unalign: Count = 0  # elements by which every buffer is misaligned

    @property
    def properties(self) -> dict[str, Any]:
        """The values of all properties by name."""
        return {name: getattr(self, name) for name in PROPERTIES}

    @property
    def unusual(self) -> list[tuple[Property, Any]]:
        """The properties that are not as usual, with their values."""
        return [(PROPERTIES[name], value) for name, value in self.properties.items() if value != PROPERTIES[name].usual]

    @property
    def kind(self) -> "Case":
        """The case without its size: what all points of a curve have in common."""
        return replace(self, nbytes=0)

    @property
    def title(self) -> str:
        """Everything but the size in words: `allreduce, float, sum, 2 ranks`."""
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
        """The smallest size in bytes of the case; every size is a multiple of it."""
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
        """Return the first element of the send and of the receive buffer; in place, both are in the shared buffer."""
        if not self.in_place or self.collective.in_place is None:
            return 0, 0
        send, receive = self.collective.in_place(rank, self.ranks)
        return send * self.block, receive * self.block

    def pieces(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Yield the blocks that a rank must hold: (first received element, source or REDUCED, first sent element)."""
        for block, source, sent in self.collective.moves(rank, self.ranks, self.root):
            yield block * self.block, source, sent * self.block

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that all ranks together must read and write at least, whatever the algorithm.

        Every block that some rank needs from a buffer is read once, and every block of a result is written once;
        what already lies where it must, in place, is neither.
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
        """Return the numbers that its inputs depend on, besides rank and index; for a wire format groups differ."""
        how = recipe(self.dtype, self.redop, self.ranks, seed)
        return replace(how, grades=GRADES) if wire else how


@dataclass(frozen=True)
class Sampling:
    """How often to measure a case: until the median is known well enough, or its time is spent."""

    budget: float = 0.5  # seconds of measuring a case, all its implementations together
    precision: float = 0.02  # requested half-width of the 95 % interval of the median, relative to the median
    minimum: int = 7  # samples of each implementation, however slow; six are needed for a 95 % interval
    region: float | None = None  # seconds that one sample should last; by default what the platform needs
    iters: int | None = None  # exactly this many samples instead
    # Steps of a series of a case with work, unless that lasts too long; None: until the budget is spent.
    steps: int | None = None
    warmup: int = 1  # untimed samples of each implementation first
    timeout: float = 30.0  # seconds without progress after which a case counts as hung
    check_only: bool = False  # one checked run of each implementation, and no samples
    traced: bool = False  # find out where the time goes instead (collbench/measure/tracing.py)
    graph: bool = True  # on a GPU: replay a captured graph rather than launch one by one


@dataclass(frozen=True)
class SizeRange:
    """Message sizes as a user asks for them: from the first on, and none above the last."""

    first: int  # bytes
    last: int
    factor: float = 0.0  # between a size and the next (nccl-tests' -f); 0 with a step
    step: int = 0  # bytes between a size and the next (-i)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes in bytes; UsageError if they are too many."""
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


ROUNDS = 8  # of sets of ranks that measure a case in turn; of ranks started several times each start has one
SPINS = ("auto", "yield", "busy")  # when a waiting rank offers its core to others: if cores are few, always, never
USUAL_STARTS = 3  # of the ranks, in a sweep that does not say how many, where a start is quick and memory has room
BINDS = ("core", "none")  # a rank stays on a core of its own, where there are enough; the scheduler moves it


class Sweep(Shown, Record, frozen=True):
    """The cases to measure and the implementations to measure each with, in the order of the table.

    A header has the sweep of its run; of an imported one the defaults stand for what is not known.
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
    starts: int = 1  # how often the ranks are started, to see what a start changes; 0: as often as is usual
    unalign: int = 0  # elements by which every buffer is misaligned
    sampling: Sampling = Sampling(graph=False)
    works: tuple[Work | None, ...] = (None,)  # work besides the collective, by size in order
    requested: SizeRange | None = None  # the range that the sizes are of

    def cases(self) -> Iterator[Case]:
        """Yield every case once: sizes are rounded down to whole elements (but at least one), and duplicates dropped.

        Sizes of sharded collectives are rounded down to blocks of whole packs, as in nccl-tests, so that neighbouring
        blocks are aligned; blocks smaller than a pack stay, and so do sizes that are only checked: they are to be odd.
        """
        for collective in self.collectives:
            for dtype, redop in product(self.dtypes, self.redops if collective.reduces else (NONE,)):
                yield from self._sizes(collective, dtype, redop)

    def rounded(self) -> str:
        """Return which size is measured instead of the first that is rounded, and of how many; "" if none is."""
        found: dict[int, int] = {}
        for size in self.sizes if not self.sampling.check_only else ():
            for case in replace(self, sizes=(size,)).cases():
                if case.collective.sized and case.nbytes != size:
                    found.setdefault(size, case.nbytes)
        more = f"; {len(found) - 1} more sizes are rounded" if len(found) > 1 else ""
        for size, nbytes in found.items():
            return f"{nbytes:,} B instead of {size:,} B, since every rank has whole elements{more}"
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
