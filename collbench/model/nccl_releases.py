"""Constants of NCCL's tuner, release by release.

The values are from NCCL's sources (src/graph/tuning.cc, search.cc, topo.h, src/include/device.h of 2.18 to 2.31), in
microseconds and GB/s (1e9 bytes/s).  The cost table built from them is checked against tables that NCCL 2.29.2 logged
(tests/model).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import UsageError
from collbench.topology.products import capability

PROTOCOLS = ("ll", "ll128", "simple")
GENERATIONS = ("volta", "ampere", "hopper", "blackwell")

Triple = tuple[float, float, float]  # by protocol, or for 1, 2 and more nodes

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TREE_CORRECTION: Mapping[str, tuple[float, ...]] = {name: (*row,) for name, row in _TABLES.pop("tree").items()}
"""Share of its rate that a tree reaches, by floor(log2(bytes / 64))."""

LL_MAX_BY_CPU = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""Most that LL moves over 2 and more nodes; Arm and Power count as Intel."""
NVLS_EFFICIENCY = {"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74}
NET_OVERHEAD = {"intel": 1.0, "amd": 2.0}  # microseconds to post to the network; Arm and Power count as Intel

NVLS_SHARE = 5 / 6  # of its channels' speed, what NVLS was thought to reduce and distribute before NVLS_EFFICIENCY

INTEL_P2P_OVERHEAD = 6 / 5
"""Load that traffic between GPUs puts on PCIe when it passes an Intel CPU."""


@dataclass(frozen=True)
class Release:
    """The constants of one NCCL release."""

    base: Mapping[str, Triple]  # microseconds, by protocol
    nvlink: Mapping[str, Triple]  # of one step
    pci: Mapping[str, Triple]
    net: Mapping[str, Triple]
    ring_ll128: Mapping[str, Triple]  # most of a channel, over 1, 2 and more nodes
    tree_ll128: Mapping[str, Triple]
    tree: Mapping[str, Triple]
    nvlstree: Mapping[str, Triple]
    intra: Mapping[str, tuple[float, ...]]  # speeds that the search tries for one node
    inter: Mapping[str, tuple[float, ...]]  # and for several
    ll_max: Mapping[str, float]  # most that LL moves within one node
    ll_half: bool = True  # LL is rated at half the links' rate, whatever the collective
    ll128_on: tuple[int, ...] = ()  # compute capabilities that have LL128; empty: all from Volta on
    lone_ll128: float = 0.92  # LL128's share of the links' rate where nodes have one GPU
    exposes_net: bool = True  # where nodes have one GPU, rings' steps between them take as long as trees'
    counts_closing_hop: bool = False  # an all-reduce's ring has two more steps between nodes
    max_channels: int = 32  # of the search
    newest: str = "blackwell"  # generation it knows; newer GPUs are taken for this one
    merges_ports: bool = True  # of network cards that have two, into one card of twice the rate (NCCL_IB_MERGE_NICS)
    pat: float = 0.75  # PAT's share of the links' rate; 0: the release has no PAT
    two_rings_over_pairs: bool = True  # at least, where NVLink joins pairs and they meet over something slower
    nvls_efficiency: bool = True  # NVLS is rated by NVLS_EFFICIENCY; otherwise by NVLS_SHARE, and NVLSTree uncapped
    nvls_gather: float = 1.0  # then what all-gather and reduce-scatter have of their channels; 0: they have no NVLS
    nvls_own_share: bool = True  # and whether a GPU's own share counts, which crosses no link
    nvlstree_chain: bool = False  # NVLSTree is rated as a chain over the nodes
    raises_nvls: bool = True  # the search raises the network side of NVLS
    nvlstree_correction: tuple[str, ...] = ()  # CPUs with which Blackwell's NVLSTree is corrected as trees are
    slower_side_rates: bool = False  # trees and PAT are rated by the slower of node and network
    nvls_steps_count: bool = False  # NVLS's all-gather and reduce-scatter are rated by the steps of a ring
    p2p_parts: bool = True  # messages to a peer have more channels as they grow; otherwise all at once
    nvlstree_reaches: float = 1.0  # of the rate over more than two nodes whose cards are fast: below 1 by a fault
    domain_plateau: bool = False  # Blackwell's one-node all-gather and reduce-scatter have the ring's plateau too


def _whole(version: str) -> dict[str, Any]:
    """Return all that a release has: its keys, and those of the release that it is like."""
    special = dict(_TABLES[version])
    whole = _whole(special.pop("like")) if "like" in special else {}
    for name, value in special.items():
        whole[name] = whole.get(name, {}) | value if isinstance(value, dict) else value
    return whole


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:3]))


RELEASES = {_numbers(version): msgspec.convert(_whole(version), Release) for version in sorted(_TABLES, key=_numbers)}
"""By the version from which a record holds, until the next."""


def release(version: str) -> Release:
    """Return the record for "2.29" or "2.29.2": the newest that is not newer; UsageError if it is no version."""
    try:
        numbers = _numbers(version)
    except ValueError:
        raise UsageError(f"NCCL version {version!r} is no version; give it like 2.29") from None
    return RELEASES[max(known for known in RELEASES if known <= max(numbers, min(RELEASES)))]


def releases_for(arch: str) -> list[str]:
    """Return the minor releases with a record of their own that know a GPU of "sm90" and the like, the newest first."""
    minor = [numbers for numbers in RELEASES if len(numbers) == 2]
    known = [numbers for numbers in minor if known_generation(arch, RELEASES[numbers]) == _generation(arch)]
    return [".".join(map(str, numbers)) for numbers in sorted(known, reverse=True)]


def _generation(arch: str) -> str:
    return GENERATIONS[sum(capability(arch) >= first for first in (80, 90, 100))]


def known_generation(arch: str, release: Release) -> str:
    """Return the generation that a release takes a GPU of "sm90" and the like for, by compute capability as in NCCL.

    GPUs that came later are taken for the newest that the release knows.
    """
    return min(_generation(arch), release.newest, key=GENERATIONS.index)
