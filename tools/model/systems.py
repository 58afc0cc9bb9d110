"""The system of each published sweep, as its source describes hardware and launch; never fitted to its numbers.

Rates of NVLink (20.0, 20.0, 20.6, 40.1 GB/s a link for sm70, sm80, sm90, sm100) and PCIe (12, 24, 48 GB/s for
generations 3, 4, 5) are those that NCCL's search assumes.  Cards have their line rate.  A machine groups sweeps that
are left out together.
"""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.topology.system import Nics, System

FOLDER = Path(__file__).parent / "published"
ONE_NODE = Path(__file__).parent / "one_node_nvidia.json"
G = 1e9


_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SYSTEMS: dict[str, System] = {}


def _system(record: dict[str, Any]) -> System:
    facts = dict(record)
    like = facts.pop("like", None)
    for rate in ("gpu_rate", "socket_rate"):
        if rate in facts:
            facts[rate] *= G
    if "switches" in facts:
        facts["switches"] = tuple(map(tuple, facts["switches"]))
    if "nics" in facts:
        per_node, rate, transport = facts["nics"]
        facts["nics"] = Nics(per_node, rate * G, transport, facts.pop("gdr", True), facts.pop("sharp", False))
    return replace(_SYSTEMS[like], **facts) if like else System(**facts)


def _by_name(records: dict[str, dict[str, Any]]) -> dict[str, tuple[str, System]]:
    found = {}
    for name, record in records.items():
        facts = dict(record)
        found[name] = facts.pop("machine"), _system(facts)
    return found


for _name, _record in _RECORDS["systems"].items():
    _SYSTEMS[_name] = _system(_record)
POLARIS = _SYSTEMS["POLARIS"]
SYSTEMS = _by_name(_RECORDS["sweeps"])
"""Machine and system by the beginning of a sweep's name; the first that fits counts."""
NVIDIA = _by_name(_RECORDS["nvidia"])
"""Machine and system of the sweeps in one_node_nvidia.json."""
SOCKETS = ("a100sxm40_32gpu_8n_allgather_polaris_s1", "a100sxm40_32gpu_8n_allreduce_polaris_s1", "v100sxm3_2gpu_2n")
"""Sweeps whose records say "care" because NCCL used sockets; they are as fast as TCP should be."""
SICK = ("l40s",)
"""Machines of NVIDIA that are slower than their hardware: 14 times with 8 ranks, though not with 2."""
UNDESCRIBED = ("unknown_32gpu",)
"""Sweeps whose source does not name the hardware."""


@dataclass(frozen=True)
class Published:
    """A sweep with the system it was measured on; out-of-place rows as (bytes, seconds)."""

    name: str
    machine: str
    system: System
    collective: str
    quality: str  # "healthy", "care" (below its class, or doubts about the hardware), "degraded"
    rows: tuple[tuple[int, float], ...]
    in_place: tuple[tuple[int, float], ...]

    @property
    def operator(self) -> str:
        """The operator of the machine and of similar ones."""
        operators: dict[str, list[str]] = _RECORDS["operators"]
        return next((name for name, machines in operators.items() if self.machine in machines), self.machine)


def _seconds(rows: list[list[float]], factor: float) -> Iterator[tuple[int, float]]:
    """Yield bytes and seconds; a bus bandwidth with two decimals is used only if it is not too small."""
    for nbytes, microseconds, *rest in rows:
        if microseconds is not None:
            yield int(nbytes), microseconds * 1e-6
        elif rest[0] >= 0.1:
            yield int(nbytes), nbytes * factor / (rest[0] * G)


def published() -> list[Published]:
    """Return every sweep with known hardware."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem.startswith(UNDESCRIBED):
            continue
        machine, system = next(SYSTEMS[start] for start in SYSTEMS if path.stem.startswith(start))
        sweep = json.loads(path.read_text())
        assert (system.ranks, sweep["op"]) == (sweep["ranks"], sweep["op"]), path.stem
        factor = COLLECTIVES[sweep["op"]].bus_factor(sweep["ranks"])
        quality = "healthy" if path.stem.startswith(SOCKETS) else sweep["quality"]
        rows, in_place = (tuple(_seconds(sweep[name], factor)) for name in ("rows", "rows_inplace"))
        found.append(Published(path.stem, machine, system, sweep["op"], quality, rows, in_place))
    return [*found, *one_node()]


def one_node() -> Iterator[Published]:
    """Yield NVIDIA's curves of one node by NCCL; a missing release counts as the oldest of the others."""
    for series in json.loads(ONE_NODE.read_text())["series"]:
        if series["library"] != "nccl":
            continue
        machine, system = NVIDIA[series["system"]]
        release = series["version"] or "2.27.5"
        ranks, collective = series["nranks"], series["op"]
        rows = tuple((int(nbytes), median(times) * 1e-6) for nbytes, *times in series["points"])
        name = f"{series['system']}_{ranks}gpu_1n_{collective}_{series['dtype']}_{release}_{series['folder']}"
        part = replace(system.part(ranks) if ranks < system.gpus else system, nccl=release)
        if series["dtype"] == "int8" and COLLECTIVES[collective].reduces:  # switches do not add these
            part = replace(part, nvls=False)
        quality = ("degraded" if ranks > 2 else "care") if series["system"] in SICK else "healthy"
        yield Published(name, machine, part, collective, quality, rows, ())
