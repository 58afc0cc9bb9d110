"""The figure of a pipeline: which stage computes which micro-batch when, in the first planned layout with stages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.analysis.plans import planned
from collbench.host.sanitize import text
from collbench.planner.pipeline_schedule import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    Event,
    events_of,
    makespan,
    schedule,
    shortened,
)
from collbench.plots.bars import LABEL, of_what
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.plots.styles import style
from collbench.results import Pipeline, PlannedStep
from collbench.runfile.store import Run
from collbench.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # the first chunk of a stage, and the last: those between are mixed
    FORWARD: ("#0072B2", "#A8D8F5"),
    BACKWARD: ("#D55E00", "#FBD3A0"),
    WEIGHTS: ("#009E73", "#009E73"),
}
_STAGES, _MICRO_BATCHES = 16, 16  # in a picture, but for as many as it takes to fill and drain it
_EVENTS = 2**18  # that are reckoned for one
_NUMBERED = 0.11  # inches of a piece that has room for its micro-batch's number
_WIDTH = 11.0  # inches


def figures(run: Run, wanted: Wanted) -> Named:
    """One, of the first layout whose pipeline has stages, and not too many."""
    rows = planned(run.results, "layout")
    for row in rows:
        if wanted.shows(row.implementation) and _drawable(row.pipeline):
            yield "pipeline", figure(row, of_what(run, [row]))
            return


def _drawable(pipeline: Pipeline) -> bool:
    """Whether its time passes, its rounds are whole, and it is no larger than any that is run."""
    short = shortened(pipeline, _MICRO_BATCHES)
    whole = pipeline.chunks == 1 or pipeline.micro_batches % pipeline.stages == 0
    return pipeline.stages > 1 and pipeline.forward > 0 and whole and events_of(short) <= _EVENTS


def figure(row: PlannedStep, of: str) -> "Figure":
    """A row for each stage, or for the first and the last of many."""
    pipeline, short = row.pipeline, shortened(row.pipeline, _MICRO_BATCHES)
    events = schedule(short)
    shown = _shown(pipeline.stages)
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(_WIDTH, 0.3 * len(shown) + 2.4), layout="constrained")
        axes = drawn.subplots()
        for place, stage in enumerate(shown):
            own = [event for event in events if event.stage == stage]
            _stage(axes, place, own, short.chunks)
            if min(event.seconds for event in events) / makespan(events) * _WIDTH > _NUMBERED:
                _numbers(axes, place, own, pipeline, short)
        axes.set_xlim(0, makespan(events))
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_yticks(range(len(shown)), [f"stage {stage + 1:,}" if stage >= 0 else "..." for stage in shown])
        axes.xaxis.set_major_formatter(lambda value, position: format_seconds(value) if value > 0 else "0")
        axes.grid(visible=False)
        axes.set_xlabel(_remark(pipeline, short))
        axes.set_title(_idle(pipeline, short, events), fontsize=10.5)
        drawn.suptitle(f"Pipeline of {text(row.implementation, LABEL)}\n{of}", x=0.01, ha="left")
        _legend(drawn, pipeline, {event.kind for event in events})
    return drawn


def _shown(stages: int) -> list[int]:
    """All, or the first and the last with a gap, which is -1."""
    if stages <= _STAGES:
        return [*range(stages)]
    half = _STAGES // 2
    return [*range(half), -1, *range(stages - half, stages)]


def _stage(axes: "Axes", place: int, events: Sequence[Event], chunks: int) -> None:
    """Its pieces."""
    pieces: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for one in events:
        pieces.setdefault((one.kind, one.chunk), []).append((one.start, one.seconds))
    for (kind, chunk), spans in pieces.items():
        colour = _colour(kind, chunk, chunks)
        axes.broken_barh(spans, (place - 0.42, 0.84), color=colour, edgecolor="white", linewidth=0.3)


def _numbers(axes: "Axes", place: int, events: Sequence[Event], pipeline: Pipeline, short: Pipeline) -> None:
    """Of micro-batches; those behind the middle have the number that they have in the whole step."""
    left_out = pipeline.micro_batches - short.micro_batches
    for one in events:
        number = one.micro_batch + 1 + (left_out if 2 * one.micro_batch >= short.micro_batches else 0)
        colour = "#202020" if 2 * one.chunk > pipeline.chunks - 1 else "white"
        axes.text(one.start + one.seconds / 2, place, f"{number}", ha="center", va="center", fontsize=6.5, color=colour)


def _colour(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    share = chunk / (chunks - 1) if chunks > 1 else 0.0
    red, green, blue = (
        (1 - share) * one + share * other for one, other in zip(*map(to_rgb, COLOURS[kind]), strict=True)
    )
    return red, green, blue


def _idle(pipeline: Pipeline, short: Pipeline, events: Sequence[Event]) -> str:
    """What the bubble takes of the whole, whatever is drawn."""
    work = pipeline.forward + pipeline.backward
    length = makespan(events) + (pipeline.micro_batches - short.micro_batches) * work
    parts = (f"{pipeline.stages:,} stages", f"{pipeline.chunks:,} chunks" if pipeline.chunks > 1 else "")
    shape = ", ".join([*filter(None, parts), f"{pipeline.micro_batches:,} micro-batches"])
    return f"{shape}: {format_seconds(length)}, of which a stage idles {1 - pipeline.micro_batches * work / length:.1%}"


def _remark(pipeline: Pipeline, short: Pipeline) -> str:
    """What the picture leaves out."""
    if short.micro_batches == pipeline.micro_batches:
        return "time"
    return f"time, as if there were {short.micro_batches:,} micro-batches: the others repeat the middle"


def _legend(drawn: "Figure", pipeline: Pipeline, kinds: set[str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=_colour(kind, chunk, pipeline.chunks), label=kind + (f", {which} chunk" if which else ""))
        for kind in COLOURS
        if kind in kinds
        for chunk, which in _ends(pipeline.chunks)
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _ends(chunks: int) -> list[tuple[int, str]]:
    return [(0, "first"), (chunks - 1, "last")] if chunks > 1 else [(0, "")]


KIND = Kind(order=76, rows=(PlannedStep,), needs="planned layouts with several stages", figures=run_by_run(figures))
