"""A described system as text for `collbench topo PRESET`: its network's tiers above a box that stands for a node."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import combinations

from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.system import System, Tier
from collbench.topology.topology_text import NARROWEST, columns

WIDEST = 80  # columns of a box
TORUS = "torus"  # the name of tiers that are a torus's dimensions, with its lengths as their radix
MOST_ROWS = 4  # CPUs shown one by one; more are folded into one row
FABRICS = {
    "nvswitch": "NVSwitch",
    "mesh": "NVLink, each to each",
    "hybrid-cube": "NVLink, hybrid cube",
    "nvlink-pairs": "NVLink, in pairs",
    "pcie": "PCIe",
}
TRANSPORTS = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "slingshot": "Slingshot",
    "efa": "EFA",
    "tcpx": "GPUDirect-TCPX",
    "tcp": "TCP",
}
LAUNCHES = {
    "process-per-gpu": "a process for each GPU",
    "single-process": "one process for all GPUs of a node",
    "torch": "called by PyTorch",
}


def lines(system: System, width: int = WIDEST) -> Iterator[str]:
    """The drawing in lines of at most `width` columns (40 at least)."""
    width = min(max(width, NARROWEST), WIDEST)
    title = f"{system.title}: {system.ranks:,} GPUs" if system.nodes > 1 else system.title
    yield from textwrap.wrap(title, width)
    yield ""
    if system.nodes > 1:
        yield from _network(system, width)
    yield from _box(system, width)
    yield ""
    for words in _remarks(system):
        yield from textwrap.wrap(words, width, subsequent_indent="      ")


def tiers(system: System) -> list[tuple[Tier, str]]:
    """The tiers that so many nodes need, from the lowest, and each in words."""
    if any(tier.name == TORUS for tier in system.tiers):
        shape = " x ".join(str(tier.radix) for tier in system.tiers)
        return [(system.tiers[0], f"{shape} nodes on each rail, each joined to the next in every dimension")]
    needed: list[tuple[Tier, str]] = []
    below, names = system.nodes, "nodes"
    for tier in system.tiers:
        if needed and below == 1:
            break
        below = -(-below // tier.radix) if tier.radix else 1
        needed.append((tier, _tier(tier, below, names)))
        names = f"{tier.name} switches"
    return needed


def _tier(tier: Tier, count: int, below: str) -> str:
    words = [f"joins all {below}"]
    if count > 1:
        words = [f"{count:,} switches on each rail, {tier.radix} {below} under each"]
        words.append(f"oversubscribed {tier.oversubscription:g}:1" if tier.oversubscription > 1 else "full rate up")
    if tier.paths > 1:
        words.append(f"{tier.paths} paths")
    words.append(f"{'ECMP' if tier.routing == 'ecmp' else tier.routing} routing")
    if tier.flows > 1:
        words.append(f"{tier.flows} flows a transfer")
    return ", ".join(words)


def nic_words(system: System) -> str:
    """The network cards of a node."""
    nics = system.nics
    if not nics:
        return "none"
    words = [f"{nics.per_node} x {TRANSPORTS[nics.transport]}, {_rate(nics.rate)} GB/s each way"]
    words += [f"{_rate(nics.rate * nics.per_node)} together"] if nics.per_node > 1 else []
    words += [] if nics.gdr else ["through the memory of the host"]
    return "; ".join(words)


def fabric(system: System) -> str:
    """The same in a few words: `NVSwitch, 370.8 GB/s, NVLS`."""
    words = [FABRICS[system.fabric], f"{_rate(system.gpu_rate)} GB/s"]
    words += ["NVLS"] if system.adds else []
    words += [] if system.p2p else ["no peer access"]
    return ", ".join(words)


def fabric_words(system: System) -> str:
    """What joins a node's GPUs, and how fast."""
    words = [FABRICS[system.fabric]]
    if system.fabric == "pcie":
        words = [f"PCIe {system.pcie_generation} x{system.pcie_lanes}"] if system.pcie_generation else words
        words += [f"peer access {'works' if system.p2p else 'refused: through the memory of the host'}"]
    elif system.nvlinks:
        words += [f"{system.nvlinks} links from each GPU"]
    promised = f", {_rate(system.spec_rate)} in the data sheet" if system.spec_rate else ""
    words += [f"{_rate(system.gpu_rate)} GB/s each way{promised}"]
    if system.multicast:
        words += ["the switches add (NVLS)" if system.adds else "the switches could add, but NVLS is off"]
    if system.fabric != "pcie" and not system.p2p:
        words += ["peer access refused: through the memory of the host"]
    return "; ".join(words)


def cpu_rows(system: System) -> list[tuple[str, str]]:
    """The GPUs at each CPU, a row for each or one for all of many."""
    rows = [(f"CPU {socket}", _at_cpu(system, socket)) for socket in range(system.sockets)]
    if len(rows) <= MOST_ROWS:
        return rows
    return [rows[0], ("...", f"x {len(rows)}, {_span(range(system.gpus))} in all")]


def _at_cpu(system: System, socket: int) -> str:
    here = [gpu for gpu in range(system.gpus) if system.socket(gpu) == socket]
    groups = [[gpu for gpu in group if gpu in here] for group in system.switches]
    if not any(groups):
        return _span(here)
    return "; ".join(f"PCIe switch: {_span(group)}" for group in groups if group)


def _rate(rate: float) -> str:
    """In GB/s, as short as it can be written."""
    return f"{rate / 1e9:.{3 if rate < 100e9 else 4}g}"


def _span(gpus: Sequence[int]) -> str:
    if len(gpus) > 8:
        return f"GPU {gpus[0]}-{gpus[-1]}"
    return f"GPU {' '.join(map(str, gpus))}"


def _network(system: System, width: int) -> Iterator[str]:
    """The tiers from the topmost, each with a line down to what it joins."""
    needed = tiers(system)
    indent = max((len(tier.name) for tier, _ in needed), default=0) + 2
    for tier, words in reversed(needed):
        yield from textwrap.wrap(words, width, initial_indent=tier.name.ljust(indent), subsequent_indent=" " * indent)
        yield "  │"


def _box(system: System, width: int) -> Iterator[str]:
    """One node; the others are counted."""
    inner = width - 4
    heading = "─ node 0 " if system.nodes > 1 else "─ node "
    yield f"┌{heading.ljust(width - 2, '─')}┐"
    for line in _inside(system, inner):
        yield f"│ {line.ljust(inner)} │"
    yield f"└{'─' * (width - 2)}┘"
    if system.nodes > 1:
        yield f"... x {system.nodes:,}"


def _inside(system: System, width: int) -> Iterator[str]:
    gpu = system.gpu or ARCHITECTURES[system.arch].name
    rows = [("GPUs", f"{system.gpus} x {gpu} ({ARCHITECTURES[system.arch].name}, {system.arch})")]
    rows += [("fabric", fabric_words(system))]
    rows += cpu_rows(system)
    if system.pcie_generation and system.fabric != "pcie":
        slot = f"{system.pcie_generation} x{system.pcie_lanes}, {_rate(system.pcie_rate)} GB/s each way"
        rows += [("PCIe", slot)]
    if system.sockets > 1 and system.socket_rate:
        rows += [("CPU-CPU", f"{_rate(system.socket_rate)} GB/s each way")]
    if system.nics:
        rows += [("NICs", nic_words(system))]
    yield from columns(dict(rows), width)
    if system.fabric in ("hybrid-cube", "nvlink-pairs", "mesh") and system.gpus > 1:
        yield ""
        yield from _matrix(system, width)


def _matrix(system: System, width: int) -> Iterator[str]:
    """NVLinks between each two GPUs; a list of them where a matrix is too wide."""
    count = system.gpus
    pairs = {(a, b): system.nvlinks_between(a, b) for a, b in combinations(range(count), 2)}
    if 7 + 6 * count > width:
        words = ", ".join(f"{a}-{b} NV{links}" for (a, b), links in pairs.items() if links)
        yield from textwrap.wrap(words, width)
        return
    yield "NVLinks" + "".join(f"GPU {gpu}".rjust(6) for gpu in range(count))
    for a in range(count):
        cells = [f"NV{pairs[min(a, b), max(a, b)]}" if a != b else "-" for b in range(count)]
        yield f"GPU {a}".ljust(7) + "".join(("-" if cell == "NV0" else cell).rjust(6) for cell in cells)


def _remarks(system: System) -> Iterator[str]:
    """What software runs it, and what is only assumed."""
    words = [f"NCCL {system.nccl}", LAUNCHES[system.launch]]
    words += [f"algorithm {system.algorithm}"] if system.algorithm != "auto" else []
    words += [f"protocol {system.protocol}"] if system.protocol != "auto" else []
    words += [f"calibrated by {system.calibration}"] if system.calibration else []
    yield ", ".join(words)
    for guess in system.guesses:
        yield f"note: assumed: {guess}"
