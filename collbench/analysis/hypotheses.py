"""Reasons why a machine may be slower than expected, a record each.

A hypothesis is the machine with something changed, whose times the model knows as well, or a shape that the times would
have; and the signs for and against it (signs.toml): variables, what NCCL logged of itself, what the topology says.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.topology.system import Nics, System

Variables = Mapping[str, str]
PINNED, CAPPED, SLOWED, DELAYED = 0.05, 0.02, 0.3, 0.03
"""Priors: of a rare setting, of a cap on channels, of a shape that takes a factor or a constant from the times."""
SIGNS = tomllib.loads(Path(__file__).with_name("signs.toml").read_text(encoding="utf-8"))
OTHERS = re.compile(r";?\b(?:all|reduce|broadcast)[a-z]*:[^;]*", re.IGNORECASE)  # definitions of other collectives


@dataclass(frozen=True)
class Hypothesis:
    """A reason for times above the expected ones."""

    name: str
    fix: str
    changed: Callable[[System], Sequence[System]] = lambda system: ()  # what the machine may be; empty: no effect
    shape: str = ""  # instead: "constant" seconds more, a "fraction" of the rate with times that scatter, or "both"
    signs: Sequence[tuple[str, str, float]] = ()
    prior: float = 1.0  # how often it is so, against others

    def evidence(self, facts: Iterable[tuple[str, str]], collective: str = "any") -> Iterator[tuple[str, float]]:
        """Yield which facts (name and value) speak for or against the hypothesis, in words, and by how much."""
        for name, value in facts:
            # Definitions by collective: NCCL_ALGO=ring;allreduce:tree
            own = re.search(rf"\b{collective}:([^;]*)", value, re.IGNORECASE)
            definition = own[1] if own else OTHERS.sub("", value)
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


def _launched_otherwise(system: System) -> list[System]:
    return [replace(system, launch=launch) for launch in ("single-process", "torch") if launch != system.launch]


def _pinned(algorithm: str, protocol: str) -> Callable[[System], list[System]]:
    def changed(system: System) -> list[System]:
        if (system.algorithm, system.protocol) != ("auto", "auto"):
            return []
        return [replace(system, algorithm=algorithm, protocol=protocol)]

    return changed


HYPOTHESES = (
    Hypothesis(
        "P2P is off: GPUs exchange data through the host's memory (SHM)",
        "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; check `nvidia-smi topo -p2p r`, ACS and IOMMU",
        _without_p2p,
        signs=SIGNS["no_p2p"],
    ),
    Hypothesis(
        "traffic goes over TCP instead of RDMA",
        "look for `NET/Socket` in NCCL_DEBUG=INFO; unset NCCL_IB_DISABLE, install the network's NCCL plugin",
        _over_tcp,
        signs=SIGNS["tcp"],
    ),
    Hypothesis(
        "only some network cards are used",
        "look for `NET/` lines in NCCL_DEBUG=INFO; unset NCCL_IB_HCA; give the container all cards",
        _fewer_nics,
        signs=SIGNS["few_cards"],
    ),
    Hypothesis(
        "data goes through the host's memory to the network cards: GPUDirect RDMA is off",
        "look for `GDRDMA` in NCCL_DEBUG=INFO; load nvidia_peermem; unset NCCL_NET_GDR_LEVEL; check ACS and IOMMU",
        _staged,
        signs=SIGNS["no_gdr"],
    ),
    Hypothesis(
        "a ring or tree instead of NVLS: the switches do not add",
        "unset NCCL_NVLS_ENABLE and NCCL_ALGO; check that nvidia-fabricmanager runs",
        _without_adding,
        signs=SIGNS["no_nvls"],
    ),
    Hypothesis(
        "PCIe of an older generation or with half the lanes",
        "`nvidia-smi -q -d PCIE` and `lspci -vv` (LnkSta) show generation and width in use; reseat, check the riser",
        _halved,
        signs=SIGNS["pcie"],
    ),
    Hypothesis("protocol LL for all sizes", "unset NCCL_PROTO", _pinned("auto", "ll"), signs=SIGNS["ll"], prior=PINNED),
    Hypothesis("a tree for all sizes", "unset NCCL_ALGO", _pinned("tree", "auto"), signs=SIGNS["tree"], prior=PINNED),
    Hypothesis("a ring for all sizes", "unset NCCL_ALGO", _pinned("ring", "auto"), signs=SIGNS["ring"], prior=PINNED),
    Hypothesis(
        "too few channels: a GPU copies with fewer of its processors than its links need",
        "look for `coll channels` in NCCL_DEBUG=INFO; unset NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS",
        lambda system: [replace(system, channels=count, nvls=False) for count in (1, 2, 4, 8)],
        signs=SIGNS["few_channels"],
        prior=CAPPED,
    ),
    Hypothesis(
        "bound by launches: one process drives all GPUs, or a framework is between",
        "one process for each GPU, CUDA graphs",
        _launched_otherwise,
    ),
    Hypothesis(
        "small messages take a constant time more (launches, a slow or crowded host)",
        "CUDA graphs; a core for each process; CPU frequency governor `performance`",
        shape="constant",
        signs=SIGNS["crowded"],
        prior=DELAYED,
    ),
    Hypothesis(
        "the host's CPU is pinned or starved: ranks and NCCL's proxy threads wait for a core",
        "give each rank cores of its own (`taskset -pc PID`, `--bind-to none`, the container's cpuset)",
        shape="both",
        signs=SIGNS["crowded"],
        prior=DELAYED * SLOWED,
    ),
    Hypothesis(
        "the GPUs or links are busy with something else",
        "look for other processes with `nvidia-smi`; repeat the run alone",
        shape="fraction",
        signs=SIGNS["busy"],
        prior=SLOWED,
    ),
)
