"""How far predictions may be off: bands around single times, and an error model of whole curves.

All is of machines that were left out of the fit, by what joins the GPUs and by size.  `make model-report` writes the
tables.

A band says between which factors nine of ten published times lie.  The error model says what the times of a machine
say together: the median error of its kind and how it spreads between machines.  A single size may be off by itself,
so sizes are looked at with their neighbours (`smoothed`).  Neighbouring sizes are off alike: the correlation of their
errors falls by e over `OCTAVES`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from math import hypot, log2
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collbench.model.constants import place, transport
from collbench.model.equation import OCTAVES, Floats
from collbench.model.handwritten import is_published
from collbench.model.nccl_terms import choose
from collbench.model.schedule import schedule_of
from collbench.topology.products import is_amd
from collbench.topology.render import TRANSPORTS
from collbench.topology.system import System

SMALL, LARGE = 64 << 10, 64 << 20  # bytes below which latency decides, and above which bandwidth does
Pair = tuple[float, float]
Levels = tuple[Pair, Pair, Pair]  # below SMALL, between, above LARGE

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _table(name: str) -> Mapping[str, Levels]:
    return {kind: ((a, b), (c, d), (e, f)) for kind, ((a, b), (c, d), (e, f)) in _TABLES[name].items()}


BANDS, CALIBRATED_BANDS = _table("bands"), _table("calibrated_bands")
"""Factors of low and high end where nothing of the machine was measured, and where five sizes of the curve were."""
LEVELS, CALIBRATED_LEVELS = _table("levels"), _table("calibrated_levels")
"""Median and standard deviation of the logarithm of measured over predicted, for the same two cases."""
HANDWRITTEN, ESTIMATED = (0.75, 1.4), (0.5, 2.0)
"""Factors for hand-written implementations of which times are published, and an estimate for all others."""
HANDWRITTEN_LEVELS: Levels = ((0.0, 0.18),) * 3
ESTIMATED_LEVELS: Levels = ((0.0, 0.42),) * 3  # the same as standard deviations

KINDS = TRANSPORTS | {"tcpx": "TCP"}  # row of the tables by transport between nodes
MANY = "more than two nodes"  # the row of InfiniBand, RoCE and EFA there
SIGHT_FACTORS: Mapping[str, Sequence[float]] = _TABLES["sight_factors"]
"""Times its limit that a slowdown must be to be seen in all but one of fifty machines: others are faster than
predicted, and hide as much.  Of a curve; and of one size, by its place in a row of the tables."""
KNOWN = {"slingshot": 32}
FEW = 64
"""Nodes up to which the model is as sure as its tables say; KNOWN by transport.

More were hardly published; or, over Slingshot, transfers hinder each other and those of other jobs, now less, now more.
"""
WIDER = 0.1  # how much each doubling of the nodes beyond widens the band above, and adds to the spread of errors
ALONE = 0.05  # fraction of a size's variance that it shares with no other: how times scatter
WINDOW = 5  # sizes of which the median counts: two neighbours out of line say nothing of the machine


def kind_of(system: System, collective: str) -> str:
    """Return the row of the tables for a system's predictions."""
    if is_amd(system.arch):
        return "AMD, nodes" if system.nodes > 1 else "AMD, one node"
    if schedule_of(collective).direct:
        return "straight, nodes" if system.nodes > 1 else "straight, one node"
    if system.nodes > 1:
        kind = "racks" if system.is_rack else KINDS[transport(system)]
        return MANY if system.nodes > 2 and kind in ("InfiniBand", "RoCE", "EFA") else kind
    if system.meets_over_pcie:
        return "PCIe"
    may_add = collective == "allreduce" and system.adds and system.gpus > 1 and not system.is_rack
    if may_add and choose(system, collective).algorithms[-1] == "nvls":
        return "one node, NVLS"
    return {"_old": "one node, before Hopper", "_new": "one node, Blackwell"}.get(place(system), "one node")


def regime(nbytes: float) -> int:
    """Return the place of a size in a row of the tables: 0 below SMALL, 2 above LARGE, else 1."""
    return int(nbytes >= SMALL) + int(nbytes > LARGE)


def beyond(system: System) -> float:
    """Return how often a system's nodes are twice as many as the model is sure of."""
    return max(0.0, log2(system.nodes / KNOWN.get(transport(system), FEW)))


def band(system: System, collective: str, nbytes: int, calibrated: bool = False) -> tuple[float, float]:
    """Return the factors on a predicted time between which nine of ten measurements should lie."""
    low, high = (CALIBRATED_BANDS if calibrated else BANDS)[kind_of(system, collective)][regime(nbytes)]
    return low, high if calibrated else high * (1 + WIDER) ** beyond(system)


class ErrorModel(NamedTuple):
    """The distribution of the logarithm of measured over predicted times, at some sizes of a healthy machine."""

    mean: Floats
    covariance: Floats


def error_levels(system: System, collective: str, implementation: str = "nccl") -> Levels:
    """Return the median error and its spread for an implementation on a system."""
    if implementation != "nccl":
        return HANDWRITTEN_LEVELS if is_published(system, implementation) else ESTIMATED_LEVELS
    if system.calibration:
        return CALIBRATED_LEVELS[kind_of(system, collective)]
    return widened(LEVELS[kind_of(system, collective)], system)


def widened(levels: Levels, system: System) -> Levels:
    """Widen the levels for more nodes than the model is sure of."""
    wider = WIDER * beyond(system)
    (a, small), (b, middle), (c, large) = levels
    return (a, hypot(small, wider)), (b, hypot(middle, wider)), (c, hypot(large, wider))


def error_model(sizes: Sequence[int], levels: Levels) -> ErrorModel:
    """Return the error model of a curve at these sizes, in bytes."""
    mean, spread = np.array([levels[regime(size)] for size in sizes]).T
    octaves = np.log2(np.maximum(sizes, 1))
    # Neighbouring sizes are off alike, but for a part of each that it shares with no other.
    together = (1 - ALONE) * np.exp(-np.abs(octaves[:, None] - octaves) / OCTAVES) + ALONE * np.eye(len(octaves))
    return ErrorModel(mean, spread[:, None] * together * spread)


def smoothed(logs: Floats) -> Floats:
    """Return every value as the median of itself and its neighbours."""
    padded = np.pad(logs, WINDOW // 2, constant_values=np.nan)
    return np.asarray(np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1))
