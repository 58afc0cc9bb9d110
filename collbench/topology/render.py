"""The text of `collbench topo`: a discovered topology, or a described system."""

import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from collbench.topology.discovered import Gpu, Host, Link, LinkKind, Socket, Topology, caveats
from collbench.topology.products import ARCHITECTURES, is_amd
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
    pairs: dict[str, list[Link]] = {}
    for link in topology.links:
        pairs.setdefault(_words(link), []).append(link)
    if len(topology.devices) > 1 and not pairs:
        yield "what joins them is not known"

    # A matrix of labels and what they mean; where the matrix is too wide, the pairs behind each meaning.
    labels = _labels({words: links[0].kind for words, links in pairs.items()})
    cells = {(link.a, link.b): labels[words] for words, links in pairs.items() for link in links}
    device = "GPU" if topology.gpus else "CPU"
    matrix = _matrix("", device, len(topology.devices), cells)
    fits = bool(pairs) and max(map(len, matrix)) <= width
    if fits:
        yield from (*matrix, "")
    legend = {}
    for words, links in pairs.items():
        where = "every pair" if len(pairs) == 1 else ", ".join(f"{link.a}-{link.b}" for link in links)
        legend[labels[words]] = words if fits else f"{words} ({where})"
    if topology.ranks > len(topology.devices):
        alone = "every pair of ranks" if len(topology.devices) == 1 else "ranks on one device"
        legend.setdefault(topology.link(0, len(topology.devices)).kind, f"{alone}: {SAME_MEMORY}")
    yield from columns(legend, width)


def _labels(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return a short label for each kind of connection; lettered if there are several of a kind."""
    labels = {}
    for words, kind in kinds.items():
        alike = [other for other in kinds if kinds[other] == kind]
        labels[words] = f"{kind} {chr(ord('a') + alike.index(words))}" if len(alike) > 1 else f"{kind}"
    return labels


def _matrix(corner: str, device: str, count: int, cells: Mapping[tuple[int, int], str]) -> list[str]:
    """Return a row and a column for each device, and in the cells what connects two of them."""
    names = [f"{device} {number}" for number in range(count)]
    rows = [[corner, *names]]
    for a, name in enumerate(names):
        rows.append([name, *(cells.get((min(a, b), max(a, b)), "-") for b in range(count))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _words(link: Link) -> str:
    if link.kind == LinkKind.SHARED_MEMORY:
        return f"{SAME_MEMORY}, {link.path}"
    carrier = link.pcie if link.kind == LinkKind.PCIE else link.nvlink
    through = "through NVSwitch" if link.kind == LinkKind.NVSWITCH else link.path
    words = " ".join(filter(None, (str(carrier or link.kind), through)))
    if link.rate:
        words += f", {format_rate(link.rate)} GB/s each way"
    because = f" ({link.reason})" if link.reason else ""
    return f"{words}; peer access {link.p2p}{because}"


def _facts(topology: Topology) -> dict[str, str]:
    facts = _gpus(topology.gpus)
    for i, socket in enumerate(topology.sockets):
        facts[f"CPU {i}"] = _socket(socket)
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
    facts = {f"GPU {_spans(numbers)}": words for words, numbers in alike.items()}
    for i, gpu in enumerate(gpus):
        where = [facts[f"GPU {i}"]] if f"GPU {i}" in facts else []
        where.append(gpu.bus_id)
        if gpu.numa is not None:
            where.append(f"NUMA node {gpu.numa}")
        facts[f"GPU {i}"] = ", ".join(where)
    return facts


def _gpu(gpu: Gpu) -> str:
    of = f"{gpu.architecture or ''} {gpu.capability or ''}".strip()
    facts = [f"{gpu.name} ({of})" if of else gpu.name]
    if gpu.memory:
        facts.append(format_size(gpu.memory))
    if gpu.pcie and gpu.pcie.rate:
        now = gpu.pcie.generation
        facts.append(f"{gpu.pcie} (now at {now})" if now and now != gpu.pcie.max_generation else f"{gpu.pcie}")
    if gpu.nvlink:
        facts.append(f"{gpu.nvlink} to NVSwitch" if gpu.switch_links else f"{gpu.nvlink}")
    if gpu.mig is not None:
        facts.append(f"MIG {'on' if gpu.mig else 'off'}")
    if gpu.fabric:
        facts.append(f"fabric {gpu.fabric.state}")
    return ", ".join(facts)


def _socket(socket: Socket) -> str:
    facts = [socket.name]
    if socket.cores:
        facts.append(counted(socket.cores, "core"))
        if (socket.threads or 0) > socket.cores:
            facts.append(f"{(socket.threads or 0) / socket.cores:.3g} threads each")
    elif socket.threads:
        facts.append(f"{socket.threads} CPUs")
    return ", ".join(facts)


def _host(host: Host) -> dict[str, str]:
    facts = {}
    for cache in host.caches:
        users = f"{cache.shared_by} CPUs" if cache.shared_by > 1 else "each CPU"
        facts[cache.name] = f"{cache.instances} x {format_size(cache.nbytes)}, one for {users}"
    for node in host.numa:
        memory = f", {format_size(node.memory)}" if node.memory else ""
        facts[f"NUMA {node.number}"] = f"CPUs {_spans(node.cpus)}{memory}" if node.cpus else f"no CPUs{memory}"
    facts["usable"] = f"{len(host.usable)} CPUs ({_spans(host.usable)})"
    if host.cpu_limit is not None:
        facts["usable"] += f", {host.cpu_limit:.3g} CPUs' worth of time"
    sizes = []
    if host.memory is not None:
        sizes.append(format_size(host.memory))
    if host.shm_free is not None:
        sizes.append(f"{format_size(host.shm_free)} free in /dev/shm")
    return facts | {"memory": ", ".join(sizes)} if sizes else facts


def _spans(cpus: Sequence[int]) -> str:
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
_WORDS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FABRICS, TRANSPORTS, LAUNCHES = _WORDS["fabrics"], _WORDS["transports"], _WORDS["launches"]


def system_lines(system: System, width: int = WIDEST) -> Iterator[str]:
    """Return a described system in lines of at most `width` columns (40 at least, 80 at most)."""
    width = min(max(width, NARROWEST), WIDEST)
    several = system.nodes > 1
    yield from textwrap.wrap(f"{system.title}: {system.ranks:,} GPUs" if several else system.title, width)
    yield ""
    if several:
        # The topmost tier of switches comes first.
        yield from columns({tier.name: words for tier, words in reversed(tiers(system))}, width)
        yield ""
    yield f"each of {system.nodes:,} nodes:" if several else "node:"
    for line in _node(system, width - 2):
        yield f"  {line}".rstrip()
    yield ""
    software = [f"modelled with NCCL {system.nccl}", LAUNCHES[system.launch]]
    if system.algorithm != "auto":
        software.append(f"algorithm {system.algorithm}")
    if system.protocol != "auto":
        software.append(f"protocol {system.protocol}")
    if system.calibration:
        software.append(f"calibrated by {system.calibration}")
    for words in (", ".join(software), *(f"note: assumed: {guess}" for guess in system.guesses)):
        yield from textwrap.wrap(words, width, subsequent_indent="      ")


def tiers(system: System) -> list[tuple[Tier, str]]:
    """Return the tiers that the system's nodes need, from the lowest, each with its words."""
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
    if nics.per_node > 1:
        words.append(f"{_rate(nics.rate * nics.per_node)} together")
    if not nics.gdr:
        words.append("through the memory of the host")
    return "; ".join(words)


def _fabric(system: System) -> str:
    words = FABRICS[system.fabric]
    return words.replace("NVLink", "xGMI") if is_amd(system.arch) else words


def fabric(system: System) -> str:
    """Return what joins a node's GPUs in a few words: `NVSwitch, 370.8 GB/s, NVLS`."""
    words = [_fabric(system), f"{_rate(system.gpu_rate)} GB/s"]
    if system.adds:
        words.append("NVLS")
    if not system.p2p:
        words.append("no peer access")
    return ", ".join(words)


def fabric_words(system: System) -> str:
    """Return what joins a node's GPUs, and how fast."""
    words = [_fabric(system)]
    refused = "peer access refused: through the memory of the host"
    if system.fabric == "pcie":
        if system.pcie_generation:
            words = [f"PCIe {system.pcie_generation} x{system.pcie_lanes}"]
        words.append("peer access works" if system.p2p else refused)
    elif system.nvlinks:
        words.append(f"{system.nvlinks} links from each GPU")
    promised = f", {_rate(system.spec_rate)} in the data sheet" if system.spec_rate else ""
    words.append(f"{_rate(system.gpu_rate)} GB/s each way{promised}")
    if system.multicast:
        words.append("the switches add (NVLS)" if system.adds else "the switches could add, but NVLS is off")
    if system.fabric != "pcie" and not system.p2p:
        words.append(refused)
    return "; ".join(words)


def _cpu_rows(system: System) -> dict[str, str]:
    """Return the GPUs at each CPU, a row for each; of many CPUs the first, and how many there are."""
    rows = {}
    for socket in range(system.sockets):
        here = [gpu for gpu in range(system.gpus) if system.socket(gpu) == socket]
        switches = []
        for group in system.switches:
            under = [gpu for gpu in group if gpu in here]
            if under:
                switches.append(f"PCIe switch: {_span(under)}")
        rows[f"CPU {socket}"] = "; ".join(switches) or _span(here)
    if len(rows) <= MOST_ROWS:
        return rows
    return {"CPU 0": rows["CPU 0"], "...": f"x {len(rows)}, {_span(range(system.gpus))} in all"}


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.{3 if rate < 100e9 else 4}g}"


def _span(gpus: Sequence[int]) -> str:
    return f"GPU {gpus[0]}-{gpus[-1]}" if len(gpus) > 8 else f"GPU {' '.join(map(str, gpus))}"


def _node(system: System, width: int) -> Iterator[str]:
    architecture = ARCHITECTURES[system.arch].name
    rows = {"GPUs": f"{system.gpus} x {system.gpu or architecture} ({architecture}, {system.arch})"}
    rows["fabric"] = fabric_words(system)
    rows |= _cpu_rows(system)
    if system.pcie_generation and system.fabric != "pcie":
        rows["PCIe"] = f"{system.pcie_generation} x{system.pcie_lanes}, {_rate(system.pcie_rate)} GB/s each way"
    if system.sockets > 1 and system.socket_rate:
        rows["CPU-CPU"] = f"{_rate(system.socket_rate)} GB/s each way"
    if system.nics:
        rows["NICs"] = nic_words(system)
    yield from columns(rows, width)
    if system.fabric not in ("hybrid-cube", "nvlink-pairs", "mesh") or system.gpus == 1:
        return

    # NVLinks between each two GPUs; a list where a matrix is too wide.
    yield ""
    links = {}
    for a, b in combinations(range(system.gpus), 2):
        if count := system.nvlinks_between(a, b):
            links[a, b] = f"NV{count}"
    matrix = _matrix("NVLinks", "GPU", system.gpus, links)
    if max(map(len, matrix)) <= width:
        yield from matrix
    else:
        yield from textwrap.wrap(", ".join(f"{a}-{b} {count}" for (a, b), count in links.items()), width)
