"""The lesson of some runs in two paragraphs of plain words: only what their numbers say.

The first says who is fastest where and by how much, the second what the sizes do to one curve: what an operation takes
however small it is, and where its bandwidth stops growing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collbench.analysis.crossover import Contest, contests, rivals, winners
from collbench.analysis.fit.runs import Curve
from collbench.cases import Case
from collbench.implementations import is_library, libraries
from collbench.measurement import Prediction
from collbench.observed import Timed
from collbench.outcome import Outcome
from collbench.planned import PlannedStep
from collbench.report.sanitize import Sound
from collbench.units import format_rate, format_seconds, format_size

FLAT = 1.25  # times the time of the smallest size up to which a size hardly counts
FULL = 0.9  # of the highest bandwidth from which on it is as good as reached
CLOSE = 1.05  # times the smallest time that a fitted latency may be, and still describe it
MOST_RANGES = 6  # told in full
FEWEST = 4  # sizes from which on a curve has a shape to speak of


@dataclass(frozen=True)
class Subject:
    """What the lesson is about: one kind of case of one run, the one with the most points."""

    run: Sound
    kind: Case  # of no size
    rows: tuple[Timed, ...]
    others: int  # kinds of case in the report besides

    @property
    def predicted(self) -> bool:
        """Whether nobody measured it."""
        return isinstance(self.rows[0], Prediction)

    def curve(self, name: str) -> list[Timed]:
        """One implementation by size."""
        sizes = {row.case.nbytes: row for row in self.rows if row.implementation == name}
        return [sizes[size] for size in sorted(sizes)]


def paragraphs(runs: Sequence[Sound], fits: Sequence[Sequence[Curve]]) -> tuple[str, str]:
    """Two paragraphs; `fits` has each run's fitted curves."""
    subject = _subject(runs)
    if subject is None:
        return _without_curves(runs)
    place = runs.index(subject.run)
    fitted = {fit.implementation: fit for fit in fits[place] if fit.case == subject.kind}
    return " ".join(_who(subject)), " ".join(_why(subject, fitted))


def _without_curves(runs: Sequence[Sound]) -> tuple[str, str]:
    """Of runs in which no collective alone has a time."""
    every = [result for run in runs for result in run.run.results]
    if every and all(isinstance(result, PlannedStep) for result in every):
        told = "These runs plan the training of a model. Nobody measured any of it: every number is predicted."
        return told, "What the plans come to stands below, under Plans of a training run."
    right = (result for result in every if result.outcome in (Outcome.OK, Outcome.PREDICTED))
    if any(result.case.step or result.case.job for result in right):
        told = "These runs are of steps or of training, which have no curve against message size."
        return told, "What they come to stands below, under Steps and training, and in the table with every row."
    return (
        "There is no lesson in these runs: no row has a time that is known to be right.",
        "The table below has every row, with the reason why it has no time.",
    )


def _subject(runs: Sequence[Sound]) -> Subject | None:
    groups: dict[tuple[int, Case, bool], list[Timed]] = {}
    for number, run in enumerate(runs):
        for rival in rivals(run.run.results):
            key = number, rival.case.kind, isinstance(rival, Prediction)
            groups.setdefault(key, []).append(rival)
    if not groups:
        return None
    best = max(groups, key=lambda key: (not key[2], len(groups[key])))  # what was measured first
    return Subject(runs[best[0]], best[1], tuple(groups[best]), len(groups) - 1)


def _who(subject: Subject) -> Iterator[str]:
    """Sentences of the first paragraph."""
    names = list(dict.fromkeys(row.implementation for row in subject.rows))
    sizes = sorted({row.case.nbytes for row in subject.rows})
    what = f"{len(names)} implementations" if len(names) > 1 else names[0]
    span = f"{len(sizes)} sizes, {format_size(sizes[0])} to {format_size(sizes[-1])}"
    where = f"at {span if len(sizes) > 1 else format_size(sizes[0])} ({subject.run.machine})"
    if subject.predicted:
        yield f"A model says what {what} of {subject.kind.title} should take {where}; nothing of it was measured."
    else:
        yield f"{what} of {subject.kind.title} {'were' if len(names) > 1 else 'was'} measured {where}."
    if len(names) == 1:
        yield f"With {names[0]} alone, there is nobody to compare it with."
        return
    yield from _ranges(subject)
    yield from _against_library(subject)
    if subject.others:
        yield f"The report holds {subject.others} more of such comparisons; this is the one with the most points."


def _ranges(subject: Subject) -> Iterator[str]:
    """Who is fastest where, in as few words as the intervals allow."""
    strict = [span for _, spans in winners(subject.rows) for span in spans]  # by the middles of their bands
    ranges = strict if subject.predicted else _level(subject)
    be = "Expected to be fastest is" if subject.predicted else "Fastest, or level with the fastest, is"
    parts = []
    for first, last, name in ranges:
        where = f"at {format_size(first)}" if first == last else f"from {format_size(first)} to {format_size(last)}"
        parts.append(f"{name} {where}")
    if len(ranges) == 1:
        yield f"{be} {ranges[0][2]} at every size."
    else:
        shown = parts if len(parts) <= MOST_RANGES else [*parts[:3], f"others in {len(parts) - 5} ranges", *parts[-2:]]
        yield f"{be} {', then '.join(shown)}."
    yield from _doubt(subject)


def _level(subject: Subject) -> list[tuple[int, int, str]]:
    """(First size, last size, implementation) in the fewest ranges; who is level with the fastest counts as such."""
    fastest = _fastest(subject)
    sizes = sorted(fastest)
    ranges, place = [], 0
    while place < len(sizes):
        here = fastest[sizes[place]]
        reach = {name: _reach(name, sizes[place:], fastest) for name in here}
        name = max(here, key=lambda name: reach[name])  # of equals the first, which is the fastest
        ranges.append((sizes[place], sizes[place + reach[name] - 1], name))
        place += reach[name]
    return ranges


def _reach(name: str, sizes: Sequence[int], fastest: dict[int, list[str]]) -> int:
    """At how many of the sizes, from the first on, it is among the fastest."""
    return next((count for count, size in enumerate(sizes) if name not in fastest[size]), len(sizes))


def _fastest(subject: Subject) -> dict[int, list[str]]:
    """For each size the fastest and those whose interval overlaps its own, by time."""
    fastest = {}
    for size in {row.case.nbytes for row in subject.rows}:
        here = {row.implementation: row for row in subject.rows if row.case.nbytes == size}
        first, *rest = sorted(here.values(), key=lambda row: row.typical)
        fastest[size] = [first.implementation, *(row.implementation for row in rest if row.band[0] <= first.band[1])]
    return fastest


def _doubt(subject: Subject) -> Iterator[str]:
    """At how many sizes the bands of the two fastest overlap, so that the second may as well be the first."""
    fastest = _fastest(subject)
    level = sum(len(names) > 1 for names in fastest.values())
    bands = "bands" if subject.predicted else "95 % intervals"
    if level:
        yield f"At {level} of {len(fastest)} sizes the two fastest are level: their {bands} overlap."


def _against_library(subject: Subject) -> Iterator[str]:
    """The best gain and the worst loss against the library, over all contests."""
    every = contests(subject.rows, libraries())
    for library in dict.fromkeys(contest.library for contest in every):
        own = [contest for contest in every if contest.library == library]
        best = max(own, key=lambda contest: max(ratio for _, ratio in contest.speedups))
        size, ratio = max(best.speedups, key=lambda speedup: speedup[1])
        if ratio > 1:
            gain = f"{ratio:.2g} times as fast at {format_size(size)}"
            yield f"The largest gain over {library}, the library, is that of {best.challenger}: {gain}."
        else:
            yield f"None is faster than {library}, the library, at any size."
        yield from _at_the_end(own, library)


def _at_the_end(own: Sequence[Contest], library: str) -> Iterator[str]:
    """Who is ahead of the library at the largest size that all have in common."""
    last = max(contest.speedups[-1][0] for contest in own)
    there = {contest.challenger: contest.speedups[-1][1] for contest in own if contest.speedups[-1][0] == last}
    ahead = [name for name, ratio in there.items() if ratio > 1]
    top = max(there, key=lambda name: there[name])
    if ahead:
        some = f"all {len(there)}" if len(ahead) == len(there) else f"{len(ahead)} of {len(there)}"
        many = f"{some} hand-written ones are" if len(there) > 1 else f"{top} is"
        yield f"At {format_size(last)} {many} ahead of {library}, at most by {there[top]:.2g} times ({top})."
    else:
        yield f"At {format_size(last)} {library} is ahead of all of them, {1 / there[top]:.2g} times as fast as {top}."


def _why(subject: Subject, fitted: dict[str, Curve]) -> Iterator[str]:
    """Sentences of the second paragraph, about the library if there is one, and the fastest at the largest size."""
    largest = max(row.case.nbytes for row in subject.rows)
    fastest = min((row for row in subject.rows if row.case.nbytes == largest), key=lambda row: row.typical)
    known = [row.implementation for row in subject.rows if is_library(row.implementation)]
    told = False
    for name in dict.fromkeys((*known[:1], fastest.implementation)):
        rows = subject.curve(name)
        if len(rows) >= FEWEST:
            yield from _flat(name, rows, subject.predicted)
            yield from _fit(name, rows, fitted.get(name))
            yield from _saturation(name, rows, subject.predicted)
            told = True
    if not told:
        yield f"With fewer than {FEWEST} sizes of an implementation, nothing can be said of what the size does to it."


def _flat(name: str, rows: Sequence[Timed], predicted: bool) -> Iterator[str]:
    """Up to where the time hardly depends on the size: there latency is all that counts."""
    first = rows[0]
    flat = next((before for before, after in pairwise(rows) if after.typical > FLAT * first.typical), rows[-1])
    if flat is first:
        flat = rows[1]
    longer, larger = flat.typical / first.typical, flat.case.nbytes / first.case.nbytes
    more = f"{larger:,.0f}" if larger >= 10 else f"{larger:.2g}"
    sizes = f"{format_size(flat.case.nbytes)} {'should take' if predicted else 'takes'} {longer:.2g} times the time of"
    yield f"With {name}, {sizes} {format_size(first.case.nbytes)}, and has {more} times the bytes" + (
        ": there latency is what counts, the time to start and to wait for other ranks." if larger > 8 * longer else "."
    )


def _fit(name: str, rows: Sequence[Timed], curve: Curve | None) -> Iterator[str]:
    """Latency and rate of its fit, where neither is extrapolated."""
    if curve is None or curve.fit is None:
        return
    fit, beyond = curve.fit, " ".join(curve.warnings())
    share = fit.latency / rows[0].typical
    if "latency" not in beyond and share <= CLOSE:
        low, high = map(format_seconds, fit.latency_interval())
        part = f"{min(share, 1):.0%} of the time at {format_size(rows[0].case.nbytes)}"
        yield f"The latency of its fitted curve, {format_seconds(fit.latency)} (90 %: {low} to {high}), is {part}."
    if "rate" not in beyond and math.isfinite(fit.rate):
        low, high = map(format_rate, fit.rate_interval())
        bends = math.isfinite(fit.bend)
        where = f"Beyond {format_size(fit.bend)}, where it bends, the" if bends else "The"
        yield f"{where} bandwidth of its fitted curve tends to {format_rate(fit.rate)} GB/s (90 %: {low} to {high})."


def _saturation(name: str, rows: Sequence[Timed], predicted: bool) -> Iterator[str]:
    """Where half of the highest bandwidth is reached, and whether it still grows at the end."""
    peak = max(rows, key=lambda row: row.algbw)
    half = next(row for row in rows if row.algbw >= peak.algbw / 2)
    full = next(row for row in rows if row.algbw >= FULL * peak.algbw)
    last, stays = rows[-1], all(row.algbw >= FULL * peak.algbw for row in rows[rows.index(full) :])
    expected = "expected " if predicted else ""
    peak_at, half_at = format_size(peak.case.nbytes), format_size(half.case.nbytes)
    bandwidth = f"{format_rate(peak.algbw)} GB/s of the array"
    reached = f"half of that is reached at {half_at}" if half is not peak else "no smaller size has half of that"
    yield f"Its highest {expected}bandwidth, {bandwidth}, is at {peak_at}; {reached}."
    if last.algbw < FULL * peak.algbw:
        yield f"Larger messages lose again: at {format_size(last.case.nbytes)} {format_rate(last.algbw)} GB/s are left."
    elif full is last:
        yield "It has not stopped growing at the largest size, so more may be had with larger ones."
    else:
        yield f"From {format_size(full.case.nbytes)} on {'all sizes are' if stays else 'it is'} " + (
            f"within {1 - FULL:.0%} of that: there bandwidth is the limit, and a larger message only takes longer."
        )
