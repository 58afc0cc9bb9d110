"""Stacked bars: what the parts of several steps, or memories, come to, side by side."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from collbench.host.sanitize import text
from collbench.plots.palette import MEMORY_PARTS, OTHERS, STEP_PARTS
from collbench.plots.styles import style
from collbench.results import PlannedStep, words
from collbench.runfile.store import Run
from collbench.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 24  # of a picture: more are too thin to read
LABEL, MACHINE = 52, 60  # characters of what a bar is called, and of what a machine is
_WIDTH = 11.0  # inches
_SMALL, _LETTER = 9.5, 0.56  # points of what stands behind a bar; width of a letter over its height
_COLOURS = {**STEP_PARTS, **MEMORY_PARTS}
"""By the part of a step or of a memory."""


class Bar(NamedTuple):
    """One of them."""

    label: str
    parts: Mapping[str, float]
    band: tuple[float, float] | None  # between which its end should lie
    said: str  # behind its end


class Axis(NamedTuple):
    """What they are measured in."""

    name: str
    ticks: Callable[[float], str]
    limit: float = 0.0  # that none may pass, drawn as a line
    limited: str = ""  # what the limit is called


SECONDS = Axis("seconds of a step; the line spans where it should lie", format_seconds)


def of_what(run: Run, rows: Sequence[PlannedStep]) -> str:
    """The machine of some plans, and on how many GPUs, where that is the same for all."""
    machine = text(run.header.topology.name or rows[0].system, MACHINE)
    names = [machine] if len({row.system for row in rows}) == 1 else []
    counts = [f"{rows[0].gpus:,} GPUs"] if len({row.gpus for row in rows}) == 1 else []
    return ", ".join([*names, *counts, "predicted"])


def label(row: PlannedStep, rows: Sequence[PlannedStep]) -> str:
    """What tells a layout from the others."""
    more = [row.system] if len({other.system for other in rows}) > 1 else []
    more += [f"{row.gpus:,} GPUs"] if len({other.gpus for other in rows}) > 1 else []
    return ", ".join([row.implementation, *more])


def figure(bars: Sequence[Bar], axis: Axis, title: str) -> "Figure":
    """One below the other, the first at the top."""
    shown = bars[:MOST_BARS]
    more = f"; the first {len(shown)} of {len(bars):,}" if len(bars) > len(shown) else ""
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(_WIDTH, 0.36 * len(shown) + 2.2), layout="constrained")
        axes = drawn.subplots()
        for row, bar in enumerate(shown):
            _bar(axes, row, bar, axis.limit)
        if axis.limit:
            axes.axvline(axis.limit, color="#000000", linewidth=1.2, linestyle="--")
            axes.annotate(
                axis.limited, (axis.limit, -0.85), (-4, 0), textcoords="offset points", ha="right", va="center"
            )
        axes.set_xlim(0, _room(shown) * max(axis.limit, *map(_end, shown)))
        axes.set_ylim(len(shown) - 0.5, -1.2 if axis.limit else -0.6)
        axes.set_yticks(range(len(shown)), [text(bar.label, LABEL) for bar in shown])
        axes.xaxis.set_major_formatter(lambda value, position: axis.ticks(value) if value > 0 else "0")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(axis.name)
        drawn.suptitle(f"{title}{more}", x=0.01, ha="left")
        _legend(drawn, shown)
    return drawn


def _end(bar: Bar) -> float:
    return max(sum(bar.parts.values()), *(bar.band or (0.0,)))


def _room(bars: Sequence[Bar]) -> float:
    """Times the longest bar that the axis has to be long, for what is said behind the bars."""
    names, said = (
        max(len(words) for words in column) for column in zip(*((bar.label, bar.said) for bar in bars), strict=True)
    )
    inches = _WIDTH - 0.5 - min(names, LABEL) * 11 * _LETTER / 72
    return 1 / (1 - min(0.5, (said + 2) * _SMALL * _LETTER / 72 / inches))


def _bar(axes: "Axes", row: int, bar: Bar, limit: float) -> None:
    left = 0.0
    for part, value in bar.parts.items():
        axes.barh(
            row, value, left=left, height=0.72, color=_COLOURS.get(part, OTHERS), edgecolor="white", linewidth=0.4
        )
        left += value
    if bar.band:
        axes.hlines(row, *bar.band, color="#202020", linewidth=1.2)
        axes.plot(bar.band, (row, row), "|", color="#202020", markersize=7)
    place = max(limit, _end(bar)), row
    axes.annotate(bar.said, place, (6, 0), textcoords="offset points", va="center", fontsize=_SMALL)


def _legend(drawn: "Figure", bars: Sequence[Bar]) -> None:
    """Parts that can be seen in one of the bars, in the order in which they lie in them."""
    from matplotlib.patches import Patch

    least = max(map(_end, bars)) / 1000
    names = {name for bar in bars for name, value in bar.parts.items() if value > least}
    ordered = [name for name in dict.fromkeys(name for bar in bars for name in bar.parts) if name in names]
    handles = [Patch(color=_COLOURS.get(name, OTHERS), label=words(name)) for name in ordered]
    drawn.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))
