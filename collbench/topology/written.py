"""A System as the text of a TOML file that describes it, every fact stated: what `presets.load` reads back."""

from collections.abc import Iterator, Mapping
from typing import Any

from collbench.topology.system import System

Value = str | int | float | bool | list[Any]


def to_toml(system: System, factors: Mapping[str, float] | None = None) -> str:
    """The file's text; `factors` are those of a calibration and stand in it."""
    lines = [f"name = {_written(system.name)}"]
    for heading, keys in _tables(system, factors or {}):
        said = [f"{key} = {_written(value)}" for key, value in keys.items() if value not in (None, "", [])]
        lines += ["", heading, *said] if said else []
    return "\n".join(lines) + "\n"


def _tables(system: System, factors: Mapping[str, float]) -> Iterator[tuple[str, Mapping[str, Value | None]]]:
    yield "[gpu]", {"arch": system.arch, "name": system.gpu}
    yield "[node]", _node(system)
    if system.nics:
        nics = system.nics
        yield "[nic]", {"per_node": nics.per_node, "rate": nics.rate / 1e9, "transport": nics.transport}
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
        return '"' + "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped) + '"'
    return repr(value)
