"""Comparison of two runs case by case.

Each row, and each curve (all sizes of an implementation), is a ratio NEW/BASE of times with an interval.  The intervals
of a comparison hold together (Bonferroni: the error probability is divided by the number of rows and curves).  The
rules are in docs/analysis.md.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
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

_UNTABLED = ("symm", "ce")  # algorithms outside NCCL's table

MARGIN = 0.05
MOST_MARGIN = 0.25  # largest margin by the scatter of a log: half of the slowdown that logs must show
CONFIDENCE = 0.95
FEWEST_SIZES = 4  # sizes that a mean needs
_IN_TURN = "`collbench sweep --ab` measures two settings in turn, so that changes of the machine cancel"
_ALIKE = 1.3  # number of sizes with correlated errors that count as one (by simulation, docs/analysis.md)
NOTABLE = 0.02  # least scatter between runs that is reported
_SAME_PLACE = math.log(1.05)  # largest change of a barrier's time on an unchanged machine
_SOURCES = ("the scatter of neighbouring sizes", "in-place against out-of-place times")
_WIDEST = 1000.0  # largest ratio of an interval's ends
_FELT = 3.0
"""Factor by which other operations may change more than a barrier: once MPI took 35 % longer in a whole run, and
barriers 9 % (docs/log.md)."""


def ran_otherwise(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each change of algorithm or protocol of a library, with its sizes."""
    remarks = []
    for (kind, name), curve in by_key(pairs, lambda pair: pair.curve).items():
        texts = []
        for pair in curve:
            base, new = pair.base.method, pair.new.method
            texts.append((pair.nbytes, f"{base} in BASE, {new} in NEW" if base and new and base != new else ""))
        remarks += [f"{name} at {where} ({kind.title}): {words}" for words, where in _by_words(texts).items()]
    return remarks


def other_bits(base: Mapping[Key, Result], new: Mapping[Key, Result]) -> list[str]:
    """Return a sentence on each implementation with different bits in sums of the same values, with the sizes."""
    by_name: dict[str, dict[int, str]] = defaultdict(dict)
    alike = 0
    for (case, name), before in base.items():
        after = new.get((case, name))
        if before.digest and after and after.digest and before.right and after.right:
            same = before.digest == after.digest
            alike += same
            sizes = by_name[f"{name} ({replace(case.kind, work=None).title})"]  # all laws of values together
            sizes[case.nbytes] = sizes.get(case.nbytes, "") or ("" if same else "different bits in NEW")
    remarks = []
    for name, sizes in by_name.items():
        remarks += [f"{name}: {words} at {where}" for words, where in _by_words(sizes.items()).items()]
    return remarks + [f"{counted(alike, 'sum')} of random values with the same bits in both"] * bool(by_name)


def libraries_called(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each implementation that calls different libraries in the two runs."""
    remarks = []
    for pair in pairs:
        name, base, new = pair.base.implementation, pair.base.library, pair.new.library
        silent = "NEW" if base else "BASE"
        if base and new and base != new:
            remarks.append(f"{name} calls {base} in BASE and {new} in NEW: two libraries are compared")
        elif base != new:
            remarks.append(
                f"{silent} does not name the library of {name}: an old version measured it, by calls from Python"
            )
    return list(dict.fromkeys(remarks))


def unlike_table(measured: Sequence[Observed], expected: Sequence[Prediction]) -> list[str]:
    """Return NCCL's choices that differ from its own table (by the model), with the sizes."""
    texts = []
    for row, other in zip(measured, expected, strict=False):
        tabled = row.method and row.algorithm not in _UNTABLED
        unlike = tabled and row.method != other.method
        texts.append((row.case.nbytes, f"NCCL chose {row.method}, but its table says {other.method}" if unlike else ""))
    return [f"{words}, at {where}" for words, where in _by_words(texts).items()]


def _by_words(texts: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return the sizes of each text, with ranges of neighbours: `64 KiB, 1 MiB to 4 MiB`; empty texts are left out."""
    places: dict[str, list[str]] = {}
    for words, alike in groupby(sorted(texts), key=itemgetter(1)):
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
    """Compare every case and implementation with a time in both runs.

    Args:
        base: The run to compare with.
        new: The run to judge.
        margin: Relative slowdown that counts as equal; by default 5 %, or more for logs that scatter.
        confidence: Confidence of all intervals together.
        selected: Whether to compare a case and implementation; by default all are compared.

    Returns:
        A ratio of times (new / base) with an interval and a word for every row, and for all sizes of a curve.

    """
    pairs = _pairs(base, new, selected)
    # Logs have few digits: one time may be equal by chance, but hardly several.
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
        remarks = ["BASE and NEW have the same times: they are one run"]
    else:
        # Two machines differ more at one size than at the next, which is no scatter.
        twins = _twins(pairs) if headers.several_machines((base.header, new.header)) else {}
        ratios, remarks = _estimates(pairs, max(1, base.header.sweep.starts) if halves else 0, twins)
        for name, run in (("BASE", base), ("NEW", new)):
            if scattered := scatter_in_words(run.cases):
                remarks.append(f"{name} has {scattered}: the medians are compared")
        if margin is None:
            passes = max(usual, _margin(ratios, confidence))
        if passes > usual:
            margin_from = f"margin {passes:.0%}, from {_SOURCES[bool(twins)]}"
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


Ratios = dict[Pair, LogRatio]
Twins = dict[int, list[float]]


def _twins(pairs: Sequence[Pair]) -> Twins:
    """Return the squared deviations of ratios by size, from in-place and out-of-place times of both runs."""
    squares = defaultdict(list)
    groups = by_key(pairs, lambda pair: (replace(pair.base.case, in_place=False), pair.base.implementation))
    for twins in groups.values():
        for one, other in pairwise(twins):
            logs = [math.log(first / second) for first, second in zip(one.seconds, other.seconds, strict=True)]
            squares[one.nbytes].append(sum(log**2 for log in logs) / 2)
    return squares


def _estimates(pairs: Sequence[Pair], starts: int, twins: Twins) -> tuple[Ratios, list[str]]:
    """Return estimates and remarks; `starts` is that of an interleaved run's ranks, 0 for successive runs."""
    still = [pair for pair in pairs if starts or not pair.moved]
    ratios, remarks = _from_samples([pair for pair in still if pair.sampled], starts)
    if means := [pair for pair in still if pair not in ratios and pair.has_means]:
        of_means = _from_means(means, twins)
        ratios |= of_means
        remarks.append(_without_samples(list(of_means.values()), bool(twins)))
    return _with_outliers(pairs, ratios), remarks


def _from_samples(sampled: Sequence[Pair], starts: int) -> tuple[Ratios, list[str]]:
    halves = [pair.matching_rounds for pair in sampled]
    if starts and halves and all(halves):
        rounds = [bootstrap.paired(*both, starts) for both in halves if both]
        estimates = bootstrap.pooled(rounds)
        if starts > 1:
            estimates = bootstrap.with_starts(estimates, rounds, [pair.curve for pair in sampled])
        extra, remarks = Scatter(), ["both were measured in turn, round by round, so drift of the machine cancels"]
    else:
        # The barrier of one row varies by a quarter between distant cores; a lasting change shows in most rows.
        barriers = median([pair.barriers for pair in sampled] or [1.0])
        estimates = _separate(sampled, _FELT * max(0.0, abs(math.log(barriers)) - _SAME_PLACE))
        extra = bootstrap.scatter(_by_size(zip(sampled, estimates, strict=True)))
        remarks = list(_unlike_machines(barriers, extra.everywhere[0]))
    ratios = {}
    for pair, estimate in zip(sampled, estimates, strict=True):
        here = extra.at(pair.nbytes)
        ratios[pair] = replace(estimate, scatter=here, near=here)
    return ratios, remarks


def _from_means(means: Sequence[Pair], twins: Twins) -> Ratios:
    scatter = bootstrap.of_means(_by_size((pair, pair.log) for pair in means), twins)
    spreads = bootstrap.start_spreads([(pair.curve, pair.rounds) for pair in means], replace(PUBLISHED, freedom=0))
    ratios = {}
    for pair, spread in zip(means, spreads, strict=True):
        repeats = len(pair.base.round_times), len(pair.new.round_times)
        estimate = bootstrap.between_repeats(pair.log, repeats, spread)
        ratios[pair] = replace(estimate, scatter=scatter.at(pair.nbytes), near=scatter.near[pair.nbytes])
    return ratios


def _separate(pairs: Sequence[Pair], moved: float) -> list[LogRatio]:
    """Return the ratios of rows of successive runs; `moved` is the possible change of the machine, as a logarithm."""
    starts = [pair.starts for pair in pairs]
    started = [(pair.curve, logs) for pair, logs in zip(pairs, starts, strict=True) if any(logs)]
    spreads = iter(bootstrap.start_spreads(started))
    estimates = []
    for pair, logs in zip(pairs, starts, strict=True):
        if any(logs):
            # Samples of one start do not show the spread between starts.
            estimate = bootstrap.between_repeats(pair.log, [max(1, len(side)) for side in logs], next(spreads))
            estimate = replace(estimate, shared=estimate.error)
        else:
            estimate = bootstrap.separate(pair.base.times, pair.new.times)
        estimates.append(replace(estimate, moved=moved))
    return estimates


def _with_outliers(pairs: Sequence[Pair], ratios: Ratios) -> Ratios:
    """Mark the sizes that changed alone, or are far more uncertain than the others, as outliers."""
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
    curves = []
    for curve in by_key(values, lambda item: item[0].curve).values():
        points = [(pair.nbytes, value) for pair, value in curve]
        curves.append(sorted(points, key=lambda point: point[0]))
    return curves


def _margin(ratios: Ratios, confidence: float) -> float:
    """Return the margin that the rows of two equal logs pass; 0 for runs with samples or unknown scatter.

    It allows for the chance deviation of the worst row, and for the distance of a row's limit from its ratio.
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
    every = Counter(pair.curve for pair in pairs)
    telling = by_key((pair for pair in pairs if pair in ratios and not ratios[pair].outlier), lambda pair: pair.curve)
    curves = {curve: members for curve, members in telling.items() if len(members) >= FEWEST_SIZES}

    # Bonferroni's correction, so that all intervals hold together.
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
        # If all rows have the same word, so has their mean.
        words = {rows[pair].word for pair in members}
        if words in ({Word.SLOW}, {Word.FAST}):
            judgement = replace(judgement, word=words.pop(), reason="")
        if ratio.high <= _WIDEST * ratio.low:
            wholes.append(Together(*curve, len(members), judgement, every[curve]))
    return list(rows.values()), wholes


def judged(pair: Pair, ratio: Estimate, alone: Estimate, blank: Judgement, margin: float) -> Row:
    """Return the row of a ratio; `alone` is its own interval, `blank` a judgement with name, BASE and limit."""
    if ratio.high > _WIDEST * ratio.low:
        return _unknown(pair, "the interval is wider than 1000 to 1; measure longer", blank)
    return Row(pair.base, pair.new, *pair.seconds, judgement_of(ratio, alone, blank, margin), alone)


def judgement_of(ratio: Estimate, alone: Estimate, blank: Judgement, margin: float) -> Judgement:
    """Judge a ratio by its interval; an interval within the limit is OK, even without 1 in it.

    A row is OK by its own interval, which it then gets (two one-sided tests: D. Schuirmann, 1987).
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
    before, after = pair.seconds
    nothing = Estimate(after / before, math.nan, math.nan)
    return Row(pair.base, pair.new, before, after, replace(blank, reason=why, ratio=nothing))


def mean_ratio(curve: Sequence[LogRatio], confidence: float) -> Estimate:
    """Return the geometric mean of the ratios of a curve, with an interval by the rows' own errors."""
    centre = fmean(estimate.log for estimate in curve)
    reaches, unshared, shared = [], [], []
    for estimate in curve:
        _, low, high = estimate.estimate(confidence, *estimate.scatter)
        reach = math.log(high / low) / 2 - estimate.moved
        error = math.hypot(estimate.error, estimate.scatter[0])
        reaches.append(reach)
        shared.append(reach * estimate.shared / error if error else 0.0)
        unshared.append(reach**2 - shared[-1] ** 2)

    # The error by the start of the ranks, common to all sizes, does not average out; the rest does, though it is
    # correlated between sizes.  All intervals hold at once, so the mean is within the mean of their ends.
    averaged = math.hypot(fmean(shared), math.sqrt(max(0.0, fmean(unshared)) * _ALIKE / len(curve)))
    reach = min(fmean(reaches), averaged) + fmean(estimate.moved for estimate in curve)
    return Estimate(*(math.exp(centre + end) for end in (0, -reach, reach)))


def _why_unknown(pair: Pair) -> str:
    """Return why a ratio has no interval, and the fix."""
    if pair.moved:
        return (
            "the barrier time of the ranks differs in NEW: the machine changed (perhaps a hypervisor moved virtual "
            f"cores); measure again, or in turn ({_IN_TURN})"
        )
    if len(pair.statistics) > 1:
        first, second = pair.statistics
        return f"a {first} and a {second} cannot be compared; give logs of one statistic"
    return f"fewer than {FEWEST} samples; measure more"


def _without_samples(means: Sequence[LogRatio], twins: bool) -> str:
    """Return the source of the intervals of logs in words."""
    typical = math.expm1(median(row.scatter[0] for row in means))
    source = f"{_SOURCES[twins]}, {typical:.1%}"
    if max(row.scatter[1] for row in means) == PUBLISHED.freedom:
        source = f"published repeats, {PUBLISHED.deviation:.1%}, since there are too few sizes to show scatter"
    if repeated := sum(row.error > 0 for row in means):
        source += f", and for {repeated} rows also from the spread of rounds"
    return f"rows without samples ({len(means)}): intervals come from {source}"


def _standing_out(rows: Iterable[Row]) -> list[str]:
    """Name the sizes of a log that changed without their neighbours."""
    changed = [row for row in rows if row.word in (Word.SLOW, Word.FAST)]
    names = dict.fromkeys(f"{row.implementation} at {format_size(row.case.nbytes)}" for row in changed)
    return [f"{', '.join(names)}: stands out from the neighbouring sizes by more than their scatter"] * bool(names)


def _unlike_machines(barriers: float, extra: float) -> Iterator[str]:
    """Yield signs that the machine changed between the runs: scatter of the ratios, and barriers."""
    if extra >= NOTABLE:
        yield (
            f"ratios of neighbouring sizes scatter by {math.expm1(extra):.0%} more than the samples explain; perhaps "
            f"the machine changed between the runs; the intervals include this; {_IN_TURN}"
        )
    if abs(math.log(barriers)) > _SAME_PLACE:
        yield (
            f"a barrier of the ranks takes {barriers:.2f}x as long in NEW; perhaps a hypervisor moved virtual cores; "
            f"the intervals include this; {_IN_TURN}"
        )


def _shared_move(rows: Sequence[Row]) -> list[str]:
    """Return a remark if several implementations changed alike, which may be a change of the machine."""
    moved = [row for row in rows if row.word in (Word.SLOW, Word.FAST)]
    alike = by_key(rows, lambda row: row.implementation).values()
    typical = [median(row.ratio for row in members) for members in alike]
    one_way = len({row.word for row in moved}) == 1 and len(moved) >= 0.8 * len(rows)
    if not one_way or len(typical) < 2 or max(typical) > 1.3 * min(typical):
        return []
    return [
        f"nearly all rows of all {len(typical)} implementations are {moved[0].word.value} (typically "
        f"{median(typical):.2f}x): perhaps the whole machine changed; {_IN_TURN}"
    ]


def _predicted(base: Run, new: Run) -> Iterator[str]:
    for word, run in (("BASE", base), ("NEW", new)):
        if any(isinstance(result, Prediction) for result in run.results):
            more = any(isinstance(result, Observed) for result in run.results)
            yield f"{word} holds {'' if more else 'only '}predictions, which are not judged"
