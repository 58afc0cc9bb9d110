"""Pictures of explanations: what each rank did when, and the shares of all implementations side by side.

Matplotlib is imported at the first figure.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.cases import Case
from collbench.figures.kinds import Kind, Named, Wanted, run_by_run
from collbench.figures.styles import style
from collbench.measurement import Explanation
from collbench.runs.file import Run
from collbench.tracks import ADDED, LAUNCH, MOVED, PARTS, PHASES, PUBLISHED, WAITED, Track
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # of Okabe and Ito, which those who see fewer colours can tell apart
    LAUNCH: "#F0E442",
    WAITED: "#CCCCCC",
    MOVED: "#56B4E9",
    ADDED: "#009E73",
    PUBLISHED: "#D55E00",
}
_MOST_TRACKS = 16  # in a picture: more are too thin to read


def figures(run: Run, wanted: Wanted) -> Named:
    """A timeline for each explanation that has tracks, and for each case its shares."""
    explained = [result for result in run.results if isinstance(result, Explanation)]
    shown = [result for result in explained if wanted.shows(result.implementation)]
    if any(result.tracks for result in shown):
        yield from _of_explanations(shown)


def _of_explanations(explanations: Sequence[Explanation]) -> Named:
    for explanation in explanations:
        if explanation.tracks:
            yield f"timeline-{_stem(explanation)}-{explanation.implementation}", _timeline(explanation)
    groups: dict[Case, list[Explanation]] = {}
    for explanation in explanations:
        groups.setdefault(explanation.case, []).append(explanation)
    for group in groups.values():
        if len(group) > 1:
            yield f"shares-{_stem(group[0])}", _shares(group)


def _stem(explanation: Explanation) -> str:
    case = explanation.case
    words = [case.collective.name, case.dtype.name, case.redop.name if case.collective.reduces else ""]
    return "-".join([*filter(None, words), *(["in-place"] if case.in_place else []), f"{case.nbytes}B"])


def _timeline(explanation: Explanation) -> "Figure":
    shown = _shown(explanation.tracks)
    several = len({track.block for track in explanation.tracks}) > 1
    labels = [f"rank {track.rank}" + (f", block {track.block}" if several else "") for track in shown]
    with style():
        figure, axes = _figure(0.35 * len(shown) + 1.9)
        for row, track in enumerate(shown):
            _bar(axes, row, track)
        end = max(track.start + track.seconds for track in shown)
        axes.set_xlim(0, end)
        axes.set_yticks(range(len(shown)), labels)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        _finish(
            axes, f"{explanation.implementation}: one {explanation.case.title}, {format_size(explanation.case.nbytes)}"
        )
        axes.set_xlabel(
            f"this one took {format_seconds(explanation.traced)} with its log, "
            f"{format_seconds(explanation.seconds)} is usual without"
        )
        _legend(figure, PHASES)
    return figure


def _shown(tracks: Sequence[Track]) -> list[Track]:
    """As many of each rank as there is room for, the first blocks."""
    ranks = len({track.rank for track in tracks})
    return [track for track in tracks if track.block < max(1, _MOST_TRACKS // ranks)][:_MOST_TRACKS]


def _bar(axes: "Axes", row: int, track: Track) -> None:
    for phase in PHASES:
        pieces = [(track.start + span.start, span.seconds) for span in track.spans if span.phase == phase]
        axes.broken_barh(pieces, (row - 0.4, 0.8), color=COLOURS[phase], linewidth=0)


def _shares(group: Sequence[Explanation]) -> "Figure":
    """Time is not to scale between the bars, whose lengths may differ a thousandfold: it stands beside them."""
    shown = [explanation for explanation in group if explanation.tracks]
    with style():
        figure, axes = _figure(0.4 * len(shown) + 1.9)
        for row, explanation in enumerate(shown):
            left = 0.0
            for part in PARTS:
                axes.barh(row, explanation.share(part), left=left, height=0.8, color=COLOURS[part])
                left += explanation.share(part)
        labels = [f"{explanation.implementation}  {format_seconds(explanation.seconds)}" for explanation in shown]
        axes.set_yticks(range(len(shown)), labels)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
        _finish(axes, f"Where the time goes: {group[0].case.title}, {format_size(group[0].case.nbytes)}", seconds=False)
        _legend(figure, PARTS)
    return figure


def _figure(height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots()


def _finish(axes: "Axes", heading: str, seconds: bool = True) -> None:
    axes.set_title(heading)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    if seconds:
        axes.xaxis.set_major_formatter(lambda value, position: format_seconds(value) if value > 0 else "0")


def _legend(figure: "Figure", phases: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(color=COLOURS[phase], label=phase) for phase in phases],
        loc="outside lower center",
        ncols=len(phases),
    )


KIND = Kind(order=60, rows=(Explanation,), needs="operations that kept a log", figures=run_by_run(figures))
