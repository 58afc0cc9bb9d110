"""Pictures of overlap: step time against size of bucket, and what ranks computed and communicated when."""

from collections.abc import Sequence

from collbench.analysis.overlap import Overlap, best_of_schedules, overlaps
from collbench.plots.axes import Axes, Figure, bars_in_words, heading, new_figure, patch_legend
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import ACTIVITIES, COLORS, SCREEN, style
from collbench.results import StepPrediction, StepTimes
from collbench.results.steps import COMMUNICATED, COMPUTED
from collbench.runfile.store import Run
from collbench.units import format_seconds, format_size

_MOST_RANKS = 8  # in a timeline: more are too thin to read
_MARKERS = "osD^vPX"


def figures(run: Run, request: PlotRequest) -> Named:
    """Both pictures of every implementation; a timeline only where steps were looked at closely."""
    topology = run.header.topology.name
    found = [one for one in overlaps(run.results) if request.shows(one.row.implementation)]
    for name in dict.fromkeys(one.row.implementation for one in found):
        own = [one for one in found if one.row.implementation == name]
        yield f"buckets-{name}", _buckets(own, topology)
        shown = [row for one in best_of_schedules(own) for row in (one.sequential, one.row)]
        rows = [row for row in dict.fromkeys(shown) if isinstance(row, StepTimes) and row.activities]
        if rows:
            yield f"overlap-{name}", _timeline(rows, topology)


@style()
def _buckets(own: Sequence[Overlap], topology: str) -> Figure:
    from matplotlib.ticker import NullLocator

    drawn = new_figure(SCREEN.width(1), 4.8)
    axes = drawn.subplots()
    for place, way in enumerate(dict.fromkeys(one.step.way for one in own)):
        ways = sorted((one for one in own if one.step.way == way), key=lambda one: one.step.bucket)
        sizes = [one.step.bucket for one in ways]
        times = [one.row.typical for one in ways]
        color, marker = COLORS[place % len(COLORS)], _MARKERS[place % len(_MARKERS)]
        axes.plot(sizes, times, label=way, color=color, marker=marker)
        for size, one in zip(sizes, ways, strict=True):
            axes.vlines(size, *one.row.band, color=color, alpha=0.5)
    first = own[0]
    axes.axhline(first.sequential.typical, color="#606060", linewidth=1, label="one after the other")
    axes.axhline(first.bound, color="#606060", linewidth=1, linestyle=":", label="bound: the longer part alone")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({one.step.bucket for one in own}))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda size, position: format_size(size))
    axes.yaxis.set_major_formatter(lambda seconds, position: format_seconds(seconds))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"size of a bucket; {bars_in_words(isinstance(first.row, StepPrediction))}")
    axes.set_ylabel("step")
    heading(drawn, f"A step in buckets, {first.row.label}: {topology}")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


@style()
def _timeline(rows: Sequence[StepTimes], topology: str) -> Figure:
    """Draw a panel for every method on one time axis, with two lanes a rank."""
    lanes = 2 * min(_MOST_RANKS, rows[0].case.ranks)
    drawn = new_figure(SCREEN.width(1), 1.4 + len(rows) * (0.55 + 0.26 * lanes))
    grid = drawn.subplots(len(rows), 1, squeeze=False, sharex=True)
    for axes, row in zip(grid[:, 0], rows, strict=True):
        _lanes(axes, row)
    grid[-1, 0].set_xlim(0, 1e3 * max(one.start + one.seconds for row in rows for one in row.activities))
    grid[-1, 0].set_xlabel("time since the step began, ms")
    heading(drawn, f"A step of {rows[0].label}: {topology}")
    patch_legend(drawn, {what: shades[0] for what, shades in ACTIVITIES.items()}, place="outside lower left")
    return drawn


def _lanes(axes: Axes, row: StepTimes) -> None:
    step, kinds = row.case.step, (COMPUTED, COMMUNICATED)
    assert step
    ranks = range(min(_MOST_RANKS, row.case.ranks))
    labels: list[str] = []
    for rank in ranks:
        for what in kinds:
            own = [one for one in row.activities if one.rank == rank and one.what == what]
            spans = [(1e3 * one.start, 1e3 * one.seconds) for one in own]
            shades = [ACTIVITIES[what][one.bucket % 2] for one in own]
            axes.broken_barh(spans, (len(labels) - 0.38, 0.76), facecolors=shades, edgecolor="white", linewidth=0.3)
            labels.append(f"rank {rank} {what}")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    bucket = f", buckets of {format_size(step.bucket)}" if step.bucket else ""
    axes.set_title(f"{step.way}{bucket}: a step takes {format_seconds(row.typical)}")


KIND = Kind(
    order=31,
    rows=(StepTimes, StepPrediction),
    needs="overlapped steps together with the same step one part after the other and its parts alone",
    figures=run_by_run(figures),
)
