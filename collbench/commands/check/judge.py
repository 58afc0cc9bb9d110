"""The judgement of a check, from sizes to curves to one word and one line.

`judge_rounds` compares rows of several rounds with an expectation by a sequential test.  `judge_by_model` takes the
judgement of `diagnose`, which compares a run with the model of its system and knows the model's error.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from statistics import fmean, harmonic_mean, median

from collbench.analysis import sequential
from collbench.analysis.curve_fit import curve_remarks
from collbench.analysis.diagnose import Diagnosis, faster_round
from collbench.analysis.judgement import LISTED, UNSEEN, Correctness, Judgement, Sight, Word, not_judged, overall, times
from collbench.analysis.roofline import traffic_in_words
from collbench.analysis.sequential import FEWEST, SequentialTest
from collbench.cases import Case
from collbench.commands.check.expectations import Expectation, ExpectedTime
from collbench.model.predict import SMALL, regime
from collbench.notebook import Shown
from collbench.results import Observed, Reported, Result, by_key
from collbench.runfile.store import joined, scatter_in_words
from collbench.stats import Estimate
from collbench.units import counted, format_rate, format_seconds, format_size

BANDWIDTH = 64 * 1024
"""Bytes from which on figures show bandwidth instead of time."""
SHARED = 4
"""Involuntary context switches in a row that show another program on the ranks' cores.  A quiet machine with two cores
has 1; a busy loop on one core makes 11 (docs/checking.md)."""
ONCE, ONCE_SMALL = 1.5, 2.6
"""Limits of a size measured once.  One in eight small messages between nodes is off by 10 % or more."""
UNDECIDED, DISTURBED, NOT_COMPARED = "undecided", "disturbed", "not compared"
"""Reasons of UNKNOWN sizes: too few rounds, all rounds disturbed by other programs, or no expected time."""
_OTHERS = "another program ran on the cores of the ranks; end it, and check again"
_QUANTILE, _USUAL = 1.96, 1.645  # standard deviations of a 95 % and of a 90 % interval


@dataclass(frozen=True)
class CheckedSize(Shown):
    """A case of an implementation: the joined rounds, the expected time and the judgement."""

    SHOWN = ("row.case.title", "row.implementation", "figure", "word", "rounds")
    row: Observed
    expected: float  # seconds; NaN if unknown
    judgement: Judgement
    rounds: int  # compared with the expectation

    @property
    def word(self) -> Word:
        """The word of the judgement."""
        return self.judgement.word

    @property
    def off(self) -> float:
        """Measured over expected time, median of the rounds; NaN if the expected time is unknown."""
        return self.judgement.ratio.value

    @property
    def seconds(self) -> float:
        """The measured time in seconds: of the compared rounds, or of all rounds if the expected time is unknown."""
        return self.row.typical if math.isnan(self.off) else self.expected * self.off

    def busbw(self, seconds: float) -> float:
        """Return the bus bandwidth in bytes per second of an operation that takes *seconds*."""
        return self.row.busbw * self.row.typical / seconds

    @property
    def figure(self) -> str:
        """The measured and the expected figure: `472 of 478 GB/s expected at 1 GiB (99 %)`."""
        size = format_size(self.row.case.nbytes)
        if math.isnan(self.expected):
            return f"{self._shown(self.seconds)} at {size}"
        share = f"{100 / self.off:.0f} %" if self.row.case.nbytes >= BANDWIDTH else f"{self.off:.2f}x"
        measured, expected = self._shown(self.seconds), self._shown(self.expected)
        number, _, unit = measured.partition(" ")
        measured = number if expected.endswith(f" {unit}") else measured
        return f"{measured} of {expected} expected at {size} ({share})"

    def _shown(self, seconds: float) -> str:
        rate = self.row.algbw if self.row.note.shared else self.row.busbw
        if self.row.case.nbytes < BANDWIDTH or not rate:
            return format_seconds(seconds)
        return f"{format_rate(rate * self.row.typical / seconds)} GB/s"


@dataclass(frozen=True)
class CheckedCurve(Shown):
    """All sizes of a collective of an implementation."""

    sizes: tuple[CheckedSize, ...]
    word: Word
    remark: str = ""  # why it is not OK
    against: str = ""  # the system with the same number of ranks that it is compared with
    details: tuple[str, ...] = ()  # NCCL's choices, traffic of links, findings that need no model
    likely: tuple[str, ...] = ()  # names of the first reason and of equally good ones
    reasons: tuple[tuple[str, str], ...] = ()  # reason and fix, the likeliest first
    limit: float = math.nan  # of all sizes together; by the model, of the sizes above 64 MiB
    sight: Sight = UNSEEN
    together: str = ""  # the sizes that are slow together: `as a whole`, `above 64 MiB`
    blind: bool = False  # whether it is UNKNOWN only because a large slowdown would go unnoticed

    @property
    def implementation(self) -> str:
        """The implementation of all rows."""
        return self.sizes[0].row.implementation

    @property
    def name(self) -> str:
        """The case without its size, and the implementation."""
        return f"{self.sizes[0].row.case.title}, {self.implementation}"

    @property
    def judgement(self) -> Judgement:
        """The judgement of the curve, with the ratio of its most telling size."""
        return replace(self.telling.judgement, what=self.name, word=self.word, reason=self.remark, limit=self.limit)

    @property
    def telling(self) -> CheckedSize:
        """The most telling size: the slowest SLOW size, else the largest with an expected time."""
        slow = [size for size in self.sizes if size.word is Word.SLOW]
        if slow or self.word is Word.SLOW:
            return max(slow or self.sizes, key=lambda size: size.off)
        compared = [size for size in self.sizes if not math.isnan(size.expected)]
        return (compared or list(self.sizes))[-1]


@dataclass(frozen=True)
class CheckResult(Shown):
    """The judgement of a check, with its evidence."""

    SHOWN = ("word", "words")
    TABLE = "sizes"
    where: str  # the topology: `8 x NVIDIA H100 80GB HBM3, NVSwitch`
    compared: str  # the reference of times, as in `the model of DGX H100`; empty if there is none
    collectives: tuple[str, ...]
    curves: tuple[CheckedCurve, ...]
    correctness: Correctness = field(default_factory=Correctness)  # of all sizes, in all rounds
    host: str = "unknown"
    disturbed: int = 0  # rows left out because other programs ran on their ranks' cores
    rows: int = 0  # measured
    nodes: int = 1  # 0: unknown
    rounds: int = 1
    seconds: float = math.nan  # duration of the check
    hint: str = ""  # on the stored run
    remarks: tuple[str, ...] = ()  # reasons that make the judgement less sure
    notes: tuple[str, ...] = ()  # other facts and settings of the machine
    first: bool = False  # whether a CPU was compared only with its own speed
    no_verdict: str = ""  # why there is no verdict: the check has only started, or ended with an error

    @property
    def word(self) -> Word:
        """WRONG if a result is wrong or missing; else the worst word of the judged curves."""
        return Word.WRONG if self.correctness.faults else overall(curve.word for curve in self.curves)

    @property
    def judgement(self) -> Judgement:
        """The judgement of all curves, with the ratio of the most telling curve."""
        what = f"{','.join(self.collectives)} {self.where}".strip()
        curve = self.telling.judgement if self.telling else Judgement("", "", Word.UNKNOWN)
        return replace(curve, what=what, against=self.compared, word=self.word, reason=self.words)

    @property
    def sizes(self) -> list[CheckedSize]:
        """All correct sizes."""
        return [size for curve in self.curves for size in curve.sizes]

    @property
    def sight(self) -> Sight:
        """The slowdowns that would be noticed in every judged curve."""
        return Sight.of_all(curve.sight for curve in self.curves if curve.word is not Word.UNKNOWN)

    @property
    def line(self) -> str:
        """The judgement in one line."""
        return f"collbench: {self.word.value} {self.judgement.what}: {self.words}"

    @property
    def words(self) -> str:
        """The most telling figure, the counts of sizes, the slowdowns that would be noticed, and the remarks."""
        parts = [self.no_verdict or self._figures]
        if self.word in (Word.FAST, Word.OK):
            only = f"first check: would notice only {times(self.sight.single)}"
            parts.append(only if self.first else str(self.sight))
        if self.word is not Word.UNKNOWN:
            parts += not_judged((curve.name, curve.word) for curve in self.curves)
        return "; ".join(filter(None, (*parts, *self.remarks)))

    @property
    def telling(self) -> CheckedCurve | None:
        """The most telling curve: the slowest with the word of the check; None if nothing was measured."""
        alike = [curve for curve in self.curves if curve.word is self.word] or self.curves
        return max(alike, key=lambda curve: (not math.isnan(curve.telling.off), curve.telling.off), default=None)

    @property
    def _figures(self) -> str:
        if self.correctness.faults:
            return self.correctness.in_words()
        worst = self.telling
        if not worst:
            return "nothing was measured"
        if math.isnan(worst.telling.expected):
            return f"not judged: {worst.remark}; {self._right}"
        name = f"{worst.telling.row.case.collective.name} " if len(self.collectives) > 1 else ""
        why = f"; {worst.remark}" if worst.word in (Word.UNKNOWN, Word.FAST) else ""
        if worst.word is Word.SLOW:
            likely = f"likely: {', or '.join(worst.likely)}" if worst.likely else ""
            slow = [size.row.case.nbytes for size in worst.sizes if size.word is Word.SLOW]
            faster = faster_round([size.row for size in worst.sizes], slow)
            why = "".join(f"; {part}" for part in (faster, likely) if part)
        counts = self._right if worst.word is Word.UNKNOWN else self.counts
        return f"{name}{worst.telling.figure}, {counts}{why}"

    @property
    def _right(self) -> str:
        scatter = scatter_in_words(size.row for size in self.sizes)
        return self.correctness.in_words() + (f" ({scatter}, the slowest are judged)" if scatter else "")

    @property
    def counts(self) -> str:
        """Counts of correct results, and of sizes by their judgement."""
        right = self._right
        counts = Counter(size.judgement.kind for size in self.sizes)
        if self.telling and self.telling.together:
            alone = f", {counts['SLOW']} of {counted(len(self.sizes), 'size')} also alone" * ("SLOW" in counts)
            return f"{right}, slow {self.telling.together}{alone}"
        if set(counts) == {"as expected"}:
            return f"{right} and as expected"
        return ", ".join([right, *(f"{count} {kind}" for kind, count in counts.most_common())])


def shares_cores(results: Iterable[Result]) -> bool:
    """Return whether another program ran on the ranks' cores in most rows; False if unknown."""
    switches = [row.scheduling.switches for row in results if row.scheduling]
    return bool(switches) and median(switches) >= SHARED


def unsure(curve: CheckedCurve, why: str = _OTHERS) -> CheckedCurve:
    """Return a SLOW curve as UNKNOWN, and why: the machine may not be the reason."""
    if curve.word is not Word.SLOW:
        return curve
    sizes = []
    for size in curve.sizes:
        undecided = replace(size.judgement, word=Word.UNKNOWN, reason=UNDECIDED)
        sizes.append(replace(size, judgement=undecided) if size.word is Word.SLOW else size)
    return replace(curve, sizes=tuple(sizes), word=Word.UNKNOWN, remark=why)


def by_case(rows: Iterable[Observed]) -> dict[tuple[Case, str], list[Observed]]:
    """Return the correct rows with a size by case and implementation, in their order."""
    right = (row for row in rows if row.right and row.case.nbytes > 0)
    return by_key(right, lambda row: (row.case, row.implementation))


def judge_rounds(
    rows: Iterable[Observed], expectation: Expectation, test: SequentialTest, nodes: int = 1
) -> list[CheckedCurve]:
    """Compare the rounds of each case with the expectation; all sizes share the test's rate of false alarms."""
    cases = by_case(rows)
    test = replace(test, sizes=max(1, len(cases)))
    curves = []
    for keys in by_key(cases, lambda key: (key[0].kind, key[1])).values():
        ordered = sorted(keys, key=lambda key: key[0].nbytes)
        curves.append(_judge_curve([cases[key] for key in ordered], expectation, test, nodes))
    return curves


def _judge_curve(
    cases: Sequence[Sequence[Observed]], expectation: Expectation, test: SequentialTest, nodes: int
) -> CheckedCurve:
    """Judge a curve; `cases` has the rounds of each size."""
    evidence = [_held(rows, expectation) for rows in cases]
    compared = [pair for pair in evidence if pair]
    if not compared:
        return CheckedCurve(tuple(map(_not_compared, cases)), Word.UNKNOWN, _why_nothing(cases, expectation.name))
    near = compared[0][1].near
    test = test.about(near)

    variances = _variances(compared, on_cpu=all(rows[0].platform == "cpu" for rows in cases))
    sizes, singles, remaining = [], [], iter(variances)
    for rows, pair in zip(cases, evidence, strict=True):
        if not pair:
            sizes.append(_not_compared(rows))
            continue
        variance = next(remaining)
        size = _judge_size(joined(rows), *pair, variance, test, nodes)
        size = replace(size, judgement=replace(size.judgement, against=expectation.name))
        limit = size.judgement.limit
        # A floor is a limit, not the machine's usual time: a machine may slow down until it reaches the floor.
        seen = limit / size.off if near else sequential.sight(limit, variance, pair[1].error)
        singles.append((size.row.case.nbytes, seen))
        sizes.append(size)

    # Test the mean of all sizes as if it were one size.
    error, variance = max(expected.error for _, expected in compared), fmean(variances) / len(variances)
    offs = [median(logs) for logs, _ in compared]
    whole = _decide(fmean(offs), variance, error, test, near)
    resolution = math.exp(max(math.log1p(test.slower) + test.start, test.resolution(error)))
    word, remark = _word(sizes, whole, resolution)
    large = [seen for nbytes, seen in singles if regime(nbytes) == 2] or [singles[-1][1]]
    whole_sight = Sight.of(min(large), singles)
    blind = word in (Word.OK, Word.FAST) and not (whole_sight.enough or near or expectation.first)
    if blind:
        word, remark = Word.UNKNOWN, f"{whole_sight}; give a --reference with more rounds"
    limit = test.limit(variance, error)
    # One very slow size raises the mean, too.
    common = len(offs) == len(cases) > 1 and median(offs) > math.log(limit)
    common = common or Word.SLOW not in {size.word for size in sizes}
    together = "as a whole" if whole is Word.SLOW and common else ""
    return CheckedCurve(tuple(sizes), word, remark, limit=limit, sight=whole_sight, together=together, blind=blind)


def _variances(compared: Sequence[tuple[list[float], ExpectedTime]], on_cpu: bool) -> list[float]:
    """Return the variance of the median of each size; the scatter is estimated from all sizes together."""
    prior = sequential.PRIOR_DEVIATION if on_cpu else sequential.PRIOR_OF_GPUS
    scatter = sequential.deviations([logs for logs, _ in compared], prior)
    pairs = zip(scatter, compared, strict=True)
    return [sequential.median_variance(deviation, len(logs), expected.rounds) for deviation, (logs, expected) in pairs]


def _not_compared(rows: Sequence[Observed]) -> CheckedSize:
    """Return the UNKNOWN size of a case without an expected time or without an undisturbed round."""
    row = joined(rows)
    reason = DISTURBED if row.disturbed else NOT_COMPARED
    return CheckedSize(row, math.nan, Judgement(row.what, "", Word.UNKNOWN, reason), 0)


def _why_nothing(cases: Sequence[Sequence[Observed]], expected: str) -> str:
    """Return why no size of a curve can be compared; `expected` is the name of the expectation."""
    if all(row.disturbed for rows in cases for row in rows):
        return "other programs disturbed every round"
    if expected:
        return f"{expected} has none of these sizes on the same number of ranks (choose sizes by -b, -e and -f)"
    return "no known system matches this machine, and no earlier good run of it is stored"


def _held(rows: Sequence[Observed], expectation: Expectation) -> tuple[list[float], ExpectedTime] | None:
    """Return the logarithms of measured over expected time of a case's rounds, and the expected time of all.

    Returns None without an expected time.  If rounds have expectations of different errors, the rounds with the least
    error count if they suffice for a decision; else the largest group counts.
    """
    rounds: list[tuple[float, ExpectedTime]] = []
    for row in rows:
        expected = None if row.disturbed else expectation.of(row)
        if expected:
            # A log counts by its slowest round: whether other programs disturbed it is unknown.
            times = [row.worst.typical] if isinstance(row, Reported) else row.round_times
            rounds.extend((math.log(seconds) - math.log(expected.seconds), expected) for seconds in times)
    if not rounds:
        return None
    groups = by_key(rounds, lambda pair: pair[1].error)
    enough = [error for error, group in groups.items() if len(group) >= FEWEST]
    logs, used = zip(*(groups[min(enough)] if enough else max(groups.values(), key=len)), strict=True)
    finite = [expected.rounds for expected in used if math.isfinite(expected.rounds)]
    typical = median(expected.seconds for expected in used)
    return list(logs), used[0]._replace(seconds=typical, rounds=harmonic_mean(finite) if finite else math.inf)


def _judge_size(
    row: Observed, logs: Sequence[float], expected: ExpectedTime, variance: float, test: SequentialTest, nodes: int
) -> CheckedSize:
    """Judge a size by the logarithms of measured over expected time of its rounds."""
    centre, limit = median(logs), test.limit(variance, expected.error)
    if len(logs) < FEWEST and not expected.near:
        # With so few rounds, one may be an outlier, and their scatter is unknown.
        limit = max(limit, ONCE_SMALL if nodes > 1 and row.case.nbytes < SMALL else ONCE)
        far = abs(centre) > math.log(limit)
        word = Word.OK if not far else Word.SLOW if centre > 0 else Word.FAST
    elif len(logs) < FEWEST:  # a floor needs no scatter: any time below it is OK
        limit = 1 + expected.near
        word = Word.OK if centre <= 0 else Word.SLOW if centre > math.log(limit) else Word.UNKNOWN
    else:
        word = _decide(centre, variance, expected.error, test, expected.near)
    spread = math.sqrt(variance + expected.error**2)
    ratio = Estimate(*(math.exp(centre + side * _QUANTILE * spread) for side in (0, -1, 1)))
    usual = math.exp(-_USUAL * spread), math.exp(_USUAL * spread)
    judgement = Judgement(row.what, "", word, UNDECIDED if word is Word.UNKNOWN else "", ratio, usual, limit)
    return CheckedSize(row, expected.seconds, judgement, len(logs))


def _decide(centre: float, variance: float, error: float, test: SequentialTest, near: float) -> Word:
    """Return the word of the tests for slow and for fast; a time below a floor is never FAST."""
    if not near and test.decide(-centre, variance, error) is Word.SLOW:
        return Word.FAST
    return test.decide(centre, variance, error)


def _word(sizes: Sequence[CheckedSize], whole: Word, resolution: float) -> tuple[Word, str]:
    slow = [size for size in sizes if size.word is Word.SLOW]
    if slow:
        named = ", ".join(f"{format_size(size.row.case.nbytes)} {size.off:.2f}x" for size in slow[:LISTED])
        more = f" and {len(slow) - LISTED} more" if len(slow) > LISTED else ""
        return Word.SLOW, f"{len(slow)} of {counted(len(sizes), 'size')} slower than expected: {named}{more}"
    if whole is Word.SLOW:
        return Word.SLOW, "all sizes together are slower than expected"

    # Undecided sizes count only if they seem slow or have no ratio (NaN).
    undecided = [size for size in sizes if size.judgement.reason in (UNDECIDED, DISTURBED)]
    leaning = [size for size in undecided if not size.off < resolution]
    if leaning or (undecided and whole is Word.UNKNOWN):
        count = f"{len(undecided)} of {counted(len(sizes), 'size')} undecided"
        return Word.UNKNOWN, f"{count}: they may be {resolution:.2f}x slower than expected"
    return (Word.FAST, "all sizes together are faster than expected") if whole is Word.FAST else (Word.OK, "")


def unjudged(curve: CheckedCurve, why: str) -> CheckedCurve:
    """Return a curve as UNKNOWN: no data crossed a link between its ranks."""
    return CheckedCurve(tuple(_not_compared([size.row]) for size in curve.sizes), Word.UNKNOWN, why)


def judge_by_model(diagnosis: Diagnosis, fitted: bool = True) -> CheckedCurve:
    """Return the curve of a diagnosis; without a model, add the remarks of a fit if `fitted`."""
    sizes, system = [], diagnosis.system
    against = system.title if system else ""
    for row, expected, judgement in zip_longest(diagnosis.measured, diagnosis.expected, diagnosis.sizes):
        seconds = expected.seconds if expected else math.nan
        sizes.append(CheckedSize(row, seconds, replace(judgement, against=against), 1))
    details = [*diagnosis.choices]
    if system and diagnosis.expected and diagnosis.judged:
        details += traffic_in_words(system, diagnosis.measured[-1], diagnosis.expected[-1])
    if diagnosis.unexplained:
        details.append(diagnosis.unexplained)
    if not diagnosis.expected and fitted:
        details += curve_remarks(diagnosis.measured)
    return CheckedCurve(
        tuple(sizes),
        diagnosis.word,
        diagnosis.remark,
        against=against,
        details=tuple(details),
        likely=tuple(diagnosis.likeliest),
        reasons=tuple(diagnosis.likely()),
        limit=diagnosis.limit,
        sight=diagnosis.sight,
        together=diagnosis.together,
        blind=diagnosis.word is Word.UNKNOWN and diagnosis.judged,
    )
