"""Topology: the ranks of a run, the devices that they live on, and what connects those; to and from JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import chain, pairwise
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from collbench.errors import RunFileError
from collbench.topology.devices import DriverInfo, Gpu, Host, Kind, Link, Socket

Probed = Mapping[tuple[int, int], tuple[bool, str]]
"""For a pair of devices, in one direction: whether one could use the other's memory, and why (not)."""

_WORDS: dict[str, str] = {
    Kind.NVLINK: "NVLink",
    Kind.NVSWITCH: "NVSwitch",
    Kind.PCIE: "PCIe",
    Kind.NETWORK: "network",
}


@dataclass(frozen=True)
class Topology:
    """Ranks on devices; unless `places` says otherwise, rank r lives on device r modulo their number."""

    platform: str
    ranks: int
    gpus: tuple[Gpu, ...] = ()
    sockets: tuple[Socket, ...] = ()
    links: tuple[Link, ...] = ()  # one for each pair of devices
    host: Host | None = None
    driver: DriverInfo | None = None
    places: tuple[int, ...] = ()  # each rank's device, where they are not dealt in turn
    unseen: str = ""  # a sentence on why nothing is known of what joins the devices, where that is so

    @property
    def devices(self) -> tuple[Gpu, ...] | tuple[Socket, ...]:
        """What ranks live on."""
        return self.gpus or self.sockets

    @property
    def shared(self) -> bool:
        """Whether ranks outnumber the GPUs, so that some pairs have no bus between them."""
        return 0 < len(self.gpus) < self.ranks

    @property
    def sliced(self) -> bool:
        """Whether ranks live on MIG slices: no data sheet says what of a GPU's memory and slot a slice has."""
        return any(gpu.slice for gpu in self.gpus) or any(link.kind == Kind.SAME_GPU for link in self.links)

    @property
    def name(self) -> str:
        """What a plot's title calls it: `8 x NVIDIA H100 80GB HBM3, NVSwitch`."""
        counted = Counter(device.name for device in self.devices)
        what = " + ".join(f"{count} x {name}" for name, count in counted.items())
        ranks = f"{self.ranks} rank" + ("s" if self.ranks > 1 else "")
        if self.sockets:
            return f"{ranks} on {what}{_cores(self.sockets)}"
        words = dict.fromkeys(_WORDS.get(link.kind, link.kind) for link in self.links)
        joined = f", {' + '.join(words)}" if words else ""
        nodes = len({gpu.host for gpu in self.gpus})
        joined += f", {nodes} nodes" if nodes > 1 else ""
        return f"{ranks} sharing {what}{joined}" if self.shared else what + joined

    def place(self, rank: int) -> int:
        """The device of a rank."""
        return self.places[rank] if self.places else rank % len(self.devices)

    def link(self, a: int, b: int) -> Link:
        """What connects ranks `a` and `b`; its ends are devices, one twice for ranks that share it."""
        first, second = sorted(map(self.place, (a, b)))
        if first == second:
            return Link(first, second, Kind.SAME_GPU if self.gpus else Kind.SHARED_MEMORY, p2p="yes")
        return next(link for link in self.links if (link.a, link.b) == (first, second))

    def probed(self, results: Probed, otherwise: str = "") -> "Topology":
        """Itself with what a probe found; a pair is "yes" if both directions are.

        `otherwise` is the reason for pairs that stay unprobed.
        """
        return replace(self, links=tuple(_probed(link, results, otherwise) for link in self.links))

    def on_nodes(self, count: int) -> dict[str, Any]:
        """For the header of a run on so many machines, of which this is the first; nobody looked at the others."""
        record = self.to_json() | {"nodes": count}
        if count > 1:
            ranks, _, what = self.name.partition(" on ")
            record["name"] = f"{ranks} on {count} nodes, the first with {what}"
        return record

    def to_json(self) -> dict[str, Any]:
        """For the header of a run file, as JSON has it; `name` and `shared` are for readers without this module."""
        return {"name": self.name, "shared": self.shared} | asdict(self, dict_factory=_as_json)

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Topology":
        """The topology that `to_json` wrote; unknown keys are ignored, RunFileError if it is none."""
        try:
            topology: Topology = from_record(Topology, record)
        except (TypeError, ValueError) as error:
            raise RunFileError(f"the header's topology cannot be read ({error}); is the run file damaged?") from error
        return topology


def _as_json(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """With lists for tuples: a live header never passes through JSON, and must be read like one that did."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields}


def _cores(sockets: tuple[Socket, ...]) -> str:
    cores = sum(socket.cores or 0 for socket in sockets)
    if cores:
        return f", {cores} core" + ("s" if cores > 1 else "")
    threads = sum(socket.threads or 0 for socket in sockets)
    return f", {threads} CPU" + ("s" if threads > 1 else "") if threads else ""


def _probed(link: Link, results: Probed, otherwise: str) -> Link:
    answers = [results[pair] for pair in ((link.a, link.b), (link.b, link.a)) if pair in results]
    if not answers:
        return replace(link, reason=otherwise or link.reason) if link.p2p == "unprobed" else link
    failed = [reason for ok, reason in answers if not ok]
    return replace(link, p2p="no" if failed else "yes", reason=(failed or [reason for _, reason in answers])[0])


def from_record(annotation: Any, value: Any) -> Any:
    """A value of the annotated type, such as a System, from what JSON kept of it; TypeError if it is none."""
    if isinstance(annotation, UnionType):
        inner = next(part for part in get_args(annotation) if part is not type(None))
        return None if value is None else from_record(inner, value)
    if get_origin(annotation) is tuple:
        return tuple(from_record(get_args(annotation)[0], element) for element in value)
    if not is_dataclass(annotation):
        return value
    make: Any = annotation
    hints = get_type_hints(make)
    names = [field.name for field in fields(make) if field.name in value]
    return make(**{name: from_record(hints[name], value[name]) for name in names})


def named(gpus: Sequence[Gpu], reason: str) -> Topology:
    """GPUs of which there is no more than what CUDA calls them, a rank on each, and the reason for that."""
    return Topology("gpu", len(gpus), tuple(gpus), unseen=f"links and slots of the GPUs are not known: {reason}")


def join(nodes: Sequence[Topology], places: Sequence[int]) -> Topology:
    """All nodes' GPUs one after the other, a network between them; `places` is each rank's GPU in that order."""
    starts = [sum(len(node.gpus) for node in nodes[:index]) for index in range(len(nodes) + 1)]
    inside = (
        replace(link, a=start + link.a, b=start + link.b)
        for start, node in zip(starts, nodes, strict=False)
        for link in node.links
    )
    across = (
        Link(a, b, Kind.NETWORK, p2p="no", reason="they are on two nodes")
        for first, then in pairwise(starts)
        for a in range(first, then)
        for b in range(then, starts[-1])
    )
    gpus = tuple(chain.from_iterable(node.gpus for node in nodes))
    in_turn = all(place == rank % len(gpus) for rank, place in enumerate(places))
    return Topology(
        nodes[0].platform,
        len(places),
        gpus,
        links=(*inside, *across),
        driver=nodes[0].driver,
        places=() if in_turn else tuple(places),
        unseen=next((node.unseen for node in nodes if node.unseen), ""),
    )
