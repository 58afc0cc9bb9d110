"""What the report says above the curves and next to them: title and status of each run, its verdict, the lesson.

The verdict says whether the numbers are right, which implementation is fastest where, and where the time goes; the
lesson, what the message size does to the time.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from collbench.algorithms import is_library, libraries
from collbench.analysis.crossover import contests, format_span, rivals, winners
from collbench.analysis.fit import Curve
from collbench.analysis.verdict import Health
from collbench.cases import Case
from collbench.reports.analysed import AnalysedRun
from collbench.reports.sanitize import SafeRun, safe_text
from collbench.reports.sections import Part, by_run, distinct, explained, listed
from collbench.results import (
    PARTS,
    Outcome,
    PlannedStep,
    Timed,
)
from collbench.runfile.store import INTERRUPTED
from collbench.units import format_rate, format_seconds, format_size

FIRST = 6  # sentences of steps, plans or explanations in the verdict; later ones stay with their tables
_MOST_RANGES = 6  # of sizes that are listed in full
_ORDER = (Health.SLOW, Health.FASTER, Health.AS_EXPECTED, Health.UNKNOWN)


# ---- title and status


class About(NamedTuple):
    """A run below the title."""

    label: str
    statuses: list[str]  # each a class of report.css: measured, imported, predicted
    partial: str  # what is missing of it
    machine: str
    facts: list[str]


def title_of(runs: Sequence[SafeRun]) -> str:
    """Return the title of the page: collectives and machines."""
    subjects = []
    for run in runs:
        for result in run.every:
            # The collective of a plan stands for its gradients only.
            subjects.append("training plan" if isinstance(result, PlannedStep) else result.case.collective.name)
    machines = distinct(run.machine for run in runs)
    return f"{listed(distinct(subjects)) or 'collectives'}: {listed(machines, '; ')}"


def about(run: SafeRun) -> About:
    """Return what a run's numbers are, how many rows there are, who printed them, and when it was started."""
    header = run.run.header
    facts = [f"{len(run.every):,} row{'' if len(run.every) == 1 else 's'}"]
    if tool := " ".join(filter(None, (header.imported.tool, header.imported.version))):
        facts.append(f"from {safe_text(tool, 60)}")
    if header.started:
        facts.append(f"started {safe_text(header.started, 40)}")
    partial = "" if header.imported.complete else "partial: the log was cut off"
    if not run.run.complete:
        partial = "partial: the run was cut off"
    elif (run.run.status or 0) >= INTERRUPTED:
        partial = "partial: the run was interrupted"
    return About(run.label, statuses(run), partial, run.machine, facts)


def statuses(run: SafeRun) -> list[str]:
    """Return how a run's numbers came to be known: `measured`, `imported`, `predicted`, or `no numbers`."""
    origins = {result.origin for result in run.every}
    return [status for status in ("measured", "imported", "predicted") if status in origins] or ["no numbers"]


# ---- the kind of case that words are about


@dataclass(frozen=True)
class Subject:
    """One kind of case of one run."""

    run: SafeRun
    kind: Case  # of no size
    rows: tuple[Timed, ...]

    @property
    def predicted(self) -> bool:
        """Whether nothing was measured."""
        return self.rows[0].predicted

    @property
    def names(self) -> list[str]:
        """Its implementations, in their order."""
        return distinct(row.implementation for row in self.rows)

    def curve(self, name: str) -> list[Timed]:
        """Return the results of an implementation by size."""
        sizes = {row.case.nbytes: row for row in self.rows if row.implementation == name}
        return [sizes[size] for size in sorted(sizes)]


def subject_of(runs: Sequence[SafeRun]) -> Subject | None:
    """Return the kind of case with the most points, a measured before a predicted; None if no collective has a time."""
    groups: dict[tuple[int, Case, bool], list[Timed]] = {}
    for number, run in enumerate(runs):
        for row in rivals(run.run.results):
            groups.setdefault((number, row.case.kind, row.predicted), []).append(row)
    if not groups:
        return None
    best = max(groups, key=lambda key: (not key[2], len(groups[key])))
    return Subject(runs[best[0]], best[1], tuple(groups[best]))


# ---- the verdict


def verdict(
    analysed: Sequence[AnalysedRun], parts: Sequence[tuple[str, Part]], which: Part | None
) -> list[tuple[str, Part]]:
    """Return sentences about all runs side by side, then about each.

    Args:
        analysed: The runs.
        parts: Steps and plans of the runs, by the labels that `by_run` gives them.
        which: The interconnects of the runs.

    """

    def of_run(run: AnalysedRun) -> Part:
        label = run.label if len(analysed) > 1 else ""
        sentences = [*_spoilt(run)]
        for name, part in parts:
            if name == label:
                sentences += part.words[:FIRST]
        sentences += [*_fastest(run), *_right(run), *_spent(run)]
        return Part(sentences or ["no row has a time that is known to be right"])

    together = [("all runs", Part(which.words[:1]))] if which else []
    return together + by_run(analysed, of_run)


def _spoilt(run: AnalysedRun) -> Iterator[str]:
    """Yield how many rows are not as they should be."""
    outcomes = [result.outcome for result in run.safe.every]
    counts = {
        "wrong": outcomes.count(Outcome.WRONG),
        "failed": outcomes.count(Outcome.FAILED),
        "not usable": len(run.safe.odd) + len(run.safe.unread),
    }
    spoilt = [f"{count:,} {name}" for name, count in counts.items() if count]
    if spoilt:
        yield f"of {len(outcomes) + len(run.safe.unread):,} rows {', '.join(spoilt)}"


def _right(run: AnalysedRun) -> Iterator[str]:
    """Yield what `collbench diagnose` says of the curves, those that are slow first."""
    if not run.verdicts:
        return
    if run.system is None:
        yield f"unknown whether that is right for the machine: {run.why_not}"
        return
    for health in _ORDER:
        curves = [curve for curve in run.verdicts if curve.verdict is health]
        because = next((f"; {curve.because[0]}" for curve in curves if curve.because), "")
        if curves:
            names = listed(distinct(curve.implementation for curve in curves))
            yield f"{health.value} for {safe_text(run.system.title)}: {names}{because}"


def _fastest(run: AnalysedRun) -> Iterator[str]:
    """Yield which implementation is fastest where and by how much; of an implementation alone, what it takes."""
    subject = subject_of([run.safe])
    if subject is None:
        return
    if len(subject.names) == 1:
        yield _alone(subject)
        return
    ranges = [span for _, spans in winners(subject.rows) for span in spans]
    fastest = f"{subject.kind.title}: {'should be fastest' if subject.predicted else 'fastest'}"
    if len(ranges) == 1:
        span = ranges[0]
        yield f"{fastest} at every size, {format_span(span.first, span.last)}: {' or '.join(span.names)}"
    else:
        parts = [str(span) for span in ranges]
        if len(parts) > _MOST_RANGES:
            parts = [*parts[:3], f"others in {len(parts) - 5} ranges", *parts[-2:]]
        yield f"{fastest}: {'; '.join(parts)}"
    yield from _against_library(subject)


def _alone(subject: Subject) -> str:
    """Return `nccl takes 13.2 us at 8 B, 8.02 ms at 2 GiB, which is 267.8 GB/s of the array`."""
    curve = subject.curve(subject.names[0])
    ends = [curve[0], curve[-1]] if len(curve) > 1 else curve
    times = ", ".join(f"{format_seconds(row.typical)} at {format_size(row.case.nbytes)}" for row in ends)
    verb = "should take" if subject.predicted else "takes"
    rate = f", which is {format_rate(ends[-1].algbw)} GB/s of the array" if subject.kind.collective.sized else ""
    return f"{subject.kind.title}: {subject.names[0]} {verb} {times}{rate}"


def _against_library(subject: Subject) -> Iterator[str]:
    """Yield the largest gain over each library, or that there is none."""
    every = contests(subject.rows, libraries())
    for library in distinct(contest.library for contest in every):
        known = []
        for contest in every:
            if contest.library == library:
                known += [(point, contest.challenger) for point in contest.points if point.sign]
        point, challenger = max(known, key=lambda pair: pair[0].ratio, default=(None, ""))
        if point is None:
            yield f"none is distinguishable from {library}, the library, at any size"
        elif point.sign > 0:
            yield f"the largest gain over {library}, the library, is that of {challenger}: {point}"
        else:
            yield f"none is faster than {library}, the library, at any size, as far as intervals tell"


def _spent(run: AnalysedRun) -> Iterator[str]:
    """Yield what takes most of the time of the first explained operations."""
    for result in explained(run)[:FIRST]:
        most = max(PARTS, key=result.share)
        operation = f"{result.implementation}, {format_size(result.case.nbytes)}: {format_seconds(result.seconds)}"
        yield f"{operation}, of which most goes to {most}, {result.share(most):.0%}"


# ---- the lesson

_FLAT = 1.25  # times the time of the smallest size up to which a size hardly counts
_FULL = 0.9  # of the highest bandwidth from which on it is as good as reached
_CLOSE = 1.05  # times the smallest time that a fitted latency may be, and still describe it
_FEWEST = 4  # sizes from which on a curve has a shape to speak of


def lesson(analysed: Sequence[AnalysedRun]) -> tuple[str, list[str]] | None:
    """Return what the size does to the time: a kind of case, sentences about the library, and about the fastest.

    That is the fastest at the largest size; None where no curve has a shape.
    """
    runs = [run.safe for run in analysed]
    subject = subject_of(runs)
    if subject is None:
        return None
    curves = analysed[runs.index(subject.run)].curves
    fits = {curve.implementation: curve for curve in curves if curve.case == subject.kind}
    largest = max(row.case.nbytes for row in subject.rows)
    fastest = min((row for row in subject.rows if row.case.nbytes == largest), key=lambda row: row.typical)
    known = [row.implementation for row in subject.rows if is_library(row.implementation)]
    sentences: list[str] = []
    for name in distinct([*known[:1], fastest.implementation]):
        rows = subject.curve(name)
        if len(rows) >= _FEWEST:
            sentences.append(_flat(name, rows, subject.predicted))
            sentences += [*_fit(name, rows, fits.get(name)), *_saturation(rows, subject.predicted)]
    label = f"{subject.run.label}: " if len(runs) > 1 else ""
    return (f"{label}{subject.kind.title}", sentences) if sentences else None


def _flat(name: str, rows: Sequence[Timed], predicted: bool) -> str:
    """Return up to where the time hardly depends on the size: there latency is all that counts."""
    first = rows[0]
    flat = next((before for before, after in pairwise(rows) if after.typical > _FLAT * first.typical), rows[-1])
    if flat is first:
        flat = rows[1]
    longer, larger = flat.typical / first.typical, flat.case.nbytes / first.case.nbytes
    more = f"{larger:,.0f}" if larger >= 10 else f"{larger:.2g}"
    times = "the time of" if f"{longer:.2g}" == "1" else f"{longer:.2g} times the time of"
    verb = "should take" if predicted else "takes"
    sizes = f"{format_size(flat.case.nbytes)} {verb} {times} {format_size(first.case.nbytes)}"
    latency = ": there latency is what counts, the time to start and to wait for other ranks"
    return f"With {name}, {sizes}, and has {more} times the bytes{latency if larger > 8 * longer else ''}."


def _fit(name: str, rows: Sequence[Timed], curve: Curve | None) -> Iterator[str]:
    """Yield latency and rate of a curve's fit, where neither is extrapolated."""
    if curve is None or curve.fit is None:
        return
    fit, beyond = curve.fit, " ".join(curve.warnings())
    share = fit.latency / rows[0].typical
    if "latency" not in beyond and share <= _CLOSE:
        low, high = map(format_seconds, fit.latency_interval())
        part = f"{min(share, 1):.0%} of the time at {format_size(rows[0].case.nbytes)}"
        yield f"The latency of its fitted curve, {format_seconds(fit.latency)} (90 %: {low} to {high}), is {part}."
    if "rate" not in beyond and math.isfinite(fit.rate):
        low, high = map(format_rate, fit.rate_interval())
        where = f"Beyond {format_size(fit.bend)}, where it bends, the" if math.isfinite(fit.bend) else "The"
        yield f"{where} bandwidth of its fitted curve tends to {format_rate(fit.rate)} GB/s (90 %: {low} to {high})."


def _saturation(rows: Sequence[Timed], predicted: bool) -> Iterator[str]:
    """Yield where half of the highest bandwidth is reached, and whether it still grows at the end."""
    peak = max(rows, key=lambda row: row.algbw)
    half = next(row for row in rows if row.algbw >= peak.algbw / 2)
    full = next(row for row in rows if row.algbw >= _FULL * peak.algbw)
    last = rows[-1]
    bandwidth = f"{'expected ' if predicted else ''}bandwidth, {format_rate(peak.algbw)} GB/s of the array"
    smaller = f"half of that is reached at {format_size(half.case.nbytes)}"
    reached = smaller if half is not peak else "no smaller size has half of that"
    yield f"Its highest {bandwidth}, is at {format_size(peak.case.nbytes)}; {reached}."
    if last.algbw < _FULL * peak.algbw:
        yield f"Larger messages lose again: at {format_size(last.case.nbytes)} {format_rate(last.algbw)} GB/s are left."
    elif full is last:
        yield "It has not stopped growing at the largest size, so more may be had with larger ones."
    else:
        stays = all(row.algbw >= _FULL * peak.algbw for row in rows[rows.index(full) :])
        where = (
            f"From {format_size(full.case.nbytes)} on {'all sizes are' if stays else 'it is'} within {1 - _FULL:.0%}"
        )
        yield f"{where} of that: there bandwidth is the limit, and a larger message only takes longer."
