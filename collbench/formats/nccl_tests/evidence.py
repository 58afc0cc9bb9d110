"""What the rows of a table tell of their test: its number of ranks and its collective, by sizes and bandwidths.

A log may be trimmed, pasted together or mislabelled; its rows are then the witness.  A bus bandwidth is the algorithm
bandwidth times a factor of the collective and its ranks, and a sharded collective prints a rank's share as its count.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property

from collbench.collectives import Collective, of_nccl_tests
from collbench.datatypes import find_datatype
from collbench.errors import UsageError

MOST = 4096  # ranks that are tried
AGREE = 0.9  # of the rows; the others may be damaged
Interval = tuple[float, float]
NOTHING: Interval = (0.0, float("inf"))


@dataclass(frozen=True)
class Witness:
    """One place of one row, in the words that were printed; "" where it has none."""

    nbytes: int
    elements: int | None
    dtype: str
    seconds: tuple[str, float] = ("", 1e-6)  # and what it counts
    algbw: str = ""
    busbw: str = ""

    @property
    def cut(self) -> int | None:
        """Into how many equal shares its bytes are cut by count and type; 0 if into none, None if nobody can tell."""
        size = itemsize(self.dtype)
        if size is None or self.elements is None or not self.nbytes:
            return None
        own = self.elements * size
        return self.nbytes // own if own and self.nbytes % own == 0 else 0

    @cached_property
    def rate(self) -> Interval | None:
        """Bytes over seconds, in GB/s."""
        took = interval(self.seconds[0])
        if not took or took[0] <= 0:
            return None
        scale = self.nbytes / self.seconds[1] / 1e9
        return scale / took[1], scale / took[0]

    @property
    def factor(self) -> Interval | None:
        """Between which bus over algorithm bandwidth lies."""
        return quotient(interval(self.busbw), interval(self.algbw))

    @property
    def moved(self) -> Interval | None:
        """The same by size and time: older versions count fewer bytes in the algorithm bandwidth."""
        return quotient(interval(self.busbw), self.rate)

    def timely(self, tolerance: float = 0.02) -> bool | None:
        """Whether size over time is the algorithm bandwidth, as far as it is printed; None if that says nothing."""
        printed, rate = interval(self.algbw), self.rate
        if not printed or not rate or printed[0] <= 0:
            return None
        return printed[0] <= rate[1] * (1 + tolerance) and rate[0] <= printed[1] * (1 + tolerance)


def itemsize(dtype: str) -> int | None:
    """Bytes of an element of a type as the tools call it; None if nobody knows it."""
    try:
        return find_datatype(dtype.lower().removeprefix("nccl")).itemsize
    except UsageError:
        return None


def interval(word: str) -> Interval | None:
    """What a number may have been before it was rounded; None if it is none, or not above 0."""
    try:
        value = Decimal(word) if 0 < len(word) <= 64 else Decimal("nan")
    except InvalidOperation:
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -30 < exponent < 30 or value <= 0 or value.adjusted() > 30:
        return None
    half = Decimal(1).scaleb(exponent) / 2
    return float(value - half), float(value + half)


def quotient(above: Interval | None, below: Interval | None) -> Interval | None:
    """Between which a quotient lies."""
    if not above or not below or above[0] <= 0 or below[0] <= 0:
        return None
    return above[0] / below[1] * (1 - 1e-9), above[1] / below[0] * (1 + 1e-9)


def consensus(intervals: Iterable[Interval | None]) -> Interval | None:
    """Where nearly all of them overlap: NOTHING if there are none, None if they contradict each other."""
    known = [one for one in intervals if one]
    if not known:
        return NOTHING
    edges = sorted([(low, 0) for low, _ in known] + [(high, 1) for _, high in known])
    depth, deepest, best = 0, 0, NOTHING
    for at, (edge, closes) in enumerate(edges):
        depth += -1 if closes else 1
        if depth > deepest:
            deepest, best = depth, (edge, edges[at + 1][0])
    return best if deepest >= AGREE * len(known) else None


@dataclass(frozen=True)
class Evidence:
    """All rows of a table; `redop` and `root` are None where it has no such column."""

    witnesses: Sequence[Witness]
    redop: str | None = None
    root: int | None = None
    timed: bool = True  # whether its times are those that its bandwidths were counted from
    rootless: bool = False  # whether its header has no column for a root, as of collectives that have none

    @cached_property
    def ratio(self) -> Interval | None:
        """Between which the bus factor lies."""
        return consensus(witness.factor for witness in self.witnesses)

    @cached_property
    def _moved(self) -> Interval | None:
        return consensus(witness.moved for witness in self.witnesses) if self.timed else None

    @cached_property
    def cut(self) -> int | None:
        """Into how many shares nearly all rows are cut."""
        cuts = Counter(cut for witness in self.witnesses if (cut := witness.cut) is not None)
        cut, times = next(iter(cuts.most_common(1)), (0, 0))
        return cut if cut and times >= AGREE * cuts.total() else None

    @property
    def _told(self) -> list[Interval]:
        """What the bandwidths say of the bus factor; nothing if they contradict each other."""
        return [bounds for bounds in (self.ratio, self._moved) if bounds and bounds != NOTHING]

    def _within(self, collective: Collective, ranks: int) -> bool:
        factor = collective.bus_factor(ranks)
        return not self._told or any(low <= factor <= high for low, high in self._told)

    def _possible(self, collective: Collective) -> set[int]:
        """The numbers of ranks that the bandwidths allow; all if they say nothing."""
        told = self._told or [NOTHING]
        return {ranks for bounds in told for ranks in ranks_between(collective, *bounds)}

    def allows(self, collective: Collective, ranks: int) -> bool:
        """Whether nothing speaks against so many ranks."""
        shares = ranks if collective.sharded else 1
        return self.cut in (None, shares) and self._within(collective, ranks)

    def only(self, collective: Collective) -> int | None:
        """The one number of ranks that is possible, if the rows leave but one."""
        if collective.sharded and self.cut and self.cut > 1:
            return self.cut if self.allows(collective, self.cut) else None
        possible = {ranks for ranks in self._possible(collective) if self.allows(collective, ranks)}
        return possible.pop() if len(possible) == 1 else None

    def objection(self, collective: Collective, ranks: int | None = None) -> str:
        """What speaks against a collective, whatever its number of ranks if it is not told; "" if nothing does."""
        if self.redop is not None and collective.reduces and self.redop in ("", "none"):
            return "its rows reduce nothing"
        if self.root is not None and collective.rooted != (self.root >= 0):
            return f"its rows have {'no' if collective.rooted else 'a'} root"
        if self.cut and not collective.sharded and self.cut != 1:
            return f"its sizes are {self.cut} times count and type"
        if self.cut == 1 and collective.sharded and ranks not in (None, 1):
            return "its counts are the whole array and not a rank's share"
        if not self._possible(collective):
            return "its bus bandwidths are another collective's"
        return ""

    def collectives(self, ranks: int | None) -> list[Collective]:
        """Those that the rows may be of, if what is summed up is reduced."""
        summed = None if self.redop is None else self.redop not in ("", "none")

        def fits(collective: Collective) -> bool:
            own = ranks or (self.cut if collective.sharded else None)
            return (
                (summed is None or collective.reduces == summed)
                and not (self.rootless and collective.rooted)
                and not self.objection(collective, own)
                and (own is None or self.allows(collective, own))
                and not (collective.sharded and own == 1 and ranks is None)
            )

        return list(filter(fits, of_nccl_tests()))


@cache
def _factors(collective: Collective) -> tuple[float, ...]:
    """Bus factors from 1 rank on; they never fall."""
    return tuple(collective.bus_factor(ranks) for ranks in range(1, MOST + 1))


def ranks_between(collective: Collective, low: float, high: float) -> range:
    """The numbers of ranks whose bus factor lies between these."""
    factors = _factors(collective)
    return range(bisect_left(factors, low) + 1, bisect_right(factors, high) + 1)
