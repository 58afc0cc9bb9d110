"""Predicted times of collectives in groups of a layout's GPUs.

The GPUs of a group are equally far apart, and a node may hold several of them.  Its other GPUs are in groups of the
same kind, which communicate at the same time over the same network cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.collectives import find_collective
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.model.predict import network_curve
from collbench.topology.system import System

Array = NDArray[np.float64]
SIZES: Array = np.logspace(8, 44, 37, base=2.0)
"""Bytes at which a curve is evaluated, with log-log interpolation between them."""
TYPICAL, LOW, HIGH = "seconds", "low", "high"


class GpuGroup(NamedTuple):
    """The GPUs of a collective: their number, number per node, and distance between nodes."""

    ranks: int
    inside: int = 1  # members per node
    apart: int = 1  # distance in nodes from one node with members to the next

    @property
    def nodes(self) -> int:
        """Number of nodes with members."""
        return self.ranks // self.inside


@dataclass(frozen=True)
class Curve:
    """Seconds of one collective in one group with their band, at each of `sizes`."""

    sizes: Array  # bytes of the whole array, as nccl-tests counts it
    points: Mapping[str, Array] = field(repr=False)  # by TYPICAL, LOW and HIGH

    def time(self, nbytes: Array, edge: str = TYPICAL) -> Array:
        """Return seconds by log-log interpolation; constant below all points, constant bandwidth above."""
        sizes, seconds = self.sizes, self.points[edge]
        bounded = np.clip(nbytes, sizes[0], sizes[-1])
        inside = np.exp(np.interp(np.log(bounded), np.log(sizes), np.log(seconds)))
        return np.asarray(np.where(np.asarray(nbytes) > 0, inside * np.maximum(1.0, nbytes / sizes[-1]), 0.0))


def group_of(ranks: int, stride: int, gpus: int) -> GpuGroup:
    """Return a group of `ranks` GPUs, `stride` apart, on nodes of `gpus`."""
    inside = gcd(ranks, gpus // stride) if stride < gpus and gpus % stride == 0 else 1
    apart = max(1, stride // gpus)
    return GpuGroup(ranks, inside, apart if inside < ranks else 1)


@lru_cache(maxsize=4096)
def part_of(system: System, group: GpuGroup) -> System:
    """Return a group's share of a system while all other groups of its kind communicate."""
    inside, nodes = group.inside, group.nodes
    node = system.part(inside)
    if nodes == 1:
        return node
    nics = system.nics
    if nics:
        share = nics.per_node * inside / system.gpus
        count = max(1, int(share))
        nics = replace(nics, per_node=count, rate=nics.rate * share / count)
    tiers = tuple(replace(tier, radix=max(1, tier.radix // group.apart) if tier.radix else 0) for tier in system.tiers)
    return replace(node, nics=nics, tiers=tiers).of(nodes)


def placed(system: System, gpus: int) -> System:
    """Return the part of the system that a job of `gpus` GPUs uses.

    It uses whole nodes, or the most GPUs per node that divide the job evenly.  UsageError if the system is too small.
    """
    if gpus <= system.gpus:
        return system.part(gpus)
    gpus_per_node = next(count for count in range(system.gpus, 0, -1) if gpus % count == 0)
    if gpus_per_node == 1 and system.gpus > 1:
        whole = gpus // system.gpus * system.gpus
        raise UsageError(
            f"--gpus {gpus} cannot be divided among nodes of {system.gpus} GPUs; give {whole} or {whole + system.gpus}"
        )
    # The job's GPUs in a node share all its network cards.
    node = replace(system.part(gpus_per_node), nics=system.nics, tiers=system.tiers)
    return node.of(gpus // gpus_per_node)


class ModelCurves:
    """Curves of `collbench predict` for a job on a described system; `system` is the part that the job uses."""

    def __init__(self, whole: System, gpus: int = 0) -> None:
        self._whole = whole
        self.system = placed(whole, gpus) if gpus else whole
        self.origin = f"model of {whole.name}"

    def on(self, gpus: int) -> "ModelCurves":
        """Return the curves for a job on `gpus` GPUs; UsageError if the system is too small."""
        return ModelCurves(self._whole, gpus)

    def curve(self, collective: str, group: GpuGroup) -> Curve:
        """Return a group's curve of the named collective; Unsupported if the model has none."""
        return _modelled(part_of(self.system, group), collective)


@lru_cache(maxsize=4096)
def _modelled(part: System, collective: str) -> Curve:
    meaning = find_collective(collective)
    reduction = find_reduction("sum") if meaning.reduces else NONE
    first = Case(meaning, 0, find_datatype("half"), reduction, 0, part.ranks, in_place=False)
    rows = network_curve(part, [replace(first, nbytes=int(size)) for size in SIZES])
    points = {edge: np.array([getattr(row, edge) for row in rows]) for edge in (TYPICAL, LOW, HIGH)}
    return Curve(SIZES, points)


@dataclass
class Network:
    """The curves in the form that formulas use: seconds of a collective for arrays of layouts."""

    curves: ModelCurves
    edge: str = TYPICAL  # the edge of the band to read
    inside: float = 1.0  # factor of bandwidth in groups inside a node; latency is unchanged
    across: float = 1.0  # the same in groups across nodes

    def time(self, collective: str, nbytes: Any, ranks: Any, stride: Any) -> Array:
        """Return the seconds for arrays of `nbytes`, in groups of `ranks` GPUs that are `stride` apart."""
        sizes, counts, strides = np.broadcast_arrays(
            np.asarray(nbytes, np.float64), np.asarray(ranks, np.int64), np.asarray(stride, np.int64)
        )
        seconds = np.zeros(sizes.shape)
        sent = (counts > 1) & (sizes > 0)
        # Layouts share few groups, so each group's curve is evaluated once.
        keys = counts * (1 << 32) + strides
        for key in np.unique(keys[sent]):
            there = sent & (keys == key)
            group = group_of(int(key >> 32), int(key & 0xFFFFFFFF), self.curves.system.gpus)
            curve, faster = self.curves.curve(collective, group), self.across if group.nodes > 1 else self.inside
            seconds[there] = curve.time(sizes[there], self.edge)
            if faster != 1:
                latency = np.minimum(curve.time(np.asarray(1.0), self.edge), seconds[there])
                seconds[there] = latency + (seconds[there] - latency) / faster
        return seconds
