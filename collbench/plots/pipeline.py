"""The figure of a pipeline: which stage computes which micro-batch when, in the first planned layout with stages."""

from collbench.analysis.plans import planned
from collbench.host.sanitize import text
from collbench.plots.axes import Figure, heading, name_rows, new_figure, patch_legend, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.pipeline_schedule import BACKWARD, FORWARD, WEIGHTS, events_of, makespan, schedule, shortened
from collbench.plots.planner import LABEL, machine_of
from collbench.plots.style import DARK, style
from collbench.results import PlannedStep
from collbench.results.steps import Pipeline
from collbench.runfile.store import Run
from collbench.units import format_seconds

_COLOURS = {  # the first chunk of a stage, and the last: those between are mixed
    FORWARD: ("#0072B2", "#A8D8F5"),
    BACKWARD: ("#D55E00", "#FBD3A0"),
    WEIGHTS: ("#009E73", "#009E73"),
}
_STAGES = 16  # rows of a figure at most
_MICRO_BATCHES = 16  # that are drawn at most, unless it takes more to fill and drain the pipeline
_MOST_EVENTS = 2**18  # that are scheduled for a figure
_NUMBERED = 0.11  # inches of a piece that has room for its micro-batch's number
_WIDTH = 11.0  # inches


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield one figure, of the first layout whose pipeline has several stages, and not too many."""
    for row in planned(run.results, "layout"):
        if request.shows(row.implementation) and _drawable(row.pipeline):
            yield "pipeline", _figure(row, machine_of(run, [row]))
            return


def _drawable(pipeline: Pipeline) -> bool:
    """Return whether its stages take time, its rounds are whole, and it is not too large."""
    short = shortened(pipeline, _MICRO_BATCHES)
    whole = pipeline.chunks == 1 or pipeline.micro_batches % pipeline.stages == 0
    return pipeline.stages > 1 and pipeline.forward > 0 and whole and events_of(short) <= _MOST_EVENTS


@style()
def _figure(row: PlannedStep, machine: str) -> Figure:
    """Draw a row for each stage, or for the first and the last of many."""
    pipeline, short = row.pipeline, shortened(row.pipeline, _MICRO_BATCHES)
    left_out = pipeline.micro_batches - short.micro_batches
    events = schedule(short)
    shown = [*range(pipeline.stages)]
    if pipeline.stages > _STAGES:  # the first and the last, with a gap
        shown[_STAGES // 2 : -_STAGES // 2] = [-1]
    numbered = min(event.seconds for event in events) / makespan(events) * _WIDTH > _NUMBERED
    drawn = new_figure(_WIDTH, 0.3 * len(shown) + 2.4)
    axes = drawn.subplots()
    for place, stage in enumerate(shown):
        pieces: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for event in (event for event in events if event.stage == stage):
            pieces.setdefault((event.kind, event.chunk), []).append((event.start, event.seconds))
            if numbered:
                # Behind the middle micro-batches have the numbers that they have in the whole step.
                behind = 2 * event.micro_batch >= short.micro_batches
                number = event.micro_batch + 1 + behind * left_out
                colour = DARK if 2 * event.chunk > pipeline.chunks - 1 else "white"
                middle = event.start + event.seconds / 2
                axes.text(middle, place, f"{number}", ha="center", va="center", fontsize=6.5, color=colour)
        for (kind, chunk), spans in pieces.items():
            shade = _colour(kind, chunk, short.chunks)
            axes.broken_barh(spans, (place - 0.42, 0.84), color=shade, edgecolor="white", linewidth=0.3)
    axes.set_xlim(0, makespan(events))
    name_rows(axes, [f"stage {stage + 1:,}" if stage >= 0 else "..." for stage in shown])
    axes.xaxis.set_major_formatter(seconds_tick)
    axes.grid(visible=False)
    drawn_as = f"time, as if there were {short.micro_batches:,} micro-batches: the others repeat the middle"
    axes.set_xlabel("time" if short.micro_batches == pipeline.micro_batches else drawn_as)
    # Whatever part of the step is drawn, the share that a stage idles is that of the whole.
    work = pipeline.forward + pipeline.backward
    length = makespan(events) + left_out * work
    parts = [f"{pipeline.stages:,} stages", f"{pipeline.micro_batches:,} micro-batches"]
    if pipeline.chunks > 1:
        parts.insert(1, f"{pipeline.chunks:,} chunks")
    idle = 1 - pipeline.micro_batches * work / length
    axes.set_title(f"{', '.join(parts)}: {format_seconds(length)}, of which a stage idles {idle:.1%}", fontsize=10.5)
    heading(drawn, f"Pipeline of {text(row.implementation, LABEL)}\n{machine}")
    kinds = {event.kind for event in events}
    ends = [(0, ", first chunk"), (pipeline.chunks - 1, ", last chunk")] if pipeline.chunks > 1 else [(0, "")]
    colours = {}
    for kind in (kind for kind in _COLOURS if kind in kinds):
        for chunk, words in ends:
            colours[f"{kind}{words}"] = _colour(kind, chunk, pipeline.chunks)
    patch_legend(drawn, colours)
    return drawn


def _colour(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    share = chunk / (chunks - 1) if chunks > 1 else 0.0
    first, last = map(to_rgb, _COLOURS[kind])
    red, green, blue = ((1 - share) * one + share * other for one, other in zip(first, last, strict=True))
    return red, green, blue


KIND = Kind(order=76, rows=(PlannedStep,), needs="planned layouts with several stages", figures=run_by_run(figures))
