"""What the size does to a curve, in words: the time of an operation however small, where bandwidth stops growing."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from collbench.algorithms import is_library
from collbench.analysis.fit import Curve
from collbench.report.sanitize import Sound
from collbench.report.subject import Subject, subject_of
from collbench.results import Timed
from collbench.units import format_rate, format_seconds, format_size

FLAT = 1.25  # times the time of the smallest size up to which a size hardly counts
FULL = 0.9  # of the highest bandwidth from which on it is as good as reached
CLOSE = 1.05  # times the smallest time that a fitted latency may be, and still describe it
FEWEST = 4  # sizes from which on a curve has a shape to speak of


class Lesson(NamedTuple):
    """Sentences about one kind of case of one run."""

    about: str
    sentences: list[str]


def lesson(runs: Sequence[Sound], fits: Sequence[Sequence[Curve]]) -> Lesson | None:
    """Of the runs' main subject; `fits` has each run's fitted curves.  None where no curve has a shape."""
    subject = subject_of(runs)
    if subject is None:
        return None
    place = runs.index(subject.run)
    fitted = {fit.implementation: fit for fit in fits[place] if fit.case == subject.kind}
    label = f"{subject.run.label}: " if len(runs) > 1 else ""
    sentences = [*_why(subject, fitted)]
    return Lesson(f"{label}{subject.kind.title}", sentences) if sentences else None


def _why(subject: Subject, fitted: dict[str, Curve]) -> Iterator[str]:
    """About the library if there is one, and the fastest at the largest size."""
    largest = max(row.case.nbytes for row in subject.rows)
    fastest = min((row for row in subject.rows if row.case.nbytes == largest), key=lambda row: row.typical)
    known = [row.implementation for row in subject.rows if is_library(row.implementation)]
    for name in dict.fromkeys((*known[:1], fastest.implementation)):
        rows = subject.curve(name)
        if len(rows) >= FEWEST:
            yield from _flat(name, rows, subject.predicted)
            yield from _fit(name, rows, fitted.get(name))
            yield from _saturation(name, rows, subject.predicted)


def _flat(name: str, rows: Sequence[Timed], predicted: bool) -> Iterator[str]:
    """Up to where the time hardly depends on the size: there latency is all that counts."""
    first = rows[0]
    flat = next((before for before, after in pairwise(rows) if after.typical > FLAT * first.typical), rows[-1])
    if flat is first:
        flat = rows[1]
    longer, larger = flat.typical / first.typical, flat.case.nbytes / first.case.nbytes
    more = f"{larger:,.0f}" if larger >= 10 else f"{larger:.2g}"
    taken = "the time of" if f"{longer:.2g}" == "1" else f"{longer:.2g} times the time of"
    sizes = f"{format_size(flat.case.nbytes)} {'should take' if predicted else 'takes'} {taken}"
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
