"""Labels at the right ends of lines, moved apart where the lines come together, each tied to its line's last point."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

_LONGEST = 24  # letters of a label
_APART = 1.02  # distance of two labels over their height
_TIE = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
_HALO = 2.0  # points of white around a label that stands in the panel


class End(NamedTuple):
    """The last point of a line, and what it is called."""

    name: str
    place: tuple[float, float]
    color: str
    first: bool  # whether it keeps its label where there is not room for all


def label(axes: "Axes", ends: Sequence[End], font: float) -> "list[tuple[End, Annotation]]":
    """Put a label beside each end; those at the largest size stand right of the panel.  `settle` moves them apart."""
    from matplotlib.patheffects import withStroke

    last = max((end.place[0] for end in ends), default=0.0)
    made = []
    for end in ends:
        outside = end.place[0] == last
        words = end.name if len(end.name) <= _LONGEST else f"{end.name[: _LONGEST - 3]}..."
        text = axes.annotate(
            words,
            end.place,
            (1.03, end.place[1]) if outside else (5, 0),
            textcoords=("axes fraction", "data") if outside else "offset points",
            fontsize=font,
            color=_readable(end.color),
            va="center",
            arrowprops={**_TIE, "color": end.color} if outside else None,
            path_effects=None if outside else [withStroke(linewidth=_HALO, foreground="white")],
            annotation_clip=False,
            zorder=5,
            label="end",
        )
        made.append((end, text))
    return made


def _readable(color: str) -> tuple[float, ...]:
    """A colour dark enough for letters on white: a contrast of 3 at least (WCAG 2, relative luminance)."""
    from matplotlib.colors import to_rgb

    parts = to_rgb(color)
    while _luminance(parts) > 1.05 / 3 - 0.05:
        parts = tuple(0.95 * part for part in parts)  # type: ignore[assignment]
    return parts


def _luminance(parts: Sequence[float]) -> float:
    """From 0 to 1."""
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def settle(figure: "Figure", labelled: "Sequence[tuple[Axes, list[tuple[End, Annotation]]]]") -> None:
    """Lay the figure out for good, now that all of it is there, and move its labels apart.

    What has not enough room loses its label, those first that are not `first`: the legend names every line.
    """
    engine = figure.get_layout_engine()
    if engine is None or not any(made for _, made in labelled):
        return
    engine.execute(figure)
    figure.set_layout_engine("none")  # twice the same takes twice the time
    for axes, made in labelled:
        last = max((end.place[0] for end, _ in made), default=0.0)
        _settle(axes, [one for one in made if one[0].place[0] == last])


def _settle(axes: "Axes", made: "list[tuple[End, Annotation]]") -> None:
    from matplotlib.text import Text

    box = axes.get_window_extent()
    step = _APART * max((Text.get_window_extent(text).height for _, text in made), default=1.0)  # without their ties
    room = max(1, int(box.height / step))
    kept = sorted(made, key=lambda one: not one[0].first)[:room]
    for one in made:
        if one not in kept:
            one[1].remove()
    kept.sort(key=lambda one: one[0].place[1])
    wanted = [axes.transData.transform(end.place)[1] for end, _ in kept]
    back = axes.transData.inverted()
    for (_, text), height in zip(kept, spread(wanted, step, box.y0 + step / 2, box.y1 - step / 2), strict=True):
        text.set_position((1.03, back.transform((box.x0, height))[1]))


def spread(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Places as near to those wanted, which rise, as can be, `step` apart at least, and from `low` to `high`.

    Least squares: neighbours that are too near become a block around their mean (pool adjacent violators).
    """
    blocks: list[tuple[float, int]] = []  # of places less their number times the step: mean, count
    for number, place in enumerate(wanted):
        block = (place - number * step, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, count = blocks.pop()
            block = ((mean * count + block[0] * block[1]) / (count + block[1]), count + block[1])
        blocks.append(block)
    top = max(low, high - (len(wanted) - 1) * step)
    flat = [min(max(mean, low), top) for mean, count in blocks for _ in range(count)]
    return [place + number * step for number, place in enumerate(flat)]
