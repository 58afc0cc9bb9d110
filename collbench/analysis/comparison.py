"""Records of a comparison of two runs: pairs, rows, curves and judgements."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median

from collbench.analysis import matching
from collbench.analysis.bootstrap import FEWEST
from collbench.analysis.headers import Difference
from collbench.analysis.judgement import NO_RATIO, Judgement, Word, worst
from collbench.analysis.matching import DISTURBED, Unmatched
from collbench.cases import Case
from collbench.notebook import Shown
from collbench.results import Measurement, Observed, Reported, by_key
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.units import counted

UNSURE = "inconclusive: "  # prefix of the reason of a row with an inconclusive interval
_NO_LIMITS = Estimate(math.nan)
_MOST_ALLOWED = 0.5  # largest margin in advice
CENTRES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}
"""Statistics of samples, to compare with the same statistic of a log."""
Rounds = Sequence[Sequence[float]]
_MOVED = math.log(1.5)  # change of a barrier's time that shows other cores; such rows are not judged


@dataclass(frozen=True, eq=False)
class Pair:
    """The results of a case by one implementation in BASE and in NEW."""

    base: Observed
    new: Observed

    @property
    def curve(self) -> tuple[Case, str]:
        """The case without its size, and the implementation."""
        return self.base.curve

    @property
    def nbytes(self) -> int:
        """The size of the message."""
        return self.base.case.nbytes

    @property
    def sampled(self) -> bool:
        """Whether both runs have enough samples."""
        return min(len(self.base.times), len(self.new.times)) >= FEWEST

    @property
    def barriers(self) -> float:
        """The ratio NEW/BASE of barrier times; 1 if not measured in both."""
        base, new = self.base, self.new
        if isinstance(base, Measurement) and isinstance(new, Measurement) and base.barrier and new.barrier:
            return new.barrier / base.barrier
        return 1.0

    @property
    def moved(self) -> bool:
        """Whether the barrier time shows that NEW ran on other cores."""
        return abs(math.log(self.barriers)) > _MOVED

    @property
    def statistics(self) -> list[str]:
        """The statistics of logs without samples, like `mean`; empty if both sides have samples."""
        return sorted({_statistic(self.base), _statistic(self.new)} - {""})

    @property
    def has_means(self) -> bool:
        """Whether a log without samples is comparable: the other side has the same statistic, or samples."""
        known = all(_statistic(row) or len(row.times) >= FEWEST for row in (self.base, self.new))
        return known and len(self.statistics) == 1

    @property
    def seconds(self) -> tuple[float, float]:
        """The times to compare: medians, or the statistic of a log without samples."""
        statistics = self.statistics
        if not statistics:
            return self.base.typical, self.new.typical
        centre = CENTRES.get(statistics[0], fmean)
        return centre(self.base.times), centre(self.new.times)

    @property
    def log(self) -> float:
        """The logarithm of the ratio NEW/BASE."""
        before, after = self.seconds
        return math.log(after / before)

    @property
    def rounds(self) -> list[list[float]]:
        """The logarithms of the times of each side's rounds."""
        return [list(map(math.log, row.round_times)) for row in (self.base, self.new)]

    @property
    def starts(self) -> list[list[float]]:
        """The logarithms of the times of each side's starts; empty for a side with one start."""
        started = [isinstance(row, Measurement) and bool(row.spread) for row in (self.base, self.new)]
        return [logs if several else [] for logs, several in zip(self.rounds, started, strict=True)]

    @property
    def matching_rounds(self) -> tuple[Rounds, Rounds] | None:
        """The samples of each side by round; None unless both have the same number of complete rounds, at least two."""
        base, new = self.base, self.new
        if not isinstance(base, Measurement) or not isinstance(new, Measurement):
            return None
        whole = all(sum(row.rounds) == len(row.seconds) and 0 not in row.rounds for row in (base, new))
        return (base.by_round(), new.by_round()) if whole and len(base.rounds) == len(new.rounds) >= 2 else None


def _statistic(row: Observed) -> str:
    """Return the statistic of a log without samples; empty for any other row."""
    return row.figure if isinstance(row, Reported) and not row.samples else ""


class Judged(Shown):
    """A ratio NEW/BASE of times with its judgement."""

    judgement: Judgement

    @property
    def word(self) -> Word:
        """SLOW, FAST, OK or UNKNOWN."""
        return self.judgement.word

    @property
    def estimate(self) -> Estimate:
        """The ratio and its interval; the ends are NaN if unknown."""
        return self.judgement.ratio

    @property
    def ratio(self) -> float:
        """The ratio alone."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.estimate.interval


@dataclass(frozen=True)
class Row(Judged, Pair):
    """A case of an implementation in both runs: seconds of an operation, and the judgement of the ratio NEW/BASE."""

    SHOWN = ("case.title", "case.nbytes", "implementation", "before", "after", "ratio", "word", "judgement.reason")
    before: float
    after: float
    judgement: Judgement
    alone: Estimate = _NO_LIMITS  # the ratio with the interval for this row only

    @property
    def case(self) -> Case:
        """The case, the same in both runs."""
        return self.base.case

    @property
    def implementation(self) -> str:
        """The implementation, the same in both runs."""
        return self.base.implementation

    @property
    def moved(self) -> bool:
        """Whether the row is UNKNOWN since the barrier time shows that NEW ran on other cores."""
        return self.word is Word.UNKNOWN and super().moved

    @property
    def within(self) -> float:
        """The largest deviation of the ratio from 1 by the row's own interval, as a share."""
        return max(self.alone.high, 1 / max(self.alone.low, 1e-300)) - 1

    def hides(self, margin: float) -> bool:
        """Return whether the row may be slower by more than the margin (intersection-union test: R. Berger, 1982)."""
        least = min(self.estimate.high, self.alone.high)
        return self.word is not Word.SLOW and not least <= 1 + margin


@dataclass(frozen=True)
class Together(Judged):
    """All sizes of a curve: the geometric mean of their ratios, which shows small common changes."""

    SHOWN = ("case", "implementation", "sizes", "ratio", "interval", "word", "every")
    case: Case  # without a size
    implementation: str
    sizes: int
    judgement: Judgement
    every: int = 0  # all sizes of the curve, with outliers and unknown ratios


@dataclass(frozen=True)
class Comparison(Shown):
    """Two runs row by row in the order of BASE, and rows without a counterpart."""

    TABLE = "rows"
    base: Run
    new: Run
    rows: tuple[Row, ...]
    together: tuple[Together, ...]  # curves with enough sizes
    unmatched: tuple[Unmatched, ...]
    differences: tuple[Difference, ...]
    margin: float  # a row that may be slower by more does not pass; the limit of SLOW is that of its judgement
    confidence: float
    remarks: tuple[str, ...]
    bits: tuple[str, ...] = ()  # remarks on sums of random values
    margin_from: str = ""  # the margin and its source, if it comes from the runs themselves

    def __repr__(self) -> str:
        return f"Comparison({self.base.path} -> {self.new.path}: {self.counts})"

    @property
    def counts(self) -> str:
        """The number of rows by word."""
        counts = Counter(row.word.value for row in self.rows)
        return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "no rows"

    @property
    def lines(self) -> list[Row | Together | Unmatched]:
        """All judged lines: rows, curves and unmatched rows."""
        return [*self.rows, *self.together, *self.unmatched]

    @property
    def regressions(self) -> list[Row | Together | Unmatched]:
        """Lines that are SLOW, and rows that became wrong or failed."""
        return [line for line in self.lines if line.judgement.word.bad]

    @property
    def hidden(self) -> list[Row | Unmatched]:
        """Rows that may be slower by more than the margin."""
        unsure: list[Row | Unmatched] = [row for row in self.rows if row.hides(self.margin)]
        return unsure + [row for row in self.unmatched if row.hides]

    @property
    def judgement(self) -> Judgement:
        """WRONG, SLOW, OK, or UNKNOWN if a regression cannot be excluded."""
        return overall([self])

    @property
    def nothing(self) -> str:
        """A sentence on runs without a row in common."""
        sizes = matching.no_common_size(self.base, self.new)
        return f"nothing of {self.new.path} can be compared with {self.base.path}" + (f"; {sizes}" if sizes else "")


def overall(comparisons: Sequence[Comparison]) -> Judgement:
    """Return the judgement of several comparisons as a whole."""
    regressions = list(chain.from_iterable(comparison.regressions for comparison in comparisons))
    hidden = list(chain.from_iterable(comparison.hidden for comparison in comparisons))
    empty = [comparison.nothing for comparison in comparisons if not comparison.rows]
    margins = [comparison.margin for comparison in comparisons]
    word, reason = Word.OK, f"no row is {_slower(max(margins))}"
    if regressions:
        word = worst(line.judgement.word for line in regressions)
        reason = ", ".join(_counted(type(lines[0]), lines) for lines in by_key(regressions, type).values())
    elif empty:
        word, reason = Word.UNKNOWN, empty[0]
    elif hidden:
        word, reason = Word.UNKNOWN, f"{counted(len(hidden), 'row')} may be {_slower(min(margins))}; {_advice(hidden)}"
    derived = [comparison.margin_from for comparison in comparisons if comparison.margin_from and not word.bad]
    reasons = dict.fromkeys([reason, *derived])
    ratios = [line.judgement.ratio for line in regressions if line.judgement.ratio.known]
    new = ", ".join(str(comparison.new.path) for comparison in comparisons)
    base = ", ".join(dict.fromkeys(str(comparison.base.path) for comparison in comparisons))
    return Judgement(new, base, word, "; ".join(reasons), max(ratios, default=NO_RATIO), limit=1 + max(margins))


def _slower(margin: float) -> str:
    return f"slower by more than {100 * margin:.3g}%"


def _counted(kind: type, lines: Sequence[Row | Together | Unmatched]) -> str:
    if kind is Unmatched:
        return f"{counted(len(lines), 'row')} wrong or failed"
    noun, more = ("curve", " on average") if kind is Together else ("row", "")
    return f"{counted(len(lines), noun)} {_slower(min(line.judgement.limit for line in lines) - 1)}{more}"


def _advice(hidden: Sequence[Row | Unmatched]) -> str:
    rows = [row for row in hidden if isinstance(row, Row)]
    if any(row.moved for row in rows):
        return "measure again while the machine is as in BASE, or both in turn (sweep --ab)"
    lost = {row.new for row in hidden if isinstance(row, Unmatched)}
    if lost:
        calm = "measure again while no other program runs"
        fix = calm if DISTURBED in lost else "measure them too, or give the whole log"
        return f"some are {' or '.join(sorted(lost))} in NEW: {fix}"
    margin = max(row.alone.high for row in rows) - 1
    allow = f", or allow more (--margin {math.ceil(100 * margin)}%)" if margin < _MOST_ALLOWED else ""
    if any(isinstance(row.new, Measurement) and row.new.spread for row in rows):
        return f"start the ranks more often (sweep --starts 9){allow}"
    how = "longer (sweep --budget)" if all(row.sampled for row in rows) else "again"
    return f"measure {how}{allow}"
