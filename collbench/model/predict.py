"""Predicted time of a collective, with its band: the model's entry point.

`curve` evaluates the equation, with network cards at full rate. `network_curve` adds the flow level: the share of
that rate with switches, failed links and static routing (`--what-if`):

    effect(system, "ring", ["link-down=leaf3:spine1", "ecmp=4"]).factor

The factor is the slowest transfer's share of the rate that its NICs alone would give it.  The equation holds for
`slowed(system, factor)`, a system whose NICs are that slow.

Bands (error_bands.toml, from `make model-report`) come from machines left out of the fit, by fabric and size; they
hold nine of ten published times.  The error model has the median error of a machine's kind and
its spread between machines.  Single sizes are smoothed with their neighbours (`smoothed`), because their errors are
correlated: the correlation falls by e over `OCTAVES`.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, hypot, log2
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from collbench.algorithms import implementations
from collbench.algorithms.nvls import REDUCES
from collbench.cases import Case
from collbench.errors import Unsupported, UsageError, unknown
from collbench.model import handwritten, nccl_terms
from collbench.model.constants import place, transport
from collbench.model.equation import DEFAULT, OCTAVES, PER_OCTAVE, SIZES, Calibration, Floats, calibration_of
from collbench.model.handwritten import is_published
from collbench.model.nccl_terms import choose
from collbench.model.network import Fault, Scenario, Slowest, drawings, median_drawing, solve
from collbench.model.schedule import schedule_of
from collbench.results import Note, Prediction
from collbench.topology import files
from collbench.topology.products import TRAYS, is_amd
from collbench.topology.render import TRANSPORTS
from collbench.topology.system import ALGORITHMS, PROTOCOLS, System, Tier

SMALL, LARGE = 64 << 10, 64 << 20  # bytes below which latency decides, and above which bandwidth does
Pair = tuple[float, float]
Levels = tuple[Pair, Pair, Pair]  # below SMALL, between, above LARGE

_TABLES = tomllib.loads(Path(__file__).with_name("error_bands.toml").read_text(encoding="utf-8"))


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
SLOWED = 1.005  # least ratio of a time with the network to the time without that names the share of the NICs
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


TREES = ("tree", "nvlstree", "collnet", "collnetchain", "collnetdirect", "pat")  # algorithms that send along trees
TRAY = 4  # GPUs of a host of GB200's and GB300's racks
_WHOLE = 0.995  # a share above this counts as the whole rate
_BEYOND = 1.25  # of what a slot carries, the most that cards may have: those sold have up to 1.04
COPIES = "memcpy-"  # how the names of copies between two GPUs begin, which CUDA makes without NCCL
COPIED = 1.05
COPIED_BAND = (0.85, 1.2)
"""Share of a link's rate in NCCL's count (`System.to_next`) that a copy reaches, and the band of its time.

Published by nvbandwidth, of one direction or half the sum of both: 370 to 397 GB/s of 370.8 on 8 x H100 and H200,
674 to 786 of 721.8 on B200 and GB200, 151 to 176 of 164.8 on 8 x H800.
"""
GRID = np.unique(np.rint(SIZES)).astype(np.int64)
"""Bytes at which a slowed curve is evaluated: integers, so that it is the same whichever sizes are asked for."""
NOISE = 0.0022
"""Standard deviation of computing times over their mean, from node to node of a healthy cluster of nine nodes."""

CONTENTION = 0.075
"""How much longer computing takes while a GPU communicates: Calculon's `processor_usage` lies between 0.02 and 0.15."""


@dataclass(frozen=True)
class Effect:
    """The share of the NICs' rate that the network leaves."""

    factor: float  # of the slowest transfer: 1 where the network does not slow it
    explanation: str  # one line


def effect(system: System, pattern: str, what_ifs: Sequence[str] = ()) -> Effect:
    """Return the network's effect on a pattern of `PATTERNS` under all what-ifs; UsageError for an impossible one."""
    before = Scenario(system)
    after = scenario(system, what_ifs)
    slowest = _median(after, pattern)
    unchanged = slowest if after == before else _median(before, pattern)
    words = _explain(after, slowest)
    if after != before and unchanged.share < _WHOLE:
        words += f"; {unchanged.share:.0%} as the system is described"
    return Effect(slowest.share, words)


def slowed(system: System, factor: float) -> System:
    """Return the system with NICs of that fraction of their rate."""
    if not system.nics:
        return system
    return replace(system, nics=replace(system.nics, rate=system.nics.rate * factor))


def changed(system: System, what_ifs: Sequence[str]) -> System:
    """Return the system with the nodes and network cards that the what-ifs give it, and all else as it was."""
    scenario(system, what_ifs)  # raises if one of them is impossible
    return scenario(system, [text for text in what_ifs if WHAT_IFS[text.partition("=")[0]].node]).system


def pattern_of(collective: str, algorithm: str = "ring") -> str:
    """Return the pattern that a collective makes between nodes, given NCCL's name for the algorithm."""
    return schedule_of(collective).pattern or ("tree" if algorithm in TREES else "ring")


def scenario(system: System, what_ifs: Sequence[str]) -> Scenario:
    """Apply all what-ifs in the order given; UsageError naming the choices."""
    after = Scenario(system)
    for text in what_ifs:
        word, equals, value = text.partition("=")
        if word not in WHAT_IFS:
            raise unknown("what-if", text, (known.form for known in WHAT_IFS.values()))
        known = WHAT_IFS[word]
        takes_value = "=" in known.form
        complete = bool(value) == takes_value or (known.optional and not equals)
        if not complete:
            raise UsageError(f"--what-if {text!r} is not complete or says too much; write {known.form}")
        after = known.apply(after, word, value)
    cards, slot = after.system.nics, system.pcie_rate
    if cards and cards != system.nics and (each := cards.rate * cards.per_node / system.gpus) > _BEYOND * slot:
        raise UsageError(
            f"--what-if {', '.join(what_ifs)}: {each / 1e9:.3g} GB/s of cards for a GPU, whose PCIe slot carries "
            f"{slot / 1e9:.3g}; give fewer or slower cards, or a FILE.toml of a node with another pcie_gen"
        )
    return after


@dataclass(frozen=True)
class WhatIf:
    """A word of `--what-if`: `apply` takes the network as it is, the word and its value."""

    form: str
    meaning: str
    apply: Callable[[Scenario, str, str], Scenario]
    optional: bool = False  # whether the word may stand without a value
    node: bool = False  # whether it changes the nodes or their cards, and not what is between them


def _fault(now: Scenario, word: str, link: str) -> Scenario:
    return replace(now, faults=(*now.faults, Fault(link, {"link-down": 0.0, "link-half": 0.5}[word])))


def _oversubscription(now: Scenario, word: str, value: str) -> Scenario:
    try:
        ratio = float(value)
    except ValueError:
        ratio = -1.0
    if not 1 <= ratio <= 1000:
        raise UsageError(f"oversubscription={value} is impossible; write a number from 1 to 1000")
    first, *above = _tiers(now, word)
    return _with_tiers(now, replace(first, oversubscription=ratio), *above)


def _routing(now: Scenario, word: str, value: str) -> Scenario:
    if value and not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(f"ecmp={value} is no number of queue pairs; write ecmp or ecmp=1 to ecmp=1024")
    tiers = _tiers(now, word)
    return _with_tiers(now, *(replace(tier, routing=word, flows=int(value or tier.flows)) for tier in tiers))


def _in_order(now: Scenario, word: str, value: str) -> Scenario:
    return replace(now, in_order=True)


def _first_tier(now: Scenario, word: str, value: str) -> Scenario:
    first, *above = _tiers(now, word)
    return _with_tiers(now, replace(first, name={"rail": "leaf", "fat-tree": "tor"}[word]), *above)


def _card(now: Scenario, word: str, value: str) -> Scenario:
    return replace(now, system=files.with_cards(now.system, word.removeprefix("nic."), value))


def _nvlinks_between_hosts(now: Scenario, word: str, value: str) -> Scenario:
    """Return the rack as nodes of one tray each, where its NVLinks do not leave a tray (NCCL_MNNVL_ENABLE=0)."""
    system, cards = now.system, now.system.nics
    trays = system.gpus // TRAY
    if value not in ("0", "1") or not (re.search(TRAYS, system.gpu) and cards):
        raise UsageError(f"mnnvl={value} is impossible on {system.name}; write mnnvl=0 for racks of GB200 or GB300")
    if value == "1" or system.gpus <= TRAY:
        return now
    if system.gpus % TRAY or cards.per_node % trays:
        raise UsageError(f"mnnvl=0 needs whole trays; {system.gpus} GPUs are not; give a multiple of {TRAY}")
    tiers = *(replace(tier, radix=tier.radix * trays) for tier in system.tiers[:1]), *system.tiers[1:]
    nics, sockets = replace(cards, per_node=cards.per_node // trays), min(TRAY, system.per_socket)
    tray = replace(system, gpus=TRAY, nodes=system.nodes * trays, nics=nics, per_socket=sockets, tiers=tiers)
    return replace(now, system=tray)


WHAT_IFS = {
    "link-down": WhatIf("link-down=leaf3:spine1|nic:NODE.NIC", "a link fails", _fault),
    "link-half": WhatIf("link-half=leaf3:spine1|nic:NODE.NIC", "a link runs at half its rate", _fault),
    "oversubscription": WhatIf("oversubscription=RATIO", "fewer links above the first switches", _oversubscription),
    "ecmp": WhatIf("ecmp[=QUEUE_PAIRS]", "each queue pair keeps to one hashed path", _routing, optional=True),
    "adaptive": WhatIf("adaptive", "switches spread traffic over all paths", _routing),
    "in-order": WhatIf("in-order", "ranks in the order of the network (default: random)", _in_order),
    "nic.per_node": WhatIf("nic.per_node=N", "network cards of a node", _card, node=True),
    "nic.rate": WhatIf("nic.rate=GB/s", "rate of a card, in one direction (400 Gb/s are 50)", _card, node=True),
    "nic.transport": WhatIf("nic.transport=NAME", "cards of another transport, such as roce or tcp", _card, node=True),
    "nic.gdr": WhatIf("nic.gdr=true|false", "whether cards reach the GPUs' memory", _card, node=True),
    "sharp": WhatIf("sharp=0|1", "whether InfiniBand's switches add (SHARP), and NCCL uses it", _card, node=True),
    "mnnvl": WhatIf("mnnvl=0|1", "whether NVLinks join the hosts of a rack", _nvlinks_between_hosts, node=True),
    "rail": WhatIf("rail", "each NIC of a node on switches of its own rail", _first_tier),
    "fat-tree": WhatIf("fat-tree", "all NICs of a node on one switch", _first_tier),
}


def _tiers(now: Scenario, word: str) -> tuple[Tier, ...]:
    if len(now.system.tiers) < 2:
        has = f"{now.system.name} has {len(now.system.tiers)}"
        raise UsageError(f"{word} needs two tiers of switches; {has}: add [[tier]]")
    return now.system.tiers


def _with_tiers(now: Scenario, *tiers: Tier) -> Scenario:
    return replace(now, system=replace(now.system, tiers=tiers))


def _median(now: Scenario, pattern: str) -> Slowest:
    """Return the middle one of some drawings of hashes and order, always the same ones."""
    first = solve(now, pattern, 0)
    return median_drawing([first, *(solve(now, pattern, seed) for seed in range(1, drawings(now, pattern)))])


def _explain(now: Scenario, slowest: Slowest) -> str:
    order = "nodes in order" if now.in_order else "nodes in random order"
    if slowest.share >= _WHOLE:
        return f"every NIC gets its whole rate: {order}, {slowest.apart:.0%} of the transfers between leaves"
    shared = f"{slowest.flows} flows share" if slowest.flows > 1 else "1 flow uses"
    per_node = now.system.nics.per_node if now.system.nics else 1
    some = "" if slowest.alike else f"; {slowest.rails} of {per_node} rails followed"
    return (
        f"the slowest NIC ({slowest.sender}) gets {slowest.share:.0%} of its rate: {shared} {slowest.bottleneck}; "
        f"all get {slowest.mean:.0%} on average, {order}{some}"
    )


def curve(
    system: System, cases: Sequence[Case], implementation: str = "nccl", calibration: Calibration | None = None
) -> list[Prediction]:
    """Return the expected times of cases that differ in size only; their ranks are a part of the system.

    The implementation is `nccl`, a hand-written one, or `auto` for the best of those.  The calibration is for `nccl`,
    by default that of the system's file.  Network cards have their full rate.  UsageError for an unknown
    implementation, Unsupported where it refuses one of the cases.
    """
    if not cases:
        return []
    part = system.part(cases[0].ranks)
    if implementation == "nccl":
        return _nccl(_adding(part, cases[0]), cases, calibration or calibration_of(system))
    if implementation.startswith(COPIES):
        return [_copy(part, case, implementation) for case in cases]
    modelled = handwritten.modelled()
    if implementation not in ("auto", *modelled, *implementations()):
        raise unknown("implementation", implementation, ("nccl", "auto", *modelled))
    if implementation not in ("auto", *modelled):
        raise Unsupported(f"{implementation} has no model; nccl and the package's own implementations have")
    return [_handwritten(part, case, implementation) for case in cases]


def _copy(system: System, case: Case, name: str) -> Prediction:
    seconds = case.nbytes / (COPIED * system.to_next)
    return Prediction(case, name, seconds, COPIED_BAND[0] * seconds, COPIED_BAND[1] * seconds)


def _nccl(system: System, cases: Sequence[Case], calibration: Calibration | None) -> list[Prediction]:
    terms = nccl_terms.terms(system, cases[0].collective.name)
    sizes = np.array([max(1, case.nbytes) for case in cases], np.float64)
    times = terms.at(sizes, calibration or DEFAULT)
    predictions = []
    for case, seconds in zip(cases, times.tolist(), strict=True):
        low, high = band(system, case.collective.name, case.nbytes, calibration is not None)
        # The choice at the nearest size of the curve that is not above.
        place = min(int(PER_OCTAVE * np.log2(max(1, case.nbytes)) + 1e-9), len(SIZES) - 1)
        algorithm, protocol = terms.algorithms[place], terms.protocols[place]
        predictions.append(Prediction(case, "nccl", seconds, low * seconds, high * seconds, algorithm, protocol))
    return predictions


def _adding(system: System, case: Case) -> System:
    """Return the system without sums in switches where NCCL has none (`ncclNvlsSupported`): of bytes, of averages."""
    added = case.redop.name != "avg" and case.redop.name in REDUCES.get(case.dtype.name, ())
    return system if added or not case.collective.reduces else replace(system, nvls=False)


def _handwritten(system: System, case: Case, name: str) -> Prediction:
    seconds, kernel, least, implementation = handwritten.estimate(system, case, name)
    bound = not handwritten.is_published(system, implementation)
    low, high = ESTIMATED if bound else HANDWRITTEN
    note = Note(picked=implementation if name == "auto" else "", bound=bound)
    # How fast a host launches them is not known, but none makes them faster than a graph.
    slowest = handwritten.behind(handwritten.SLOW_HOST * handwritten.host(system), high * kernel)
    return Prediction(case, name, seconds, max(least, low * kernel), slowest, note=note)


def network_curve(
    system: System, cases: Sequence[Case], implementation: str = "nccl", what_ifs: tuple[str, ...] = ()
) -> list[Prediction]:
    """Return the expected times of cases of one kind on all ranks, with switches, routing and what-ifs.

    Where the network slows the transfers, the library's choice stays what it is: it knows the NICs and nothing behind
    them.  More bytes never take less time.  Unsupported as of `curve`, UsageError as of `effect`.
    """
    system = changed(system, what_ifs)
    predictions = curve(system, cases, implementation)
    effects = [network_effect(system, cases[0].collective.name, plain.algorithm, what_ifs) for plain in predictions]
    if all(effect.factor == 1 for effect in effects):
        return predictions
    ratios = _slowdown(system, cases[0], implementation, what_ifs)
    longer = np.exp(np.interp(np.log([max(1, case.nbytes) for case in cases]), np.log(GRID), np.log(ratios)))
    rows = []
    for prediction, ratio, network in zip(predictions, longer.tolist(), effects, strict=True):
        seconds, low, high = (ratio * value for value in (prediction.seconds, prediction.low, prediction.high))
        slower = Note.of(f"NICs at {network.factor:.0%}" if network.factor < 1 and ratio >= SLOWED else "")
        rows.append(replace(prediction, seconds=seconds, low=low, high=high, note=prediction.note | slower))
    return rows


def _slowdown(system: System, case: Case, implementation: str, what_ifs: tuple[str, ...]) -> Floats:
    """Return the time with the network over the time without, at each size of GRID."""
    cases = [replace(case, nbytes=int(nbytes)) for nbytes in GRID]
    plain = curve(system, cases, implementation)
    without = np.array([prediction.seconds for prediction in plain])
    ratios = np.ones(len(GRID))
    choices = [(prediction.algorithm, prediction.protocol) for prediction in plain]
    for algorithm, protocol in set(choices):
        factor = network_effect(system, case.collective.name, algorithm, what_ifs).factor
        if factor == 1:
            continue

        # An algorithm is compared with itself: where choices change, curves are held up to be monotone.
        pinned = system
        if algorithm in ALGORITHMS and protocol in PROTOCOLS:
            pinned = replace(system, algorithm=algorithm, protocol=protocol)
        full = curve(pinned, cases, implementation)
        slow = curve(slowed(pinned, factor), cases, implementation)
        taken = np.array([after.seconds / before.seconds for before, after in zip(full, slow, strict=True)])

        # Slower NICs may also get slower channels from NCCL's search, which knows a few rates only: not these.
        chosen = np.array([choice == (algorithm, protocol) for choice in choices])
        ratios[chosen] = np.clip(taken[chosen], 1.0, 1 / factor)
    return np.asarray(np.maximum.accumulate(without * ratios) / without, np.float64)


@lru_cache(maxsize=512)
def network_effect(system: System, collective: str, algorithm: str, what_ifs: tuple[str, ...] = ()) -> Effect:
    """Return what the network leaves of the NICs' rate to an algorithm's pattern; all of it within one node."""
    if system.nodes < 2 and not what_ifs:
        return Effect(1.0, "")
    return effect(system, pattern_of(collective, algorithm), what_ifs)


def on_ranks(system: System, ranks: int) -> System:
    """Return the part of the system, or the number of its nodes, for `ranks` ranks; UsageError for parts of nodes."""
    return system.of(ceil(ranks / system.gpus)).part(ranks)


def slowest(ranks: int, noise: float) -> float:
    """Return the expected excess of the slowest of `ranks` ranks over the mean computing time, over the mean.

    Of n independent, normally distributed times the longest is expected PHI^-1((n - 3/8) / (n + 1/4)) standard
    deviations above the mean (G. Blom, 1958).
    """
    return noise * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
