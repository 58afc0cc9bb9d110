"""Systems as TOML files: presets by name, files by path.

The tables below define the keys of a file, with types, limits and units; rates are GB/s (1e9 bytes) in one direction.
Defaults follow from the GPUs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, field

from collbench.errors import UsageError, unknown
from collbench.host.sanitize import read_toml
from collbench.topology.products import ADDING, ARCHITECTURES, pcie_rate, pcie_spec
from collbench.topology.system import (
    CUBE_RINGS,
    MOST_NODES,
    Algorithm,
    Cpu,
    Fabric,
    Launch,
    Nics,
    Protocol,
    Routing,
    System,
    Text,
    Tier,
    Transport,
    UpTo1024,
)

FOLDER = Path(__file__).parent / "presets"
MOST_NICS = 4  # for each GPU: AWS P5 has 32 for 8
NVLINKED = ("nvswitch", "mesh", "hybrid-cube", "nvlink-pairs")
Value = str | int | float | bool | Sequence[Any]

Arch = Annotated[str, Meta(pattern=rf"\A({'|'.join(ARCHITECTURES)})\Z", title=f"one of: {', '.join(ARCHITECTURES)}")]
Version = Annotated[str, Meta(pattern=r"\A2\.\d{1,2}(\.\d{1,2})?\Z", title='a text, such as "2.29"')]
UpTo72 = Annotated[int, Meta(ge=1, le=72)]
Rate = Annotated[float, Meta(ge=0.001, le=5000, description="GB/s of one direction")]
SocketRate = Annotated[float, Meta(ge=0.001, le=1000, description="GB/s of one direction")]
Tflops = Annotated[float, Meta(ge=0.001, le=1e6, description="TFLOP/s of dense matrix products on 16 bits")]
Fp8Tflops = Annotated[float, Meta(ge=0.001, le=1e6, description="TFLOP/s of dense matrix products on 8 bits")]
MemoryRate = Annotated[float, Meta(ge=0.001, le=1e6, description="GB/s")]
# At most 1 Tb/s: as much as a slot of PCIe 6 carries.
CardRate = Annotated[float, Meta(ge=0.001, le=125, description="GB/s of one direction (400 Gb/s are 50)")]
Switches = Annotated[
    list[Annotated[list[int], Meta(min_length=1)]],
    Meta(title="lists of GPU numbers, such as [[0, 1, 2, 3], [4, 5, 6, 7]]"),
]
Factor = Annotated[float, Meta(ge=0.01, le=100)]
Bytes = Annotated[float, Meta(ge=1)]

UNITS = dict.fromkeys(("gpu_rate", "spec_rate", "socket_rate", "memory_rate", "rate"), 1e9)
UNITS |= {"flops": 1e12, "flops_fp8": 1e12, "memory": 2.0**30}
"""Factors from the units of a file to those of System: FLOP/s, bytes, bytes per second."""


class FileTable(Struct, forbid_unknown_fields=True):
    """A table of keys, with System's field names; the default 0, "" or None stands for a missing key."""

    def values(self) -> dict[str, Any]:
        """Return the values in System's units."""
        held = msgspec.structs.asdict(self)
        return held | {name: held[name] * unit for name, unit in UNITS.items() if name in held}


class GpuTable(FileTable):
    """The GPUs."""

    arch: Arch
    gpu: Text = field(default="", name="name")
    flops: Tflops = field(default=0.0, name="tflops")
    flops_fp8: Fp8Tflops = field(default=0.0, name="fp8_tflops")
    memory: Annotated[float, Meta(ge=0.001, le=1e5, description="GiB")] = 0.0
    memory_rate: MemoryRate = field(default=0.0, name="memory_bw")


class NodeTable(FileTable):
    """A node."""

    gpus: UpTo1024
    fabric: Fabric
    gpu_rate: Rate = field(default=0.0, name="gpu_bw")
    spec_rate: Rate = field(default=0.0, name="spec_bw")
    nvlinks: UpTo72 = 0
    p2p: bool = True
    multicast: bool | None = None
    cpu: Cpu = "intel"
    pcie_generation: Annotated[int, Meta(ge=1, le=6)] = field(default=0, name="pcie_gen")
    pcie_lanes: Annotated[int, Meta(ge=1, le=16)] = 16
    switches: Switches = []
    sockets: UpTo72 = 1
    socket_rate: SocketRate = field(default=0.0, name="inter_socket")


class NicTable(FileTable):
    """The network cards of a node."""

    per_node: UpTo1024
    rate: CardRate
    transport: Transport
    gdr: bool = True
    sharp: bool = False


class TierTable(Tier, frozen=True, forbid_unknown_fields=True):
    """A tier of switches."""

    routing: Routing = "adaptive"


class ScaleTable(FileTable):
    """The number of nodes."""

    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1


class HostTable(FileTable):
    """What starts the collectives."""

    launch: Launch = "process-per-gpu"


class NcclTable(FileTable):
    """NCCL's version and settings."""

    nccl: Version = field(default=System.nccl, name="version")
    nvls: bool = True
    algorithm: Algorithm = field(default="auto", name="algo")
    protocol: Protocol = field(default="auto", name="proto")


class CalibrationTable(FileTable):
    """Factors on the terms of the model, each 1 by default; or the file with them.

    `ratios` are the residuals at the measured sizes: bytes, and measured over predicted time.
    """

    file: Text = ""
    launch: Factor = 0.0
    latency: Factor = 0.0
    network: Factor = 0.0
    filling: Factor = 0.0
    rate: Factor = 0.0
    ratios: Annotated[tuple[tuple[Bytes, Factor], ...], Meta(title="pairs of bytes and a factor")] = ()


TABLES: dict[str, type[Struct]] = {"tier": TierTable}
TABLES |= {table.__name__.removesuffix("Table").lower(): table for table in FileTable.__subclasses__()}
"""The tables above, by their names in a file."""


class Description(FileTable):
    """The tables of a file."""

    name: Text
    gpu: GpuTable
    node: NodeTable
    nic: NicTable | None = None
    tier: tuple[TierTable, ...] = ()
    scale: ScaleTable = field(default_factory=ScaleTable)
    host: HostTable = field(default_factory=HostTable)
    nccl: NcclTable = field(default_factory=NcclTable)
    calibration: CalibrationTable = field(default_factory=CalibrationTable)


def names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> System:
    """Return the system of a preset or a .toml file; UsageError, in one line, if that fails."""
    if name.endswith(".toml"):
        path = Path(name)
    elif name in names():
        path = FOLDER / f"{name}.toml"
    else:
        raise unknown("system", name, (*names(), "FILE.toml"))
    return parse(read_toml(path, UsageError), path)


def parse(fields: Mapping[str, Any], path: Path) -> System:
    """Return the system described by a file's TOML tables.

    A calibration file is searched next to the file. UsageError if a key is unknown, missing or wrong, in one line
    with file and key.
    """
    try:
        described = msgspec.convert(fields, Description)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_explained(str(error))}") from None
    for problem in (*_node_problems(described), *_problems(described)):
        raise UsageError(f"{path}: {problem}")
    gpu, node, nic = described.gpu, described.node, described.nic
    architecture = ARCHITECTURES[gpu.arch]
    links = (node.nvlinks or architecture.nvlinks) if node.fabric in NVLINKED else 0
    generation = node.pcie_generation or architecture.pcie
    values: dict[str, Any] = {"name": described.name, "nics": Nics(**nic.values()) if nic else None}
    for table in (gpu, node, described.scale, described.host, described.nccl):
        values |= table.values()
    values |= {"nvlinks": links, "pcie_generation": generation, "switches": tuple(map(tuple, node.switches))}
    values["per_socket"] = -(-node.gpus // values.pop("sockets"))
    values["gpu_rate"] = values["gpu_rate"] or architecture.nvlink * links or pcie_rate(generation, node.pcie_lanes)
    values["spec_rate"] = values["spec_rate"] or architecture.spec * links or pcie_spec(generation, node.pcie_lanes)
    if node.multicast is None:
        values["multicast"] = _can_add(described)
    if described.calibration != CalibrationTable():  # the factors are in another file or in this one
        values["calibration"] = str(path.parent / described.calibration.file if described.calibration.file else path)
    return System(**values, tiers=tuple(Tier(*msgspec.structs.astuple(tier)) for tier in described.tier))


def _can_add(described: Description) -> bool:
    return described.node.fabric == "nvswitch" and described.gpu.arch in ADDING


def _node_problems(described: Description) -> Iterator[str]:
    node, arch = described.node, described.gpu.arch
    size, links = node.gpus, node.nvlinks or ARCHITECTURES[arch].nvlinks
    if node.fabric == "pcie" and node.nvlinks:
        yield "[node] nvlinks needs a fabric of NVLinks, not pcie"
    if node.fabric in NVLINKED and not links:
        yield f"[node] fabric = {node.fabric!r} is impossible: {arch} has no NVLink; use pcie"
    if node.fabric == "mesh" and (size == 1 or links % (size - 1)):
        yield f"[node] nvlinks = {links} cannot be dealt evenly to the {size - 1} others of a mesh"
    if node.fabric == "hybrid-cube" and links != (CUBE_RINGS.get(size, 0) or None):
        parts = ", ".join(f"{count} ({gpus} GPUs)" for gpus, count in CUBE_RINGS.items() if count)
        whole = f"8 GPUs with 6 NVLinks each, or the first of them with {parts}"
        yield f"[node] nvlinks = {links} is no hybrid-cube of {size} GPUs; it is {whole}"
    if node.fabric == "nvlink-pairs" and size == 1:
        yield "[node] gpus = 1 cannot be nvlink-pairs; give 2 or more"
    if node.multicast and not _can_add(described):
        yield f"[node] multicast = true is impossible here; only NVSwitches of {', '.join(ADDING)} add"
    if node.switches and sorted(chain(*node.switches)) != list(range(size)):
        yield f"[node] switches must name each GPU from 0 to {size - 1} once"
    if node.sockets > size:
        yield f"[node] sockets = {node.sockets} is impossible; at most one for each GPU"


def _problems(described: Description) -> Iterator[str]:
    nic, tiers, calibration = described.nic, described.tier, described.calibration
    if nic:
        yield from _nic_problems(nic, described.node.gpus)
    if calibration.file and calibration != CalibrationTable(file=calibration.file):
        yield "[calibration] file stands for the factors of another file; give it or factors"
    if tiers and not nic:
        yield "[[tier]] joins nodes, and those have no network cards; add [nic]"
    if described.scale.nodes > 1 and not nic:
        yield f"[scale] nodes = {described.scale.nodes} needs network cards; add [nic]"
    for tier in tiers[:-1]:
        if not tier.radix:
            yield f"[[tier]] {tier.name!r} needs a radix; only the topmost may join whatever there is"
    if tiers and tiers[-1].oversubscription > 1:
        what = f"oversubscription = {tiers[-1].oversubscription:g} of {tiers[-1].name!r}"
        yield f"[[tier]] {what}, the topmost tier, is impossible: nothing goes up from it; take the key out"


def _explained(error: str) -> str:
    """Translate msgspec's error, which ends in a path such as `$.tier[0].radix`, to the file's keys."""
    message, _, path = error.partition(" - at `$")
    names = re.findall(r"[a-z_][a-z_0-9]*", path)
    unknown_key = re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL)
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing:
        names.append(missing[1])
    table = TABLES.get(names[0] if names else "", Description)
    heading = ""
    if table is not Description:
        heading = "[[tier]] " if table is TierTable else f"[{names[0]}] "
    keys = ", ".join(table.__struct_encode_fields__)
    if unknown_key:
        return f"{heading}{unknown_key[1]} is no key; choose from: {keys}"
    if heading and len(names) == 1:
        problem = f"{heading}is missing" if missing else f"{names[0]} must be a table; write {heading.rstrip()}"
        return f"{problem}; its keys are: {keys}"
    return f"{heading}{names[-1]} {'is missing; it ' if missing else ''}must be {_allowed(table, names[-1])}"


def _allowed(table: type[Struct], key: str) -> str:
    hint = next(each.type for each in msgspec.structs.fields(table) if each.encode_name == key)
    if get_origin(hint) is Literal:
        return f"one of: {', '.join(get_args(hint))}"
    kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, Meta())
    if meta.title:
        return str(meta.title)
    words = {int: "a whole number", float: "a number", str: "a text"}.get(kind, "true or false")
    if meta.ge is not None:
        words += f" from {meta.ge:g} to {meta.le:g}"
    if meta.description:
        words += f" in {meta.description}"
    return words + (f", such as {meta.examples[0]}" if meta.examples else "")


def _nic_problems(nic: NicTable, gpus: int) -> Iterator[str]:
    if nic.per_node > MOST_NICS * gpus:
        yield f"[nic] per_node = {nic.per_node} is impossible; at most {MOST_NICS} for each GPU"
    if nic.sharp and nic.transport != "ib":
        yield f'[nic] sharp = true is impossible over {nic.transport}; SHARP needs InfiniBand: transport = "ib"'


def with_cards(system: System, key: str, text: str) -> System:
    """Return the system with a changed key of [nic]; UsageError lists the allowed values."""
    if not system.nics:
        raise UsageError(f"{system.name} has no network cards; add [nic] in a file of your own")
    keys = _keys("nic", system.nics) | {key: text}
    try:
        nic = msgspec.convert(keys, NicTable, strict=False)
    except msgspec.ValidationError:
        raise UsageError(f"nic.{key}={text} is impossible; it must be {_allowed(NicTable, key)}") from None
    for problem in _nic_problems(nic, system.gpus):
        raise UsageError(problem)
    return replace(system, nics=Nics(**nic.values()))


def to_toml(system: System, factors: Mapping[str, Value] | None = None) -> str:
    """Return the text of a system's file, with the `factors` of a calibration."""
    tables = [(f"[{name}]", _keys(name, system)) for name in ("gpu", "node")]
    if system.nics:
        tables.append(("[nic]", _keys("nic", system.nics)))
    tables += [("[[tier]]", _keys("tier", tier)) for tier in system.tiers]
    tables += [(f"[{name}]", _keys(name, system)) for name in ("scale", "host", "nccl")]
    tables.append(("[calibration]", dict(factors or {})))
    lines = [f"name = {_written(system.name)}"]
    for heading, keys in tables:
        # 0 stands for a missing key; false does not.
        written = [f"{key} = {_written(value)}" for key, value in keys.items() if value or value is False]
        if written:
            lines += ["", heading, *written]
    return "\n".join(lines) + "\n"


def _keys(table: str, owner: System | Nics | Tier) -> dict[str, Any]:
    keys = {}
    for each in msgspec.structs.fields(TABLES[table]):
        value = getattr(owner, each.name)
        keys[each.encode_name] = value / UNITS[each.name] if each.name in UNITS else value
    # Omit defaults.
    if keys.get("sockets") == 1:
        keys |= {"sockets": 0, "inter_socket": 0}
    if keys.get("nvls"):
        del keys["nvls"]
    return keys


def _written(value: Value) -> str:
    """Return a value in TOML notation: JSON's, except for unprintable characters."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
