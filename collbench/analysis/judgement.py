"""Judgements: a word, its evidence, and the slowdowns that would be noticed.

Rows, curves, pairs, ranks, nodes and runs share this form.  cli/verdicts.py writes it for other programs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from collbench.exits import VERDICTS
from collbench.model.predict import regime
from collbench.notebook import Shown
from collbench.results import Outcome, Reported, Result
from collbench.stats import Estimate, number
from collbench.units import counted, format_size, printable

LISTED = 3  # names in a list; the others are counted
WIDE = 2.0  # ratio; a row with a higher limit is not called "as expected"
MOST_SIGHT = 2.4  # ratio; nothing is called OK if only a larger slowdown of large messages would be noticed


class Word(StrEnum):
    """The answer to "is it right?", the worst first."""

    WRONG = "WRONG"  # a result is wrong, or missing because a case failed; times do not count then
    SLOW = "SLOW"
    UNKNOWN = "UNKNOWN"
    FAST = "FAST"  # faster than expected: the expectation, or the name of the system, is wrong
    OK = "OK"

    @property
    def bad(self) -> bool:
        """Whether the machine is at fault."""
        return self in (Word.WRONG, Word.SLOW)


EXITS: Mapping[str, Mapping[Word, int]] = {
    reader: {Word(word): status for word, status in statuses.items()} for reader, statuses in VERDICTS.items()
}
"""Exit statuses by reader and word; metrics have those of Nagios."""


def worst(words: Iterable[Word]) -> Word:
    """Return the worst of the words; UNKNOWN if there are none."""
    return min(words, key=list(Word).index, default=Word.UNKNOWN)


def overall(words: Iterable[Word]) -> Word:
    """Return the worst word of the judged curves; UNKNOWN if none was judged."""
    return worst(word for word in words if word is not Word.UNKNOWN)


def shortened(names: Sequence[str], between: str = ", ") -> str:
    """Return the first names and the number of others: `a, b, c, 2 more`."""
    more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
    return between.join([*names[:LISTED], *more])


def not_judged(curves: Iterable[tuple[str, Word]]) -> list[str]:
    """Return a list with the names of UNKNOWN curves: `alltoall, float, 8 ranks, nccl not judged`; [] without any."""
    unknown = [name for name, word in curves if word is Word.UNKNOWN]
    return [f"{shortened(unknown, ' and ')} not judged"] if unknown else []


class Sight(NamedTuple):
    """The smallest slowdowns, as ratios, that a judgement notices on 49 of 50 machines; NaN without these sizes."""

    large: float = math.nan  # of the sizes above 64 MiB together, or of the largest size
    singles: tuple[float, float, float] = (math.nan,) * 3  # of any one size: below 64 KiB, between, above 64 MiB

    @classmethod
    def of(cls, large: float, sizes: Iterable[tuple[int, float]]) -> Self:
        """Return the sight of a curve from that of its large messages and of each size in bytes."""
        singles = [math.nan] * 3
        for nbytes, least in sizes:
            singles[regime(nbytes)] = _largest((singles[regime(nbytes)], least))
        return cls(large, (singles[0], singles[1], singles[2]))

    @classmethod
    def of_all(cls, sights: Iterable["Sight"]) -> Self:
        """Return the slowdowns that each of several judgements would notice."""
        every = list(sights)
        singles = [_largest(each) for each in zip(*(sight.singles for sight in every), strict=True)]
        return cls(_largest(sight.large for sight in every), (singles[0], singles[1], singles[2])) if every else cls()

    @property
    def single(self) -> float:
        """The slowdown that would be noticed at any single size."""
        return _largest(self.singles)

    @property
    def enough(self) -> bool:
        """Whether a curve may be called OK."""
        return self.large <= MOST_SIGHT

    def __str__(self) -> str:
        small, middle, alone = self.singles
        parts = []
        if not math.isnan(alone):
            single = f" ({times(alone)} at one size)" if alone > self.large else ""
            parts.append(f"{times(self.large)} above 64 MiB{single}")
        if not math.isnan(small):
            parts.append(f"{times(small)} below 64 KiB")
        if not math.isnan(middle):
            parts.append(f"{times(middle)} {'between' if len(parts) > 1 else 'from 64 KiB on'}")
        return f"would notice {', '.join(parts)}" if parts else ""

    def fields(self) -> dict[str, float | None]:
        """Return both numbers for JSON."""
        return {name: number(getattr(self, name)) for name in ("large", "single")}


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


UNSEEN = Sight()


def times(ratio: float) -> str:
    """Return a ratio as text: `1.6x`, `12x`.  It is rounded up, so that no smaller slowdown is promised."""
    return f"{math.ceil(10 * ratio - 1e-6) / 10:.1f}x" if ratio <= 9.9 else f"{math.ceil(ratio)}x"


NO_RATIO = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Judgement(Shown):
    """The answer for a row, a curve, a pair, a rank, a node or a run."""

    SHOWN = ("what", "word", "reason", "limit")
    what: str
    against: str  # a model, a reference, earlier runs, floors, or its peers; empty: nothing
    word: Word
    reason: str = ""
    ratio: Estimate = NO_RATIO  # measured over expected time
    usual: tuple[float, float] = (math.nan, math.nan)  # band of ratios with nine of ten healthy machines
    limit: float = math.nan  # a higher ratio is SLOW

    @property
    def kind(self) -> str:
        """The words under which many judgements are counted."""
        if self.word is Word.OK and not self.reason:
            return "as expected" if not self.limit > WIDE else "within wide bands"
        return self.word.value if self.word.bad or self.word is Word.FAST else self.reason

    @property
    def says(self) -> str:
        """The judgement in the last column of tables; a row with a wide band is not called as expected."""
        if self.word is Word.UNKNOWN and self.reason:
            return self.reason
        if self.word is not Word.OK:
            return f"{self.word.value}{f': {self.reason}' if self.reason else ''}"
        return self.reason or (f"within a band of {times(self.limit)}" if self.limit > WIDE else "as expected")

    def fields(self) -> dict[str, Any]:
        """Return the judgement for JSON."""
        low, high = self.usual
        words = {"what": self.what, "against": self.against, "word": self.word.value, "reason": self.reason}
        usual = None if math.isnan(high) else [low, high]
        return words | self.ratio.fields("ratio") | {"usual": usual, "limit": number(self.limit)}


@dataclass(frozen=True)
class Correctness(Shown):
    """The outcome of the rows of a curve or of a run."""

    right: int = 0  # rows with a time and no known error
    unchecked: int = 0  # of `right`, rows of a tool that did not check results
    disturbed: int = 0  # of `right`, rows disturbed by other programs, with times that are not judged
    faults: tuple[Result, ...] = ()  # wrong or failed
    untried: int = 0  # skipped after a fault of the same implementation

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Count results, without predictions and without cases that an implementation does not support."""
        right, faults, skipped = [], [], []
        for result in results:
            if result.outcome.bad:
                faults.append(result)
            elif result.outcome is Outcome.SKIPPED:
                skipped.append(result.implementation)
            elif result.outcome is not Outcome.PREDICTED:
                right.append(result)
        broken = {fault.implementation for fault in faults}
        return cls(
            right=len(right),
            unchecked=sum(isinstance(result, Reported) and result.wrong_elements is None for result in right),
            disturbed=sum(result.outcome is Outcome.DISTURBED for result in right),
            faults=tuple(faults),
            untried=sum(name in broken for name in skipped),
        )

    @property
    def total(self) -> int:
        """Rows that should be correct."""
        return self.right + len(self.faults) + self.untried

    def in_words(self, named: bool = True) -> str:
        """Return `28 of 30 results correct; 1 MiB allreduce ring: WRONG: ...`; `named` adds collectives and names."""
        words = [f"{self.right - self.unchecked} of {self.total} results correct"]
        if self.unchecked == self.total > 0:
            words = [f"{counted(self.total, 'result')}, none of them checked"]
        elif self.unchecked:
            words.append(f"{self.unchecked} not checked")
        if self.disturbed:
            words.append(f"{self.disturbed} disturbed by other programs and not judged")
        words += [_fault(fault, named) for fault in self.faults[:LISTED]]
        if len(self.faults) > LISTED:
            words.append(f"and {len(self.faults) - LISTED} more wrong or failed")
        if self.untried:
            words.append(f"{self.untried} not tried after that")
        return "; ".join(words)


def _fault(fault: Result, named: bool) -> str:
    name = (fault.case.collective.name, fault.implementation) if named else ()
    return printable(f"{' '.join((format_size(fault.case.nbytes), *name))}: {fault.problem}")
