"""A discovered topology as text for `collbench topo`: what connects the pairs, what they are, and caveats."""

import textwrap
from collections.abc import Iterator, Mapping

from collbench.topology.caveats import caveats
from collbench.topology.devices import Gpu, Host, Kind, Link, Socket
from collbench.topology.topology import Topology
from collbench.units import format_rate, format_size

ONE_MEMORY = "loads and stores in one memory"
NARROWEST = 40  # columns; below that, lines would hold too little to be read


def lines(topology: Topology, width: int = 80) -> Iterator[str]:
    """The topology in lines of at most `width` columns, as far as words can be broken."""
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
    matrix = _matrix(topology, labels)
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
        legend.setdefault(own.kind, f"{alone}: {ONE_MEMORY}")
    yield from columns(legend, width)


def _labels(links: tuple[Link, ...]) -> dict[str, str]:
    """A short label for each way in which pairs are connected: its kind, lettered if there are several."""
    kinds = {_words(link): link.kind for link in links}
    labels = {}
    for words, kind in kinds.items():
        alike = [other for other in kinds if kinds[other] == kind]
        labels[words] = f"{kind} {chr(ord('a') + alike.index(words))}" if len(alike) > 1 else f"{kind}"
    return labels


def _matrix(topology: Topology, labels: Mapping[str, str]) -> list[str]:
    """A row and a column for each device, each cell the label of what connects the two."""
    count = len(topology.devices)
    cells = {}
    for link in topology.links:
        cells[link.a, link.b] = cells[link.b, link.a] = labels[_words(link)]
    names = [f"{'GPU' if topology.gpus else 'CPU'} {i}" for i in range(count)]
    rows = [
        ["", *names],
        *([names[a], *(cells.get((a, b), "-") for b in range(count))] for a in range(count)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(count + 1)]
    return [" ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _words(link: Link) -> str:
    if link.kind == Kind.SHARED_MEMORY:
        return f"{ONE_MEMORY}, {link.path}"
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
    """A row for all GPUs that are alike, then where each of them sits."""
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
        facts.append(f"{socket.cores} cores")
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
    """Labels on the left, wrapped words on the right."""
    indent = max(map(len, facts), default=0) + 2
    for label, words in facts.items():
        yield from textwrap.wrap(words, width, initial_indent=label.ljust(indent), subsequent_indent=" " * indent)
