"""Tables of steps and training, for `collbench step` and report pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from collbench.commands.step import overlap, scaling, stragglers
from collbench.commands.step import trained as strategies
from collbench.commands.step.overlap import Overlap, overlaps
from collbench.commands.step.rows import StepPrediction, StepRow, StepTimes, Trained
from collbench.commands.step.scaling import ScalingCurve, curves
from collbench.commands.step.stragglers import RankStatistics, costliest, straggler_rows
from collbench.commands.step.work import MODES, job_of, step_of
from collbench.plots.kinds import MOST, Cells, PagePart, Section, TextTable
from collbench.present.columns import USEFUL, Column
from collbench.present.terminal import lines
from collbench.results import Result
from collbench.units import format_range, format_seconds, format_size

PREDICTED = "nine in ten: nine of ten measured steps should lie in this range; likewise the numbers in ()"
MOST_LATE = 8
"""Rows in a table of late ranks: the costliest."""
_NAME = 16  # maximum characters of an implementation's name


@dataclass(frozen=True)
class StepResult:
    """A table row: a result, and all results so far for comparison."""

    result: Any
    results: Sequence[Result] = ()

    @property
    def problem(self) -> str:
        """Why there are no numbers."""
        numbers = isinstance(self.result, StepRow | Trained) and not self.result.wrong
        return "" if numbers else str(self.result.describe())

    @property
    def label(self) -> str:
        """The implementation, with the version of its library where there is room."""
        label: str = self.result.label
        return label if len(label) <= _NAME else str(self.result.implementation)

    @property
    def scaled(self) -> tuple[str, str]:
        """Speed-up and efficiency, or "-" for a result on no curve."""
        for curve in curves(self.results):
            for point in curve.points:
                if point.row is self.result and point is curve.base:
                    return f"{point.ranks}x", "100%"
                if point.row is self.result:
                    return curve.speedup(point).text(unit="x"), point.efficiency.scaled(100).text(unit="%")
        return "-", "-"

    @property
    def overlap(self) -> Overlap | None:
        """The overlapped step with its sequential form; None for other schedules."""
        return next((overlap for overlap in overlaps(self.results) if overlap.row is self.result), None)

    def share(self, part: str) -> str:
        """Return the share of a part of a step, by its name in StepParts."""
        parts = self.result.parts
        return f"{getattr(parts, part) / sum(parts):.1%}" if sum(parts) else ""


PROBLEM: Callable[[StepResult], str] = attrgetter("problem")


class StepTable(NamedTuple):
    """The presentation of a command's results."""

    title: Callable[[Result], str]
    columns: Sequence[Column[StepResult]]
    legend: str
    findings: Callable[[Sequence[Result]], list[str]]  # the answer first
    conclusion: Callable[[Sequence[Result]], Iterator[str]] = lambda results: iter(())
    live: bool = False  # whether rows are shown as they arrive, and the answer last

    def of(self, predicted: bool) -> list[Column[StepResult]]:
        """Return the columns for measured or predicted results."""
        names = {_BAND.name: "nine in ten"} if predicted else {}
        return [replace(column, name=names.get(column.name, column.name)) for column in self.columns]


def _band(row: StepResult) -> str:
    low, high = row.result.band
    return format_range(low, high, format_seconds)


def _compared(of: Callable[[Overlap], str]) -> Callable[[StepResult], str]:
    """Return the text of a row's overlap, or "" for a row without overlap."""
    return lambda row: of(row.overlap) if row.overlap else ""


def _bucket(row: StepResult) -> str:
    nbytes = step_of(row.result.case).bucket
    return format_size(nbytes) if nbytes else "all"


def _exposed(row: StepResult) -> str:
    return format_seconds(row.overlap.exposed.value if row.overlap else row.result.parts.exposed)


_NAMES: Column[StepResult] = Column("", lambda row: row.label, form=f"<{_NAME}", key="implementation")
_STEP: Column[StepResult] = Column("step", lambda row: row.result.typical, format_seconds, form=">9")
_BAND: Column[StepResult] = Column("95 % interval", _band, importance=4, form=">19")
_CHECK: Column[StepResult] = Column(
    "check",
    lambda row: ", ".join(
        filter(None, (row.result.check, row.result.method, str(replace(row.result.note, buffers=""))))
    ),
)
_PARTS: tuple[Column[StepResult], ...] = (
    Column("compute", lambda row: row.share("computing"), importance=1, form=">"),
    Column("wait", lambda row: row.share("waiting"), importance=2, form=">"),
    Column("exposed", lambda row: row.share("exposed"), importance=3, form=">"),
)
_PARTS_LEGEND = "compute, wait, exposed: shares of a step: computing, waiting for the last rank, exposed communication"


def _scaling_title(result: Result) -> str:
    case = result.case
    mode = step_of(case).mode
    return f"{mode} scaling ({MODES[mode]}); {format_size(case.nbytes)} of {case.dtype.name} all-reduced every step"


def scaling_verdicts(results: Sequence[Result]) -> Iterator[tuple[ScalingCurve, list[str]]]:
    """Yield every curve with lines: its verdict, remedies, and late ranks."""
    found = curves(results)
    late = stragglers.late_in_scaling([curve.last.row for curve in found])
    for curve, who in zip(found, late, strict=True):
        yield curve, [*scaling.verdict(curve), *filter(None, [who])]


def _scaling_advice(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines on every curve after its verdict."""
    for curve, (_, *advice) in scaling_verdicts(results):
        if advice:
            yield from ("", f"{curve.name}, {curve.mode}:", *advice)


SCALING = StepTable(
    _scaling_title,
    (
        Column("ranks", lambda row: row.result.case.ranks, "{:,}".format, form=">"),
        _NAMES,
        _STEP,
        _BAND,
        Column("speed-up", lambda row: row.scaled[0], importance=USEFUL + 1, form=">"),
        Column("efficiency", lambda row: row.scaled[1], importance=USEFUL, form=">"),
        *_PARTS,
        _CHECK,
    ),
    "step: median of the series means; speed-up, efficiency: relative to the fewest ranks, with 95 % intervals\n"
    f"{_PARTS_LEGEND}",
    scaling.answer,
    _scaling_advice,
)


def _overlap_title(result: Result) -> str:
    case = result.case
    return f"{step_of(case).words[0]}; {format_size(case.nbytes)} of {case.dtype.name} all-reduced, {case.ranks} ranks"


OVERLAP = StepTable(
    _overlap_title,
    (
        _NAMES,
        Column("schedule", lambda row: step_of(row.result.case).schedule, form="<"),
        Column("bucket", _bucket, form=">"),
        _STEP,
        _BAND,
        Column("exposed", _exposed, importance=5, form=">"),
        Column("hidden", _compared(lambda overlap: overlap.hidden.scaled(100).text(unit="%")), importance=3, form=">"),
        Column("computing", _compared(lambda overlap: overlap.slowdown.text(unit="x")), importance=2, form=">"),
        Column("gain", _compared(lambda overlap: overlap.gain.text(unit="x")), importance=USEFUL, form=">"),
        _CHECK,
    ),
    "step: median of the series means; exposed: time beyond computing alone; hidden: share of all that can be hidden\n"
    "computing: slowdown over computing alone; gain: speed-up over sequential; in parentheses: 95 % intervals",
    overlap.verdicts,
)
LATE_RANKS: tuple[Column[RankStatistics], ...] = (
    Column("rank", attrgetter("rank"), form=">4"),
    Column("last", attrgetter("last"), "{:.0%}".format, form=">"),
    Column("late", lambda rank: rank.late.text("{:z.1%}".format), form="<"),
    Column("computes", attrgetter("computing"), format_seconds, 2, ">"),
    Column("costs", attrgetter("cost"), "{:.1%}".format, form=">"),
    Column("finding", lambda rank: rank.finding.value),
)


def _late_ranks(results: Sequence[Result]) -> Iterator[str]:
    """Yield the table of late ranks and the clock error of every row."""
    for result, steps in straggler_rows(results):
        series = f"{steps.count} steps in {len(steps.slices)} series"
        yield from ("", f"{result.label}: {series}; clocks agree within {format_seconds(result.clock)}")
        ranks = costliest(steps)
        yield from (f"  {line}" for line in lines(LATE_RANKS, ranks[:MOST_LATE]))
        if len(ranks) > MOST_LATE:
            yield f"  ... and {len(ranks) - MOST_LATE} ranks that cost less"


STRAGGLERS = StepTable(
    lambda result: f"{result.case.title}, {format_size(result.case.nbytes)}",
    (_NAMES, _STEP, _BAND, *_PARTS, replace(_CHECK, name="")),
    "step: median of the series means\n"
    f"{_PARTS_LEGEND}\n"
    "last: share of the steps in which the rank is last; late: behind the median of the others, with 99 % interval\n"
    "costs: time that the others wait for the rank; late and costs are shares of a step",
    stragglers.verdicts,
    _late_ranks,
    live=True,
)


def _steps(row: StepResult) -> str:
    fewest, most = min(row.result.steps), max(row.result.steps)
    return f"{fewest}" if fewest == most else format_range(fewest, most)


def _ranking_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each strategy over all seeds, ordered by time to the target."""
    if found := strategies.ranking(results):
        yield from ("", *lines(strategies.ranking_columns(found), strategies.ranked_rows(found)))


STRATEGIES = StepTable(
    lambda result: result.case.title,
    (
        Column("seed", lambda row: row.result.case.work and job_of(row.result.case).seed, form=">5"),
        Column("", lambda row: row.result.implementation, form="<17"),
        Column("time", lambda row: row.result.seconds, format_seconds, form=">9"),
        Column("samples/s", lambda row: row.result.rate, "{:,.0f}".format, 2, ">11"),
        Column("steps", _steps, importance=3, form=">11"),
        Column("age", lambda row: row.result.age, "{:.1f}".format, 1, ">5"),
        Column("loss", lambda row: row.result.points[-1].loss, "{:.4g}".format, form=">9"),
        _CHECK,
    ),
    "time: slowest rank; samples/s: all ranks; steps: fewest and most per rank; loss: on held-out samples\n"
    "age: mean updates between reading weights and changing them; check: weights are equal and hold all gradients",
    lambda results: strategies.verdict(strategies.ranking(results)),
    _ranking_table,
    live=True,
)


def part(results: Sequence[Result]) -> PagePart:
    """Return the verdicts and tables of a run's steps and training."""
    tables: list[TextTable] = []
    words: list[str] = []
    for curve, said in scaling_verdicts(results):
        points = [StepResult(point.row, results) for point in curve.points[:MOST]]
        tables.append(TextTable.of(f"{curve.mode} scaling, {curve.name}", SCALING.columns, points))
        words += said

    if overlaps := overlap.overlaps(results)[:MOST]:
        rows = [StepResult(pair.row, results) for pair in overlaps]
        tables.append(TextTable.of("Overlap", OVERLAP.columns, rows))
    words += overlap.verdicts(results)

    # A table ranks by its own row; the verdict considers all rows.
    for result, steps in stragglers.straggler_rows(results)[:MOST]:
        ranks, most = stragglers.costliest(steps), MOST_LATE
        more = f"; {len(ranks) - most} ranks cost less" if len(ranks) > most else ""
        caption = f"Late ranks, {result.label}: {steps.count:,} steps{more}"
        tables.append(TextTable.of(caption, LATE_RANKS, ranks[:most]))
    words += stragglers.verdicts(results)

    if ranking := strategies.ranking(results):
        caption, ranked = f"Strategies: to loss {ranking.target:g}", strategies.ranked_rows(ranking)
        tables.append(TextTable.of(caption, strategies.ranking_columns(ranking), ranked))
        words += strategies.verdict(ranking)
    return PagePart(words, tables)


def cells(result: StepRow | Trained) -> Cells:
    """Return the time of a row, with its shares or the loss that training reached."""
    if isinstance(result, Trained):
        return Cells((format_seconds(result.seconds),), f"ok, training to loss {result.least:.4g}")
    named, whole = result.parts._asdict(), sum(result.parts)
    words = [f"{name} {seconds / whole:.0%}" for name, seconds in named.items()] if whole > 0 else [""]
    if note := str(result.note.brief):
        words.append(note)
    kind = "predicted step" if result.predicted else "step, ok"
    return Cells((format_seconds(result.typical),), f"{kind}: {', '.join(words)}")


SECTION = Section(
    name="steps",
    title="Steps and training",
    order=10,
    rows=(StepTimes, StepPrediction, Trained),
    part=part,
    cells=cells,
    note=(
        "Speed-up, efficiency and gain are medians over rounds of interleaved steps, with 95 % intervals; predictions "
        "show their band. Late: behind the median of the other ranks, with a joint 99 % interval for all ranks. "
        "Strategies: the mean over seeds with its 95 % interval."
    ),
)
