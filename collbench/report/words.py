"""The lesson of some runs in two paragraphs of plain words: only what their numbers say.

The first says who is fastest where and by how much, the second what the sizes do to one curve: what an operation takes
however small it is, and where its bandwidth stops growing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.crossover import Contest, contests, winners
from collbench.analysis.fitted import Curve
from collbench.measurement import Prediction, Timed, timed
from collbench.report.data import libraries
from collbench.report.sound import Sound
from collbench.sweep import Case
from collbench.table import title
from collbench.units import format_rate, format_seconds, format_size

FLAT = 1.25  # times the time of the smallest size up to which a size hardly counts
FULL = 0.9  # of the highest bandwidth from which on it is as good as reached
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
        sizes = {each.case.nbytes: each for each in self.rows if each.implementation == name}
        return [sizes[size] for size in sorted(sizes)]


def lesson(runs: Sequence[Sound], fits: Sequence[Sequence[Curve]]) -> tuple[str, str]:
    """Two paragraphs; `fits` has each run's fitted curves."""
    subject = _subject(runs)
    if subject is None:
        return (
            "There is no lesson in these runs: no row has a time that is known to be right.",
            "The table below has every row, with the reason why it has no time.",
        )
    place = runs.index(subject.run)
    fitted = {each.implementation: each for each in fits[place] if each.case == subject.kind}
    return " ".join(_who(subject)), " ".join(_why(subject, fitted))


def _subject(runs: Sequence[Sound]) -> Subject | None:
    groups: dict[tuple[int, Case, bool], list[Timed]] = {}
    for number, run in enumerate(runs):
        for each in timed(run.run.results):
            if each.case.nbytes:
                key = number, replace(each.case, nbytes=0), isinstance(each, Prediction)
                groups.setdefault(key, []).append(each)
    if not groups:
        return None
    best = max(groups, key=lambda key: (not key[2], len(groups[key])))  # what was measured first
    return Subject(runs[best[0]], best[1], tuple(groups[best]), len(groups) - 1)


def _who(subject: Subject) -> Iterator[str]:
    """Sentences of the first paragraph."""
    names = list(dict.fromkeys(each.implementation for each in subject.rows))
    sizes = sorted({each.case.nbytes for each in subject.rows})
    what = f"{len(names)} implementations" if len(names) > 1 else names[0]
    how = "is what a model expects of" if subject.predicted else "was measured with"
    span = format_size(sizes[0]) + (f" to {format_size(sizes[-1])}" if len(sizes) > 1 else "")
    yield f"On {subject.run.machine}, {title(subject.kind)} {how} {what} at {len(sizes)} sizes, {span}."
    if len(names) == 1:
        yield f"With {names[0]} alone, there is nobody to compare it with."
        return
    yield from _ranges(subject)
    yield from _against_library(subject)
    if subject.others:
        yield f"The report holds {subject.others} more of such comparisons; this is the one with the most points."


def _ranges(subject: Subject) -> Iterator[str]:
    ((_, ranges),) = winners(list(subject.rows))  # type: ignore[arg-type]
    be = "is expected to be fastest" if subject.predicted else "is fastest"
    parts = []
    for first, last, name in ranges:
        where = f"at {format_size(first)}" if first == last else f"from {format_size(first)} to {format_size(last)}"
        parts.append(f"{name} {where}")
    if len(ranges) == 1:
        yield f"{ranges[0][2]} {be} at every size."
    else:
        shown = parts if len(parts) <= 6 else [*parts[:3], f"others in {len(parts) - 5} more ranges", *parts[-2:]]
        yield (
            f"The fastest is {', then '.join(shown)}."
            if not subject.predicted
            else (f"Expected to be fastest is {', then '.join(shown)}.")
        )
    yield from _doubt(subject)


def _doubt(subject: Subject) -> Iterator[str]:
    """At how many sizes the bands of the two fastest overlap, so that the second may as well be the first."""
    level = compared = 0
    for size in {each.case.nbytes for each in subject.rows}:
        here = {each.implementation: each for each in subject.rows if each.case.nbytes == size}
        first, *rest = sorted(here.values(), key=lambda each: each.typical)
        if rest and first.band[1] == first.band[1] and rest[0].band[0] == rest[0].band[0]:
            compared += 1
            level += first.band[1] >= rest[0].band[0]
    bands = "bands" if subject.predicted else "intervals"
    if level:
        yield f"At {level} of {compared} sizes the two fastest are level: their {bands} overlap."
    elif compared:
        yield f"The {bands} of the two fastest are apart at every size."


def _against_library(subject: Subject) -> Iterator[str]:
    """The best gain and the worst loss against the library, over all contests."""
    found = contests(subject.rows, libraries())
    for library in dict.fromkeys(each.library for each in found):
        own = [each for each in found if each.library == library]
        best = max(own, key=lambda each: max(ratio for _, ratio in each.speedups))
        size, ratio = max(best.speedups, key=lambda each: each[1])
        if ratio > 1:
            part = f"{ratio:.2g} times as fast as {library}, the library, at {format_size(size)}"
            yield (
                f"The largest gain over it is that of {best.challenger}: {part}."
                if not library
                else (
                    f"The largest gain over the library is that of {best.challenger}, {part.replace(', the library,', '')}."
                )
            )
        else:
            yield f"None is faster than {library}, the library, at any size."
        yield from _at_the_end(own, library)


def _at_the_end(own: Sequence[Contest], library: str) -> Iterator[str]:
    """Who is ahead of the library at the largest size that all have in common."""
    last = max(each.speedups[-1][0] for each in own)
    there = {each.challenger: each.speedups[-1][1] for each in own if each.speedups[-1][0] == last}
    ahead = [name for name, ratio in there.items() if ratio > 1]
    top = max(there, key=lambda name: there[name])
    if ahead:
        many = f"{len(ahead)} of {len(there)} hand-written ones are" if len(there) > 1 else f"{top} is"
        yield f"At {format_size(last)} {many} ahead of {library}, at most by {there[top]:.2g} times ({top})."
    else:
        yield f"At {format_size(last)} {library} is ahead of all of them, {1 / there[top]:.2g} times as fast as {top}."


def _why(subject: Subject, fitted: dict[str, Curve]) -> Iterator[str]:
    """Sentences of the second paragraph, about the library if there is one, and the fastest at the largest size."""
    largest = max(each.case.nbytes for each in subject.rows)
    fastest = min((each for each in subject.rows if each.case.nbytes == largest), key=lambda each: each.typical)
    known = [each.implementation for each in subject.rows if each.implementation in libraries()]
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
    flat = first
    for each in rows[1:]:
        if each.typical > FLAT * first.typical:
            break
        flat = each
    if flat is first:
        times = f"{rows[1].typical / first.typical:.2g} times the time of {format_size(first.case.nbytes)}"
        yield f"With {name}, the second smallest size, {format_size(rows[1].case.nbytes)}, already takes {times}."
        return
    bytes_more = flat.case.nbytes / first.case.nbytes
    times = f"{flat.typical / first.typical:.2f} times the time of {format_size(first.case.nbytes)}"
    take = "should take" if predicted else "takes"
    yield (
        f"With {name}, {format_size(flat.case.nbytes)} {take} {times} although it has {bytes_more:,.0f} times the bytes: "
        f"for small messages the time goes to starting and to waiting for other ranks, which is latency, and not to bytes."
    )


def _fit(name: str, rows: Sequence[Timed], curve: Curve | None) -> Iterator[str]:
    """Latency and rate of its fit, where neither is extrapolated."""
    if curve is None or curve.fit is None:
        return
    found, beyond = curve.fit, " ".join(curve.warnings())
    if "latency" not in beyond:
        share = min(1.0, found.latency / rows[0].typical)
        low, high = map(format_seconds, found.latency_interval())
        yield (
            f"Its fitted latency, {format_seconds(found.latency)} ({low} to {high}), is {share:.0%} of the time at "
            f"{format_size(rows[0].case.nbytes)}."
        )
    if "rate" not in beyond:
        low, high = map(format_rate, found.rate_interval())
        yield f"Fitted to all sizes, its bandwidth tends to {format_rate(found.rate)} GB/s ({low} to {high})."


def _saturation(name: str, rows: Sequence[Timed], predicted: bool) -> Iterator[str]:
    """Where half of the highest bandwidth is reached, and whether it still grows at the end."""
    peak = max(rows, key=lambda each: each.algbw)
    half = next(each for each in rows if each.algbw >= peak.algbw / 2)
    full = next(each for each in rows if each.algbw >= FULL * peak.algbw)
    last = rows[-1]
    expected = "expected " if predicted else ""
    size = format_size(half.case.nbytes)
    yield f"Half of its highest {expected}bandwidth, {format_rate(peak.algbw)} GB/s of the array at " + (
        f"{format_size(peak.case.nbytes)}, is reached by {size}."
    )
    if last.algbw < FULL * peak.algbw:
        yield f"Larger messages lose again: at {format_size(last.case.nbytes)} {format_rate(last.algbw)} GB/s are left."
    elif full is last:
        yield "It has not stopped growing at the largest size, so more may be had with larger ones."
    else:
        yield f"From {format_size(full.case.nbytes)} on {'all sizes are' if _stays(rows, full, peak) else 'it is'} " + (
            f"within {1 - FULL:.0%} of that: there bandwidth is the limit, and a larger message only takes longer."
        )


def _stays(rows: Sequence[Timed], full: Timed, peak: Timed) -> bool:
    return all(each.algbw >= FULL * peak.algbw for each in rows if each.case.nbytes >= full.case.nbytes)
