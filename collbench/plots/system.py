"""A system as a picture: the network above its first and last node, with GPUs, what joins them, CPUs and cards.

Lengths are in units of SCALE inches.
"""

import math
import textwrap
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from collbench.errors import UsageError
from collbench.present.figures import FORMATS, Axes, Figure, new_figure, save_as, style
from collbench.topology.render import fabric_words, nic_words, tiers
from collbench.topology.system import System

# pale, so that text on them can be read
COLORS = {"gpu": "#9AD8C4", "fabric": "#F5CF7F", "nic": "#AEDCF5", "cpu": "#DCDCDC", "tier": "#9CC3DE"}
NVLINK = "#C98A00"
LINK = "#333333"
NODE = 8.0  # width of a node's frame
GAP = 2.0  # between two nodes
SCALE = 0.72  # inches of one unit
FEW = 8  # GPUs in one row, with the ways to them; more stand in several rows
MOST_CARDS = 144  # network cards of a node that are drawn: more are narrower than a line
_INSIDE = NODE - 0.6  # of a frame
_CARD, _NAMED = 0.92, 0.4  # widest pitch of cards, and the narrowest that has room for their name
Place = tuple[float, float]


class _Frame(NamedTuple):
    """Where a node's parts are, from its lower left corner: what joins the GPUs, GPUs, PCIe switches, CPUs, cards."""

    places: list[Place]  # centres of its GPUs
    size: float  # of a GPU's square
    gpus_end: float
    cpus: float  # height of the CPUs' centres
    cards: float  # and of the network cards'
    height: float


class _Host(NamedTuple):
    """A box that cards and GPUs are attached to: a PCIe switch, a CPU, or all CPUs of a large node."""

    centre: Place
    width: float
    span: float  # its share of the node's width

    def below(self, place: Place) -> Place:
        """Return where a line from there meets it: straight down if it can."""
        half = self.width / 2 - 0.1
        return min(max(place[0], self.centre[0] - half), self.centre[0] + half), self.centre[1]


def draw(system: System, path: Path) -> Path:
    """Write the picture in the format that the file's name ends in, and return the file.

    The same system gives the same bytes, whatever the user's Matplotlib configuration.

    Raises:
        UsageError: The name ends in none of FORMATS.

    """
    if path.suffix[1:] not in FORMATS:
        raise UsageError(f"{path} is no picture's name; let it end in .{', .'.join(FORMATS)}")
    return save_as(figure(system), path)[0]


@style()
def figure(system: System) -> Figure:
    """Return the picture of a system."""
    frame = _frame(system)
    nodes = min(system.nodes, 2)
    network = tiers(system) if system.nodes > 1 else []
    width, height = NODE * nodes + GAP * (nodes - 1), frame.height + 1.3 * len(network) + 0.5
    drawn = new_figure((width + 0.4) * SCALE, (height + 0.3) * SCALE, layout=None)
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.2, width + 0.2), ylim=(-0.15, height + 0.15))
    axes.set_axis_off()
    title = f"{system.title}: {system.ranks:,} GPUs" if system.nodes > 1 else system.title
    title = textwrap.shorten(title, 45 * nodes, placeholder=" ...")
    axes.text(0, height - 0.2, title, fontsize=14, va="center")
    cards: list[Place] = []
    for place in range(nodes):
        number = system.nodes - 1 if place else 0
        name = f"node {number:,}" if system.nodes > 1 else "node"
        cards += _node(axes, system, frame, place * (NODE + GAP), name)
    if system.nodes > 2:
        axes.text(width / 2, frame.height / 2, f"...\n{system.nodes:,}\nnodes", ha="center", va="center")
    # A bar for each tier of switches, with lines to what is below it: to each network card below the lowest.
    below, look = cards, {"label": "_uplink", "linewidth": 1 if len(cards) <= 4 * FEW else 0.5}
    for place, (tier, words) in enumerate(network):
        middle = frame.height + 0.75 + 1.3 * place
        for x, y in below:
            _line(axes, (x, y), (x, middle), **look)
        _box(axes, (width / 2, middle), (width - 0.2, 0.7), "tier", textwrap.fill(f"{tier.name}: {words}", 100), 10)
        below, look = [(width * share, middle + 0.3) for share in (0.2, 0.3, 0.7, 0.8)], {"label": "_up"}
    return drawn


def _frame(system: System) -> _Frame:
    bottom = 1.5  # above what joins them
    if _in_circle(system):
        step = 2 * math.pi / system.gpus
        radius = 1.6
        middle = (NODE / 2, bottom + radius + 0.4)
        angles = [step * gpu for gpu in range(system.gpus)]
        places = [(middle[0] + 1.6 * radius * math.sin(at), middle[1] + radius * math.cos(at)) for at in angles]
        size, end = 0.62, middle[1] + radius + 0.4
    else:
        row = FEW if system.gpus <= 2 * FEW else 12
        columns, step = min(row, system.gpus), _INSIDE / row
        left = (NODE - step * (columns - 1)) / 2
        low = bottom + 0.4
        places = [(left + step * (gpu % columns), low + step * (gpu // columns)) for gpu in range(system.gpus)]
        size, end = 0.75 * step, places[-1][1] + 0.4
    cpus = end + (1.5 if system.switches and system.gpus <= FEW else 0.65)
    cards = cpus + (0.9 if system.nics else 0.0)
    return _Frame(places, size, end, cpus, cards, cards + 0.45)


def _in_circle(system: System) -> bool:
    """Return whether lines cross between GPUs, which a row of them would hide."""
    return system.fabric in ("mesh", "hybrid-cube") and 2 < system.gpus <= FEW


def _node(axes: Axes, system: System, frame: _Frame, x: float, name: str) -> list[Place]:
    """Draw a node at x, and return the centres of its network cards."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, 0), NODE, frame.height - 0.15, fill=False, edgecolor="#888888"))
    axes.text(x + 0.12, 0.22, name, fontsize=10, va="center", weight="bold")
    gpus = [(x + left, low) for left, low in frame.places]
    # NVLinks between GPUs, the more the thicker; or to the NVSwitch that joins them all.
    for a, b in combinations(range(system.gpus), 2):
        if count := system.nvlinks_between(a, b):
            look: dict[str, Any] = {"linewidth": 1 + 6 * count / system.nvlinks, "solid_capstyle": "butt"}
            _line(axes, gpus[a], gpus[b], color=NVLINK, zorder=1, **look)
    if system.fabric == "nvswitch" and system.gpus <= FEW:
        for gpu in gpus:
            _line(axes, gpu, (gpu[0], 1.0), color=NVLINK, linewidth=2)
    hosts = _hosts(axes, system, frame, x)
    for number, gpu in enumerate(gpus):
        label = f"GPU\n{number}" if system.gpus <= 2 * FEW else f"{number}"
        _box(axes, gpu, (frame.size, frame.size), "gpu", label, 8)
    words = textwrap.fill(fabric_words(system), 78)
    _box(axes, (x + NODE / 2, 0.85), (_INSIDE, 0.7), "fabric", words, 8.5)
    if not system.nics:
        return []
    axes.text(x + NODE / 2, 0.22, f"NICs: {nic_words(system)}", ha="center", va="center", fontsize=9)
    count = min(system.nics.per_node, MOST_CARDS)  # dealt evenly and in order, each above its host
    dealt = [hosts[card * len(hosts) // count] for card in range(count)]
    crowded = 0.55 if system.switches else 0.96  # CPUs stand between the ways to PCIe switches
    step = min(_CARD, crowded * hosts[0].span / max(map(dealt.count, hosts)))
    cards = []
    for card, host in enumerate(dealt):
        aside = card - dealt.index(host) - (dealt.count(host) - 1) / 2
        place = (host.centre[0] + step * aside, frame.cards)
        _line(axes, place, host.below(place), label="_slot")
        _box(axes, place, (0.8 * step, 0.35), "nic", "NIC" if step > _NAMED else "", 7)
        cards.append(place)
    return cards


def _hosts(axes: Axes, system: System, frame: _Frame, x: float) -> list[_Host]:
    """Draw CPUs and PCIe switches, with lines to the GPUs, and return those that network cards are attached to."""
    if system.gpus > FEW:
        words = f"{system.sockets} CPUs, {-(-system.gpus // system.sockets)} GPUs at each"
        host = _Host((x + NODE / 2, frame.cpus), _INSIDE, _INSIDE)
        _box(axes, host.centre, (_INSIDE, 0.5), "cpu", words)
        return [host]
    cpus = _cpus(axes, system, frame, x)
    switches, spread = [], _INSIDE / max(1, len(system.switches))
    at: dict[int, _Host] = {}
    for number, group in enumerate(system.switches):
        host = _Host((x + 0.3 + spread * (number + 0.5), frame.gpus_end + 0.65), min(spread - 0.2, 2.2), spread)
        name = f"PCIe: GPU {' '.join(map(str, group))}" if _in_circle(system) else "PCIe switch"  # no lines lead there
        _box(axes, host.centre, (host.width, 0.4), "cpu", name, 8)
        _line(axes, host.centre, cpus[system.socket(group[0])].centre)
        switches.append(host)
        at |= dict.fromkeys(group, host)
    if not _in_circle(system):
        for gpu, (left, low) in enumerate(frame.places):
            place = (x + left, low)
            _line(axes, place, at.get(gpu, cpus[system.socket(gpu)]).below(place))
    return switches or cpus


def _cpus(axes: Axes, system: System, frame: _Frame, x: float) -> list[_Host]:
    """Draw CPUs in a row, joined; above PCIe switches they stand where no line from a card leads."""
    width = _INSIDE / system.sockets
    inner = width * 0.3 if len(system.switches) in range(1, 2 * system.sockets) else 0.0
    wide = 0.85 if system.switches else min(width - 0.4, 2.6)
    found = []
    for socket in range(system.sockets):
        aside = inner if 2 * socket < system.sockets else -inner
        host = _Host((x + 0.3 + width * (socket + 0.5) + aside, frame.cpus), wide, width)
        here = [gpu for gpu in range(system.gpus) if system.socket(gpu) == socket]
        of = f" (GPU {here[0]}-{here[-1]})" if len(here) > 1 and wide > 1.4 else ""
        _box(axes, host.centre, (wide, 0.5), "cpu", f"CPU {socket}{of}", 9)
        found.append(host)
    if len(found) > 1:
        _line(axes, found[0].centre, found[-1].centre, linewidth=2)
    return found


def _line(axes: Axes, start: Place, end: Place, **look: Any) -> None:
    usual: dict[str, Any] = {"color": LINK, "linewidth": 1, "zorder": 0, "label": "_way"}
    axes.plot((start[0], end[0]), (start[1], end[1]), **usual | look)


def _box(axes: Axes, centre: Place, size: Place, color: str, words: str, fontsize: float = 9) -> None:
    from matplotlib.patches import Rectangle

    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    axes.add_patch(Rectangle(corner, *size, facecolor=COLORS[color], edgecolor="#555555", linewidth=0.8, zorder=2))
    axes.text(*centre, words, ha="center", va="center", fontsize=fontsize, zorder=3)
