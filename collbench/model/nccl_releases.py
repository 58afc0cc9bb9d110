"""NCCL's tuner constants: what its cost table is computed from, release by release.

Facts from NCCL's sources (src/graph/tuning.cc, search.cc, topo.h, src/include/device.h of 2.18 to 2.31), microseconds
and GB/s (1e9 bytes/s) as there.  The cost table built from them is checked against tables that NCCL 2.29.2 logged
(tests/model).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from collbench.errors import UsageError
from collbench.topology.products import capability

PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = ("tree", "ring", "nvls", "nvlstree", "pat")
GENERATIONS = ("volta", "ampere", "hopper", "blackwell")

Triple = tuple[float, float, float]  # by protocol, or for 1, 2 and more nodes

TREE_CORRECTION: Mapping[str, tuple[float, ...]] = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "simple": (
        *(0.9,) * 7,
        *(0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
}  # fmt: skip
"""What a tree reaches of its rate, by floor(log2(bytes / 64))."""

LL_MAX_BY_CPU = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""Most that LL moves over 2 and more nodes; Arm and Power count as Intel."""
NVLS_EFFICIENCY = {"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74}
NET_OVERHEAD = {"intel": 1.0, "amd": 2.0}
"""Microseconds to post to the network; Arm and Power count as Intel."""

NVLS_SHARE = 5 / 6
"""Of its channels' speed, what NVLS was thought to reduce and distribute before NVLS_EFFICIENCY."""

INTEL_P2P_OVERHEAD = 6 / 5
"""Load that traffic between GPUs puts on PCIe when it passes an Intel CPU."""

_TAIL = (2.4, 1.2, 0.24, 0.12)
_INTRA: Mapping[str, tuple[float, ...]] = {
    "ampere": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    "blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
_INTER: Mapping[str, tuple[float, ...]] = {
    "ampere": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, *_TAIL),
    "hopper": (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, *_TAIL),
    "blackwell": (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, *_TAIL),
}


@dataclass(frozen=True)
class Release:
    """What one NCCL release computes with."""

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
    lone_ll128: float = 0.92  # what LL128 keeps of the links where nodes have one GPU
    exposes_net: bool = True  # where nodes have one GPU, rings' steps between them take as long as trees'
    counts_closing_hop: bool = False  # an all-reduce's ring has two more steps between nodes
    max_channels: int = 32  # of the search
    newest: str = "blackwell"  # generation it knows; newer GPUs are taken for this one
    merges_ports: bool = True  # of network cards that have two, into one card of twice the rate (NCCL_IB_MERGE_NICS)
    pat: float = 0.75  # what PAT keeps of the links; 0: there is none
    two_rings_over_pairs: bool = True  # at least, where NVLink joins pairs and they meet over something slower
    nvls_efficiency: bool = True  # NVLS is rated by NVLS_EFFICIENCY; otherwise by NVLS_SHARE, and NVLSTree uncapped
    nvls_gather: float = 1.0  # then what all-gather and reduce-scatter have of their channels; 0: they have no NVLS
    nvls_own_share: bool = True  # and whether a GPU's own share counts, which crosses no link
    nvlstree_chain: bool = False  # NVLSTree is rated as a chain over the nodes
    raises_nvls: bool = True  # the search raises the network side of NVLS
    nvlstree_correction: tuple[str, ...] = ()  # CPUs with which Blackwell's NVLSTree is corrected as trees are
    slower_side_rates: bool = False  # trees and PAT are rated by the slower of node and network
    nvls_steps_count: bool = False  # NVLS's all-gather and reduce-scatter are rated by the steps of a ring
    domain_plateau: bool = False  # Blackwell's one-node all-gather and reduce-scatter have the ring's plateau too


def _by_generation(volta: Triple, ampere: Triple, hopper: Triple, blackwell: Triple) -> Mapping[str, Triple]:
    return dict(zip(GENERATIONS, (volta, ampere, hopper, blackwell), strict=True))


def _same(value: float) -> Triple:
    return value, value, value


_NONE = _same(0.0)
_LL_MAX = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}
_TREES = _by_generation((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
_V230 = Release(
    base={"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4), "nvls": _NONE, "nvlstree": _NONE, "pat": _same(8.0)},
    nvlink={
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "nvls": (0, 0, 25.0),
        "nvlstree": (0, 0, 25.0),
        "pat": (0, 0, 4.0),
    },
    pci={"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7), "nvls": _NONE, "nvlstree": _NONE, "pat": (0, 0, 4.0)},
    net={
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "nvls": (0, 0, 18.0),
        "nvlstree": (0, 0, 20.9),
        "pat": (0, 0, 14.0),
    },
    ring_ll128=_by_generation(_same(20.0), _same(20.0), _same(36.7), _same(40.0)),
    tree_ll128=_by_generation(_same(20.0), _same(20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree=_TREES,
    nvlstree=_by_generation((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    intra=_INTRA,
    inter=_INTER,
    ll_max=_LL_MAX,
    nvlstree_correction=("intel", "amd"),
)
_V229 = replace(
    _V230,
    ring_ll128={**_V230.ring_ll128, "blackwell": (34.5, 34.6, 34.5)},
    nvlstree={**_V230.nvlstree, "blackwell": (0.0, 96.0, 43.8)},
    inter={**_INTER, "blackwell": (96, 80, *_INTER["blackwell"][3:])},
)
_V228 = replace(
    _V229,
    net={**_V229.net, "nvlstree": (0, 0, 14.0)},
    ring_ll128={**_V229.ring_ll128, "blackwell": _same(73.4)},
    nvlstree={**_V229.nvlstree, "blackwell": (0.0, 96.0, 43.1)},
    intra={**_INTRA, "blackwell": (90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18)},
    inter={**_INTER, "blackwell": (96, *_INTER["blackwell"][3:])},
    nvlstree_correction=(),
)
# Rates of 2.27.3, speeds of 2.27.5; those of 2.27.6 and 2.27.7 were not seen.
_V227 = replace(
    _V228,
    tree={**_TREES, "blackwell": (77.4, 82.8, 72.0)},
    tree_ll128={**_V228.tree_ll128, "blackwell": (73.4, 73.4, 58.0)},
    inter={**_INTER, "blackwell": _INTER["blackwell"][3:]},
    nvls_efficiency=False,
    nvls_own_share=False,
)
# Of 2.26.2; those of 2.26.3 to 2.26.6 were not seen.
_V226 = replace(
    _V227,
    intra={**_V227.intra, "blackwell": _V227.intra["blackwell"][:-1]},
    inter={**_INTER, "blackwell": _INTER["hopper"]},
    ll128_on=(70, 80, 90, 100, 120),
    nvls_own_share=True,
)
_V225 = replace(_V226, two_rings_over_pairs=False)
# 2.23 and 2.24 as copies of them have it: neither tag's own file was seen.
_V224 = replace(_V225, ll128_on=(70, 80, 90), max_channels=16, newest="hopper")
_V223 = replace(_V224, pat=0.85)
_V221 = replace(  # 2.22 has the same
    _V223,
    base={**_V223.base, "tree": (6.8, 14.0, 0.0)},
    nvlink={**_V223.nvlink, "tree": (0.6, 1.25, 28.0)},
    pci={**_V223.pci, "tree": (1.0, 1.9, 28.0)},
    net={**_V223.net, "tree": (5.0, 8.5, 28.0)},
    lone_ll128=0.7,
    exposes_net=False,
    counts_closing_hop=True,
    pat=0.0,
    nvls_gather=NVLS_SHARE,
)
_V220 = replace(
    _V221,
    nvlink={**_V221.nvlink, "nvls": (0, 0, 23.0), "nvlstree": (0, 0, 23.0)},
    intra={**_V221.intra, "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 6, 3)},
    ll_max={**_LL_MAX, "hopper": 87.7},
    ll_half=False,
)
_V219 = replace(_V220, merges_ports=False)  # its speeds were seen; its rates are taken to be those of 2.20
# Of 2.18.3: 2.18.1 had rates of its own.
_V218 = replace(
    _V219,
    nvlink={**_V219.nvlink, "tree": (0.6, 1.25, 4.0)},
    pci={**_V219.pci, "tree": (1.0, 1.9, 6.0)},
    net={**_V219.net, "tree": (5.0, 8.5, 14.0), "nvlstree": (0, 0, 19.0)},
    intra={**_V219.intra, "hopper": (60, 40, 30, 24, 20, 15, 12, 6, 3)},
    inter={**_INTER, "hopper": (48, 45, 42, 40, 30, 24, 20, 17.5, 15, 12, 6, 3, *_TAIL)},
    nvls_gather=0.0,
    nvlstree_chain=True,
    raises_nvls=False,
)
_V231 = replace(
    _V230,
    nvlstree_correction=("intel", "amd", "arm"),
    slower_side_rates=True,
    nvls_steps_count=True,
    domain_plateau=True,
)
RELEASES: Mapping[tuple[int, int], Release] = {
    (2, 18): _V218,  # and, for want of their own, all before it
    (2, 19): _V219,
    (2, 20): _V220,
    (2, 21): _V221,
    (2, 23): _V223,
    (2, 24): _V224,
    (2, 25): _V225,
    (2, 26): _V226,
    (2, 27): _V227,
    (2, 28): _V228,
    (2, 29): _V229,
    (2, 30): _V230,
    (2, 31): _V231,
}
"""By the version from which a record holds, until the next."""


def release(version: str) -> Release:
    """Return the record for "2.29" or "2.29.2": the newest that is not newer; UsageError if it is no version."""
    try:
        major, minor = (int(word) for word in version.split(".")[:2])
    except ValueError:
        raise UsageError(f"NCCL version {version!r} is no version; give it like 2.29") from None
    return RELEASES[max(number for number in RELEASES if number <= max((major, minor), min(RELEASES)))]


def known_generation(arch: str, release: Release) -> str:
    """Return the generation that a release takes a GPU of "sm90" and the like for, by compute capability as in NCCL.

    GPUs that came later are taken for the newest that the release knows.
    """
    generation = GENERATIONS[sum(capability(arch) >= first for first in (80, 90, 100))]
    return min(generation, release.newest, key=GENERATIONS.index)
