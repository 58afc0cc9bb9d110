"""Tables and verdicts of training plans: layouts, scaling, interconnects and cost."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from collbench.commands.train.rows import PlannedStep
from collbench.plots.kinds import Cells, PagePart, Section, TextTable
from collbench.present.columns import USEFUL, Column
from collbench.results import Result
from collbench.results.base import CaseResult
from collbench.topology.products import GIB
from collbench.units import (
    counted,
    digits,
    format_count,
    format_figure,
    format_interval,
    format_range,
    format_rounded,
    format_seconds,
    unit_of,
)

UNHIDDEN = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel", "data_parallel")
"""Parts of a step that are communication."""


def planned(results: Iterable[CaseResult], purpose: str) -> list[PlannedStep]:
    """Return the plans of that purpose, in their order."""
    return [row for row in results if isinstance(row, PlannedStep) and row.purpose == purpose]


def rate(row: PlannedStep) -> float:
    """Return the tokens per GPU and second."""
    return row.tokens / row.gpus / row.typical


def communication(row: PlannedStep) -> float:
    """Return the fraction of a step that is exposed communication."""
    return sum(row.parts.get(part, 0.0) for part in UNHIDDEN) / row.typical


COLUMNS: Mapping[str, Column[PlannedStep]] = {
    column.name: column
    for column in (
        Column[PlannedStep]("system", lambda row: row.system, form="<"),
        Column[PlannedStep]("GPUs", lambda row: row.gpus, "{:,}".format, form=">"),
        Column[PlannedStep]("layout", lambda row: row.implementation, form="<"),
        Column[PlannedStep]("step", lambda row: row.typical, format_seconds, form=">"),
        Column[PlannedStep](
            "nine in ten", lambda row: format_range(*row.band, format_seconds), importance=USEFUL + 4, form=">"
        ),
        Column[PlannedStep]("MFU", lambda row: row.utilisation, "{:.1%}".format, USEFUL + 5, ">"),
        Column[PlannedStep]("tokens/s", lambda row: row.tokens / row.typical, format_count, USEFUL + 1, ">"),
        Column[PlannedStep]("memory", lambda row: row.needed / GIB, "{:.1f} GiB".format, form=">"),
        Column[PlannedStep]("comp.", lambda row: row.parts["computing"] / row.typical, "{:.0%}".format, USEFUL, ">"),
        Column[PlannedStep]("sent", communication, "{:.1%}".format, USEFUL + 3, ">"),
        Column[PlannedStep]("bubble", lambda row: row.parts["bubble"] / row.typical, "{:.1%}".format, USEFUL + 2, ">"),
    )
}
"""Cells of the tables of plans, by column."""


def columns(names: str) -> list[Column[PlannedStep]]:
    """Return the columns with these names, separated by commas."""
    return [COLUMNS[name] for name in names.split(",")]


class Scaled(NamedTuple):
    """Plans by number of GPUs."""

    rows: tuple[PlannedStep, ...]

    def efficiency(self, row: PlannedStep) -> float:
        """Return the rate of a plan over that of the fewest GPUs."""
        return rate(row) / rate(self.rows[0])


def scaled(rows: Sequence[PlannedStep]) -> Scaled | None:
    """Return the plans by number of GPUs; None for fewer than two numbers."""
    ordered = Scaled(tuple(sorted(rows, key=lambda row: row.gpus)))
    return ordered if len({row.gpus for row in rows}) > 1 else None


def front(rows: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Return the Pareto front of time and cost, the fastest plan first."""
    best: list[PlannedStep] = []
    # Fastest first, so a plan is on the front if it is cheaper than all before it.
    for row in sorted(rows, key=lambda row: (row.seconds, row.cost)):
        if not best or row.cost < best[-1].cost:
            best.append(row)
    return best


def certain_digits(row: PlannedStep) -> int:
    """Return the number of significant digits that the band of a plan's step allows."""
    low, high = row.band
    return digits((high - low) / 2 / row.typical)


def duration_text(row: PlannedStep) -> str:
    """Return the duration of a plan's run with its band, as `24 days (22 .. 29)`, in `certain_digits`."""
    scale, unit = unit_of(row.seconds)
    form = partial(format_rounded, count=certain_digits(row))
    low, high = (end / row.typical * row.seconds / scale for end in row.band)
    return f"{form(row.seconds / scale)} {unit}{format_interval(low, high, form)}"


def cost_text(row: PlannedStep) -> str:
    """Return the cost of a plan's run with its band, as `1.2 M USD (1 M .. 1.4 M)`, in `certain_digits`."""
    form = partial(format_count, count=certain_digits(row))
    low, high = (end / row.typical * row.cost for end in row.band)
    return " ".join(filter(None, (form(row.cost), row.currency))) + format_interval(low, high, form)


def verdicts(results: Sequence[CaseResult]) -> list[str]:
    """Return the verdicts on the plans, which begin with `predicted`."""
    layouts, systems = planned(results, "layout"), planned(results, "interconnect")
    scaling = scaled(planned(results, "scale"))
    said = [best_in_words(layouts)] if layouts else []
    said += [efficiency_in_words(scaling)] if scaling else []
    said += [fastest_in_words(systems)] if systems else []
    return [f"predicted: {words}" for words in said]


def best_in_words(rows: Sequence[PlannedStep]) -> str:
    """Return a line on the first layout and its near ties."""
    best, *others = rows
    step = f"{format_seconds(best.typical)} a step{format_interval(*best.band, format_seconds)}"
    memory = f"{best.needed / GIB:.0f} of {best.capacity / GIB:.3g} GiB"
    words = f"{best.implementation}, {step}, {best.utilisation:.0%} MFU, {memory}"
    level = sum(other.low / other.tokens <= best.typical / best.tokens for other in others)
    if not level:
        return words
    which = "all others" if level == len(others) else f"{level} of the {counted(len(others), 'other')}"
    return f"{words}; {which} shown may be as fast"


def fastest_in_words(rows: Sequence[PlannedStep]) -> str:
    """Return the system with the fastest step, and the systems that may be as fast, by their bands."""
    fastest = sorted(rows, key=lambda row: row.typical / row.tokens)
    first = fastest[0].typical / fastest[0].tokens
    level = [f"{row.system}, {format_seconds(row.typical)}" for row in fastest if row.low / row.tokens <= first]
    return f"likely fastest: {' or '.join(level)}"


def efficiency_in_words(scaling: Scaled) -> str:
    """Return a line on the efficiency of the most GPUs."""
    first, last = scaling.rows[0], scaling.rows[-1]
    rate = f"{scaling.efficiency(last):.0%} of the tokens/s per GPU of {first.gpus:,}"
    return f"on {first.system}, {counted(last.gpus, 'GPU')} keep {rate} with the same batch"


def part(results: Sequence[Result]) -> PagePart:
    """Return the verdicts and tables of a run's plans; empty without plans."""
    layouts, scale, systems = (planned(results, name) for name in ("layout", "scale", "interconnect"))
    priced = [row for row in planned(results, "cost") if row.price > 0]
    curve, best = scaled(scale), front(priced)
    least = min((row.typical / row.tokens for row in systems), default=1.0)
    efficiency = Column("efficiency", curve.efficiency, "{:.1%}".format) if curve else None
    slower = Column[PlannedStep]("time of a token", lambda row: f"{format_figure(row.typical / row.tokens / least)}x")
    paid = [
        Column("time", duration_text),
        Column("cost", cost_text),
        Column[PlannedStep]("worth it", lambda row: "yes" if row in best else "no"),
    ]
    tables = [
        _table("Layouts", layouts, columns("sent,memory")),
        _table("Scaling", curve.rows if curve else (), [efficiency] if efficiency else []),
        _table("Interconnects", systems, [*columns("sent"), slower]),
        _table("Cost", priced, paid),
    ]
    return PagePart(verdicts(results), [table for table in tables if table.rows])


def _table(what: str, rows: Sequence[PlannedStep], more: Sequence[Column[PlannedStep]]) -> TextTable:
    """Return a table of plans with the common columns and *more*."""
    shown = [*columns("layout,system,GPUs,step,nine in ten,MFU,tokens/s"), *more]
    return TextTable.of(f"{what}, predicted", shown, rows)


def cells(row: PlannedStep) -> Cells:
    """Return the step of a plan with its band and MFU."""
    numbers = format_seconds(row.typical), format_range(*row.band, format_seconds)
    return Cells(numbers, f"predicted {row.purpose} plan: MFU {row.utilisation:.0%}")


SECTION = Section(
    name="plans",
    title="Plans of a training run",
    order=20,
    rows=(PlannedStep,),
    part=part,
    cells=cells,
    note=(
        "All figures are predicted. Nine in ten: nine of ten measured steps should lie in this range. Sent: exposed "
        "communication. MFU: share of the data sheet's FLOP/s. Efficiency: tokens per GPU and second over those on the "
        "fewest GPUs. Time of a token: relative to the fastest system. Worth it: no other plan is both as fast and "
        "cheaper, or as cheap and faster."
    ),
    drawn=False,
    subject="training plan",
)
