"""Whether one run is faster or slower than another, case by case, and what cannot be said.

Each row is a ratio NEW/BASE of times with an interval, and so is each curve (all sizes of an implementation together).
Intervals hold for all of a comparison together (Bonferroni: the error probability of each is the comparison's, divided
by the number of rows and curves that have an interval).  The rules are in docs/analysis.md.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from statistics import fmean, median
from typing import TypeVar

from collbench.analysis import bootstrap, headers, matching
from collbench.analysis.bootstrap import FEWEST, PUBLISHED, LogRatio, Scatter
from collbench.analysis.comparison import UNSURE, Comparison, Pair, Row, Together
from collbench.analysis.judgement import Judgement, Word
from collbench.analysis.matching import Key, Selected, is_right, latest, named
from collbench.results import Observed, Prediction, Reported, Result, by_key
from collbench.runfile.store import Run, scatter_in_words
from collbench.stats import Estimate
from collbench.units import counted, format_size

_UNTABLED = ("symm", "ce")  # that NCCL takes by rules of their own

MARGIN = 0.05
MOST_MARGIN = 0.25  # that the scatter of a log may make of it: half of a slowdown that no log may hide
CONFIDENCE = 0.95
FEWEST_SIZES = 4  # that a mean over sizes is made of
_IN_TURN = "`collbench sweep --ab` measures two settings in turn, so that this cancels"
_ALIKE = 1.3  # as many sizes count as one, whose errors are correlated (by simulation, docs/analysis.md)
NOTABLE = 0.02  # scatter between runs from which on it is said
_SAME_PLACE = math.log(1.05)  # of a barrier's time, within which the machine is taken to be the same
_WIDEST = 1000.0  # times its lower end that an interval may reach
_FELT = 3.0
"""Times as much as a barrier other operations may feel of a change of the machine: once MPI took 35 % longer in a whole
run, and barriers 9 % (docs/log.md)."""


def ran_otherwise(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each change of what a library ran, with the sizes that have it."""
    remarks = []
    for (kind, name), curve in by_key(pairs, lambda pair: pair.curve).items():
        said = []
        for pair in curve:
            base, new = pair.base.method, pair.new.method
            said.append((pair.nbytes, f"{base} in BASE, {new} in NEW" if base and new and base != new else ""))
        remarks += [f"{name} at {where} ({kind.title}): {words}" for words, where in _by_words(said).items()]
    return remarks


def other_bits(base: Mapping[Key, Result], new: Mapping[Key, Result]) -> list[str]:
    """Return a sentence on each implementation whose sums of the same values have other bits, with the sizes."""
    said: dict[str, dict[int, str]] = defaultdict(dict)
    alike = 0
    for (case, name), before in base.items():
        after = new.get((case, name))
        if before.digest and after and after.digest and before.right and after.right:
            same = before.digest == after.digest
            alike += same
            sizes = said[f"{name} ({replace(case.kind, work=None).title})"]  # of all laws of values
            sizes[case.nbytes] = sizes.get(case.nbytes, "") or ("" if same else "other bits in NEW")
    remarks = [f"{who}: {what} at {at}" for who, sizes in said.items() for what, at in _by_words(sizes.items()).items()]
    return remarks + [f"{counted(alike, 'sum')} of random values with the same bits in both"] * bool(said)


def libraries_called(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each implementation that calls one library in one run and another in the other."""
    remarks = []
    for pair in pairs:
        name, base, new = pair.base.implementation, pair.base.library, pair.new.library
        silent = "NEW" if base else "BASE"
        if base and new and base != new:
            remarks.append(f"{name} calls {base} in BASE and {new} in NEW: two libraries are compared")
        elif base != new:
            old = "the run is old, and called it from Python"
            remarks.append(f"{silent} does not say which library {name} calls: {old}")
    return list(dict.fromkeys(remarks))


def unlike_table(measured: Sequence[Observed], expected: Sequence[Prediction]) -> list[str]:
    """Return what NCCL took where its own table, by the model, says something else, with the sizes."""
    said = []
    for row, other in zip(measured, expected, strict=False):
        known = row.method and row.algorithm not in _UNTABLED
        unlike = known and row.method != other.method
        said.append((row.case.nbytes, f"NCCL took {row.method} where its table says {other.method}" if unlike else ""))
    return [f"{words}, at {where}" for words, where in _by_words(said).items()]


def _by_words(said: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return at which sizes each thing is said, neighbours together: `64 KiB, 1 MiB to 4 MiB`; no words say nothing."""
    places: dict[str, list[str]] = {}
    for words, alike in groupby(sorted(said), key=itemgetter(1)):
        sizes = [format_size(nbytes) for nbytes, _ in alike]
        places.setdefault(words, []).append(sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}")
    return {words: ", ".join(where) for words, where in places.items() if words}


def compare(
    base: Run,
    new: Run,
    margin: float | None = None,
    confidence: float = CONFIDENCE,
    selected: Selected = None,
) -> Comparison:
    """Compare every case and implementation that both runs have a time of.

    Args:
        base: The run to compare with.
        new: The run to judge.
        margin: Relative slowdown that still counts as equal; by default 5 %, of rows of logs more if they scatter.
        confidence: Of all intervals together.
        selected: Says of a case and an implementation whether it is compared; by default all are.

    Returns:
        A ratio of times (new / base) with an interval and a word for every row, and for all sizes of a curve.

    """
    pairs = _pairs(base, new, selected)
    # A log has so few digits that one figure may come twice by chance, and several figures hardly do.
    log = len(base.results) >= FEWEST_SIZES and all(isinstance(result, Reported) for result in base.results)
    copied = base.results == new.results and (base.header == new.header or log)
    halves = bool(base.header.interleaved.id) and base.header.interleaved.id == new.header.interleaved.id
    wholes: list[Together] = []
    usual = MARGIN if margin is None else margin
    passes, margin_from = usual, ""
    blank = Judgement("", str(base.path), Word.UNKNOWN, limit=1 + usual)
    if copied:
        same = Estimate(1.0, 1.0, 1.0)
        rows = [judged(pair, same, same, blank, usual) for pair in pairs]
        remarks = ["BASE and NEW hold the same times: they are one run"]
    else:
        ratios, remarks = _estimates(pairs, max(1, base.header.sweep.starts) if halves else 0)
        for name, run in (("BASE", base), ("NEW", new)):
            if scattered := scatter_in_words(run.cases):
                remarks.append(f"{name} has {scattered}: the medians are compared")
        if margin is None:
            passes = max(usual, _margin(ratios, confidence))
        if passes > usual:
            margin_from = f"margin {passes:.0%}, from how far neighbouring sizes scatter"
            remarks.insert(0, margin_from)
        rows, wholes = _judged_rows(pairs, ratios, blank, passes, confidence)
        outliers = {id(pair.base) for pair, ratio in ratios.items() if ratio.outlier}
        remarks += _standing_out(row for row in rows if id(row.base) in outliers)
        reasons = Counter(row.judgement.reason for row in rows if not row.estimate.known)
        remarks += [f"unknown rows ({count}): {why}" for why, count in reasons.items()]
    remarks = [*ran_otherwise(pairs), *remarks, *libraries_called(pairs)]
    remarks += dict.fromkeys(filter(None, (run.header.topology.copied for run in (base, new))))
    if copied or not halves:
        remarks += _shared_move(rows)
    return Comparison(
        base=base,
        new=new,
        rows=tuple(rows),
        together=tuple(wholes),
        unmatched=tuple(matching.unmatched(base, new, selected)),
        differences=tuple(headers.differences(base.header.to_json(), new.header.to_json())),
        margin=passes,
        confidence=confidence,
        remarks=(*remarks, *_predicted(base, new)),
        bits=tuple(other_bits(latest(base, selected), latest(new, selected))),
        margin_from=margin_from,
    )


def _pairs(base: Run, new: Run, selected: Selected) -> list[Pair]:
    after = latest(new, selected)
    pairs = []
    for key, before in latest(base, selected).items():
        later = after.get(key)
        if is_right(before) and is_right(later):
            pairs.append(Pair(before, later))
    return pairs


# What is known of each ratio.

Ratios = dict[Pair, LogRatio]


def _estimates(pairs: Sequence[Pair], starts: int) -> tuple[Ratios, list[str]]:
    """Return what is known of the ratios, and remarks on how; nothing of a pair whose cores were moved.

    `starts` are those of an interleaved run's ranks; 0 for runs that were measured one after the other.
    """
    still = [pair for pair in pairs if starts or not pair.moved]
    ratios, remarks = _from_samples([pair for pair in still if pair.sampled], starts)
    if means := [pair for pair in still if pair not in ratios and pair.has_means]:
        of_means = _from_means(means)
        ratios |= of_means
        remarks.append(_without_samples(list(of_means.values())))
    return _with_outliers(pairs, ratios), remarks


def _from_samples(sampled: Sequence[Pair], starts: int) -> tuple[Ratios, list[str]]:
    halves = [pair.matching_rounds for pair in sampled]
    if starts and halves and all(halves):
        rounds = [bootstrap.paired(*both, starts) for both in halves if both]
        estimates = bootstrap.pooled(rounds)
        if starts > 1:
            estimates = bootstrap.with_starts(estimates, rounds, [pair.curve for pair in sampled])
        extra, remarks = Scatter(), ["both were measured in turn, round by round, so that drift of the machine cancels"]
    else:
        # A single row's barrier varies by a quarter where cores are far apart; what stays shows in most rows.
        barriers = median([pair.barriers for pair in sampled] or [1.0])
        estimates = _separate(sampled, _FELT * max(0.0, abs(math.log(barriers)) - _SAME_PLACE))
        extra = bootstrap.scatter(_by_size(zip(sampled, estimates, strict=True)))
        remarks = list(_unlike_machines(barriers, extra.everywhere[0]))
    ratios = {}
    for pair, estimate in zip(sampled, estimates, strict=True):
        here = extra.at(pair.nbytes)
        ratios[pair] = replace(estimate, scatter=here, near=here)
    return ratios, remarks


def _from_means(means: Sequence[Pair]) -> Ratios:
    scatter = bootstrap.of_means(_by_size((pair, pair.log) for pair in means))
    spreads = bootstrap.start_spreads([(pair.curve, pair.rounds) for pair in means], replace(PUBLISHED, freedom=0))
    ratios = {}
    for pair, spread in zip(means, spreads, strict=True):
        repeats = len(pair.base.round_times), len(pair.new.round_times)
        estimate = bootstrap.between_repeats(pair.log, repeats, spread)
        ratios[pair] = replace(estimate, scatter=scatter.at(pair.nbytes), near=scatter.near[pair.nbytes])
    return ratios


def _separate(pairs: Sequence[Pair], moved: float) -> list[LogRatio]:
    """Return the ratios of rows that were not interleaved; `moved` is how far the machine may have changed."""
    starts = [pair.starts for pair in pairs]
    started = [(pair.curve, logs) for pair, logs in zip(pairs, starts, strict=True) if any(logs)]
    spreads = iter(bootstrap.start_spreads(started))
    estimates = []
    for pair, logs in zip(pairs, starts, strict=True):
        if any(logs):
            # Samples of one start do not show what the next start would take: the starts alone do.
            estimate = bootstrap.between_repeats(pair.log, [max(1, len(side)) for side in logs], next(spreads))
            estimate = replace(estimate, shared=estimate.error)
        else:
            estimate = bootstrap.separate(pair.base.times, pair.new.times)
        estimates.append(replace(estimate, moved=moved))
    return estimates


def _with_outliers(pairs: Sequence[Pair], ratios: Ratios) -> Ratios:
    """Return the estimates with a mark at each size that changed by itself, or is known far less than the others."""
    marked = {}
    for curve in by_key((pair for pair in pairs if pair in ratios), lambda pair: pair.curve).values():
        far = bootstrap.outliers(sorted((pair.nbytes, ratios[pair].log) for pair in curve))
        rough = max(bootstrap.STANDS_OUT, bootstrap.FAR_OUT * median(ratios[pair].error for pair in curve))
        for pair in curve:
            apart = pair.nbytes in far or ratios[pair].error > rough
            marked[pair] = replace(ratios[pair], outlier=apart)
    return marked


T = TypeVar("T")


def _by_size(values: Iterable[tuple[Pair, T]]) -> list[list[tuple[int, T]]]:
    """Return sizes with what is known at each, curve by curve."""
    curves = []
    for curve in by_key(values, lambda item: item[0].curve).values():
        points = [(pair.nbytes, value) for pair, value in curve]
        curves.append(sorted(points, key=lambda point: point[0]))
    return curves


# What is said of them.


def _margin(ratios: Ratios, confidence: float) -> float:
    """Return the margin that the rows of two equal logs pass; 0 for runs with samples, and if scatter is not known.

    One of so many rows is off by chance, and the limit of each lies beyond its ratio.
    """
    calm = [ratio for ratio in ratios.values() if not ratio.outlier]
    known = any(ratio.scatter[1] > PUBLISHED.freedom for ratio in calm)
    if not known or any(pair.sampled for pair in ratios):
        return 0.0
    doubt = 2 * (1 - confidence)
    chance = median(ratio.estimate(1 - doubt / len(calm), *ratio.scatter).high / math.exp(ratio.log) for ratio in calm)
    limit = max(ratio.estimate(1 - doubt, *ratio.near).high / math.exp(ratio.log) for ratio in calm)
    return min(MOST_MARGIN, math.ceil(100 * (chance * limit - 1)) / 100)


def _judged_rows(
    pairs: Sequence[Pair], ratios: Ratios, blank: Judgement, margin: float, confidence: float
) -> tuple[list[Row], list[Together]]:
    """Return rows and curves, given a judgement that has BASE and the limit, and the margin that rows pass."""
    every = Counter(pair.curve for pair in pairs)
    telling = by_key((pair for pair in pairs if pair in ratios and not ratios[pair].outlier), lambda pair: pair.curve)
    curves = {curve: members for curve, members in telling.items() if len(members) >= FEWEST_SIZES}

    # Bonferroni: each interval may fail so rarely that all of them hold together.
    single = 1 - (1 - confidence) / max(1, len(ratios) + len(curves))
    rows = {}
    for pair in pairs:
        estimate = ratios.get(pair)
        row_blank = replace(blank, what=named(pair.base.case, format_size(pair.nbytes), pair.base.implementation))
        if estimate:
            alone = estimate.estimate(2 * confidence - 1, *estimate.near)
            rows[pair] = judged(pair, estimate.estimate(single, *estimate.scatter), alone, row_blank, margin)
        else:
            rows[pair] = _unknown(pair, _why_unknown(pair), row_blank)
    wholes = []
    for curve, members in curves.items():
        ratio = mean_ratio([ratios[pair] for pair in members], single)
        curve_blank = replace(blank, what=named(curve[0], "all sizes", curve[1]))
        judgement = judgement_of(ratio, ratio, curve_blank, blank.limit - 1)
        # Rows that all agree are not contradicted by their mean, however unequal they are.
        words = {rows[pair].word for pair in members}
        if words in ({Word.SLOW}, {Word.FAST}):
            judgement = replace(judgement, word=words.pop(), reason="")
        if ratio.high <= _WIDEST * ratio.low:
            wholes.append(Together(*curve, len(members), judgement, every[curve]))
    return list(rows.values()), wholes


def judged(pair: Pair, ratio: Estimate, alone: Estimate, blank: Judgement, margin: float) -> Row:
    """Return the row of a ratio, given a judgement that has its name, BASE and the limit, and what margin it passes.

    The interval of `ratio` holds together with those of all rows, `alone` has the limits of this row.
    """
    if ratio.high > _WIDEST * ratio.low:
        return _unknown(pair, "times differ so much that the interval is wider than 1000 to 1; measure longer", blank)
    return Row(pair.base, pair.new, *pair.seconds, judgement_of(ratio, alone, blank, margin), alone)


def judgement_of(ratio: Estimate, alone: Estimate, blank: Judgement, margin: float) -> Judgement:
    """Judge a ratio by its interval; what is surely within the limit is OK, even if it is surely not 1.

    A row is OK by its own limits, which are its interval then (two one-sided tests: D. Schuirmann, 1987).
    """
    if alone.surely_level(blank.limit - 1):
        return replace(blank, word=Word.OK, ratio=alone)
    if ratio.surely_above(1) and ratio.value > blank.limit:
        return replace(blank, word=Word.SLOW, ratio=ratio)
    if ratio.surely_below(1):
        return replace(blank, word=Word.FAST, ratio=ratio)
    if alone.surely_level(margin):
        return replace(blank, word=Word.OK, ratio=alone)
    way = "faster" if min(ratio.high, alone.high) <= 1 + margin else "slower"
    return replace(blank, reason=f"{UNSURE}may be {way}", ratio=ratio)


def _unknown(pair: Pair, why: str, blank: Judgement) -> Row:
    """Return a row whose ratio has no interval, and why."""
    before, after = pair.seconds
    nothing = Estimate(after / before, math.nan, math.nan)
    return Row(pair.base, pair.new, before, after, replace(blank, reason=why, ratio=nothing))


def mean_ratio(curve: Sequence[LogRatio], confidence: float) -> Estimate:
    """Return the geometric mean of the ratios of a curve.

    It is as sure as the rows' own errors make it; a change that is larger at some sizes than at others is no error.
    """
    centre = fmean(estimate.log for estimate in curve)
    reaches, unshared, shared = [], [], []
    for estimate in curve:
        _, low, high = estimate.estimate(confidence, *estimate.scatter)
        reach = math.log(high / low) / 2 - estimate.moved
        error = math.hypot(estimate.error, estimate.scatter[0])
        reaches.append(reach)
        shared.append(reach * estimate.shared / error if error else 0.0)
        unshared.append(reach**2 - shared[-1] ** 2)

    # What the start of the ranks did to all sizes alike does not become less by their number.  The rest does, though it
    # is alike from size to size as well.  All intervals hold at once, so the mean is within the mean of their ends.
    averaged = math.hypot(fmean(shared), math.sqrt(max(0.0, fmean(unshared)) * _ALIKE / len(curve)))
    reach = min(fmean(reaches), averaged) + fmean(estimate.moved for estimate in curve)
    return Estimate(*(math.exp(centre + end) for end in (0, -reach, reach)))


def _why_unknown(pair: Pair) -> str:
    """Return why nothing is known of a ratio, and what to do."""
    if pair.moved:
        return (
            "a barrier of the ranks takes another time in NEW: the machine changed (perhaps a hypervisor moved virtual "
            f"cores), and nothing can be said; measure again, or in turn ({_IN_TURN})"
        )
    if len(pair.statistics) > 1:
        first, second = pair.statistics
        return f"a {first} and a {second} are no pair; give logs of one statistic"
    return f"fewer than {FEWEST} samples; measure more"


# Remarks on what a comparison cannot tell.


def _without_samples(means: Sequence[LogRatio]) -> str:
    """Return what the intervals of logs rest on, given what is known of each row."""
    typical = math.expm1(median(row.scatter[0] for row in means))
    source = f"how far the ratios of neighbouring sizes scatter, {typical:.1%}"
    if max(row.scatter[1] for row in means) == PUBLISHED.freedom:
        source = f"published repeats, {PUBLISHED.deviation:.1%}, since so few sizes do not show how much times vary"
    if repeated := sum(row.error > 0 for row in means):
        source += f", and in {repeated} of them from how far rounds are apart"
    return f"rows without samples ({len(means)}): intervals come from {source}"


def _standing_out(rows: Iterable[Row]) -> list[str]:
    """Name the sizes of a log that changed, and none of their neighbours."""
    changed = [row for row in rows if row.word in (Word.SLOW, Word.FAST)]
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
    moved = [row for row in rows if row.word in (Word.SLOW, Word.FAST)]
    alike = by_key(rows, lambda row: row.implementation).values()
    typical = [median(row.ratio for row in members) for members in alike]
    one_way = len({row.word for row in moved}) == 1 and len(moved) >= 0.8 * len(rows)
    if not one_way or len(typical) < 2 or max(typical) > 1.3 * min(typical):
        return []
    return [
        f"nearly all rows of all {len(typical)} implementations are {moved[0].word.value} (typically "
        f"{median(typical):.2f}x): perhaps the whole machine was; {_IN_TURN}"
    ]


def _predicted(base: Run, new: Run) -> Iterator[str]:
    for word, run in (("BASE", base), ("NEW", new)):
        if any(isinstance(result, Prediction) for result in run.results):
            more = any(isinstance(result, Observed) for result in run.results)
            yield f"{word} holds {'predictions' if more else 'nothing but predictions'}, which are not judged here"
