"""Results of steps and of training as lines of text: a table for each command of `collbench step`, and its sections."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collbench.analysis.overlap import overlaps
from collbench.analysis.scaling import curves, find_point
from collbench.analysis.stragglers import PERCENTS, StepArrays, costliest, signed, straggler_rows, tail
from collbench.analysis.strategies import COLUMNS, ranking, table
from collbench.cli.results_table import NAME
from collbench.cli.tables import Table
from collbench.measure.step_runs import MODES
from collbench.results import Result, StepPrediction, StepRow, StepTimes, Trained
from collbench.stats import Estimate
from collbench.units import format_interval, format_range, format_seconds, format_size

PREDICTED = (
    "predicted, nothing was measured\n"
    "nine in ten: where nine of ten measured steps should lie; likewise the numbers in ()"
)
_SHOWN = 8  # ranks of a row in the section on stragglers: those that cost most


class StepTable(NamedTuple):
    """How a command shows its results while they arrive."""

    title: Callable[[Result], str]
    table: Table
    row: Callable[[Result, Sequence[Result]], str]  # of a result, by all results so far
    legend: str
    predicted: Table | None = None  # of predictions, where that is another one
    traced: bool = False  # whether what ranks did in a step of median length is written for Perfetto


def _check(result: StepRow | Trained) -> str:
    """Return the verdict of the check, or how it was predicted, and the notes."""
    return ", ".join(filter(None, (result.check, result.method, str(result.note))))


def _name(result: Result) -> str:
    """Return the implementation, with the version of its library where there is room."""
    return result.label if len(result.label) <= NAME else result.implementation


# Scaling.

_SCALING = Table(
    "{ranks:>6}  {name:<16} {step:>8} {interval:>19} {speedup:>22} {efficiency:>22} {compute:>8} {wait:>8} {exposed:>8}"
    "  {check}",
    ("compute", "wait", "exposed", "interval", "speedup"),
    {"name": "", "interval": "95 % interval", "speedup": "speed-up"},
    last_out=("efficiency",),
)


def _scaling_row(result: Result, results: Sequence[Result]) -> str:
    """Return a row of a scaling, with speed-up and efficiency of a point of a curve."""
    if not isinstance(result, StepRow) or result.wrong:
        return f"{result.case.ranks:>6,}  {_name(result):<16} {result.describe()}"
    curve, point = find_point(curves(results), result)
    speedup = curve.speedup(point).text(unit="x") if curve and point else "-"
    efficiency = point.efficiency.scaled(100).text(unit="%") if point else "-"
    if curve and point is curve.base:
        speedup, efficiency = f"{point.ranks}x", "100%"
    parts = (result.computing(), result.waiting(), result.exposed())
    whole = sum(parts)
    compute, wait, exposed = (f"{part / whole:.1%}" if whole else "" for part in parts)
    return _SCALING.row(
        ranks=f"{result.case.ranks:,}",
        name=_name(result),
        step=format_seconds(result.typical),
        interval=format_range(*result.band, format_seconds),
        speedup=speedup,
        efficiency=efficiency,
        compute=compute,
        wait=wait,
        exposed=exposed,
        check=_check(result),
    )


def _scaling_title(result: Result) -> str:
    case = result.case
    assert case.step
    mode = case.step.mode
    return f"{mode} scaling ({MODES[mode]}); {format_size(case.nbytes)} of {case.dtype.name} all-reduced every step"


SCALING = StepTable(
    _scaling_title,
    _SCALING,
    _scaling_row,
    "step: median of the series' means; speed-up, efficiency: as if the fewest ranks were perfect, 95 % intervals\n"
    "compute, wait, exposed: shares of a step: computing, waiting for the last rank, communication that nothing hides",
)


# Overlap.

_OVERLAP = Table(
    "{name:<16} {schedule:<16} {bucket:>9} {step:>9} {interval:>19} {exposed:>9} {hidden:>20} {computing:>20}"
    " {gain:>22}  {check}",
    ("computing", "hidden", "interval", "exposed"),
    {"name": "", "interval": "95 % interval"},
    last_out=("gain",),
)
_PREDICTED_OVERLAP = _OVERLAP._replace(form=re.sub(">2[02]", ">9", _OVERLAP.form))  # ratios without intervals


def _overlap_row(result: Result, results: Sequence[Result]) -> str:
    """Return a row of a step; one that overlaps is compared with the step that does not."""
    step = result.case.step
    assert step
    bucket = format_size(step.bucket) if step.bucket else "all"
    if not isinstance(result, StepRow) or result.wrong:
        return f"{_name(result):<16} {step.way:<16} {bucket:>9} {result.describe()}"
    overlap = next((overlap for overlap in overlaps(results) if overlap.row is result), None)
    shown = _PREDICTED_OVERLAP if isinstance(result, StepPrediction) else _OVERLAP
    return shown.row(
        name=_name(result),
        schedule=step.way,
        bucket=bucket,
        step=format_seconds(result.typical),
        interval=format_range(*result.band, format_seconds),
        exposed=signed(overlap.exposed.value if overlap else result.exposed()),
        hidden=overlap.hidden.scaled(100).text(unit="%") if overlap else "",
        computing=overlap.slowdown.text(unit="x") if overlap else "",
        gain=overlap.gain.text(unit="x") if overlap else "",
        check=_check(result),
    )


def _overlap_title(result: Result) -> str:
    case = result.case
    assert case.step
    return f"{case.step.words[0]}; {format_size(case.nbytes)} of {case.dtype.name} all-reduced, {case.ranks} ranks"


OVERLAP = StepTable(
    _overlap_title,
    _OVERLAP,
    _overlap_row,
    "step: median of the series' means; exposed: beyond computing alone; hidden: share of the communication behind it\n"
    "computing: over computing alone; gain: over one part after the other; in parentheses: 95 % intervals",
    predicted=_PREDICTED_OVERLAP,
    traced=True,
)


# Stragglers.

_STRAGGLERS = Table(
    "{name:<16} {step:>9} {interval:>19} {p50:>9} {p99:>9} {p999:>9} {computing:>9} {waiting:>9} {exposed:>9}  {note}",
    ("p50", "p999", "computing", "interval"),
    {"name": "", "interval": "95 % interval", "p999": "p99.9"},
    last_out=("p99", "waiting", "exposed"),
)
_RANK = Table(
    "  {rank:>4} {last:>6} {late:>9} {interval:<22} {p99:>9} {p999:>9} {computes:>9} {costs:>6}  {note}",
    heads={"interval": "", "p999": "p99.9"},
    last_out=("p999", "computes", "p99", "interval"),
)


def _stragglers_row(result: Result, _: Sequence[Result]) -> str:
    if not isinstance(result, StepTimes) or not result.right:
        return f"{result.label:<16} {result.problem or 'not timed'}"
    steps = StepArrays.of(result.series)
    p50, p99, p999 = (_tail(tail(steps.seconds, percent)) for percent in PERCENTS)
    return _STRAGGLERS.row(
        name=result.label,
        step=format_seconds(result.typical),
        interval=format_range(*result.band, format_seconds),
        p50=p50,
        p99=p99,
        p999=p999,
        computing=format_seconds(result.computing()),
        waiting=format_seconds(result.waiting()),
        exposed=format_seconds(result.exposed()),
        note=_check(result),
    )


def _tail(known: Estimate | None) -> str:
    return format_seconds(known.value) if known else "-"


STRAGGLERS = StepTable(
    lambda result: f"{result.case.title}, {format_size(result.case.nbytes)}",
    _STRAGGLERS,
    _stragglers_row,
    "step: median of the series' means; percentiles: of single steps, - where there are too few\n"
    "computing, waiting (for the last rank), exposed (communication that nothing hides): means\n"
    "last: share of the steps in which the rank was last; late: behind the median of the others, with 99 % interval\n"
    "costs: share of a step that the others spend waiting for it",
)


def straggler_sections(results: Sequence[Result]) -> Iterator[str]:
    """Yield what is known of the ranks and the noise of every row."""
    for result, steps in straggler_rows(results):
        yield ""
        yield from _straggler_section(result, steps)


def _straggler_section(result: StepTimes, steps: StepArrays) -> Iterator[str]:
    yield (
        f"{result.label}: {steps.count} steps in {len(steps.slices)} series; "
        f"clocks agree within {format_seconds(result.clock)}"
    )
    yield _RANK.heading()
    found = costliest(steps)
    for statistics in found[:_SHOWN]:
        rank, late = statistics.rank, statistics.late.scaled(steps.median)
        p99, p999 = (_tail(tail(steps.late[rank], percent)) for percent in PERCENTS[1:])
        yield _RANK.row(
            rank=rank,
            last=f"{steps.last_share(rank):.0%}",
            late=signed(late.value),
            interval=format_interval(*late.interval, signed).lstrip(),
            p99=p99,
            p999=p999,
            computes=format_seconds(float(np.median(steps.computing[rank]))),
            costs=f"{steps.cost(rank):.1%}",
        )
    if len(found) > _SHOWN:
        yield f"  ... and {len(found) - _SHOWN} ranks that cost less"
    tails = {percent: tail(steps.seconds, percent) for percent in PERCENTS}
    yield f"  steps: {'; '.join(_percentile(percent, known) for percent, known in tails.items() if known)}"


def _percentile(percent: float, known: Estimate) -> str:
    return f"p{percent:g} {known.text(format_seconds)}"


# Strategies.

_STRATEGIES = Table(
    "{seed:>5}  {strategy:<17} {time:>9} {rate:>11} {steps:>11} {age:>5} {loss:>9}  {check}",
    ("age", "rate", "steps"),
    {"strategy": "", "rate": "samples/s"},
)
_RANKING = Table(
    "{strategy:<17} {seconds:>30} {steps:>24} {rate:>28} {ratio:>22}  {note}",
    last_out=("rate", "steps", "ratio"),
)


def _strategies_row(result: Result, _: Sequence[Result]) -> str:
    seed = result.case.job.seed if result.case.job else ""
    if not isinstance(result, Trained) or not result.right:
        return f"{seed:>5}  {result.implementation:<17} {result.problem or 'not timed'}"
    fewest, most = min(result.steps), max(result.steps)
    return _STRATEGIES.row(
        seed=seed,
        strategy=result.implementation,
        time=format_seconds(result.seconds),
        rate=f"{result.rate:,.0f}",
        steps=f"{fewest}" if fewest == most else format_range(fewest, most),
        age=f"{result.age:.1f}",
        loss=f"{result.points[-1].loss:.4g}",
        check=_check(result),
    )


STRATEGIES = StepTable(
    lambda result: result.case.title,
    _STRATEGIES,
    _strategies_row,
    "time: of the slowest rank; samples/s: of all ranks; steps: fewest and most of a rank; loss: on samples held out\n"
    "age: of a gradient: updates since its weights were read, mean; check: all updates, in float64",
)


def ranking_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each strategy over all seeds, the first to the target first."""
    if not (found := ranking(results)):
        return
    yield ""
    yield _RANKING.heading(**COLUMNS | {"strategy": "", "seconds": f"seconds to loss {found.target:g}"})
    for row in table(found):
        yield _RANKING.row(**row)
