"""The verdict of a check: whether everything was right, and as fast as expected, in one word and one line.

Rows of several rounds are held against an expectation by a sequential test (`judge_rounds`), or against the model of
their system by the verdict of `diagnose` (`judge_by_model`), which knows how far the model may be off.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from statistics import fmean, harmonic_mean, median

from collbench.analysis.diagnose import Diagnosis
from collbench.analysis.sequential import (
    FEWEST,
    PRIOR_DEVIATION,
    PRIOR_OF_GPUS,
    Decision,
    SequentialTest,
    deviations,
    median_variance,
)
from collbench.analysis.verdict import ALONE, FAR, MANY, Correctness, Health, Status, listed
from collbench.cases import Case
from collbench.commands.check.expectations import Expectation, ExpectedTime
from collbench.notebook import Shown
from collbench.results import Observed, Reported, Result, by_key
from collbench.runfile.rounds import joined, scatter_in_words
from collbench.units import counted, format_rate, format_seconds, format_size

BANDWIDTH = 64 * 1024
"""Bytes from which on a size is spoken of by its bandwidth, and below by its time."""
SHARED = 4
"""Involuntary context switches in a row, from which on another program runs on the ranks' cores: 1 on a quiet machine
with two cores, 11 with a busy loop on one of them (docs/checking.md)."""


@dataclass(frozen=True)
class CheckedSize(Shown):
    """A case by an implementation: its rounds joined, what was expected, and what is known of both."""

    SHOWN = ("row.case.title", "row.implementation", "figure", "decision", "rounds")
    row: Observed
    expected: float  # seconds; NaN where nothing is expected
    decision: Decision
    rounds: int  # that were held against the expectation
    off: float = math.nan  # measured over expected time, the median of the rounds

    @property
    def seconds(self) -> float:
        """The measured time: what was held against the expectation, or that of all rounds where nothing is expected."""
        return self.row.typical if math.isnan(self.expected) else self.expected * self.off

    def busbw(self, seconds: float) -> float:
        """Return the bus bandwidth in bytes per second if the operation took so long."""
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
    """All sizes of a collective by an implementation."""

    sizes: tuple[CheckedSize, ...]
    status: Status
    remark: str = ""  # why it is not OK
    reasons: tuple[tuple[str, str], ...] = ()  # the likeliest first, each with what to do
    resolution: float = math.nan  # times slower than expected, up to which nothing is known

    @property
    def implementation(self) -> str:
        """The implementation of all rows."""
        return self.sizes[0].row.implementation

    @property
    def telling(self) -> CheckedSize:
        """The size to speak of: the slowest that is too slow, or the largest of which something is expected."""
        slow = [size for size in self.sizes if size.decision is Decision.SLOW]
        if slow or self.status is Status.FAIL:
            return max(slow or self.sizes, key=lambda size: size.off)
        compared = [size for size in self.sizes if not math.isnan(size.expected)]
        return (compared or list(self.sizes))[-1]


@dataclass(frozen=True)
class CheckResult(Shown):
    """The verdict of a check, and all that it rests on."""

    SHOWN = ("status", "words")
    TABLE = "sizes"
    where: str  # the topology: `8 x NVIDIA H100 80GB HBM3, NVSwitch`
    compared: str  # what times were held against: `the model of DGX H100`; empty for nothing
    collectives: tuple[str, ...]
    curves: tuple[CheckedCurve, ...]
    correctness: Correctness = field(default_factory=Correctness)  # of all sizes, in all rounds
    disturbed: int = 0  # rows that were not counted, since their ranks were off their cores
    rows: int = 0  # that were measured
    nodes: int = 1  # 0: not known
    rounds: int = 1
    seconds: float = math.nan  # that it took
    hint: str = ""  # what to do for a better answer
    remarks: tuple[str, ...] = ()  # what makes the verdict less sure
    no_verdict: str = ""  # why there is none: the check has only started, or ended with an error

    @property
    def status(self) -> Status:
        """The worst status; FAIL where anything is wrong or failed, UNKNOWN where nothing was measured."""
        if self.correctness.faults:
            return Status.FAIL
        return max((curve.status for curve in self.curves), key=list(Status).index, default=Status.UNKNOWN)

    @property
    def sizes(self) -> list[CheckedSize]:
        """All sizes that were right."""
        return [size for curve in self.curves for size in curve.sizes]

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return f"collbench: {self.status.value} {','.join(self.collectives)} {self.where}: {self.words}"

    @property
    def words(self) -> str:
        """The figure that tells most, the counts of sizes, and the remarks."""
        return "; ".join((self.no_verdict or self._figures, *self.remarks))

    @property
    def _figures(self) -> str:
        if self.correctness.faults:
            return self.correctness.in_words()
        slowest = [curve for curve in self.curves if curve.status is self.status]
        worst = max(slowest, key=lambda curve: (not math.isnan(curve.telling.off), curve.telling.off), default=None)
        if not worst:
            return "nothing was measured"
        if math.isnan(worst.telling.expected):
            return f"{self.correctness.in_words()}, nothing to compare them with: {worst.remark}"
        name = f"{worst.telling.row.case.collective.name} " if len(self.collectives) > 1 else ""
        return f"{name}{worst.telling.figure}, {self.counts}"

    @property
    def counts(self) -> str:
        """How many rows were right, and how many as expected."""
        counts = Counter(size.decision for size in self.sizes)
        right = self.correctness.in_words()
        if scatter := scatter_in_words(size.row for size in self.sizes):
            right += f" ({scatter}, the slowest are judged)"
        if self.status is Status.FAIL and not counts[Decision.SLOW]:
            return f"{right}, slow as a whole"
        if counts[Decision.AS_EXPECTED] == len(self.sizes):
            return f"{right} and as expected"
        words = [f"{counts[decision]} {decision.value}" for decision in Decision if counts[decision]]
        return ", ".join([right, *words])


def shares_cores(results: Iterable[Result]) -> bool:
    """Return whether another program ran on the cores of the ranks in most rows; False where that is not known."""
    switches = [row.scheduling.switches for row in results if row.scheduling]
    return bool(switches) and median(switches) >= SHARED


def unsure(curve: CheckedCurve) -> CheckedCurve:
    """Return the curve of ranks that shared their cores: slow it may be, but for a reason that is not the machine's."""
    if curve.status not in (Status.FAIL, Status.WARN):
        return curve
    sizes = []
    for size in curve.sizes:
        sizes.append(replace(size, decision=Decision.UNDECIDED) if size.decision is Decision.SLOW else size)
    remark = "another program ran on the cores of the ranks; end it, and check again"
    return replace(curve, sizes=tuple(sizes), status=Status.UNKNOWN, remark=remark)


def by_case(rows: Iterable[Observed]) -> dict[tuple[Case, str], list[Observed]]:
    """Return rows that are right by case and implementation, in their order."""
    right = (row for row in rows if row.right and row.case.nbytes > 0)
    return by_key(right, lambda row: (row.case, row.implementation))


def judge_rounds(rows: Iterable[Observed], expectation: Expectation, test: SequentialTest) -> list[CheckedCurve]:
    """Hold the rounds of every case, of any implementation, against what is expected, and return the curves.

    The test's `sizes` are set here: false alarms are shared by all sizes.
    """
    cases = by_case(rows)
    test = replace(test, sizes=max(1, len(cases)))
    curves = []
    for keys in by_key(cases, lambda key: (key[0].kind, key[1])).values():
        ordered = sorted(keys, key=lambda key: key[0].nbytes)
        curves.append(_judge_curve([cases[key] for key in ordered], expectation, test))
    return curves


def _judge_curve(cases: Sequence[Sequence[Observed]], expectation: Expectation, test: SequentialTest) -> CheckedCurve:
    """Judge a curve, given the rounds of each of its sizes."""
    evidence = [_held(rows, expectation) for rows in cases]
    compared = [pair for pair in evidence if pair]
    if not compared:
        return CheckedCurve(tuple(map(_not_compared, cases)), Status.UNKNOWN, _why_nothing(cases, expectation.name))
    test = test.about(compared[0][1].near)

    # What rounds of one size scatter by is known better from all sizes together.
    on_cpu = all(rows[0].platform == "cpu" for rows in cases)
    scatter = deviations([logs for logs, _ in compared], PRIOR_DEVIATION if on_cpu else PRIOR_OF_GPUS)
    variances = []
    for deviation, (logs, expected) in zip(scatter, compared, strict=True):
        variances.append(median_variance(deviation, len(logs), expected.rounds))
    sizes, left = [], iter(variances)
    for rows, pair in zip(cases, evidence, strict=True):
        sizes.append(_judge_size(joined(rows), *pair, next(left), test) if pair else _not_compared(rows))

    # All sizes as one: their mean.
    error = max(expected.error for _, expected in compared)
    whole = test.decide(fmean(median(logs) for logs, _ in compared), fmean(variances) / len(variances), error)
    resolution = math.exp(max(math.log1p(test.slower) + test.start, test.resolution(error)))
    return CheckedCurve(tuple(sizes), *_status(sizes, whole, resolution), resolution=resolution)


def _not_compared(rows: Sequence[Observed]) -> CheckedSize:
    """Return what is said of a case of which nothing is expected, or of which every round was disturbed."""
    row = joined(rows)
    return CheckedSize(row, math.nan, Decision.UNDECIDED if row.disturbed else Decision.NOT_COMPARED, 0)


def _why_nothing(cases: Sequence[Sequence[Observed]], expected: str) -> str:
    """Return why no size of a curve can be compared with what is expected, given its name."""
    if all(row.disturbed for rows in cases for row in rows):
        return "other programs disturbed every round"
    if expected:
        return f"{expected} has none of these sizes on as many ranks (-b, -e and -f say which are measured)"
    return "no system is like this machine, and no earlier good run of it is stored"


def _held(rows: Sequence[Observed], expectation: Expectation) -> tuple[list[float], ExpectedTime] | None:
    """Return the logarithms of measured over expected times of a case's rounds, and what is expected of all of them.

    None where nothing is expected of any.  Where expectations differ in error, those of the least error count, if they
    are as many as a decision needs.
    """
    rounds: list[tuple[float, ExpectedTime]] = []
    for row in rows:
        expected = None if row.disturbed else expectation.of(row)
        if expected:
            # The slowest round of a log counts: nobody knows here what made it slow.
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
    row: Observed, logs: Sequence[float], expected: ExpectedTime, variance: float, test: SequentialTest
) -> CheckedSize:
    centre = median(logs)
    decision = test.decide(centre, variance, expected.error)
    # Below a floor is as it should be, a single figure too; below the time of a good run is something else.
    if expected.near:
        decision = Decision.AS_EXPECTED if centre <= 0 and len(logs) < FEWEST else decision
    elif test.decide(-centre, variance, expected.error) is Decision.SLOW:
        decision = Decision.FASTER
    return CheckedSize(row, expected.seconds, decision, len(logs), math.exp(centre))


def _status(sizes: Sequence[CheckedSize], whole: Decision, resolution: float) -> tuple[Status, str]:
    """Return the status of a curve, and why it is not OK."""
    slow = [size for size in sizes if size.decision is Decision.SLOW]
    undecided = [size for size in sizes if size.decision is Decision.UNDECIDED]
    if slow:
        # A size that was measured once may be an outlier, as one in eight of small messages between nodes is.
        once = all(size.rounds < FEWEST for size in slow)
        named = ", ".join(f"{format_size(size.row.case.nbytes)} {size.off:.2f}x" for size in slow[:3])
        more = f" and {len(slow) - 3} more" if len(slow) > 3 else ""
        alone = once and MANY * len(slow) < len(sizes) and whole is not Decision.SLOW
        remark = f"{len(slow)} of {counted(len(sizes), 'size')} slower than expected: {named}{more}"
        return Status.WARN if alone else Status.FAIL, remark
    if whole is Decision.SLOW:
        return Status.FAIL, "all sizes together are slower than expected"

    # Undecided sizes are no matter unless they seem slow, or nothing is known of them (NaN).
    leaning = [size for size in undecided if not size.off < resolution]
    if leaning or (undecided and whole is Decision.UNDECIDED):
        count = f"{len(undecided)} of {counted(len(sizes), 'size')} undecided"
        return Status.UNKNOWN, f"{count}: they may be {resolution:.2f}x slower than expected, or not"
    return Status.OK, ""


_BY_SPEED = {
    Health.SLOW: Status.FAIL,
    Health.UNKNOWN: Status.UNKNOWN,
    Health.FASTER: Status.WARN,  # the model, or the system's name, is wrong
    Health.AS_EXPECTED: Status.OK,
}


def judge_by_model(diagnosis: Diagnosis) -> CheckedCurve:
    """Return the curve that `diagnose` held against the model of its system."""
    status, remark, far = _BY_SPEED[diagnosis.speed], diagnosis.remark, diagnosis.exceptions
    sizes = []
    for row, expected in zip_longest(diagnosis.measured, diagnosis.expected):
        if not expected:
            sizes.append(CheckedSize(row, math.nan, Decision.NOT_COMPARED, 0))
        else:
            decision = _by_band(row.typical, expected.band, diagnosis)
            sizes.append(CheckedSize(row, expected.seconds, decision, 1, row.typical / expected.seconds))

    # The verdict is on all sizes together: single ones, or many that are a little slow, may make it worse.
    above = sum(size.decision in (Decision.UNDECIDED, Decision.SLOW) for size in sizes)
    if any(size.beyond > ALONE for size in far):
        status, remark = Status.FAIL, diagnosis.headline
    elif status in (Status.OK, Status.WARN) and 2 * above > len(sizes):
        named = listed(far, len(sizes)) if far else "none"
        status, remark = Status.UNKNOWN, f"{above} of {counted(len(sizes), 'size')} above their bands; by far: {named}"
    elif far:
        status, remark = Status.WARN, diagnosis.headline
    return CheckedCurve(tuple(sizes), status, remark, tuple(diagnosis.likely()), diagnosis.limit or math.nan)


def _by_band(seconds: float, band: tuple[float, float], diagnosis: Diagnosis) -> Decision:
    """Return what is said of one size: as expected inside its band, and slow above it if the whole curve is."""
    low, high = band
    if diagnosis.limit <= 0:  # it is not known what the ranks ran on
        return Decision.UNDECIDED
    if seconds > high * (1.0 if diagnosis.speed is Health.SLOW else FAR):
        return Decision.SLOW
    if seconds > high:
        return Decision.UNDECIDED
    return Decision.FASTER if seconds < low else Decision.AS_EXPECTED
