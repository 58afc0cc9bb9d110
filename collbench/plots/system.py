"""A system as a picture: the network above its first and last node, with GPUs, what joins them, CPUs and cards.

Lengths are in units of SCALE inches.
"""

import math
import textwrap
from pathlib import Path
from typing import NamedTuple

from collbench.errors import UsageError
from collbench.plots.axes import Axes, Figure, new_figure
from collbench.plots.save import save
from collbench.plots.style import FORMATS, style
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


def draw(system: System, path: Path) -> Path:
    """Write the picture in the format that the file's name ends in, and return the file.

    The same system gives the same bytes, whatever the user's Matplotlib configuration.

    Raises:
        UsageError: The name ends in none of FORMATS.

    """
    if path.suffix[1:] not in FORMATS:
        raise UsageError(f"{path} is no picture's name; let it end in .{', .'.join(FORMATS)}")
    return save(figure(system), path.parent, path.stem, [path.suffix[1:]])[0]


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
    _network(axes, [f"{tier.name}: {words}" for tier, words in network], frame.height, width, cards)
    return drawn


def _frame(system: System) -> _Frame:
    bottom = 1.5  # above what joins them
    if _in_circle(system):
        step = 2 * math.pi / system.gpus
        radius = 1.6
        middle = (NODE / 2, bottom + radius + 0.4)
        angles = [step * gpu for gpu in range(system.gpus)]
        places = [(middle[0] + 1.6 * radius * math.sin(at), middle[1] + radius * math.cos(at)) for at in angles]
        return _above(system, places, 0.62, middle[1] + radius + 0.4)
    row = FEW if system.gpus <= 2 * FEW else 12
    columns, step = min(row, system.gpus), _INSIDE / row
    left = (NODE - step * (columns - 1)) / 2
    rows = -(-system.gpus // columns)
    places = [(left + step * (gpu % columns), bottom + 0.4 + step * (gpu // columns)) for gpu in range(system.gpus)]
    return _above(system, places, 0.75 * step, bottom + 0.4 + step * (rows - 1) + 0.4)


def _above(system: System, places: list[Place], size: float, end: float) -> _Frame:
    """Return the frame of a node whose GPUs end at that height."""
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
    _links(axes, system, frame, x)
    hosts = _hosts(axes, system, frame, x)
    for gpu, (left, low) in enumerate(frame.places):
        label = f"GPU\n{gpu}" if system.gpus <= 2 * FEW else f"{gpu}"
        _box(axes, (x + left, low), (frame.size, frame.size), "gpu", label, 8)
    words = textwrap.fill(fabric_words(system), 78)
    _box(axes, (x + NODE / 2, 0.85), (_INSIDE, 0.7), "fabric", words, 8.5)
    if system.nics:
        axes.text(x + NODE / 2, 0.22, f"NICs: {nic_words(system)}", ha="center", va="center", fontsize=9)
    cards, step = _cards(system, frame, hosts), _pitch(system, hosts)
    for place, host in zip(cards, _dealt(system, hosts), strict=True):
        _line(axes, place, host.below(place), "_slot")
        _box(axes, place, (0.8 * step, 0.35), "nic", "NIC" if step > _NAMED else "", 7)
    return cards


def _links(axes: Axes, system: System, frame: _Frame, x: float) -> None:
    """Draw NVLinks between GPUs, the more the thicker; or the lines to the NVSwitch that joins them all."""
    places = [(x + left, low) for left, low in frame.places]
    for a in range(system.gpus):
        for b in range(a + 1, system.gpus):
            count = system.nvlinks_between(a, b)
            if count:
                ends = zip(places[a], places[b], strict=True)
                share = count / system.nvlinks
                axes.plot(*ends, color=NVLINK, linewidth=1 + 6 * share, zorder=1, solid_capstyle="butt")
    if system.fabric == "nvswitch" and system.gpus <= FEW:
        for left, low in places:
            axes.plot((left, left), (low, 1.0), color=NVLINK, linewidth=2, zorder=0)


class _Host(NamedTuple):
    """A box that cards and GPUs are attached to: a PCIe switch, a CPU, or all CPUs of a large node."""

    centre: Place
    width: float
    span: float  # its share of the node's width

    def below(self, place: Place) -> Place:
        """Return where a line from there meets it: straight down if it can."""
        half = self.width / 2 - 0.1
        return min(max(place[0], self.centre[0] - half), self.centre[0] + half), self.centre[1]


def _hosts(axes: Axes, system: System, frame: _Frame, x: float) -> list[_Host]:
    """Draw CPUs and PCIe switches, with lines to the GPUs, and return those that network cards are attached to."""
    if system.gpus > FEW:
        words = f"{system.sockets} CPUs, {-(-system.gpus // system.sockets)} GPUs at each"
        host = _Host((x + NODE / 2, frame.cpus), _INSIDE, _INSIDE)
        _box(axes, host.centre, (_INSIDE, 0.5), "cpu", words)
        return [host]
    cpus = _cpus(axes, system, frame, x)
    switches, spread = [], _INSIDE / max(1, len(system.switches))
    for number, group in enumerate(system.switches):
        host = _Host((x + 0.3 + spread * (number + 0.5), frame.gpus_end + 0.65), min(spread - 0.2, 2.2), spread)
        name = f"PCIe: GPU {' '.join(map(str, group))}" if _in_circle(system) else "PCIe switch"  # no lines lead there
        _box(axes, host.centre, (host.width, 0.4), "cpu", name, 8)
        _line(axes, host.centre, cpus[system.socket(group[0])].centre)
        switches.append(host)
    at = {gpu: host for host, group in zip(switches, system.switches, strict=True) for gpu in group}
    for gpu, (left, low) in enumerate(frame.places):
        if not _in_circle(system):
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
        ends = zip(found[0].centre, found[-1].centre, strict=True)
        axes.plot(*ends, color=LINK, linewidth=2, zorder=0)
    return found


def _dealt(system: System, hosts: list[_Host]) -> list[_Host]:
    """Return the host of every network card, evenly and in order."""
    count = min(system.nics.per_node, MOST_CARDS) if system.nics else 0
    return [hosts[card * len(hosts) // count] for card in range(count)]


def _pitch(system: System, hosts: list[_Host]) -> float:
    """Return the distance from one network card to the next."""
    dealt = _dealt(system, hosts)
    most = max((dealt.count(host) for host in hosts), default=1)
    crowded = 0.55 if system.switches else 0.96  # CPUs stand between the ways to PCIe switches
    return min(_CARD, crowded * hosts[0].span / max(1, most))


def _cards(system: System, frame: _Frame, hosts: list[_Host]) -> list[Place]:
    """Return the centres of the network cards, each above its host."""
    dealt, step = _dealt(system, hosts), _pitch(system, hosts)
    places = []
    for host in hosts:
        count = dealt.count(host)
        places += [(host.centre[0] + step * (number - (count - 1) / 2), frame.cards) for number in range(count)]
    return places


def _network(axes: Axes, tiers_in_words: list[str], low: float, width: float, cards: list[Place]) -> None:
    """Draw a bar for each tier of switches, with lines to what is below it: to each network card below the lowest."""
    for place, words in enumerate(tiers_in_words):
        middle = low + 0.75 + 1.3 * place
        below, label, thick = cards, "_uplink", 1.0 if len(cards) <= 4 * FEW else 0.5
        if place:
            below, label, thick = [(width * share, middle - 1.0) for share in (0.2, 0.3, 0.7, 0.8)], "_up", 1.0
        for x, y in below:
            axes.plot((x, x), (y, middle), color=LINK, linewidth=thick, zorder=0, label=label)
        _box(axes, (width / 2, middle), (width - 0.2, 0.7), "tier", textwrap.fill(words, 100), 10)


def _line(axes: Axes, start: Place, end: Place, label: str = "_way") -> None:
    axes.plot((start[0], end[0]), (start[1], end[1]), color=LINK, linewidth=1, zorder=0, label=label)


def _box(axes: Axes, centre: Place, size: Place, color: str, words: str, fontsize: float = 9) -> None:
    from matplotlib.patches import Rectangle

    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    axes.add_patch(Rectangle(corner, *size, facecolor=COLORS[color], edgecolor="#555555", linewidth=0.8, zorder=2))
    axes.text(*centre, words, ha="center", va="center", fontsize=fontsize, zorder=3)
