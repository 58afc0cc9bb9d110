"""Plans of a training run on the page of a report: layouts, scaling, interconnects and cost."""

from collections.abc import Sequence

from collbench.commands.train import plans
from collbench.commands.train.rows import PlannedStep
from collbench.plots.sections import Cells, PagePart, Section, TextTable
from collbench.present.columns import Column
from collbench.results import Result
from collbench.units import format_figure, format_range, format_seconds


def part(results: Sequence[Result]) -> PagePart:
    """Return what a run plans; nothing where it has no plans."""
    layouts, scale, systems = (plans.planned(results, name) for name in ("layout", "scale", "interconnect"))
    priced = [row for row in plans.planned(results, "cost") if row.price > 0]
    curve, best = plans.scaled(scale), plans.front(priced)
    least = min((row.typical / row.tokens for row in systems), default=1.0)
    efficiency = Column("efficiency", curve.efficiency, "{:.1%}".format) if curve else None
    slower = Column[PlannedStep]("time of a token", lambda row: f"{format_figure(row.typical / row.tokens / least)}x")
    paid = [
        Column("time", plans.duration_text),
        Column("cost", plans.cost_text),
        Column[PlannedStep]("worth it", lambda row: "yes" if row in best else "no"),
    ]
    tables = [
        _table("Layouts", layouts, plans.columns("sent,memory")),
        _table("Scaling", curve.rows if curve else (), [efficiency] if efficiency else []),
        _table("Interconnects", systems, [*plans.columns("sent"), slower]),
        _table("Cost", priced, paid),
    ]
    return PagePart(plans.verdicts(results), [table for table in tables if table.rows])


def _table(what: str, rows: Sequence[PlannedStep], more: Sequence[Column[PlannedStep]]) -> TextTable:
    """Return a table of plans: the columns that all such tables have, and some of its own."""
    columns = [*plans.columns("layout,system,GPUs,step,nine in ten,MFU,tokens/s"), *more]
    return TextTable.of(f"{what}, predicted", columns, rows)


def cells(row: PlannedStep) -> Cells:
    """Return the step of a plan with its band, and its utilisation."""
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
        "All of it is predicted. Band: where the step should lie. Communication: what no computing hides. MFU: of the "
        "data sheet's FLOP/s. Efficiency: tokens of a GPU and second, over those on the fewest GPUs. Time of a token: "
        "over the fastest system's. Worth it: none is as fast and cheaper, or as cheap and faster."
    ),
    subject="training plan",
)
