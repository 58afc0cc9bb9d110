"""Pictures of explanations: what each rank did when, and the shares of all implementations side by side.

Of an operation with more hops than can be seen, a row is shares of time by bin, and a stretch below shows single hops.
Matplotlib is imported at the first figure.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.cases import Case
from collbench.plots import palette, shares
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.plots.styles import style
from collbench.results import PHASES, Explanation, Track
from collbench.runfile.store import Run
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = np.ndarray[Any, np.dtype[np.float64]]
_MOST_TRACKS = 16  # in a picture: more are too thin to read
_MOST_SPANS = 150  # of a track, one by one: more are slivers
_MOST_BINS, _IN_A_BIN = 120, 12  # bins of a row; spans of a bin at least
_IN_A_STRETCH = 24  # spans of a track that are shown one by one, about
_STRETCHES = 64  # that are looked at for the one to show
_WIDTH, _ROW = 9.0, 0.35  # inches


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
            yield f"shares-{_stem(group[0])}", shares.figure(group)


def _stem(explanation: Explanation) -> str:
    case = explanation.case
    words = [case.collective.name, case.dtype.name, case.redop.name if case.collective.reduces else ""]
    return "-".join([*filter(None, words), *(["in-place"] if case.in_place else []), f"{case.nbytes}B"])


def _timeline(explanation: Explanation) -> "Figure":
    shown = _shown(explanation.tracks)
    crowded = max(len(track.spans) for track in shown) > _MOST_SPANS
    with style():
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        height = (2 if crowded else 1) * _ROW * len(shown) + (3.2 if crowded else 1.9)
        drawn = Figure(figsize=(_WIDTH, height), layout="constrained")
        whole, *below = drawn.subplots(2 if crowded else 1, 1, squeeze=False)[:, 0]
        end = max(track.start + track.seconds for track in shown)
        if crowded:
            _binned(whole, shown, end)
            _stretch(whole, below[0], shown, end)
        else:
            _spans(whole, shown)
        _finish(whole, shown, (0.0, end))
        case = explanation.case
        drawn.suptitle(f"{explanation.implementation}: one {case.title}, {format_size(case.nbytes)}", x=0.01, ha="left")
        (below or [whole])[-1].set_xlabel(_remark(explanation))
        entries = [Patch(color=palette.PHASES[phase], label=phase) for phase in PHASES]
        drawn.legend(handles=entries, loc="outside lower center", ncols=len(entries))
    return drawn


def _remark(explanation: Explanation) -> str:
    words = (
        f"this one took {format_seconds(explanation.traced)} with its log, "
        f"{format_seconds(explanation.seconds)} is usual without"
    )
    lost = sum(track.lost for track in explanation.tracks)
    every = lost + sum(len(track.spans) for track in explanation.tracks)
    return f"{words}\nwhite: {lost:,} of {every:,} pieces found no room in the log" if lost else words


def _shown(tracks: Sequence[Track]) -> list[Track]:
    """As many of each rank as there is room for, the first blocks."""
    ranks = len({track.rank for track in tracks})
    each = max(1, _MOST_TRACKS // ranks)
    kept: dict[int, int] = {}
    shown = []
    for track in sorted(tracks, key=lambda track: (track.rank, track.block)):
        kept[track.rank] = kept.get(track.rank, 0) + 1
        if kept[track.rank] <= each:
            shown.append(track)
    return shown[:_MOST_TRACKS]


def _spans(axes: "Axes", shown: Sequence[Track]) -> None:
    """Every piece as it was."""
    for row, track in enumerate(shown):
        for phase in PHASES:
            pieces = [(track.start + span.start, span.seconds) for span in track.spans if span.phase == phase]
            axes.broken_barh(pieces, (row - 0.4, 0.8), color=palette.PHASES[phase], linewidth=0)


def spent(track: Track, edges: Floats) -> Floats:
    """Seconds of each phase between neighbouring edges: (phases, edges - 1)."""
    rows = []
    for phase in PHASES:
        own = [(track.start + span.start, span.seconds) for span in track.spans if span.phase == phase]
        starts, seconds = np.array(own or [(0.0, 0.0)]).T
        places = np.stack([starts, starts + seconds], 1).ravel()
        done = np.cumsum(np.stack([np.zeros_like(seconds), seconds], 1).ravel())
        rows.append(np.diff(np.interp(edges, places, done)))
    return np.array(rows)


def _binned(axes: "Axes", shown: Sequence[Track], end: float) -> None:
    """What every rank did in each stretch of time, as shares that lie on each other."""
    spans = max(len(track.spans) for track in shown)
    edges = np.linspace(0.0, end, 1 + max(1, min(_MOST_BINS, spans // _IN_A_BIN)))
    for row, track in enumerate(shown):
        height = 0.8 * np.cumsum(spent(track, edges) / np.diff(edges), axis=0)
        low = np.zeros(len(edges) - 1)
        for phase, high in zip(PHASES, height, strict=True):
            axes.stairs(row + 0.4 - high, edges, baseline=row + 0.4 - low, fill=True, color=palette.PHASES[phase])
            low = high
    each = format_seconds(edges[1])
    axes.set_title(f"shares of every {each}", fontsize="small")


def _stretch(whole: "Axes", axes: "Axes", shown: Sequence[Track], end: float) -> None:
    """The stretch whose time goes to phases most as that of the whole, close enough to see single pieces."""
    first = max(shown, key=lambda track: len(track.spans))
    ends = [first.start + span.start for span in first.spans]
    logged = first.start + first.spans[-1].start + first.spans[-1].seconds
    length = _IN_A_STRETCH / len(ends) * (logged - ends[0])
    starts = np.linspace(ends[0], max(ends[0], logged - length), _STRETCHES)
    typical = _rates(shown, 0.0, end)
    apart = [float(np.abs(_rates(shown, start, length) - typical).sum()) for start in starts]
    start = float(starts[int(np.argmin(apart))])
    _spans(axes, shown)
    _finish(axes, shown, (start, start + length))
    axes.set_title(f"{format_seconds(length)} of it, piece by piece", fontsize="small")
    whole.axvspan(start, start + length, facecolor="none", edgecolor="#202020", linewidth=1.2, zorder=3, gid="stretch")


def _rates(shown: Sequence[Track], start: float, length: float) -> Floats:
    """Of each phase, how many ranks are in it on average."""
    edges = np.array([start, start + length])
    rates: Floats = np.array([spent(track, edges)[:, 0] for track in shown]).sum(0) / length
    return rates


def _finish(axes: "Axes", shown: Sequence[Track], view: tuple[float, float]) -> None:
    """Names of rows, and time along x."""
    several = len({track.block for track in shown}) > 1
    labels = [f"rank {track.rank}" + (f", block {track.block}" if several else "") for track in shown]
    axes.set_yticks(range(len(shown)), labels)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(*view)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_formatter(lambda value, position: format_seconds(value) if value > 0 else "0")


KIND = Kind(order=60, rows=(Explanation,), needs="operations that kept a log", figures=run_by_run(figures))
