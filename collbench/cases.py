"""What to measure: one case, how to sample it, and the sweep over many."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from collbench.collectives import REDUCED, Collective
from collbench.datatypes import NONE, Array, Datatype, Recipe, Reduction, inputs, recipe, reduced
from collbench.errors import UsageError
from collbench.jobs import Job
from collbench.steps import Step
from collbench.wires import GRADES, Wire

MOST_SIZES = 10_000  # of a sweep
PACK = 16  # bytes of a kernel's widest access, and of what libraries align
BUCKET_UNIT = 128  # bytes: buckets start at multiples of it, as buffers do


@dataclass(frozen=True)
class Case:
    """One collective at one size: everything that decides what is sent, and what must arrive.

    `nbytes` is the whole logical array as nccl-tests counts it, a whole number of elements (per rank, if sharded).
    """

    collective: Collective
    nbytes: int
    dtype: Datatype
    redop: Reduction
    root: int
    ranks: int
    in_place: bool
    step: Step | None = None  # what ranks compute meanwhile; None for the collective alone
    job: Job | None = None  # what ranks train, where the collective adds their gradients

    @property
    def kind(self) -> "Case":
        """The case without its size: what all points of a curve have in common."""
        return replace(self, nbytes=0)

    @property
    def kind_of_step(self) -> "Case":
        """The case without how its step is carried out: what steps have in common that are held against each other."""
        return replace(self, step=replace(self.step, schedule="", bucket=0, ctas=0)) if self.step else self

    @property
    def title(self) -> str:
        """All but the size in words: `allreduce, float, sum, 2 ranks`."""
        words = [self.collective.name, self.dtype.name]
        words += [self.redop.name] if self.collective.reduces else []
        words += [f"root {self.root}"] if self.collective.rooted else []
        words += ["in place"] if self.in_place else []
        words += [f"{count} in flight" for count in {flight.count for flight in self.collective.flights} if count > 1]
        words += [f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"]
        return ", ".join([*words, *(part for more in (self.step, self.job) if more for part in more.words)])

    def buckets(self) -> list[tuple[int, "Case"]]:
        """What a step hands over at once, in order: bytes behind the start of the buffers, and the collective there.

        Only collectives whose whole array is one block can be cut.
        """
        alone = replace(self, step=None, job=None)
        if not self.step or not self.step.bucket or self.collective.sharded:
            return [(0, alone)]
        whole = max(1, self.step.bucket // BUCKET_UNIT) * BUCKET_UNIT
        return [
            (start, replace(alone, nbytes=min(whole, self.nbytes - start))) for start in range(0, self.nbytes, whole)
        ]

    @property
    def block(self) -> int:
        """Elements in one block of the send and receive buffers."""
        return self.nbytes // self.granule

    @property
    def granule(self) -> int:
        """The smallest size in bytes of such a case; every size is a multiple of it."""
        return self.dtype.itemsize * (self.ranks if self.collective.sharded else 1)

    @property
    def send_count(self) -> int:
        """Elements in each rank's send buffer."""
        return self.block * self.collective.send_blocks(self.ranks)

    @property
    def receive_count(self) -> int:
        """Elements in each rank's receive buffer."""
        return self.block * self.collective.receive_blocks(self.ranks)

    def places(self, rank: int) -> tuple[int, int]:
        """First element of the send and of the receive buffer; both count from one buffer if in place."""
        if not self.in_place or self.collective.in_place is None:
            return 0, 0
        send, receive = self.collective.in_place(rank, self.ranks)
        return send * self.block, receive * self.block

    def pieces(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """What a rank must hold: (first received element, source rank or REDUCED, first element sent), a block each."""
        for block, source, sent in self.collective.moves(rank, self.ranks, self.root):
            yield block * self.block, source, sent * self.block

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that all ranks together must read and write at least, whatever the algorithm.

        Every block that some rank needs from a buffer is read once, and every block of a result is written once;
        what already lies where it must, in place, is neither.
        """
        read: set[tuple[int, int]] = set()  # whose, and the first element sent
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
        """The numbers that its inputs depend on, besides rank and index; for a wire groups differ."""
        how = recipe(self.dtype, self.redop, self.ranks, seed)
        return replace(how, grades=GRADES) if wire else how

    def input(self, rank: int, seed: int) -> Array:
        """The send buffer of `rank`, in storage values."""
        return inputs(self.dtype, self.redop, self.recipe(seed), rank, 0, self.send_count)

    def expected(self, rank: int, seed: int) -> list[tuple[int, Array]]:
        """The receive buffer of `rank` afterwards: (first element, storage values) for each block that is defined."""
        how = self.recipe(seed)
        return [
            (
                first,
                reduced(self.dtype, self.redop, how, sent, self.block)
                if source == REDUCED
                else inputs(self.dtype, self.redop, how, source, sent, self.block),
            )
            for first, source, sent in self.pieces(rank)
        ]


@dataclass(frozen=True)
class Sampling:
    """How often to measure a case: until the median is known well enough, or its time is spent."""

    budget: float = 0.5  # seconds of measuring a case, all its implementations together
    precision: float = 0.02  # wanted half-width of the 95 % interval of the median, relative to the median
    minimum: int = 7  # samples of each implementation, however slow; six are needed for a 95 % interval
    region: float | None = None  # seconds that one sample should last; by default what the platform needs
    iters: int | None = None  # exactly this many samples instead
    steps: int | None = (
        None  # of a series of a case with a step, if that does not last too long; till the budget is spent
    )
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
    factor: float = 0.0  # by which each is above the one before (nccl-tests' -f); 0 with a step
    step: int = 0  # bytes by which it is (-i)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All of them in bytes; UsageError if they are too many."""
        if self.step:
            return linear(self.first, self.last, self.step)
        return geometric(self.first, self.last, self.factor)


SPINS = ("auto", "yield", "busy")
"""A waiting rank offers its core to others: when they outnumber the cores, always, or never."""

USUAL_STARTS = 3
"""Starts of the ranks in a sweep that does not say how many, where a start is quick and memory has room for all."""

BINDS = ("core", "none")
"""A rank stays on a core of its own, where there are enough of them; or the scheduler moves it as it likes."""


@dataclass(frozen=True)
class Sweep:
    """The cases to measure and the implementations to measure each with, in the order of the table."""

    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[Datatype, ...]
    redops: tuple[Reduction, ...]
    ranks: int
    implementations: tuple[str, ...]
    root: int = 0
    in_place: bool = False
    both_places: bool = False  # every size out of place, and then in place if the collective can be
    sampling: Sampling = Sampling()
    spin: str = "auto"  # on a CPU, how a waiting rank spins: SPINS
    bind: str = "core"  # on a CPU, what ranks are bound to: BINDS
    starts: int = 1  # how often the ranks are started, to see what a start changes; 0: as often as is usual
    steps: tuple[Step | None, ...] = (None,)  # what ranks compute meanwhile, of every size one after the other
    jobs: tuple[Job | None, ...] = (None,)  # what they train
    asked: SizeRange | None = None  # what the sizes were made of

    def cases(self) -> Iterator[Case]:
        """Every case once: sizes are rounded down to whole elements (but at least one), and doubles dropped.

        Of sharded collectives to blocks of whole packs, as nccl-tests does, for blocks beside each other to be aligned;
        smaller blocks stay, and so do those that are only checked, which are there to be odd.
        """
        for collective in self.collectives:
            for dtype in self.dtypes:
                for redop in self.redops if collective.reduces else (NONE,):
                    yield from self._sizes(collective, dtype, redop)

    def _sizes(self, collective: Collective, dtype: Datatype, redop: Reduction) -> Iterator[Case]:
        seen = set()
        root = self.root if collective.rooted else 0
        for size in self.sizes if collective.sized else (1,):
            case = Case(collective, size, dtype, redop, root, self.ranks, self.in_place)
            pack = PACK // dtype.itemsize if collective.sharded and not self.sampling.check_only else 1
            block = case.block - case.block % pack if case.block >= pack else case.block
            nbytes = max(block, 1) * case.granule
            if nbytes not in seen:
                seen.add(nbytes)
                for place, step, job in product(self._places(collective), self.steps, self.jobs):
                    yield Case(collective, nbytes, dtype, redop, root, self.ranks, place, step, job)

    def _places(self, collective: Collective) -> tuple[bool, ...]:
        if not self.both_places:
            return (self.in_place,)
        return (False, True) if collective.in_place else (False,)


def geometric(first: int, last: int, factor: float) -> tuple[int, ...]:
    """Sizes from `first` to `last`, each `factor` times the one before (nccl-tests' -f)."""
    sizes = []
    size: float = first
    while size <= last:
        sizes.append(int(size))
        size = max(size * factor, int(size) + 1)
        if len(sizes) > MOST_SIZES:
            raise UsageError(f"more than {MOST_SIZES} sizes from {first} to {last} bytes; give a larger -f, such as 2")
    return tuple(sizes)


def linear(first: int, last: int, step: int) -> tuple[int, ...]:
    """Sizes from `first` to `last` in steps of `step` bytes (nccl-tests' -i)."""
    sizes = range(first, last + 1, step)
    if len(sizes) > MOST_SIZES:
        raise UsageError(f"more than {MOST_SIZES} sizes from {first} to {last} bytes; give a larger -i, or -f 2")
    return tuple(sizes)
