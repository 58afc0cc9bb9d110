"""A system as a picture: the network above its first and last node, with GPUs, what joins them, CPUs and cards."""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collbench.errors import UsageError
from collbench.figures.styles import FORMATS, save, style
from collbench.topology.system import System
from collbench.topology.system_text import fabric_words, nic_words, tiers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {
    "gpu": "#9AD8C4",
    "fabric": "#F5CF7F",
    "nic": "#AEDCF5",
    "cpu": "#DCDCDC",
    "tier": "#9CC3DE",
}  # pale, for text
LINK = "#333333"
NODE = 8.0  # width of a node's frame
GAP = 2.0  # between two nodes
SCALE = 0.72  # inches of one unit
FEW = 8  # GPUs in one row, with the ways to them; more stand in several rows
MOST_CARDS = 16  # drawn one by one


class _Frame(NamedTuple):
    """Where a node's parts are, from its lower left corner."""

    places: list[tuple[float, float]]  # centres of its GPUs
    size: float  # of a GPU's square
    gpus_end: float
    height: float


def draw(system: System, path: Path) -> Path:
    """Write the picture in the format that the file's name ends in; UsageError for another one.

    The same system gives the same bytes, whatever the user's Matplotlib configuration.
    """
    if path.suffix[1:] not in FORMATS:
        raise UsageError(f"{path} is no picture's name; let it end in .{', .'.join(FORMATS)}")
    return save(figure(system), path.parent, path.stem, [path.suffix[1:]])[0]


def figure(system: System) -> "Figure":
    """The picture itself."""
    frame = _frame(system)
    nodes = min(system.nodes, 2)
    network = tiers(system) if system.nodes > 1 else []
    width, height = NODE * nodes + GAP * (nodes - 1), frame.height + 1.3 * len(network) + 0.5
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=((width + 0.4) * SCALE, (height + 0.3) * SCALE))
        axes = drawn.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-0.2, width + 0.2), ylim=(-0.15, height + 0.15))
        axes.set_axis_off()
        title = f"{system.title}: {system.ranks:,} GPUs" if system.nodes > 1 else system.title
        title = textwrap.shorten(title, 45 * nodes, placeholder=" ...")
        axes.text(0, height - 0.2, title, fontsize=14, va="center")
        for place in range(nodes):
            number = system.nodes - 1 if place else 0
            _node(axes, system, frame, place * (NODE + GAP), f"node {number:,}" if system.nodes > 1 else "node")
        if system.nodes > 2:
            axes.text(width / 2, frame.height / 2, f"...\n{system.nodes:,}\nnodes", ha="center", va="center")
        _network(axes, [f"{tier.name}: {words}" for tier, words in network], frame.height, width)
    return drawn


def _frame(system: System) -> _Frame:
    bottom = 1.9 if system.switches else 1.2  # above the CPUs and their switches
    if _in_circle(system):
        step = 2 * math.pi / system.gpus
        radius = 1.6
        middle = (NODE / 2, bottom + radius + 0.4)
        places = [
            (middle[0] + 1.6 * radius * math.sin(step * gpu), middle[1] + radius * math.cos(step * gpu))
            for gpu in range(system.gpus)
        ]
        end = middle[1] + radius + 0.5
        return _Frame(places, 0.62, end, end + 2.5)
    row = FEW if system.gpus <= 2 * FEW else 12
    columns, step = min(row, system.gpus), (NODE - 0.6) / row
    left = (NODE - step * (columns - 1)) / 2
    rows = -(-system.gpus // columns)
    places = [(left + step * (gpu % columns), bottom + 0.4 + step * (gpu // columns)) for gpu in range(system.gpus)]
    end = bottom + 0.4 + step * (rows - 1) + 0.7
    return _Frame(places, 0.75 * step, end, end + 2.5)


def _in_circle(system: System) -> bool:
    """Whether lines cross between GPUs, which a row would hide."""
    return system.fabric in ("mesh", "hybrid-cube") and 2 < system.gpus <= FEW


def _node(axes: "Axes", system: System, frame: _Frame, x: float, name: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, 0), NODE, frame.height - 0.15, fill=False, edgecolor="#888888"))
    axes.text(x + 0.12, frame.height - 0.4, name, fontsize=10, va="center", weight="bold")
    _links(axes, system, frame, x)
    if system.gpus <= FEW:
        _cpus(axes, system, frame, x)
    else:
        words = f"{system.sockets} CPUs, {-(-system.gpus // system.sockets)} GPUs at each"
        _box(axes, (x + NODE / 2, 0.5), (NODE - 0.6, 0.5), "cpu", words)
    for gpu, (left, low) in enumerate(frame.places):
        label = f"GPU\n{gpu}" if system.gpus <= 2 * FEW else f"{gpu}"
        _box(axes, (x + left, low), (frame.size, frame.size), "gpu", label, 8)
    words = textwrap.fill(fabric_words(system), 78)
    _box(axes, (x + NODE / 2, frame.gpus_end + 0.35), (NODE - 0.6, 0.7), "fabric", words, 8.5)
    _cards(axes, system, x, frame.gpus_end + 1.15)


def _links(axes: "Axes", system: System, frame: _Frame, x: float) -> None:
    """NVLinks between GPUs, as many times as thick; or the ways to what joins them all."""
    places = [(x + left, low) for left, low in frame.places]
    for a in range(system.gpus):
        for b in range(a + 1, system.gpus):
            count = system.nvlinks_between(a, b)
            if count:
                ends = zip(places[a], places[b], strict=True)
                share = count / system.nvlinks
                axes.plot(*ends, color="#C98A00", linewidth=1 + 6 * share, zorder=1, solid_capstyle="butt")
    if system.fabric == "nvswitch" and system.gpus <= FEW:
        for left, low in places:
            axes.plot((left, left), (low, frame.gpus_end), color="#C98A00", linewidth=2, zorder=0)


def _cpus(axes: "Axes", system: System, frame: _Frame, x: float) -> None:
    """CPUs at the bottom, their PCIe switches above, and the ways to the GPUs."""
    width = (NODE - 0.6) / system.sockets
    centres = [x + 0.3 + width * (socket + 0.5) for socket in range(system.sockets)]
    if system.sockets > 1:
        axes.plot((centres[0], centres[-1]), (0.5, 0.5), color=LINK, linewidth=2, zorder=0)
    uplinks: dict[int, tuple[float, float]] = {}
    for number, group in enumerate(system.switches):
        spread = (NODE - 0.6) / len(system.switches)
        centre = (x + 0.3 + spread * (number + 0.5), 1.25)
        name = f"PCIe: GPU {' '.join(map(str, group))}" if _in_circle(system) else "PCIe switch"  # no lines lead there
        _box(axes, centre, (min(spread - 0.2, 2.2), 0.4), "cpu", name, 8)
        _line(axes, centre, (centres[system.socket(group[0])], 0.5))
        uplinks |= dict.fromkeys(group, centre)
    for gpu, (left, low) in enumerate(frame.places):
        if not _in_circle(system):
            _line(axes, (x + left, low), uplinks.get(gpu, (centres[system.socket(gpu)], 0.5)))
    for socket, centre_x in enumerate(centres):
        here = [gpu for gpu in range(system.gpus) if system.socket(gpu) == socket]
        of = f" (GPU {here[0]}-{here[-1]})" if len(here) > 1 and width > 1.8 else ""
        _box(axes, (centre_x, 0.5), (min(width - 0.4, 2.6), 0.5), "cpu", f"CPU {socket}{of}", 9)


def _cards(axes: "Axes", system: System, x: float, low: float) -> None:
    if not system.nics:
        return
    shown = min(system.nics.per_node, MOST_CARDS)
    step = (NODE - 0.6) / max(shown, 8)
    start = x + NODE / 2 - step * (shown - 1) / 2
    for card in range(shown):
        _box(axes, (start + step * card, low + 0.2), (0.8 * step, 0.35), "nic", "NIC" if shown <= 8 else "", 7)
    axes.text(x + NODE / 2, low + 0.6, nic_words(system), ha="center", va="center", fontsize=9)


def _network(axes: "Axes", tiers_in_words: list[str], low: float, width: float) -> None:
    """A bar for each tier, with ways to what is below it."""
    for place, words in enumerate(tiers_in_words):
        middle = low + 0.75 + 1.3 * place
        below = low - 0.15 if place == 0 else middle - 1.0
        for share in (0.2, 0.3, 0.7, 0.8):
            axes.plot((width * share,) * 2, (below, middle), color=LINK, linewidth=1, zorder=0)
        _box(axes, (width / 2, middle), (width - 2, 0.7), "tier", textwrap.fill(words, 100), 10)


def _line(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.plot((start[0], end[0]), (start[1], end[1]), color=LINK, linewidth=1, zorder=0)


def _box(
    axes: "Axes",
    centre: tuple[float, float],
    size: tuple[float, float],
    color: str,
    words: str,
    fontsize: float = 9,
) -> None:
    from matplotlib.patches import Rectangle

    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    axes.add_patch(Rectangle(corner, *size, facecolor=COLORS[color], edgecolor="#555555", linewidth=0.8, zorder=2))
    axes.text(*centre, words, ha="center", va="center", fontsize=fontsize, zorder=3)
