"""Steps and training on the page of a report: scaling, overlap, late ranks and strategies, in the commands' words."""

from collections.abc import Sequence

from collbench.commands.step import columns, overlap, scaling, stragglers
from collbench.commands.step import trained as strategies
from collbench.commands.step.columns import StepResult
from collbench.commands.step.rows import StepPrediction, StepRow, StepTimes, Trained
from collbench.plots.sections import MOST, Cells, PagePart, Section, TextTable
from collbench.results import Result
from collbench.units import format_seconds


def part(results: Sequence[Result]) -> PagePart:
    """Return what is said of the steps and the training of a run."""
    tables: list[TextTable] = []
    words: list[str] = []
    for curve in scaling.curves(results):
        points = [StepResult(point.row, results) for point in curve.points[:MOST]]
        tables.append(TextTable.of(f"{curve.mode} scaling, {curve.name}", columns.SCALING.columns, points))
        words += scaling.verdict(curve)

    if overlaps := overlap.overlaps(results)[:MOST]:
        rows = [StepResult(pair.row, results) for pair in overlaps]
        tables.append(TextTable.of("Overlap", columns.OVERLAP.columns, rows))
    words += overlap.verdicts(results)

    # A table has the ranks that cost most by its own row; the verdict is by all rows.
    for result, steps in stragglers.straggler_rows(results)[:MOST]:
        ranks, most = stragglers.costliest(steps), columns.MOST_LATE
        more = f"; {len(ranks) - most} ranks cost less" if len(ranks) > most else ""
        caption = f"Late ranks, {result.label}: {steps.count:,} steps, {columns.noise(steps)}{more}"
        tables.append(TextTable.of(caption, columns.LATE_RANKS, ranks[:most]))
    words += stragglers.verdicts(results)

    if ranking := strategies.ranking(results):
        caption, ranked = f"Strategies: to loss {ranking.target:g}", strategies.ranked_rows(ranking)
        tables.append(TextTable.of(caption, strategies.ranking_columns(ranking), ranked))
        words += strategies.verdict(ranking)
    return PagePart(words, tables)


def cells(result: StepRow | Trained) -> Cells:
    """Return the time of a row, and where it goes or how far the training came."""
    if isinstance(result, Trained):
        return Cells((format_seconds(result.seconds),), f"ok, training to loss {result.least:.4g}")
    times = {"computing": result.computing(), "waiting": result.waiting(), "exposed": result.exposed()}
    whole = sum(times.values())
    words = [f"{name} {seconds / whole:.0%}" for name, seconds in times.items()] if whole > 0 else [""]
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
        "Speed-up, efficiency and gain are taken round by round of steps that took turns, with the 95 % interval of "
        "the median; of predictions the band. Late: behind the median of the others, with an interval of 99 % for all "
        "ranks together. Styles: the mean over seeds with its 95 % interval."
    ),
)
