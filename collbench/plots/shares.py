"""The picture of where the time of an operation goes: bars as long as their time, the same in per cent beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.plots.palette import OTHERS, PHASES
from collbench.plots.styles import style
from collbench.results import PARTS, Explanation
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROOM = 1.15  # of the longest bar, for the time that stands behind it
_ROW = 0.4  # inches


def figure(group: Sequence[Explanation]) -> "Figure":
    """A row for each implementation of one case; those that cannot be looked into have an empty bar."""
    with style():
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        drawn = Figure(figsize=(11, _ROW * len(group) + 2.0), layout="constrained")
        times, shares = drawn.subplots(1, 2, sharey=True, width_ratios=(1.7, 1))
        for row, explanation in enumerate(group):
            _times(times, row, explanation)
            _shares(shares, row, explanation)
        times.set_yticks(range(len(group)), [explanation.implementation for explanation in group])
        times.set_ylim(len(group) - 0.5, -0.5)
        times.set_xlim(0, _ROOM * max(explanation.seconds for explanation in group))
        times.xaxis.set_major_locator(MaxNLocator(6))
        times.xaxis.set_major_formatter(lambda value, position: format_seconds(value) if value > 0 else "0")
        shares.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
        shares.set_xlim(0, 1)
        for axes, name in ((times, "an operation, without its log"), (shares, "the same in per cent")):
            axes.grid(visible=False, axis="y")
            axes.grid(visible=True, axis="x")
            axes.set_xlabel(name)
        case = group[0].case
        drawn.suptitle(f"Where the time goes: {case.title}, {format_size(case.nbytes)}", x=0.01, ha="left")
        entries = [Patch(color=PHASES[part], label=part) for part in PARTS]
        drawn.legend(handles=entries, loc="outside lower center", ncols=len(entries))
    return drawn


def _times(axes: "Axes", row: int, explanation: Explanation) -> None:
    """The time as it is without a log, dealt out as it was with one."""
    left, whole = 0.0, explanation.seconds
    for part in PARTS if explanation.tracks else ():
        axes.barh(row, explanation.share(part) * whole, left=left, height=0.8, color=PHASES[part])
        left += explanation.share(part) * whole
    if not explanation.tracks:
        axes.barh(row, whole, height=0.8, facecolor="white", edgecolor=OTHERS, linewidth=0.8)
    axes.annotate(format_seconds(whole), (whole, row), (5, 0), textcoords="offset points", va="center")


def _shares(axes: "Axes", row: int, explanation: Explanation) -> None:
    left = 0.0
    for part in PARTS if explanation.tracks else ():
        axes.barh(row, explanation.share(part), left=left, height=0.8, color=PHASES[part])
        left += explanation.share(part)
    if not explanation.tracks:
        axes.text(0.02, row, "cannot be looked into", va="center", color=OTHERS)
