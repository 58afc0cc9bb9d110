"""The keys of a system's TOML file, with type, limits and unit.

[gpu] arch = "sm90" is SECTIONS["gpu"]["arch"].  Rates are GB/s (1e9 bytes) of one direction.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.errors import UsageError
from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.system import ALGORITHMS, CPUS, FABRICS, LAUNCHES, MOST_NODES, PROTOCOLS, ROUTINGS, TRANSPORTS

_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "lists of GPU numbers"}


@dataclass(frozen=True)
class Key:
    """One key: what its value must be."""

    kind: type
    low: float = 0
    high: float = float("inf")
    unit: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ""
    required: bool = False
    example: str = ""

    def checked(self, value: Any, where: str) -> Any:
        """The value, if it is one; else UsageError that names `where` and what is allowed."""
        if not self._is_kind(value) or not self._is_allowed(value):
            raise UsageError(f"{where} = {_shown(value)} is impossible; {self.allowed()}")
        return value

    def allowed(self) -> str:
        """What it may be, in words."""
        if self.choices:
            return f"choose from: {', '.join(self.choices)}"
        words = _WORDS[self.kind]
        if self.high < float("inf"):
            words += f" from {self.low:g} to {self.high:g}"
        return f"it must be {words}{self.unit and f' in {self.unit}'}{self.example and f', such as {self.example}'}"

    def _is_kind(self, value: Any) -> bool:
        if self.kind is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind is list:
            return isinstance(value, list) and all(isinstance(group, list) and group for group in value)
        return type(value) is self.kind

    def _is_allowed(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind in (int, float):
            return bool(self.low <= value <= self.high)
        if self.kind is list:
            return all(type(gpu) is int for group in value for gpu in group)
        return self.kind is not str or re.fullmatch(self.pattern or r".+", value) is not None


@dataclass(frozen=True)
class Section:
    """A table of keys, or, if `many`, any number of such tables."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    many: bool = False
    required: bool = False


def _rate(high: float, unit: str, *, required: bool = False) -> Key:
    return Key(float, 0.001, high, unit, required=required)


def _count(high: int, *, required: bool = False) -> Key:
    return Key(int, 1, high, required=required)


GPU_RATE = "GB/s of one direction"
NIC_RATE = "GB/s of one direction (400 Gb/s are 50)"

FACTORS = ("launch", "latency", "network", "filling", "rate")
"""What a calibration multiplies, each 1 on a machine that is as modelled."""

NAME = Key(str, required=True)
SECTIONS = {
    "gpu": Section(
        {
            "arch": Key(str, choices=tuple(ARCHITECTURES), required=True),
            "name": Key(str),
            "tflops": Key(float, 0.001, 1e6, "TFLOP/s of dense matrix products on 16 bits"),
            "fp8_tflops": Key(float, 0.001, 1e6, "TFLOP/s of dense matrix products on 8 bits"),
            "memory": Key(float, 0.001, 1e5, "GiB"),
            "memory_bw": _rate(1e6, "GB/s"),
        },
        required=True,
    ),
    "node": Section(
        {
            "gpus": _count(1024, required=True),
            "fabric": Key(str, choices=FABRICS, required=True),
            "gpu_bw": _rate(5000, GPU_RATE),
            "spec_bw": _rate(5000, GPU_RATE),
            "nvlinks": _count(72),
            "p2p": Key(bool),
            "multicast": Key(bool),
            "cpu": Key(str, choices=CPUS),
            "pcie_gen": Key(int, 1, 6),
            "pcie_lanes": Key(int, 1, 16),
            "switches": Key(list, example="[[0, 1, 2, 3], [4, 5, 6, 7]]"),
            "sockets": _count(72),
            "inter_socket": _rate(1000, GPU_RATE),
        },
        required=True,
    ),
    "nic": Section(
        {
            "per_node": _count(1024, required=True),
            "rate": _rate(125, NIC_RATE, required=True),  # 1 Tb/s: as much as a slot of PCIe 6 carries
            "transport": Key(str, choices=TRANSPORTS, required=True),
            "gdr": Key(bool),
        }
    ),
    "tier": Section(
        {
            "name": NAME,
            "radix": _count(100_000),
            "oversubscription": Key(float, 1, 1000, example="2.0 for twice as much from below as goes up"),
            "routing": Key(str, choices=ROUTINGS),
            "paths": _count(4096),
            "qps": _count(1024),
        },
        many=True,
    ),
    "scale": Section({"nodes": _count(MOST_NODES)}),
    "host": Section({"launch": Key(str, choices=LAUNCHES)}),
    "nccl": Section(
        {
            "version": Key(str, pattern=r"2\.\d{1,2}(\.\d{1,2})?", example='"2.29"'),
            "nvls": Key(bool),
            "algo": Key(str, choices=ALGORITHMS),
            "proto": Key(str, choices=PROTOCOLS),
        }
    ),
    "calibration": Section({"file": Key(str), **dict.fromkeys(FACTORS, Key(float, 0.01, 100))}),
}


def checked(fields: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Every section with its keys, empty where the file has none; UsageError at the first one that is wrong."""
    _known(fields, ("name", *SECTIONS), f"{file}: ")
    if "name" not in fields:
        raise UsageError(f"{file}: name is missing; {NAME.allowed()}")
    NAME.checked(fields["name"], f"{file}: name")
    return {"name": fields["name"]} | {name: _section(name, fields, file) for name in SECTIONS}


def _section(name: str, fields: Mapping[str, Any], file: str) -> Any:
    section = SECTIONS[name]
    if name not in fields:
        if section.required:
            raise UsageError(f"{file}: [{name}] is missing; its keys are: {', '.join(section.keys)}")
        return [] if section.many else {}
    said, heading = fields[name], f"[[{name}]]" if section.many else f"[{name}]"
    tables = said if section.many else [said]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{file}: {name} must be a table; write {heading} and its keys in the lines below")
    for table in tables:
        _table(table, section.keys, f"{file}: {heading} ")
    return said


def _table(table: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> None:
    _known(table, tuple(keys), where)
    for name, key in keys.items():
        if name in table:
            key.checked(table[name], f"{where}{name}")
        elif key.required:
            raise UsageError(f"{where}{name} is missing; {key.allowed()}")


def _known(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in keys:
            raise UsageError(f"{where}{name} is no key; choose from: {', '.join(keys)}")


def _shown(value: object) -> str:
    """As TOML writes it, roughly; long ones cut."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more digits than 4,300, though TOML has them in hexadecimal
        return "that number"
    return text if len(text) <= 60 else f"{text[:57]}..."
