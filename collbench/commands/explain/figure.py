"""Timelines of explained operations.

If an operation has too many hops to draw, a row shows shares of time by bin.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.plots.axes import heading, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import PHASES as COLOURS
from collbench.present.figures import Axes, Figure, new_figure, style
from collbench.results import Explanation, by_key
from collbench.results.collectives import PHASES, Track
from collbench.runfile.store import Run
from collbench.units import format_seconds, format_size

Floats = np.ndarray[Any, np.dtype[np.float64]]
_MOST_TRACKS = 16  # of a figure; more are too thin to read
_MOST_SPANS = 150  # of a track that are drawn singly; more are too thin
_MOST_BINS, _IN_A_BIN = 120, 12  # bins of a row; spans per bin at least
_WIDTH, _ROW = 9.0, 0.35  # inches


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield a timeline for each explanation that has tracks."""
    for result in run.results:
        if isinstance(result, Explanation) and result.tracks and request.shows(result.implementation):
            case = result.case
            redop = case.redop.name if case.collective.reduces else ""
            words = ["timeline", case.collective.name, case.dtype.name, redop]
            words += [each.word(value) for each, value in case.unusual]
            yield "-".join(filter(None, [*words, f"{case.nbytes}B", result.implementation])), _timeline(result)


@style()
def _timeline(explanation: Explanation) -> Figure:
    from matplotlib.patches import Patch

    # The first blocks of each rank, as far as there is room.
    tracks = sorted(explanation.tracks, key=lambda track: (track.rank, track.block))
    by_rank = by_key(tracks, lambda track: track.rank)
    each = max(1, _MOST_TRACKS // len(by_rank))
    shown = [track for blocks in by_rank.values() for track in blocks[:each]][:_MOST_TRACKS]

    crowded = max(len(track.spans) for track in shown) > _MOST_SPANS
    end = max(track.start + track.seconds for track in shown)
    drawn = new_figure(_WIDTH, _ROW * len(shown) + 1.9)
    axes = drawn.subplots()
    (_binned if crowded else _single)(axes, shown, end)
    several = len({track.block for track in shown}) > 1
    names = [f"rank {track.rank}" + (f", block {track.block}" if several else "") for track in shown]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first at the top
    axes.set_xlim(0.0, end)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_formatter(seconds_tick)
    case = explanation.case
    heading(drawn, f"{explanation.implementation}: one {case.title}, {format_size(case.nbytes)}")
    traced, usual = format_seconds(explanation.traced), format_seconds(explanation.seconds)
    remark = f"drawn: {format_seconds(end)} from the first to the last event\n"
    remark += f"back to back: {traced} with the log, {usual} without\n{explanation.altered}".rstrip()
    if lost := sum(track.lost for track in explanation.tracks):
        every = lost + sum(len(track.spans) for track in explanation.tracks)
        remark += f"\nwhite: {lost:,} of {every:,} pieces did not fit into the log"
    axes.set_xlabel(remark)
    patches = [Patch(color=COLOURS[phase], label=phase) for phase in PHASES]
    drawn.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return drawn


def _single(axes: Axes, shown: Sequence[Track], end: float) -> None:
    for row, track in enumerate(shown):
        for phase in PHASES:
            pieces = [(track.start + span.start, span.seconds) for span in track.spans if span.phase == phase]
            axes.broken_barh(pieces, (row - 0.4, 0.8), color=COLOURS[phase], linewidth=0)


def spent(track: Track, edges: Floats) -> Floats:
    """Return the seconds of each phase between neighbouring edges, of shape (phases, edges - 1)."""
    rows = []
    for phase in PHASES:
        spans = [(track.start + span.start, span.seconds) for span in track.spans if span.phase == phase]
        starts, seconds = np.array(spans or [(0.0, 0.0)]).T

        # Interpolate the time spent in the phase, cumulated at the ends of spans, at the edges.
        places = np.stack([starts, starts + seconds], 1).ravel()
        done = np.cumsum(np.stack([np.zeros_like(seconds), seconds], 1).ravel())
        rows.append(np.diff(np.interp(edges, places, done)))
    return np.array(rows)


def _binned(axes: Axes, shown: Sequence[Track], end: float) -> None:
    """Draw stacked shares of the phases in each bin of time."""
    spans = max(len(track.spans) for track in shown)
    edges = np.linspace(0.0, end, 1 + max(1, min(_MOST_BINS, spans // _IN_A_BIN)))
    for row, track in enumerate(shown):
        height = 0.8 * np.cumsum(spent(track, edges) / np.diff(edges), axis=0)
        low = np.zeros(len(edges) - 1)
        for phase, high in zip(PHASES, height, strict=True):
            axes.stairs(row + 0.4 - high, edges, baseline=row + 0.4 - low, fill=True, color=COLOURS[phase])
            low = high
    axes.set_title(f"shares of every {format_seconds(edges[1])}", fontsize="small")


KINDS = {
    "timeline": Kind(order=60, rows=(Explanation,), needs="rows of `collbench explain`", figures=run_by_run(figures))
}
