"""Systems from TOML files and to them: presets by name, files by path.

The tables below say which keys a file may hold, with types, limits and units; rates are GB/s (1e9 bytes) of one
direction.  What a file leaves out follows from its GPUs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

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
_SHOWN = 60  # characters of a wrong value in a message
Value = str | int | float | bool | Sequence[Any]

Version = Annotated[str, Meta(pattern=r"\A2\.\d{1,2}(\.\d{1,2})?\Z", examples=['"2.29"'])]
UpTo16 = Annotated[int, Meta(ge=1, le=16)]
UpTo72 = Annotated[int, Meta(ge=1, le=72)]


def _scaled(unit: float, most: float, words: str) -> Meta:
    """Return the limits of a number in units of so many FLOP/s, bytes or bytes per second, which System counts in."""
    return Meta(ge=0.001, le=most, description=words, extra={"unit": unit})


GpuRate = Annotated[float, _scaled(1e9, 5000, "GB/s of one direction")]
Tflops = Annotated[float, _scaled(1e12, 1e6, "TFLOP/s of dense matrix products on 16 bits")]
Fp8Tflops = Annotated[float, _scaled(1e12, 1e6, "TFLOP/s of dense matrix products on 8 bits")]
Switches = Annotated[list[Annotated[list[int], Meta(min_length=1)]], Meta(examples=["[[0, 1, 2, 3], [4, 5, 6, 7]]"])]
Factor = Annotated[float, Meta(ge=0.01, le=100)]
Bytes = Annotated[float, Meta(ge=1)]


class Table(Struct, forbid_unknown_fields=True):
    """A table of keys; its fields are called as those of System.

    0, "" or None as a default stands for a key that is not there.
    """

    def values(self) -> dict[str, Any]:
        """Return the values in System's units."""
        held = msgspec.structs.asdict(self)
        return held | {name: held[name] * unit for name, unit in _units(type(self)).items()}


@cache
def _units(table: type[Struct]) -> dict[str, float]:
    """Return the units of the fields of a table that have one."""
    found = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        for meta in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if meta.extra:
                found[name] = meta.extra["unit"]
    return found


class GpuTable(Table):
    """The GPUs."""

    arch: Text  # a key of ARCHITECTURES
    gpu: Text = field(default="", name="name")
    flops: Tflops = field(default=0.0, name="tflops")
    flops_fp8: Fp8Tflops = field(default=0.0, name="fp8_tflops")
    memory: Annotated[float, _scaled(2**30, 1e5, "GiB")] = 0.0
    memory_rate: Annotated[float, _scaled(1e9, 1e6, "GB/s")] = field(default=0.0, name="memory_bw")


class NodeTable(Table):
    """A node."""

    gpus: UpTo1024
    fabric: Fabric
    gpu_rate: GpuRate = field(default=0.0, name="gpu_bw")
    spec_rate: GpuRate = field(default=0.0, name="spec_bw")
    nvlinks: UpTo72 = 0
    p2p: bool = True
    multicast: bool | None = None
    cpu: Cpu = "intel"
    pcie_generation: Annotated[int, Meta(ge=1, le=6)] = field(default=0, name="pcie_gen")
    pcie_lanes: UpTo16 = 16
    switches: Switches = []
    sockets: UpTo72 = 1
    socket_rate: Annotated[float, _scaled(1e9, 1000, "GB/s of one direction")] = field(default=0.0, name="inter_socket")


class NicTable(Table):
    """The network cards of a node."""

    per_node: UpTo1024
    # At most 1 Tb/s: as much as a slot of PCIe 6 carries.
    rate: Annotated[float, _scaled(1e9, 125, "GB/s of one direction (400 Gb/s are 50)")]
    transport: Transport
    gdr: bool = True


class TierTable(Tier, frozen=True, forbid_unknown_fields=True):
    """A tier of switches."""

    routing: Routing = "adaptive"


class ScaleTable(Table):
    """How many nodes there are."""

    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1


class HostTable(Table):
    """What starts the collectives."""

    launch: Launch = "process-per-gpu"


class NcclTable(Table):
    """NCCL's version and settings."""

    nccl: Version = field(default=System.nccl, name="version")
    nvls: bool | None = None
    algorithm: Algorithm = field(default="auto", name="algo")
    protocol: Protocol = field(default="auto", name="proto")


class CalibrationTable(Table):
    """Factors on the terms of the model, each 1 on a machine that is as modelled; or the file that has them.

    `ratios` are what they leave at the measured sizes: bytes, and measured time over that of the factors.
    """

    file: Text = ""
    launch: Factor = 0.0
    latency: Factor = 0.0
    network: Factor = 0.0
    filling: Factor = 0.0
    rate: Factor = 0.0
    ratios: tuple[tuple[Bytes, Factor], ...] = ()


TABLES: dict[str, type[Struct]] = {"tier": TierTable}
TABLES |= {table.__name__.removesuffix("Table").lower(): table for table in Table.__subclasses__()}
"""The tables above, by their names in a file."""


class Description(Table):
    """All of a file."""

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
    """Return a preset, or the system of a file that ends in .toml; UsageError in one line if it is neither or wrong."""
    if name.endswith(".toml"):
        path = Path(name)
    elif name in names():
        path = FOLDER / f"{name}.toml"
    else:
        raise unknown("system", name, (*names(), "FILE.toml"))
    return parse(read_toml(path, UsageError), path)


def parse(fields: Mapping[str, Any], path: Path) -> System:
    """Return the system that a file's fields describe, which are tables as TOML has them.

    A calibration is looked for next to the file.  UsageError where a key is unknown, missing or wrong, in one line that
    names file and key.
    """
    try:
        described = msgspec.convert(fields, Description)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_explained(str(error), fields)}") from None
    for problem in (*_node_problems(described), *_problems(described)):
        raise UsageError(f"{path}: {problem}")
    gpu, node, nic = described.gpu, described.node, described.nic
    calibration = ""
    if described.calibration != CalibrationTable():  # the factors stand in another file, or in this one
        calibration = str(path.parent / described.calibration.file if described.calibration.file else path)
    architecture = ARCHITECTURES[gpu.arch]
    links = (node.nvlinks or architecture.nvlinks) if node.fabric in NVLINKED else 0
    generation = node.pcie_generation or architecture.pcie
    usual_rate = architecture.nvlink * links or pcie_rate(generation, node.pcie_lanes)
    usual_spec = architecture.spec * links or pcie_spec(generation, node.pcie_lanes)
    held: dict[str, Any] = {}
    for table in (gpu, node, described.scale, described.host, described.nccl):
        held |= table.values()
    sockets = held.pop("sockets")
    held |= {"nvlinks": links, "pcie_generation": generation, "multicast": _multicast(described)}
    held |= {"gpu_rate": held["gpu_rate"] or usual_rate, "spec_rate": held["spec_rate"] or usual_spec}
    held |= {"switches": tuple(map(tuple, node.switches)), "per_socket": -(-node.gpus // sockets)}
    held |= {"nvls": described.nccl.nvls is not False, "nics": Nics(**nic.values()) if nic else None}
    return System(
        **held,
        name=described.name,
        tiers=tuple(Tier(*msgspec.structs.astuple(tier)) for tier in described.tier),
        calibration=calibration,
    )


def _can_add(described: Description) -> bool:
    return described.node.fabric == "nvswitch" and described.gpu.arch in ADDING


def _multicast(described: Description) -> bool:
    return _can_add(described) if described.node.multicast is None else described.node.multicast


def _node_problems(described: Description) -> Iterator[str]:
    node, arch = described.node, described.gpu.arch
    if arch not in ARCHITECTURES:
        yield f"[gpu] arch = {arch!r} is impossible; choose from: {', '.join(ARCHITECTURES)}"
        return
    yield from _link_problems(node, arch)
    if node.multicast and not _can_add(described):
        yield f"[node] multicast = true is impossible here; only NVSwitches of {', '.join(ADDING)} add"
    if node.switches and sorted(gpu for group in node.switches for gpu in group) != list(range(node.gpus)):
        yield f"[node] switches must name each GPU from 0 to {node.gpus - 1} once"
    if node.sockets > node.gpus:
        yield f"[node] sockets = {node.sockets} is impossible; at most one for each GPU"
    if node.sockets == 1 and node.socket_rate:
        yield "[node] inter_socket needs sockets = 2 or more"


def _link_problems(node: NodeTable, arch: str) -> Iterator[str]:
    size, links = node.gpus, node.nvlinks or ARCHITECTURES[arch].nvlinks
    if node.fabric not in NVLINKED:
        if node.nvlinks:
            yield "[node] nvlinks needs a fabric of NVLinks, not pcie"
        return
    if not links:
        yield f"[node] fabric = {node.fabric!r} is impossible: {arch} has no NVLink; use pcie"
    if node.fabric == "mesh" and (size == 1 or links % (size - 1)):
        yield f"[node] nvlinks = {links} cannot be dealt evenly to the {size - 1} others of a mesh"
    if node.fabric == "hybrid-cube" and links != (CUBE_RINGS.get(size, 0) or None):
        parts = ", ".join(f"{count} ({gpus} GPUs)" for gpus, count in CUBE_RINGS.items() if count)
        known = f"8 GPUs with 6 NVLinks each, or the first of them with {parts}"
        yield f"[node] nvlinks = {links} is no hybrid-cube of {size} GPUs; it is {known}"
    if node.fabric == "nvlink-pairs" and size == 1:
        yield "[node] gpus = 1 cannot be nvlink-pairs; give 2 or more"


def _problems(described: Description) -> Iterator[str]:
    nic, tiers, calibration = described.nic, described.tier, described.calibration
    if nic and nic.per_node > MOST_NICS * described.node.gpus:
        yield f"[nic] per_node = {nic.per_node} is impossible; at most {MOST_NICS} for each GPU"
    if calibration.file and calibration != CalibrationTable(file=calibration.file):
        yield "[calibration] file stands for the factors of another file; give it or factors"
    if described.nccl.nvls and not _multicast(described):
        yield "[nccl] nvls = true needs NVSwitches that add: [node] fabric = 'nvswitch' of sm90 or newer"
    if tiers and not nic:
        yield "[[tier]] joins nodes, and those have no network cards; add [nic]"
    if described.scale.nodes > 1 and not nic:
        yield f"[scale] nodes = {described.scale.nodes} needs network cards; add [nic]"
    yield from _tier_problems(tiers)


def _tier_problems(tiers: Sequence[Tier]) -> Iterator[str]:
    for tier in tiers[:-1]:
        if not tier.radix:
            yield f"[[tier]] {tier.name!r} needs a radix; only the topmost may join whatever there is"
    for top in tiers[-1:]:
        if top.oversubscription > 1:
            what = f"oversubscription = {top.oversubscription:g} of {top.name!r}"
            yield f"[[tier]] {what}, the topmost tier, is impossible: nothing goes up from it; take the key out"
    if any(tier.name == "torus" for tier in tiers):
        yield "[[tier]] name = 'torus' is no longer modelled; describe switches"


def _explained(error: str, fields: Mapping[str, Any]) -> str:
    """Say an error of msgspec, which ends in a path such as `$.tier[0].radix`, in the words of the file."""
    message, _, path = error.partition(" - at `$")
    place = re.findall(r"[a-z_0-9]+", path)
    name = place[0] if place else ""
    table = TABLES.get(name, Description)
    heading = f"[[{name}]]" if name == "tier" else f"[{name}]"
    where = f"{heading} " if name in TABLES else ""
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        return f"{where}{match[1]} is no key; choose from: {', '.join(table.__struct_encode_fields__)}"
    if match := re.fullmatch(r"Object missing required field `(.*)`", message):
        if match[1] in TABLES:
            return f"[{match[1]}] is missing; its keys are: {', '.join(TABLES[match[1]].__struct_encode_fields__)}"
        return f"{where}{match[1]} is missing; {_allowed(table, match[1])}"
    keys = [part for part in place if not part.isdigit()]
    if name in TABLES and len(keys) == 1:
        return f"{name} must be a table; write {heading} and its keys in the lines below"
    value: Any = fields
    for part in place[: 3 if name == "tier" else 2]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return f"{where}{keys[-1]} = {_shown(value)} is impossible; {_allowed(table, keys[-1])}"


_WORDS = {int: "a whole number", float: "a number", str: "a text", list: "lists of GPU numbers"}


def _allowed(table: type[Struct], key: str) -> str:
    """Say what the value of a key may be."""
    name = table.__struct_fields__[table.__struct_encode_fields__.index(key)]
    hint = get_type_hints(table, include_extras=True)[name]
    if get_origin(hint) is Literal:
        return f"choose from: {', '.join(get_args(hint))}"
    kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, Meta())
    words = f"it must be {_WORDS.get(get_origin(kind) or kind, 'true or false')}"
    if meta.ge is not None:
        words += f" from {meta.ge:g} to {meta.le:g}"
    if meta.description:
        words += f" in {meta.description}"
    return words + (f", such as {meta.examples[0]}" if meta.examples else "")


def _shown(value: object) -> str:
    """Return a value roughly as TOML writes it; long ones are cut."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more digits than 4,300, though TOML has them in hexadecimal
        return "that number"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def with_cards(system: System, key: str, text: str) -> System:
    """Return the system with another value of a key of [nic]; UsageError with the values that there may be."""
    if not system.nics:
        raise UsageError(f"{system.name} has no network cards; add [nic] in a file of your own")
    keys = _keys("nic", system.nics) | {key: text}
    try:
        nic = msgspec.convert(keys, NicTable, strict=False)
    except msgspec.ValidationError:
        raise UsageError(f"nic.{key}={text} is impossible; {_allowed(NicTable, key)}") from None
    if nic.per_node > MOST_NICS * system.gpus:
        raise UsageError(f"nic.per_node={text} is impossible; at most {MOST_NICS} for each of {system.gpus} GPUs")
    return replace(system, nics=Nics(**nic.values()))


def to_toml(system: System, factors: Mapping[str, Value] | None = None) -> str:
    """Return the text of a system's file; `factors` are those of a calibration and stand in it."""
    tables = [(f"[{name}]", _keys(name, system)) for name in ("gpu", "node")]
    if system.nics:
        tables.append(("[nic]", _keys("nic", system.nics)))
    for tier in system.tiers:
        tables.append(("[[tier]]", _keys("tier", tier)))
    tables += [(f"[{name}]", _keys(name, system)) for name in ("scale", "host", "nccl")]
    tables.append(("[calibration]", dict(factors or {})))
    lines = [f"name = {_written(system.name)}"]
    for heading, keys in tables:
        # 0 stands for a key that is not there, and false does not.
        written = [f"{key} = {_written(value)}" for key, value in keys.items() if value or value is False]
        if written:
            lines += ["", heading, *written]
    return "\n".join(lines) + "\n"


def _keys(table: str, owner: System | Nics | Tier) -> dict[str, Any]:
    """Return the keys of a table, with the values that the system, its network cards or a tier have."""
    kind = TABLES[table]
    units, keys = _units(kind), {}
    for name, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        value = getattr(owner, name)
        keys[key] = value / units[name] if name in units else value
    if keys.get("sockets") == 1:
        keys |= {"sockets": 0, "inter_socket": 0}
    if keys.get("nvls"):
        del keys["nvls"]  # true needs switches that add
    return keys


def _written(value: Value) -> str:
    """Return a value in TOML's notation, which is that of JSON but for some signs that are not printed."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
