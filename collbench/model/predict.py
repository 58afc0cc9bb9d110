"""Seconds, with a band, that a collective should take on a described system: the entry of the model.

The equation knows network cards at their full rate (`curve`); the flow level says what switches and failures leave of
them (`network_curve`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from statistics import NormalDist

import numpy as np

from collbench.algorithms import implementations
from collbench.algorithms.nvls import REDUCES
from collbench.cases import Case
from collbench.errors import Unsupported, unknown
from collbench.model import handwritten, nccl_terms
from collbench.model.equation import DEFAULT, PER_OCTAVE, SIZES, Calibration, Floats, calibration_of
from collbench.model.error_bands import ESTIMATED, HANDWRITTEN, band
from collbench.model.what_if import Effect, changed, effect, pattern_of, slowed
from collbench.results import Note, Prediction
from collbench.topology.system import ALGORITHMS, PROTOCOLS, System

_effect = lru_cache(maxsize=512)(effect)
COPIES = "memcpy-"  # how the names of copies between two GPUs begin, which CUDA makes without NCCL
COPIED = 1.05
COPIED_BAND = (0.85, 1.2)
"""What a copy reaches of a link as NCCL counts it (`System.to_next`), and the band of its time.

Published by nvbandwidth, of one direction or half the sum of both: 370 to 397 GB/s of 370.8 on 8 x H100 and H200,
674 to 786 of 721.8 on B200 and GB200, 151 to 176 of 164.8 on 8 x H800.
"""
GRID = np.unique(np.rint(SIZES)).astype(np.int64)
"""Bytes at which a slowed curve is evaluated: integers, so that it is the same whichever sizes are asked for."""
NOISE = 0.0022
"""Standard deviation of computing times over their mean, from node to node of a healthy cluster of nine nodes."""

CONTENTION = 0.075
"""How much longer computing takes while a GPU communicates: Calculon's `processor_usage` lies between 0.02 and 0.15."""


def curve(
    system: System, cases: Sequence[Case], implementation: str = "nccl", calibration: Calibration | None = None
) -> list[Prediction]:
    """Return the expected times of cases that differ in size only; their ranks are a part of the system.

    The implementation is `nccl`, a hand-written one by its name, or `auto` for the best of those; the calibration is
    for `nccl`, and by default the one that the system's file names.  Network cards have their full rate.  UsageError
    for an unknown implementation, Unsupported where it refuses one of the cases: ask for each by itself.
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
    them.  More bytes never take less time.  Unsupported as of `curve`, UsageError as of `what_if.effect`.
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
        slower = Note.of(f"NICs at {network.factor:.0%}" if network.factor < 1 else "")
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


def network_effect(system: System, collective: str, algorithm: str, what_ifs: tuple[str, ...] = ()) -> Effect:
    """Return what the network leaves of the NICs' rate to an algorithm's pattern; all of it within one node."""
    if system.nodes < 2 and not what_ifs:
        return Effect(1.0, "")
    return _effect(system, pattern_of(collective, algorithm), what_ifs)


def on_ranks(system: System, ranks: int) -> System:
    """Return as much of the system, or as many of its nodes, as so many ranks need; UsageError for parts of nodes."""
    return system.of(ceil(ranks / system.gpus)).part(ranks)


def slowest(ranks: int, noise: float) -> float:
    """Return by how much the slowest of so many ranks is expected to compute longer than the mean, over the mean.

    Of n independent, normally distributed times the longest is expected PHI^-1((n - 3/8) / (n + 1/4)) standard
    deviations above the mean (G. Blom, 1958).
    """
    return noise * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
