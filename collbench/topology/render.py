"""Text of `collbench topo`: a discovered topology with its caveats, or a described system with its network."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from collbench.topology.discovered import Gpu, Host, Kind, Link, Socket, Topology, caveats
from collbench.topology.products import ARCHITECTURES
from collbench.topology.system import System, Tier
from collbench.units import counted, format_rate, format_size

SAME_MEMORY = "loads and stores in one memory"
NARROWEST = 40  # columns; below that, lines would hold too little to be read


def topology_lines(topology: Topology, width: int = 80) -> Iterator[str]:
    """Return a discovered topology in lines of at most `width` columns, as far as words can be broken."""
    width = max(width, NARROWEST)
    yield from textwrap.wrap(topology.name, width)
    yield ""
    yield from _connections(topology, width)
    yield ""
    yield from columns(_facts(topology), width)
    notes = caveats(topology)
    if notes:
        yield ""
    for caveat in notes:
        yield from textwrap.wrap(f"note: {caveat}", width, subsequent_indent="      ")


def _connections(topology: Topology, width: int) -> Iterator[str]:
    if topology.ranks == 1:
        yield "one rank: nothing to connect"
        return
    labels = _labels(topology.links)
    matrix = _kinds_matrix(topology, labels)
    if len(topology.devices) > 1 and not labels:
        yield "what joins them is not known"
    fits = bool(labels) and max(map(len, matrix)) <= width
    if fits:
        yield from (*matrix, "")
    legend = {}
    for words, label in labels.items():
        pairs = [link for link in topology.links if _words(link) == words]
        where = "every pair" if len(pairs) == len(topology.links) else ", ".join(f"{p.a}-{p.b}" for p in pairs)
        legend[label] = words if fits else f"{words} ({where})"
    if topology.ranks > len(topology.devices):
        alone = "every pair of ranks" if len(topology.devices) == 1 else "ranks on one device"
        own = topology.link(0, len(topology.devices))
        legend.setdefault(own.kind, f"{alone}: {SAME_MEMORY}")
    yield from columns(legend, width)


def _labels(links: tuple[Link, ...]) -> dict[str, str]:
    """Return a short label for each kind of connection; lettered if there are several of a kind."""
    kinds = {_words(link): link.kind for link in links}
    labels = {}
    for words, kind in kinds.items():
        alike = [other for other in kinds if kinds[other] == kind]
        labels[words] = f"{kind} {chr(ord('a') + alike.index(words))}" if len(alike) > 1 else f"{kind}"
    return labels


def _kinds_matrix(topology: Topology, labels: Mapping[str, str]) -> list[str]:
    """Return a row and a column for each device, each cell the label of what connects the two."""
    count = len(topology.devices)
    cells = {}
    for link in topology.links:
        cells[link.a, link.b] = cells[link.b, link.a] = labels[_words(link)]
    names = [f"{'GPU' if topology.gpus else 'CPU'} {i}" for i in range(count)]
    rows = [["", *names], *([names[a], *(cells.get((a, b), "-") for b in range(count))] for a in range(count))]
    widths = [max(len(row[column]) for row in rows) for column in range(count + 1)]
    return [" ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _words(link: Link) -> str:
    if link.kind == Kind.SHARED_MEMORY:
        return f"{SAME_MEMORY}, {link.path}"
    carrier = link.pcie if link.kind == Kind.PCIE else link.nvlink
    through = "through NVSwitch" if link.kind == Kind.NVSWITCH else link.path
    words = " ".join(filter(None, (str(carrier) if carrier else link.kind, through)))
    if link.rate:
        words += f", {format_rate(link.rate)} GB/s each way"
    because = f" ({link.reason})" if link.reason else ""
    return f"{words}; peer access {link.p2p}{because}"


def _facts(topology: Topology) -> dict[str, str]:
    facts = _gpus(topology.gpus)
    facts |= {f"CPU {i}": _socket(socket) for i, socket in enumerate(topology.sockets)}
    if driver := topology.driver:
        facts["driver"] = f"{driver.version or 'unknown version'}, CUDA {driver.cuda or 'unknown'}"
    if topology.host:
        facts |= _host(topology.host)
    return facts


def _gpus(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """Return a row for all GPUs that are alike, then the place of each."""
    alike: dict[str, list[int]] = {}
    for i, gpu in enumerate(gpus):
        alike.setdefault(_gpu(gpu), []).append(i)
    facts = {f"GPU {_spans(tuple(numbers))}": words for words, numbers in alike.items()}
    for i, gpu in enumerate(gpus):
        where = gpu.bus_id + (f", NUMA node {gpu.numa}" if gpu.numa is not None else "")
        label = f"GPU {i}"
        facts[label] = f"{facts[label]}, {where}" if label in facts else where
    return facts


def _gpu(gpu: Gpu) -> str:
    of = f"{gpu.architecture or ''} {gpu.capability or ''}".strip()
    facts = [f"{gpu.name} ({of})" if of else gpu.name]
    if gpu.memory:
        facts.append(format_size(gpu.memory))
    if gpu.pcie and gpu.pcie.rate:
        now = gpu.pcie.generation
        facts.append(f"{gpu.pcie}" + (f" (now at {now})" if now and now != gpu.pcie.max_generation else ""))
    if gpu.nvlink:
        facts.append(f"{gpu.nvlink}" + (" to NVSwitch" if gpu.switch_links else ""))
    if gpu.mig is not None:
        facts.append(f"MIG {'on' if gpu.mig else 'off'}")
    if gpu.fabric:
        facts.append(f"fabric {gpu.fabric.state}")
    return ", ".join(facts)


def _socket(socket: Socket) -> str:
    facts = [socket.name]
    if socket.cores:
        facts.append(f"{counted(socket.cores, 'core')}")
    if socket.cores and socket.threads and socket.threads > socket.cores:
        facts.append(f"{socket.threads / socket.cores:.3g} threads each")
    elif socket.threads and not socket.cores:
        facts.append(f"{socket.threads} CPUs")
    return ", ".join(facts)


def _host(host: Host) -> dict[str, str]:
    facts = {
        cache.name: f"{cache.instances} x {format_size(cache.nbytes)}, one for "
        + (f"{cache.shared_by} CPUs" if cache.shared_by > 1 else "each CPU")
        for cache in host.caches
    }
    for node in host.numa:
        memory = f", {format_size(node.memory)}" if node.memory else ""
        facts[f"NUMA {node.number}"] = f"CPUs {_spans(node.cpus)}{memory}" if node.cpus else f"no CPUs{memory}"
    facts["usable"] = f"{len(host.usable)} CPUs ({_spans(host.usable)})" + (
        f", {host.cpu_limit:.3g} CPUs' worth of time" if host.cpu_limit is not None else ""
    )
    sizes = {"": host.memory, " free in /dev/shm": host.shm_free}
    facts["memory"] = ", ".join(format_size(size) + what for what, size in sizes.items() if size is not None)
    return {label: words for label, words in facts.items() if words}


def _spans(cpus: tuple[int, ...]) -> str:
    """The kernel's notation for a set of CPUs: `0-3,8`."""
    starts = [cpu for cpu in cpus if cpu - 1 not in cpus]
    ends = [cpu for cpu in cpus if cpu + 1 not in cpus]
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in zip(starts, ends, strict=True))


def columns(facts: Mapping[str, str], width: int) -> Iterator[str]:
    """Return labels on the left and wrapped words on the right."""
    indent = max(map(len, facts), default=0) + 2
    for label, words in facts.items():
        yield from textwrap.wrap(words, width, initial_indent=label.ljust(indent), subsequent_indent=" " * indent)


WIDEST = 80  # columns of a system's text
MOST_ROWS = 4  # CPUs that have a row each; more are folded into two rows
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
    "graph": "in a CUDA graph",
}


def system_lines(system: System, width: int = WIDEST) -> Iterator[str]:
    """Return a described system in lines of at most `width` columns (40 at least, 80 at most)."""
    width = min(max(width, NARROWEST), WIDEST)
    title = f"{system.title}: {system.ranks:,} GPUs" if system.nodes > 1 else system.title
    yield from textwrap.wrap(title, width)
    yield ""
    if system.nodes > 1:
        # The topmost tier of switches comes first.
        yield from columns({tier.name: words for tier, words in reversed(tiers(system))}, width)
        yield ""
    yield f"each of {system.nodes:,} nodes:" if system.nodes > 1 else "node:"
    for line in _node(system, width - 2):
        yield f"  {line}".rstrip()
    yield ""
    software = [f"modelled with NCCL {system.nccl}", LAUNCHES[system.launch]]
    software += [f"algorithm {system.algorithm}"] if system.algorithm != "auto" else []
    software += [f"protocol {system.protocol}"] if system.protocol != "auto" else []
    software += [f"calibrated by {system.calibration}"] if system.calibration else []
    for words in (", ".join(software), *(f"note: assumed: {guess}" for guess in system.guesses)):
        yield from textwrap.wrap(words, width, subsequent_indent="      ")


def tiers(system: System) -> list[tuple[Tier, str]]:
    """Return the tiers that so many nodes need, from the lowest, and each in words."""
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
        words.append(f"{counted(tier.flows, 'flow')} a transfer")
    return ", ".join(words)


def nic_words(system: System) -> str:
    """Return the network cards of a node in words."""
    nics = system.nics
    if not nics:
        return "none"
    words = [f"{nics.per_node} x {TRANSPORTS[nics.transport]}, {_rate(nics.rate)} GB/s each way"]
    words += [f"{_rate(nics.rate * nics.per_node)} together"] if nics.per_node > 1 else []
    words += [] if nics.gdr else ["through the memory of the host"]
    return "; ".join(words)


def fabric(system: System) -> str:
    """Return what joins a node's GPUs in a few words: `NVSwitch, 370.8 GB/s, NVLS`."""
    words = [FABRICS[system.fabric], f"{_rate(system.gpu_rate)} GB/s"]
    words += ["NVLS"] if system.adds else []
    words += [] if system.p2p else ["no peer access"]
    return ", ".join(words)


def fabric_words(system: System) -> str:
    """Return what joins a node's GPUs, and how fast."""
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
    """Return the GPUs at each CPU, a row for each; of many CPUs the first, and how many there are."""
    rows = []
    for socket in range(system.sockets):
        here = [gpu for gpu in range(system.gpus) if system.socket(gpu) == socket]
        groups = [[gpu for gpu in group if gpu in here] for group in system.switches]
        switches = "; ".join(f"PCIe switch: {_span(group)}" for group in groups if group)
        rows.append((f"CPU {socket}", switches or _span(here)))
    if len(rows) <= MOST_ROWS:
        return rows
    return [rows[0], ("...", f"x {len(rows)}, {_span(range(system.gpus))} in all")]


def _rate(rate: float) -> str:
    """Return a rate in GB/s, as short as it can be written."""
    return f"{rate / 1e9:.{3 if rate < 100e9 else 4}g}"


def _span(gpus: Sequence[int]) -> str:
    if len(gpus) > 8:
        return f"GPU {gpus[0]}-{gpus[-1]}"
    return f"GPU {' '.join(map(str, gpus))}"


def _node(system: System, width: int) -> Iterator[str]:
    gpu = system.gpu or ARCHITECTURES[system.arch].name
    rows = {"GPUs": f"{system.gpus} x {gpu} ({ARCHITECTURES[system.arch].name}, {system.arch})"}
    rows["fabric"] = fabric_words(system)
    rows |= dict(cpu_rows(system))
    if system.pcie_generation and system.fabric != "pcie":
        rows["PCIe"] = f"{system.pcie_generation} x{system.pcie_lanes}, {_rate(system.pcie_rate)} GB/s each way"
    if system.sockets > 1 and system.socket_rate:
        rows["CPU-CPU"] = f"{_rate(system.socket_rate)} GB/s each way"
    if system.nics:
        rows["NICs"] = nic_words(system)
    yield from columns(rows, width)
    if system.fabric in ("hybrid-cube", "nvlink-pairs", "mesh") and system.gpus > 1:
        yield ""
        yield from _nvlink_matrix(system, width)


def _nvlink_matrix(system: System, width: int) -> Iterator[str]:
    """NVLinks between each two GPUs; a list where a matrix is too wide."""
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
