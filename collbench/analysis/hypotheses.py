"""Reasons why a machine may be slower than expected, a record each.

A hypothesis is the machine with something changed, whose times the model knows as well, or a shape that the times would
have; and (hypotheses.toml) its words and the signs for and against it: variables, what NCCL logged, what the topology
says.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from collbench.topology.system import Nics, System

Variables = Mapping[str, str]
PINNED = 0.05  # prior of a rare setting
OTHERS = re.compile(r";?\b(?:all|reduce|broadcast)[a-z]*:[^;]*", re.IGNORECASE)  # definitions of other collectives


@dataclass(frozen=True)
class Hypothesis:
    """A reason for times above the expected ones."""

    name: str
    fix: str
    changed: Callable[[System], Sequence[System]]  # what the machine may be; empty: no effect
    shape: str = ""  # instead: "constant" seconds more, a "fraction" of the rate with times that scatter, or "both"
    signs: Sequence[tuple[str, str, float]] = ()
    prior: float = 1.0  # how often it is so, against others

    def evidence(self, facts: Iterable[tuple[str, str]], collective: str = "any") -> Iterator[tuple[str, float]]:
        """Yield which facts (name and value) speak for or against the hypothesis, in words, and by how much."""
        for name, value in facts:
            # Definitions by collective: NCCL_ALGO=ring;allreduce:tree
            specific = re.search(rf"\b{collective}:([^;]*)", value, re.IGNORECASE)
            definition = specific[1] if specific else OTHERS.sub("", value)
            for sign, values, ratio in self.signs:
                if sign == name and re.fullmatch(values, definition, re.IGNORECASE):
                    yield {"caveat": value}.get(name, f"{name}={value}"), ratio


def _without_p2p(system: System) -> list[System]:
    if system.gpus < 2 or (system.meets_over_pcie and not system.p2p):
        return []
    bare = replace(system, fabric="pcie", nvlinks=0, p2p=False, multicast=False, spec_rate=0.0)
    shares = (1, 0.5, 0.25)  # sockets apart, busy memory
    return [replace(bare, gpu_rate=system.pcie_rate * share) for share in shares]


def _over_tcp(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or system.nics.transport == "tcp":
        return []
    cards = [replace(system.nics, transport="tcp"), *(Nics(1, rate, "tcp") for rate in (12.5e9, 3.125e9, 1.25e9))]
    return [replace(system, nics=card) for card in cards if card.rate <= system.nics.rate]


def _fewer_nics(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or system.nics.per_node < 2:
        return []
    counts = {1, system.nics.per_node // 2}
    return [replace(system, nics=replace(system.nics, per_node=count)) for count in sorted(counts)]


def _staged(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or not system.nics.gdr or system.nics.transport in ("tcp", "tcpx"):
        return []
    return [replace(system, nics=replace(system.nics, gdr=False))]


def _without_adding(system: System) -> list[System]:
    return [replace(system, nvls=False)] if system.multicast and system.nvls and system.algorithm == "auto" else []


def _halved(system: System) -> list[System]:
    """Half the rate of the lanes: of the cards' between nodes, else of the GPUs' slots."""
    if system.nodes > 1 and system.nics:
        return [replace(system, nics=replace(system.nics, rate=system.nics.rate / 2))]
    if not system.meets_over_pcie:
        return []
    return [replace(system, gpu_rate=system.gpu_rate / 2, pcie_lanes=max(1, system.pcie_lanes // 2))]


def _pinned(system: System, algorithm: str = "auto", protocol: str = "auto") -> list[System]:
    free = (system.algorithm, system.protocol) == ("auto", "auto")
    return [replace(system, algorithm=algorithm, protocol=protocol)] if free else []


_CHANGES: Mapping[str, Callable[[System], Sequence[System]]] = {
    "no_p2p": _without_p2p,
    "tcp": _over_tcp,
    "few_cards": _fewer_nics,
    "no_gdr": _staged,
    "no_nvls": _without_adding,
    "pcie": _halved,
    "ll": partial(_pinned, protocol="ll"),
    "tree": partial(_pinned, algorithm="tree"),
    "ring": partial(_pinned, algorithm="ring"),
    "few_channels": lambda system: [replace(system, channels=count, nvls=False) for count in (1, 2, 4, 8)],
    "launches": lambda system: [
        replace(system, launch=way) for way in ("single-process", "torch") if way != system.launch
    ],
}
_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HYPOTHESES = tuple(
    Hypothesis(**record, changed=_CHANGES.get(name, lambda system: ())) for name, record in _RECORDS.items()
)
