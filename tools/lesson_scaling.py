"""The numbers of docs/lesson-scaling.md, from runs of `scale`, `overlap`, `jitter`, `styles` and narrower wires.

A title is one of

    MODE speed-up|efficiency of A at N ranks        with its interval
    MODE computing|waiting|exposed of A at N ranks  share of a step
    MODE slower computing of A at N ranks           how many times as long as on the fewest ranks
    step|exposed|gain of A by SCHEDULE              with the fastest size of bucket
    bound of A                                      the longer part of a step alone
    late|last|costs of rank R by A                  in seconds, and as shares of steps and of time
    seconds|steps of A / B                          to the loss that styles race to
    max|RMS|bias|bias fed of A                      errors of a narrower wire
    A pays over exact|library                       the size from which a narrower wire does
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

from collbench.analysis.wires import Tradeoff, tradeoffs
from collbench.commands.step.overlap import Overlap, overlaps
from collbench.commands.step.scaling import Curve, Point, curves, share_of
from collbench.commands.step.stragglers import StepArrays, straggler_test
from collbench.commands.step.trained import Effort, Ranking, StrategyRuns, ranking
from collbench.results import Result, StepTimes
from collbench.runfile.store import read
from collbench.units import format_seconds, format_size
from tools import ROOT

RESULTS = ROOT / "results"
T = TypeVar("T")


@cache
def _results(folder: Path) -> tuple[Result, ...]:
    return tuple(read(folder).results)


def _the(found: Iterable[T]) -> T:
    """The only one; KeyError if there is another or none, since a number must have one meaning."""
    every = list(found)
    if len(every) != 1:
        raise KeyError(f"{len(every)} results")
    return every[0]


@cache
def _curves(folder: Path) -> tuple[Curve, ...]:
    return tuple(curves(_results(folder)))


def _point(folder: Path, mode: str, name: str, ranks: str) -> tuple[Curve, Point]:
    every = ((curve, point) for curve in _curves(folder) if curve.mode == mode for point in curve.more)
    return _the(
        (curve, point) for curve, point in every if (point.row.implementation, point.ranks) == (name, int(ranks))
    )


def scaled(folder: Path, mode: str, what: str, name: str, ranks: str) -> str:
    """A point of a scaling."""
    curve, point = _point(folder, mode, name, ranks)
    if what == "speed-up":
        return curve.speedup(point).text(unit="x")
    if what == "efficiency":
        return point.efficiency.scaled(100).text(unit="%")
    row, base = point.row, curve.base.row
    if what == "slower computing":
        return f"{row.computing() / base.computing() / share_of(base, row):.2f}x"
    parts = {"computing": row.computing(), "waiting": row.waiting(), "exposed": row.exposed()}
    return f"{parts[what] / sum(parts.values()):.0%}"


@cache
def _overlaps(folder: Path) -> tuple[Overlap, ...]:
    return tuple(overlaps(_results(folder)))


def fastest(folder: Path, name: str, schedule: str) -> Overlap:
    """By its size of bucket; KeyError if there is none."""
    found = [one for one in _overlaps(folder) if (one.row.implementation, one.step.schedule) == (name, schedule)]
    if not found:
        raise KeyError(f"{name} by {schedule}")
    return min(found, key=lambda one: one.row.typical)


def overlapped(folder: Path, what: str, name: str, schedule: str) -> str:
    """A step that overlaps, or one part after the other."""
    if schedule == "sequential":
        row = next((one.sequential for one in _overlaps(folder) if one.row.implementation == name), None)
        if row and what == "step":
            return format_seconds(row.typical)
        raise KeyError(f"{what} of {name} by {schedule}")
    one = fastest(folder, name, schedule)
    if what == "gain":
        return one.gain.text(unit="x") if one.gain.known else f"{one.gain.value:.2f}x"  # predicted: one number
    return format_seconds(one.row.typical if what == "step" else one.exposed.value)


def bound(folder: Path, name: str) -> str:
    """The longer part alone."""
    bounds = {one.bound for one in _overlaps(folder) if one.row.implementation == name}
    return format_seconds(_the(bounds))


def _jitter(folder: Path, name: str) -> StepTimes:
    every = (row for row in _results(folder) if isinstance(row, StepTimes) and row.right)
    return _the(row for row in every if row.implementation == name)


def late(folder: Path, what: str, rank: str, name: str) -> str:
    """A rank's lateness."""
    steps, place = StepArrays.of(_jitter(folder, name).series), int(rank)
    if what == "last":
        return f"{steps.last_share(place):.0%}"
    if what == "costs":
        return f"{steps.cost(place):.0%}"
    return format_seconds(straggler_test([steps])[place].late.value * steps.median)


@cache
def raced(folder: Path) -> Ranking:
    """The ranking of a run of strategies."""
    found = ranking(_results(folder))
    if not found:
        raise KeyError("nobody learns")
    return found


def _entry(found: Ranking, name: str) -> StrategyRuns:
    return _the(entry for entry in found.ranked(Effort.STEPS) if entry.name == name)


def styles(folder: Path, what: str, above: str, below: str) -> str:
    """How many times as much one strategy needs as another, over seeds."""
    found = raced(folder)
    effort = Effort.SECONDS if what == "seconds" else Effort.STEPS
    ratio = _entry(found, above).ratio(_entry(found, below), effort)
    if not ratio:
        raise KeyError(what)
    return ratio.text("{:.2f}".format, "x")


@cache
def wires(folder: Path) -> tuple[Tradeoff, ...]:
    """Those of a sweep."""
    return tuple(tradeoffs(_results(folder)))


def lost(folder: Path, what: str, name: str) -> str:
    """An error of a wire."""
    study = _the(one for one in wires(folder) if one.name == name).study
    if not study:
        raise KeyError(name)
    errors = {"max": study.plain.most, "RMS": study.plain.rms, "bias": study.plain.bias, "bias fed": study.fed.bias}
    return f"{errors[what]:.2g}"


def pays(folder: Path, name: str, over: str) -> str:
    """From which size on."""
    one = _the(one for one in wires(folder) if one.name == name)
    size = one.pays_from(one.exact if over == "exact" else one.libraries)
    return "never" if size is None else f"from {format_size(size)}"


VALUES: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"(weak|strong) (speed-up|efficiency|slower computing|computing|waiting|exposed) of (.+) at (\d+) ranks", scaled),
    (r"(step|exposed|gain) of (.+) by (\w+)", overlapped),
    (r"bound of (.+)", bound),
    (r"(late|last|costs) of rank (\d+) by (.+)", late),
    (r"(seconds|steps) of (.+) / (.+)", styles),
    (r"(max|RMS|bias|bias fed) of (.+)", lost),
    (r"(.+) pays over (exact|library)", pays),
)
"""What titles look like, and what says their values; the first that fits, as ranks may look like implementations."""


def value(folder: Path, title: str) -> str | None:
    """What a title says; None for one that is not of steps, KeyError if the run has no such thing."""
    for pattern, says in VALUES:
        if words := re.fullmatch(pattern, title):
            try:
                return says(folder, *words.groups())
            except KeyError as error:
                raise KeyError(f"{title}: {error}") from error
    return None


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(heads)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def scaling() -> str:
    """All points of the committed scaling."""
    parts = "computing", "waiting", "exposed"
    rows = []
    for curve in _curves(RESULTS / "cpu-4-ranks-scale"):
        for point in curve.more:
            name, ranks = point.row.implementation, str(point.ranks)
            own = [scaled(RESULTS / "cpu-4-ranks-scale", curve.mode, part, name, ranks) for part in parts]
            speedup = curve.speedup(point).text(unit="x")
            rows.append((curve.mode, name, ranks, format_seconds(point.row.typical), speedup, *own))
    return _table(("scaling", "by", "ranks", "step", "speed-up", *parts), rows)


def overlapping() -> str:
    """The fastest bucket of every schedule of the committed overlap."""
    folder = RESULTS / "cpu-2-ranks-overlap"
    rows = []
    for name, schedule in dict.fromkeys((one.row.implementation, one.step.schedule) for one in _overlaps(folder)):
        one = fastest(folder, name, schedule)
        shown = (format_size(one.step.bucket), format_seconds(one.row.typical), format_seconds(one.exposed.value))
        before = format_seconds(one.sequential.typical)
        rows.append((name, schedule, *shown, before, one.gain.text(unit="x"), one.slowdown.text(unit="x")))
    heads = "by", "schedule", "bucket", "step", "exposed", "one after the other", "gain", "computing as long as"
    return _table(heads, rows)


def narrower() -> str:
    """The committed sweep of wires."""
    rows = []
    for one in wires(RESULTS / "cpu-2-ranks-narrow"):
        folder = RESULTS / "cpu-2-ranks-narrow"
        gain, exact = (one.gain(others) for others in (one.libraries, one.exact))
        errors = [lost(folder, what, one.name) for what in ("RMS", "bias", "bias fed")]
        size = format_size(one.case.nbytes)
        rows.append((one.name, f"{one.nbytes:.3g}", f"{gain:.2f}x", f"{exact:.2f}x", *errors))
    heads = "wire", "bytes an element", f"over `mpi`, {size}", f"over the best exact, {size}", "RMS", "bias", "bias fed"
    return _table(heads, rows)


def slowed() -> str:
    """What one slow rank costs in every style: the run with it beside the one without."""
    even, slow = raced(RESULTS / "cpu-2-ranks-styles-even"), raced(RESULTS / "cpu-2-ranks-styles")
    rows = []
    for entry in slow.ranked(Effort.SECONDS):
        before = _entry(even, entry.name)
        left = f"{entry.rate.value / before.rate.value:.2f}x"
        seconds = [format_seconds(one.mean(Effort.SECONDS).value) for one in (before, entry)]
        steps = [f"{one.mean(Effort.STEPS).value:.0f}" for one in (before, entry)]
        rows.append((f"`{entry.name}`", left, *seconds, *steps))
    heads = "style", "samples/s left", "to the loss", "with rank 1 slowed", "steps", "with rank 1 slowed"
    return _table(heads, rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "scaling": scaling,
    "overlapping": overlapping,
    "narrower": narrower,
    "slowed": slowed,
}
