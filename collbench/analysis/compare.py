"""Whether one run is faster or slower than another, case by case, and what cannot be said.

Each row is a ratio NEW/BASE of times with an interval, and so is each curve (all sizes of an implementation together).
Intervals hold for all of a comparison together (Bonferroni: the error probability of each is the comparison's, divided
by the number of rows and curves that have an interval).  The rules are in docs/analysis.md.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import fmean, median
from typing import TypeVar

from collbench.analysis import bootstrap
from collbench.analysis.bootstrap import FEWEST, PUBLISHED, LogRatio, Scatter
from collbench.analysis.matching import Difference, Selected, Unmatched, differences, is_right, latest, unmatched
from collbench.cases import Case
from collbench.notebook import Shown
from collbench.results import Measurement, Observed, Prediction, Reported, by_key
from collbench.runfile.rounds import scatter_in_words
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.units import format_size

MARGIN = 0.05
CONFIDENCE = 0.95
CENTRES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}
"""What a log's figure is compared with, of the other run's samples."""
FEWEST_SIZES = 4  # that a mean over sizes is made of
_IN_TURN = "`collbench sweep --ab` measures two settings in turn, so that this cancels"
_STATE = "state how much each time varies (--assume 5%)"
_ALIKE = 1.3  # as many sizes count as one, whose errors are correlated (by simulation, docs/analysis.md)
_SURE = 10**6  # degrees of freedom of what the user states
NOTABLE = 0.02  # scatter between runs from which on it is said
_SAME_PLACE = math.log(1.05)  # of a barrier's time, within which the machine is taken to be the same
_MOVED = math.log(1.5)  # of a barrier's time, beyond which the cores are at other distances, and nothing can be said
_WIDEST = 1000.0  # times its lower end that an interval may reach
_FELT = 3.0
"""Times as much as a barrier other operations may feel of a change of the machine: once MPI took 35 % longer in a whole
run, and barriers 9 % (docs/log.md)."""


class Verdict(Enum):
    """Of a row, or of all sizes together."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    UNKNOWN = "unknown"


def verdict(ratio: Estimate, margin: float) -> Verdict:
    """Judge a ratio; what is surely within the margin is the same, even if it is surely not 1."""
    if ratio.surely_level(margin):
        return Verdict.SAME
    if ratio.surely_above(1):
        return Verdict.SLOWER
    return Verdict.FASTER if ratio.surely_below(1) else Verdict.INCONCLUSIVE


class Judged(Shown):
    """A ratio NEW/BASE of times with its verdict."""

    estimate: Estimate  # of the ratio; its ends are NaN where nothing is known
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """The ratio alone."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of its interval."""
        return self.estimate.interval

    def regression(self, margin: float) -> bool:
        """Return whether it is slower, and by more than the margin."""
        return self.verdict is Verdict.SLOWER and self.ratio > 1 + margin


@dataclass(frozen=True)
class Row(Judged):
    """A case by an implementation in both runs: seconds of an operation, and the interval of their ratio NEW/BASE."""

    SHOWN = ("case.title", "case.nbytes", "implementation", "before", "after", "ratio", "verdict", "remark")
    base: Observed
    new: Observed
    before: float
    after: float
    estimate: Estimate
    verdict: Verdict
    remark: str = ""
    limit: float = math.inf  # that the ratio of this row alone stays below with the comparison's confidence
    within: float = math.inf  # share that the ratio of this row alone differs from 1 by at most, likewise

    @property
    def case(self) -> Case:
        """The same in both runs."""
        return self.base.case

    @property
    def implementation(self) -> str:
        """The same in both runs."""
        return self.base.implementation

    @property
    def moved(self) -> bool:
        """Whether nothing is known since the ranks' cores are at other distances in NEW, as a barrier tells."""
        return self.verdict is Verdict.UNKNOWN and _moved(self.base, self.new)

    @property
    def sampled(self) -> bool:
        """Whether both runs have enough samples to judge by."""
        return min(len(self.base.times), len(self.new.times)) >= FEWEST

    def hides(self, margin: float) -> bool:
        """Return whether a regression cannot be excluded.

        What passes has no row that hides one, so each row needs no more confidence than all of them: if any one is
        slower, that one alone must be taken for passing wrongly (an intersection-union test: R. Berger, 1982).
        """
        return not self.regression(margin) and not min(self.estimate.high, self.limit) <= 1 + margin


@dataclass(frozen=True)
class Together(Judged):
    """All sizes of a kind of case by an implementation: the geometric mean of their ratios, and its interval.

    A change too small to be seen at any size is seen in all of them together, if they agree.
    """

    SHOWN = ("case", "implementation", "sizes", "ratio", "interval", "verdict", "every")
    case: Case  # of no size
    implementation: str
    sizes: int
    estimate: Estimate
    verdict: Verdict
    every: int = 0  # sizes of the curve, with those that are unknown or stand out, each a change by itself


@dataclass(frozen=True)
class Comparison(Shown):
    """Two runs, row by row in the order of BASE, and what stands in one of them only."""

    TABLE = "rows"
    base: Run
    new: Run
    rows: tuple[Row, ...]
    together: tuple[Together, ...]  # rows of enough sizes, as one
    unmatched: tuple[Unmatched, ...]
    differences: tuple[Difference, ...]
    margin: float
    confidence: float
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Comparison({self.base.path} -> {self.new.path}: {self.counts})"

    @property
    def counts(self) -> str:
        """How many rows have each verdict, in words."""
        counts = Counter(row.verdict.value for row in self.rows)
        return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "no rows"

    @property
    def regressions(self) -> list[Row | Together | Unmatched]:
        """What is slower by more than the margin, and what was right and is no longer."""
        judged: tuple[Row | Together, ...] = (*self.rows, *self.together)
        slower = [row for row in judged if row.regression(self.margin)]
        return [*slower, *(row for row in self.unmatched if row.regression)]

    @property
    def hidden(self) -> list[Row | Unmatched]:
        """What may be slower by more than the margin for all that is known."""
        unsure = [row for row in self.rows if row.hides(self.margin)]
        return unsure + [row for row in self.unmatched if row.hides and not row.regression]


def compare(
    base: Run,
    new: Run,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
    selected: Selected = None,
    assume: float | None = None,
) -> Comparison:
    """Compare every case and implementation that both runs have a time of.

    Args:
        base: The run to compare with.
        new: The run to judge.
        margin: Relative slowdown that still counts as equal, for example 0.05 for 5 %.
        confidence: Of all intervals together.
        selected: Says of a case and an implementation whether it is compared; by default all are.
        assume: Relative standard deviation of a time without samples; by default ratios of neighbouring sizes tell it.

    Returns:
        A ratio of times (new / base) with an interval and a verdict for every row, and for all sizes of a curve.

    """
    pairs = _pairs(base, new, selected)
    # What another tool printed, and so many figures that no other run prints the same.
    log = len(base.results) >= FEWEST_SIZES and all(isinstance(result, Reported) for result in base.results)
    copied = base.results == new.results and (base.header == new.header or log)
    halves = bool(base.header.interleaved.id) and base.header.interleaved.id == new.header.interleaved.id
    interleaved = halves and not copied
    wholes: list[Together] = []
    if copied:
        same = Estimate(1.0, 1.0, 1.0)
        rows = [Row(one, other, one.typical, other.typical, same, Verdict.SAME) for one, other in pairs]
        remarks = ["BASE and NEW hold the same times: they are one run"]
    else:
        starts = max(1, base.header.sweep.starts) if interleaved else 0
        known, remarks = _estimates(pairs, starts, assume)
        for word, run in (("BASE", base), ("NEW", new)):
            if scattered := scatter_in_words(run.cases):
                remarks.append(f"{word} has {scattered}: the medians are compared")
        rows, wholes = _judged_rows(pairs, known, margin, confidence)
        unknown = [row for row in rows if row.verdict is Verdict.UNKNOWN]
        remarks += _standing_out(row for row in rows if id(row.base) in known and known[id(row.base)].outlier)
        remarks += [f"unknown rows ({count}): {why}" for why, count in Counter(row.remark for row in unknown).items()]
    return Comparison(
        base=base,
        new=new,
        rows=tuple(rows),
        together=tuple(wholes),
        unmatched=tuple(unmatched(base, new, selected)),
        differences=tuple(differences(base.header.to_json(), new.header.to_json())),
        margin=margin,
        confidence=confidence,
        remarks=(*remarks, *_libraries(pairs), *(() if interleaved else _shared_move(rows)), *_predicted(base, new)),
    )


def _pairs(base: Run, new: Run, selected: Selected) -> list[tuple[Observed, Observed]]:
    after = latest(new, selected)
    pairs: list[tuple[Observed, Observed]] = []
    for key, before in latest(base, selected).items():
        later = after.get(key)
        if is_right(before) and is_right(later):
            pairs.append((before, later))
    return pairs


T = TypeVar("T")


def _estimates(
    pairs: Sequence[tuple[Observed, Observed]], starts: int, assume: float | None
) -> tuple[dict[int, LogRatio], list[str]]:
    """Return what is known of each ratio, by the identity of its first row, and remarks on how.

    `starts` are those of an interleaved run's ranks; 0 for runs that were measured one after the other.
    """
    still = [pair for pair in pairs if starts or not _moved(*pair)]
    sampled = [(base, new) for base, new in still if min(len(base.times), len(new.times)) >= FEWEST]
    known, remarks = _from_samples(sampled, starts)
    rest = [(base, new) for base, new in still if id(base) not in known]
    if rest and assume is not None:
        error = assume * math.sqrt(2)
        known |= {id(base): LogRatio(_log(base, new), error, error, _SURE) for base, new in rest}
        remarks.append(f"rows without samples ({len(rest)}): intervals come from --assume, {assume:.1%} of each time")
    elif means := [(base, new) for base, new in rest if _are_means(base, new)]:
        found = _from_means(means)
        known |= found
        remarks.append(_without_samples(list(found.values())))
    return _with_outliers([base for base, _ in pairs if id(base) in known], known), remarks


def _from_samples(sampled: Sequence[tuple[Observed, Observed]], starts: int) -> tuple[dict[int, LogRatio], list[str]]:
    rounds = []
    for base, new in sampled:
        if isinstance(base, Measurement) and isinstance(new, Measurement) and _rounds_match(base, new):
            rounds.append(bootstrap.paired(base.by_round(), new.by_round(), starts))
    if starts and sampled and len(rounds) == len(sampled):
        estimates = bootstrap.pooled(rounds)
        if starts > 1:
            estimates = bootstrap.with_starts(estimates, rounds, [_curve_of(base) for base, _ in sampled])
        extra, remarks = Scatter(), ["both were measured in turn, round by round, so that drift of the machine cancels"]
    else:
        # A single row's barrier varies by a quarter where cores are far apart; what stays shows in most rows.
        barriers = median([_barriers(base, new) for base, new in sampled] or [1.0])
        estimates = _separate(sampled, _FELT * max(0.0, abs(math.log(barriers)) - _SAME_PLACE))
        points = zip((base for base, _ in sampled), estimates, strict=True)
        extra = bootstrap.scatter(_by_size(points))
        remarks = list(_unlike_machines(barriers, extra.everywhere[0]))
    known = {}
    for (base, _), estimate in zip(sampled, estimates, strict=True):
        here = extra.at(base.case.nbytes)
        known[id(base)] = replace(estimate, scatter=here, near=here)
    return known, remarks


def _from_means(means: Sequence[tuple[Observed, Observed]]) -> dict[int, LogRatio]:
    errors = bootstrap.of_means(_by_size((base, _log(base, new)) for base, new in means))
    rounds = [(_curve_of(base), [_logs_of_rounds(base), _logs_of_rounds(new)]) for base, new in means]
    spreads = bootstrap.start_spreads(rounds, replace(PUBLISHED, freedom=0))
    known = {}
    for (base, new), spread in zip(means, spreads, strict=True):
        scatter, near = errors[base.case.nbytes]
        repeats = len(base.round_times), len(new.round_times)
        estimate = bootstrap.between_repeats(_log(base, new), repeats, spread)
        known[id(base)] = replace(estimate, scatter=scatter, near=near)
    return known


def _with_outliers(bases: Sequence[Observed], known: Mapping[int, LogRatio]) -> dict[int, LogRatio]:
    """Return the estimates with a mark at each size that changed by itself, or is known far less than the others."""
    marked = {}
    for curve in by_key(bases, _curve_of).values():
        far = bootstrap.outliers(sorted((row.case.nbytes, known[id(row)].log) for row in curve))
        rough = max(bootstrap.STANDS_OUT, bootstrap.FAR_OUT * median(known[id(row)].error for row in curve))
        for row in curve:
            apart = row.case.nbytes in far or known[id(row)].error > rough
            marked[id(row)] = replace(known[id(row)], outlier=apart)
    return marked


def _by_size(rows: Iterable[tuple[Observed, T]]) -> list[list[tuple[int, T]]]:
    """Return sizes with what is known at each, curve by curve."""
    curves = by_key(rows, lambda pair: _curve_of(pair[0])).values()
    sizes = ([(row.case.nbytes, value) for row, value in curve] for curve in curves)
    return [sorted(curve, key=lambda point: point[0]) for curve in sizes]


def _judged_rows(
    pairs: Sequence[tuple[Observed, Observed]], known: Mapping[int, LogRatio], margin: float, confidence: float
) -> tuple[list[Row], list[Together]]:
    every = Counter(_curve_of(base) for base, _ in pairs)
    curves = by_curve([base for base, _ in pairs if id(base) in known and not known[id(base)].outlier])
    single = 1 - (1 - confidence) / max(1, len(known) + len(curves))
    rows = []
    for base, new in pairs:
        if estimate := known.get(id(base)):
            alone = estimate.estimate(2 * confidence - 1, *estimate.near)
            rows.append(judged(base, new, estimate.estimate(single, *estimate.scatter), alone, margin))
        else:
            rows.append(_unknown(base, new, _why_unknown(base, new)))
    verdicts = {id(row.base): row.verdict for row in rows}
    wholes = []
    for curve in curves:
        whole = together([(row, known[id(row)]) for row in curve], single, margin)
        said = {verdicts[id(row)] for row in curve}
        if said in ({Verdict.SLOWER}, {Verdict.FASTER}):
            whole = replace(whole, verdict=said.pop())
        if whole.estimate.high <= _WIDEST * whole.estimate.low:
            wholes.append(replace(whole, every=every[_curve_of(curve[0])]))
    return rows, wholes


def _rounds_match(base: Measurement, new: Measurement) -> bool:
    """Return whether both were measured in as many rounds, two or more, none empty, that hold all samples."""
    return (
        len(base.rounds) == len(new.rounds) >= 2
        and min(*base.rounds, *new.rounds) > 0
        and (sum(base.rounds), sum(new.rounds)) == (len(base.seconds), len(new.seconds))
    )


def _curve_of(row: Observed) -> tuple[Case, str]:
    return row.case.kind, row.implementation


def _separate(pairs: Sequence[tuple[Observed, Observed]], moved: float) -> list[LogRatio]:
    """Return the ratios of rows that were not interleaved; `moved` is how far the machine may have changed."""
    by_start = [[_by_start(row) for row in pair] for pair in pairs]
    started = [(_curve_of(base), logs) for (base, _), logs in zip(pairs, by_start, strict=True) if any(logs)]
    spreads = iter(bootstrap.start_spreads(started))
    estimates = []
    for (base, new), logs in zip(pairs, by_start, strict=True):
        if any(logs):
            repeats = [max(1, len(starts)) for starts in logs]
            estimate = bootstrap.between_repeats(_log(base, new), repeats, next(spreads))
            estimate = replace(estimate, shared=estimate.error)
        else:
            estimate = bootstrap.separate(base.times, new.times)
        estimates.append(replace(estimate, moved=moved))
    return estimates


def _by_start(row: Observed) -> list[float]:
    """Return the logarithm of the median of each start; nothing where ranks were started once."""
    return _logs_of_rounds(row) if isinstance(row, Measurement) and row.spread else []


def _logs_of_rounds(row: Observed) -> list[float]:
    return [math.log(seconds) for seconds in row.round_times]


def _barriers(base: Observed, new: Observed) -> float:
    """How many times as long a barrier took in the second run; 1 where it was not measured in both."""
    if isinstance(base, Measurement) and isinstance(new, Measurement) and base.barrier and new.barrier:
        return new.barrier / base.barrier
    return 1.0


def _moved(base: Observed, new: Observed) -> bool:
    """Return whether a barrier shows that the cores were at other distances in the second run."""
    return abs(math.log(_barriers(base, new))) > _MOVED


def judged(base: Observed, new: Observed, ratio: Estimate, alone: Estimate, margin: float) -> Row:
    """Return the row of a ratio.

    The interval of `ratio` holds together with those of all rows, `alone` has the limits of this row.  A row is the
    same by its own limits, which are its interval then (two one-sided tests: D. Schuirmann, 1987).
    """
    if ratio.high > _WIDEST * ratio.low:
        return _unknown(base, new, "times differ so much that the interval is wider than 1000 to 1; measure longer")
    shown = alone if alone.surely_level(margin) else ratio
    within = max(alone.high, 1 / max(alone.low, 1e-300)) - 1
    return Row(base, new, *_figures(base, new), shown, verdict(shown, margin), "", alone.high, within)


def by_curve(results: Iterable[Observed]) -> list[list[Observed]]:
    """Return the results of each kind of case and implementation by size, where there are FEWEST_SIZES or more."""
    long = (curve for curve in by_key(results, _curve_of).values() if len(curve) >= FEWEST_SIZES)
    return [sorted(curve, key=lambda result: result.case.nbytes) for curve in long]


def together(curve: Sequence[tuple[Observed, LogRatio]], confidence: float, margin: float) -> Together:
    """Judge all sizes of a curve together, given a result and the estimate of its ratio for each.

    The mean is as sure as the rows' own errors make it; a change that is larger at some sizes than at others is no
    error.  What the start of the ranks did to all sizes alike does not become less by their number, and the rest is
    alike from size to size as well (_ALIKE).  Intervals of all rows hold at once, so that the mean is between the means
    of their ends at least.
    """
    centre = fmean(estimate.log for _, estimate in curve)
    reaches, own, shared = [], [], []
    for _, estimate in curve:
        _, low, high = estimate.estimate(confidence, *estimate.scatter)
        reaches.append(math.log(high / low) / 2 - estimate.moved)
        error = math.hypot(estimate.error, estimate.scatter[0])
        shared.append(reaches[-1] * estimate.shared / error if error else 0.0)
        own.append(reaches[-1] ** 2 - shared[-1] ** 2)
    reach = min(fmean(reaches), math.hypot(fmean(shared), math.sqrt(max(0.0, fmean(own)) * _ALIKE / len(curve))))
    reach += fmean(estimate.moved for _, estimate in curve)
    ratio = Estimate(*(math.exp(centre + end) for end in (0, -reach, reach)))
    return Together(*_curve_of(curve[0][0]), len(curve), ratio, verdict(ratio, margin))


def _logged(*results: Observed) -> set[str]:
    """Return which statistics the logs without samples among the results hold."""
    return {result.figure for result in results if isinstance(result, Reported) and not result.samples}


def _are_means(base: Observed, new: Observed) -> bool:
    """Return whether a log without samples can be compared: with the same statistic, also of the other's samples."""
    sampled = all(_logged(result) or len(result.times) >= FEWEST for result in (base, new))
    return sampled and len(_logged(base, new)) == 1


def _figures(base: Observed, new: Observed) -> tuple[float, float]:
    """Return the seconds to compare: medians, or of samples the statistic that a log without samples holds."""
    kinds = sorted(_logged(base, new))
    if not kinds:
        return base.typical, new.typical
    centre = CENTRES.get(kinds[0], fmean)
    return centre(base.times), centre(new.times)


def _log(base: Observed, new: Observed) -> float:
    before, after = _figures(base, new)
    return math.log(after / before)


def _unknown(base: Observed, new: Observed, why: str) -> Row:
    """Return a row whose ratio has no interval, and why."""
    before, after = _figures(base, new)
    return Row(base, new, before, after, Estimate(after / before, math.nan, math.nan), Verdict.UNKNOWN, why)


def _why_unknown(base: Observed, new: Observed) -> str:
    """Return why nothing is known of a ratio, and what to do."""
    if _moved(base, new):
        return (
            "a barrier of the ranks takes another time in NEW: the machine changed (perhaps a hypervisor moved virtual "
            f"cores), and nothing can be said; measure again, or in turn ({_IN_TURN})"
        )
    kinds = sorted(_logged(base, new))
    if len(kinds) > 1:
        return f"a {kinds[0]} and a {kinds[1]} are no pair; give logs of one statistic, or {_STATE}"
    return f"fewer than {FEWEST} samples; measure more, or {_STATE}"


# Remarks on what a comparison cannot tell.


def _without_samples(means: Sequence[LogRatio]) -> str:
    """Return what the intervals of logs rest on, given what is known of each row."""
    typical = math.expm1(median(row.scatter[0] for row in means))
    source = f"how far the ratios of neighbouring sizes scatter, {typical:.1%}"
    if max(row.scatter[1] for row in means) == PUBLISHED.freedom:
        source = f"published repeats, {PUBLISHED.deviation:.1%}, since so few sizes do not show how much times vary"
    if repeated := sum(row.error > 0 for row in means):
        source += f", and in {repeated} of them from how far rounds are apart"
    return f"rows without samples ({len(means)}): intervals come from {source}; or {_STATE}"


def _standing_out(rows: Iterable[Row]) -> list[str]:
    """Name the sizes of a log that changed, and none of their neighbours."""
    changed = [row for row in rows if row.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    names = dict.fromkeys(f"{row.implementation} at {format_size(row.case.nbytes)}" for row in changed)
    return [f"{', '.join(names)}: stands out from its neighbours, which is a change and no scatter"] * bool(names)


def _unlike_machines(barriers: float, extra: float) -> Iterator[str]:
    """Yield what shows that the machine was not the same in both runs: scatter of the ratios, and barriers."""
    if extra >= NOTABLE:
        yield (
            f"ratios of neighbouring sizes scatter by {math.expm1(extra):.0%} more than the samples explain, as where "
            f"a machine changes between the runs; intervals are wider for it; {_IN_TURN}"
        )
    if abs(math.log(barriers)) > _SAME_PLACE:
        yield (
            f"a barrier of the ranks takes {barriers:.2f}x as long in NEW, as where a hypervisor moves virtual "
            f"cores; intervals are wider for it; {_IN_TURN}"
        )


def _shared_move(rows: Sequence[Row]) -> list[str]:
    """Return where several implementations all moved in one direction by about as much: it may be the machine."""
    moved = [row for row in rows if row.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    by_name = by_key(rows, lambda row: row.implementation).values()
    typical = [median(row.ratio for row in alike) for alike in by_name]
    one_way = len({row.verdict for row in moved}) == 1 and len(moved) >= 0.8 * len(rows)
    if not one_way or len(typical) < 2 or max(typical) > 1.3 * min(typical):
        return []
    return [
        f"nearly all rows of all {len(typical)} implementations are {moved[0].verdict.value} (typically "
        f"{median(typical):.2f}x): perhaps the whole machine was; {_IN_TURN}"
    ]


def _libraries(pairs: Sequence[tuple[Observed, Observed]]) -> list[str]:
    """Implementations that call one library in one run and another in the other."""
    found = []
    for base, new in pairs:
        name = base.implementation
        if base.library == new.library:
            continue
        if base.library and new.library:
            found.append(f"{name} calls {base.library} in BASE and {new.library} in NEW: two libraries are compared")
        else:
            found.append(
                f"{'NEW' if base.library else 'BASE'} does not say which library {name} calls: the run is old, and "
                "called it from Python, as mpi-python does now"
            )
    return list(dict.fromkeys(found))


def _predicted(base: Run, new: Run) -> list[str]:
    remarks = []
    for word, run in (("BASE", base), ("NEW", new)):
        if any(isinstance(result, Prediction) for result in run.results):
            more = any(isinstance(result, Observed) for result in run.results)
            what = "predictions" if more else "nothing but predictions"
            remarks.append(f"{word} holds {what}, which get no verdict here")
    return remarks
