"""Systems from TOML files and to them: presets by name, files by path; what a file leaves out follows from the GPUs.

schema.py says what a file may hold.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collbench.errors import UsageError, unknown
from collbench.host.sanitize import read_toml
from collbench.topology import schema
from collbench.topology.architectures import ADDING, ARCHITECTURES, pcie_rate, pcie_spec
from collbench.topology.system import CUBE_RINGS, Nics, System, Tier

FOLDER = Path(__file__).parent / "presets"
MOST_NICS = 4  # for each GPU: AWS P5 has 32 for 8
NVLINKED = ("nvswitch", "mesh", "hybrid-cube", "nvlink-pairs")
Value = str | int | float | bool | list[list[int]]


def names() -> list[str]:
    """All presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> System:
    """A preset, or a file that ends in .toml; UsageError in one line if it is neither or wrong."""
    if name.endswith(".toml"):
        path = Path(name)
    elif name in names():
        path = FOLDER / f"{name}.toml"
    else:
        raise unknown("system", name, (*names(), "FILE.toml"))
    return parse(read_toml(path, UsageError), path)


def parse(fields: Mapping[str, Any], path: Path) -> System:
    """The system that a file's fields describe; `path` is for messages, and a calibration is looked for beside it."""
    said = schema.checked(fields, str(path))
    node = _Node(said["gpu"]["arch"], said["node"], f"{path}: ")
    nccl = said["nccl"]
    system = System(
        name=said["name"],
        arch=said["gpu"]["arch"],
        gpu=said["gpu"].get("name", ""),
        flops=said["gpu"].get("tflops", 0) * 1e12,
        flops_fp8=said["gpu"].get("fp8_tflops", 0) * 1e12,
        memory=said["gpu"].get("memory", 0) * 2.0**30,
        memory_rate=_si(said["gpu"].get("memory_bw"), 0.0),
        **node.facts(),
        nics=_nics(said["nic"], node.gpus, f"{path}: [nic] "),
        tiers=tuple(Tier(flows=tier.pop("qps", Tier.flows), **tier) for tier in map(dict, said["tier"])),
        nodes=said["scale"].get("nodes", 1),
        launch=said["host"].get("launch", System.launch),
        nccl=nccl.get("version", System.nccl),
        nvls=nccl.get("nvls", System.nvls),
        algorithm=nccl.get("algo", System.algorithm),
        protocol=nccl.get("proto", System.protocol),
        calibration=_calibration(said["calibration"], path),
    )
    _consistent(system, nccl, f"{path}: ")
    return system


def _calibration(said: Mapping[str, Any], path: Path) -> str:
    """The file that has the factors: another one, or this one."""
    if "file" in said and len(said) > 1:
        raise UsageError(f"{path}: [calibration] file stands for the factors of another file; give it or factors")
    return str(path.parent / said["file"]) if "file" in said else str(path) if said else ""


class _Node:
    """The [node] of a file, with what follows where it is silent."""

    def __init__(self, arch: str, said: Mapping[str, Any], file: str) -> None:
        self.gpus: int = said["gpus"]
        self._arch, self._said, self._file = arch, said, file
        self._gpu = ARCHITECTURES[arch]
        self._fabric: str = said["fabric"]
        self._generation: int = said.get("pcie_gen", self._gpu.pcie)
        self._lanes: int = said.get("pcie_lanes", 16)

    def facts(self) -> dict[str, Any]:
        """Fields of a System; UsageError for what cannot be built."""
        said, links = self._said, self._links()
        cpu = said.get("cpu", "intel")
        return {
            "gpus": self.gpus,
            "fabric": self._fabric,
            "nvlinks": links,
            "gpu_rate": _si(said.get("gpu_bw"), self._gpu.nvlink * links or pcie_rate(self._generation, self._lanes)),
            "spec_rate": _si(said.get("spec_bw"), self._gpu.spec * links or pcie_spec(self._generation, self._lanes)),
            "p2p": said.get("p2p", True),
            "multicast": self._multicast(),
            "cpu": cpu,
            "pcie_generation": self._generation,
            "pcie_lanes": self._lanes,
            "switches": self._switches(),
            "per_socket": self._per_socket(),
            "socket_rate": _si(said.get("inter_socket"), 0.0),
        }

    def _links(self) -> int:
        links: int = self._said.get("nvlinks", self._gpu.nvlinks)
        if self._fabric not in NVLINKED:
            self._need("nvlinks" not in self._said, "[node] nvlinks needs a fabric of NVLinks, not pcie")
            return 0
        self._need(links > 0, f"[node] fabric = {self._fabric!r} is impossible: {self._arch} has no NVLink; use pcie")
        size = self.gpus
        if self._fabric == "mesh":
            evenly = size > 1 and links % (size - 1) == 0
            self._need(evenly, f"[node] nvlinks = {links} cannot be dealt evenly to the {size - 1} others of a mesh")
        if self._fabric == "hybrid-cube":
            known = "8 GPUs with 6 NVLinks each, or the first of them with " + ", ".join(
                f"{count} ({gpus} GPUs)" for gpus, count in CUBE_RINGS.items() if count
            )
            rings = CUBE_RINGS.get(size, 0)
            self._need(links == rings > 0, f"[node] nvlinks = {links} is no hybrid-cube of {size} GPUs; it is {known}")
        if self._fabric == "nvlink-pairs":
            self._need(size > 1, "[node] gpus = 1 cannot be nvlink-pairs; give 2 or more")
        return links

    def _multicast(self) -> bool:
        able = self._fabric == "nvswitch" and self._arch in ADDING
        wanted: bool = self._said.get("multicast", able)
        which = f"NVSwitches of {', '.join(ADDING)}"
        self._need(able or not wanted, f"[node] multicast = true is impossible here; only {which} add")
        return wanted

    def _switches(self) -> tuple[tuple[int, ...], ...]:
        groups = tuple(map(tuple, self._said.get("switches", ())))
        there = sorted(gpu for group in groups for gpu in group)
        complete = not groups or there == list(range(self.gpus))
        self._need(complete, f"[node] switches must name each GPU from 0 to {self.gpus - 1} once")
        return groups

    def _per_socket(self) -> int:
        sockets: int = self._said.get("sockets", 1)
        self._need(sockets <= self.gpus, f"[node] sockets = {sockets} is impossible; at most one for each GPU")
        self._need(sockets > 1 or "inter_socket" not in self._said, "[node] inter_socket needs sockets = 2 or more")
        return -(-self.gpus // sockets)

    def _need(self, fulfilled: bool, otherwise: str) -> None:
        if not fulfilled:
            raise UsageError(f"{self._file}{otherwise}")


def _si(gigabytes: float | None, otherwise: float) -> float:
    """Bytes per second of what a file says, if it does."""
    return otherwise if gigabytes is None else gigabytes * 1e9


def _nics(nic: Mapping[str, Any], gpus: int, where: str) -> Nics | None:
    if not nic:
        return None
    if nic["per_node"] > MOST_NICS * gpus:
        raise UsageError(f"{where}per_node = {nic['per_node']} is impossible; at most {MOST_NICS} for each GPU")
    return Nics(nic["per_node"], nic["rate"] * 1e9, nic["transport"], nic.get("gdr", Nics.gdr))


def _consistent(system: System, nccl: Mapping[str, Any], file: str) -> None:
    """What no key shows alone."""
    if nccl.get("nvls") and not system.multicast:
        raise UsageError(
            f"{file}[nccl] nvls = true needs NVSwitches that add: [node] fabric = 'nvswitch' of sm90 or newer"
        )
    if system.tiers and not system.nics:
        raise UsageError(f"{file}[[tier]] joins nodes, and those have no network cards; add [nic]")
    if system.nodes > 1 and not system.nics:
        raise UsageError(f"{file}[scale] nodes = {system.nodes} needs network cards; add [nic]")
    for tier in system.tiers[:-1]:
        if not tier.radix:
            raise UsageError(f"{file}[[tier]] {tier.name!r} needs a radix; only the topmost may join whatever there is")


def to_toml(system: System, factors: Mapping[str, float] | None = None) -> str:
    """The file's text; `factors` are those of a calibration and stand in it."""
    lines = [f"name = {_written(system.name)}"]
    for heading, keys in _tables(system, factors or {}):
        said = [f"{key} = {_written(value)}" for key, value in keys.items() if value not in (None, "", [])]
        lines += ["", heading, *said] if said else []
    return "\n".join(lines) + "\n"


def _tables(system: System, factors: Mapping[str, float]) -> Iterator[tuple[str, Mapping[str, Value | None]]]:
    yield (
        "[gpu]",
        {
            "arch": system.arch,
            "name": system.gpu,
            "tflops": system.flops / 1e12 or None,
            "fp8_tflops": system.flops_fp8 / 1e12 or None,
            "memory": system.memory / 2**30 or None,
            "memory_bw": system.memory_rate / 1e9 or None,
        },
    )
    yield "[node]", _node(system)
    if system.nics:
        yield "[nic]", vars(system.nics) | {"rate": system.nics.rate / 1e9}
    for tier in system.tiers:
        said = {("qps" if key == "flows" else key): value for key, value in vars(tier).items()}
        yield "[[tier]]", {key: value for key, value in said.items() if key != "radix" or value}
    yield "[scale]", {"nodes": system.nodes}
    yield "[host]", {"launch": system.launch}
    nvls = None if system.nvls else False
    yield "[nccl]", {"version": system.nccl, "nvls": nvls, "algo": system.algorithm, "proto": system.protocol}
    yield "[calibration]", dict(factors)


def _node(system: System) -> Mapping[str, Value | None]:
    return {
        "gpus": system.gpus,
        "fabric": system.fabric,
        "nvlinks": system.nvlinks or None,
        "gpu_bw": system.gpu_rate / 1e9,
        "spec_bw": system.spec_rate / 1e9 or None,
        "p2p": system.p2p,
        "multicast": system.multicast,
        "cpu": system.cpu,
        "pcie_gen": system.pcie_generation or None,
        "pcie_lanes": system.pcie_lanes,
        "switches": [list(group) for group in system.switches],
        "sockets": system.sockets if system.sockets > 1 else None,
        "inter_socket": (system.socket_rate / 1e9 or None) if system.sockets > 1 else None,
    }


def _written(value: Value | None) -> str:
    """A value in TOML's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'
    return repr(value)
