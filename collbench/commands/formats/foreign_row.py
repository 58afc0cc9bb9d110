"""A row of another tool: its words, its case, and the numbers of ranks that fit its bandwidths."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from collbench.cases import Case
from collbench.collectives import Collective, find_collective
from collbench.commands.formats.words import GREATEST, MOST_RANKS, SHORTEST, Span, clean, count, seconds_of, span, whole
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError

ROUNDING = 1e-9  # relative difference by rounding in other programs
ANY_FACTOR, NO_FACTOR = (0.0, float("inf")), (1.0, 0.0)
LEAST_FACTOR, MOST_FACTOR = 0.5, 2.0  # bus factors of two ranks and more
SUFFIX = re.compile(r"_(?:perf|test)(?:_(?!bisection)[a-z0-9]{1,10})?$")  # all_reduce_perf_mpi: NAME_SUFFIX of `make`


class UnfitRow(Exception):
    """The reason why a run file cannot hold a row."""


@dataclass(frozen=True, kw_only=True)
class ForeignRow:
    """A result of another tool: one place of one line."""

    number: int  # of its line in the test
    collective: str  # the tool's name
    nbytes: int | None  # of the whole array
    dtype: str
    redop: str = "sum"
    root: int = 0
    in_place: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)  # other properties of the case, by name
    seconds: float  # per operation; 0 if the word is not a valid time
    figures: Mapping[str, object] = field(default_factory=dict)  # time, algbw and busbw as printed, with their digits
    unit: float = 1e-6  # unit of the printed time in seconds
    share: int = 0  # bytes by count and type (of one rank if the collective is sharded); 0 if unknown
    wrong: int | None = None  # elements; None if not checked
    samples: tuple[float, ...] = ()  # seconds of single operations
    note: str = ""
    printed: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def factors(self) -> Span:
        """The range of the bus factor that the printed digits allow; `low > high` if they contradict each other."""
        time = span(self.figures.get("time"), self.unit)
        if not time or not self.nbytes or not self.seconds:
            return ANY_FACTOR
        return bus_factors(self.nbytes, time, span(self.figures.get("algbw")), span(self.figures.get("busbw")))

    @property
    def vague(self) -> bool:
        """Whether the digits allow every factor of two ranks or more."""
        return self.factors[0] <= LEAST_FACTOR and self.factors[1] >= MOST_FACTOR

    def ranks(self, collective: Collective) -> range:
        """Return the numbers of ranks with a bus factor in the range; empty if the row is of another collective."""
        every, (low, high) = range(1, MOST_RANKS + 1), self.factors
        first = bisect_left(every, low, key=collective.bus_factor)
        return every[first : bisect_right(every, high, lo=first, key=collective.bus_factor)]

    def miscounted(self, case: Case) -> bool:
        """Whether count and type contradict the size."""
        return self.share > 0 and case.nbytes != self.share * (case.ranks if case.collective.sharded else 1)

    def case(self, collective: Collective | None, ranks: int) -> Case:
        """Return the case on `ranks` ranks; UnfitRow if there is none or the numbers contradict it."""
        if not collective:
            raise UnfitRow(no_collective(self.collective))
        case = make_case(collective, self.nbytes, self.dtype, self.redop, self.root, ranks, self.in_place)
        case = replace(case, **self.properties)
        if not self.seconds and not self.wrong:
            raise UnfitRow(f"its time is not valid ({clean(self.figures.get('time', ''), 20)!r})")
        if self.vague and self.miscounted(case):
            raise UnfitRow("its size contradicts its count and type, and no bandwidth tells which is right")
        fitting = self.ranks(collective)
        if ranks in fitting:
            return case
        what = f"{self.nbytes} bytes in {self.seconds * 1e6:.6g} us are"
        busbw = f"{clean(self.figures.get('busbw'), 20)} GB/s of bus bandwidth"
        if fitting:
            raise UnfitRow(f"{what} {busbw} on {_spoken(fitting)} ranks, not {ranks}")
        raise UnfitRow(f"{what} not {busbw}")


def bus_factors(nbytes: int, time: Span, algbw: Span | None, busbw: Span | None) -> Span:
    """Return the range of the bus factor from ranges of seconds and GB/s; `low > high` for a contradiction."""
    rate = nbytes / time[1] / 1e9, nbytes / max(time[0], SHORTEST) / 1e9
    if algbw:
        rate = max(rate[0], algbw[0]), min(rate[1], algbw[1])
    if rate[0] > rate[1] * (1 + ROUNDING):
        return NO_FACTOR
    if not busbw:
        return ANY_FACTOR
    return busbw[0] / rate[1] * (1 - ROUNDING), busbw[1] / rate[0] * (1 + ROUNDING)


def row_of(words: Mapping[str, object], unit: float = 1e-6, **more: Any) -> ForeignRow:
    """Return a row from its words by nccl-tests' column names; *unit* is that of times, in seconds."""
    on_cpu = "cputime" in words
    notes = more.pop("note", ""), "CPU time of the call (-C)" * on_cpu
    named: dict[str, Any] = {
        "collective": words.get("collective"),
        "nbytes": whole(words.get("size")),
        "dtype": str(words.get("type")).strip(),
        "redop": str(words.get("redop") or "sum").strip(),
        "root": whole(str(words.get("root")).strip()) or 0,  # -1 without a root
        "seconds": seconds_of(words.get("cputime", words.get("time")), unit),
        "figures": {} if on_cpu else words,
        "wrong": count(words.get("#wrong")),
        "note": ", ".join(filter(None, notes)),
    }
    return ForeignRow(unit=unit, **named | more)


def known_collective(word: str) -> Collective | None:
    """Return the collective of a tool's word, in any case and with any path; None if collbench lacks it."""
    name = word.replace("\\", "/").rsplit("/", 1)[-1].lower().replace("-", "_").removesuffix(".exe")
    try:
        return find_collective(SUFFIX.sub("", name))
    except UsageError:
        return None


def no_collective(word: str) -> str:
    """Return the reason for leaving out rows of an unknown collective."""
    return f"collbench has no collective like {clean(word, 60)!r}"


def make_case(
    collective: Collective, nbytes: int | None, dtype: str, redop: str, root: int, ranks: int, in_place: bool
) -> Case:
    """Return a case from a tool's words, or raise UnfitRow.  `redop` is ignored if the collective does not reduce."""
    reduction = NONE
    try:
        element = find_datatype(dtype.lower().removeprefix("nccl"))
        if collective.reduces:
            reduction = find_reduction(redop.lower().removeprefix("nccl"))
    except UsageError:
        raise UnfitRow(f"unknown type {clean(dtype, 20)!r} with operation {clean(redop, 20)!r}") from None
    if nbytes is None or not 0 <= nbytes <= GREATEST:
        raise UnfitRow("its size is impossible")
    root *= collective.rooted
    if not 0 <= root < ranks:
        raise UnfitRow(f"root {root} is not one of {ranks} ranks")
    return Case(collective, nbytes, element, reduction, root, ranks, in_place)


def _spoken(ranks: range) -> str:
    return f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


class Fitting:
    """The numbers of ranks that fit the rows with enough digits, for a collective."""

    def __init__(self, rows: Iterable[ForeignRow], collective: Collective) -> None:
        telling = (row for row in rows if not row.vague and row.factors != NO_FACTOR)
        self._ranges = Counter(row.ranks(collective) for row in telling)
        self.others = self._ranges.pop(range(0), 0)  # rows that no number of ranks fits

        # The best number is the start of a row's range.  The numbers above it up to the next range's end fit as well.
        first = max((ranks.start for ranks in self._ranges), key=self.count, default=1)
        stop = min((ranks.stop for ranks in self._ranges if ranks.stop > first), default=MOST_RANKS + 1)
        self.best = range(first, stop)  # numbers that fit most rows

    @property
    def only(self) -> int | None:
        """The only number of ranks that fits every row, or None."""
        alone = len(self.best) == 1 and not self.others and self.count(self.best[0]) == self._ranges.total()
        return self.best[0] if alone else None

    def count(self, ranks: int) -> int:
        """Return the number of rows that fit a number of ranks."""
        return sum(rows for fitting, rows in self._ranges.items() if ranks in fitting)

    def allows(self, ranks: int) -> bool:
        """Whether no other number of ranks fits more rows."""
        return self.count(ranks) >= max(self.count(self.best[0]), self.others)

    def require(self, name: str, collective: Collective, ranks: int, listed: bool) -> None:
        """Raise UsageError if most rows of file *name* are of other ranks or of another collective."""
        if self.allows(ranks):
            return

        # Logs may be mislabelled, and lists of ranks incomplete.  A list never has too many ranks.
        fix = "--ranks N or --op NAME"
        if listed and self.best[-1] < ranks:
            fix = "--op NAME"
        elif self.others <= self._ranges.total():
            several = "N, of " if len(self.best) > 1 else ""
            fix = f"--ranks {several}{_spoken(self.best)} or --op NAME"
        raise UsageError(f"{name}: its bus bandwidths do not fit {collective.name} on {ranks} ranks; give {fix}")
