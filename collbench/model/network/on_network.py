"""Predictions with the network between nodes: the equation knows NICs, the flow level what switches leave of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from collbench.cases import Case
from collbench.model.equation import SIZES, Floats
from collbench.model.network.what_if import Effect, effect, pattern_of, slowed
from collbench.model.predict import curve
from collbench.results import Note, Prediction
from collbench.topology.system import ALGORITHMS, PROTOCOLS, System

_effect = lru_cache(maxsize=512)(effect)
GRID = np.unique(np.rint(SIZES)).astype(np.int64)
"""Bytes at which a slowed curve is evaluated: whole ones, so that it is the same whichever sizes are asked for."""


def network_curve(
    system: System, cases: Sequence[Case], implementation: str = "nccl", what_ifs: tuple[str, ...] = ()
) -> list[Prediction]:
    """What cases that differ in size only take on all ranks of the system, with its switches, routing and what-ifs.

    Where the network slows the transfers, the library's choice stays what it is: it knows the NICs and nothing behind
    them.  More bytes never take less time.  Unsupported as `curve`, UsageError as `effect`.
    """
    predictions = curve(system, cases, implementation)
    effects = [network_effect(system, cases[0].collective.name, plain.algorithm, what_ifs) for plain in predictions]
    if all(effect.factor == 1 for effect in effects):
        return predictions
    times = _times_as_long(system, cases[0], implementation, what_ifs)
    longer = np.exp(np.interp(np.log([max(1, case.nbytes) for case in cases]), np.log(GRID), np.log(times)))
    rows = zip(predictions, longer.tolist(), effects, strict=True)
    return [_slower(prediction, times, effect) for prediction, times, effect in rows]


def _times_as_long(system: System, case: Case, implementation: str, what_ifs: tuple[str, ...]) -> Floats:
    """At each size of GRID, the time with the network over the time without."""
    cases = [replace(case, nbytes=int(nbytes)) for nbytes in GRID]
    plain = curve(system, cases, implementation)
    without = np.array([prediction.seconds for prediction in plain])
    ratios = np.ones(len(GRID))
    ways = [(prediction.algorithm, prediction.protocol) for prediction in plain]
    for way in set(ways):
        factor = network_effect(system, case.collective.name, way[0], what_ifs).factor
        if factor < 1:
            there = np.array([other == way for other in ways])
            # compared with itself: where choices change, curves are held up to be monotone
            known = way[0] in ALGORITHMS and way[1] in PROTOCOLS
            own = replace(system, algorithm=way[0], protocol=way[1]) if known else system
            full, slow = (curve(some, cases, implementation) for some in (own, slowed(own, factor)))
            taken = np.array([after.seconds / before.seconds for before, after in zip(full, slow, strict=True)])
            # slower NICs may also get slower channels from NCCL's search, which knows a few rates only: not these
            ratios[there] = np.clip(taken[there], 1.0, 1 / factor)
    return np.asarray(np.maximum.accumulate(without * ratios) / without, np.float64)


def _slower(prediction: Prediction, times: float, network: Effect) -> Prediction:
    slower = Note.of(f"NICs at {network.factor:.0%}" if network.factor < 1 else "")
    return replace(
        prediction,
        seconds=prediction.seconds * times,
        low=prediction.low * times,
        high=prediction.high * times,
        note=prediction.note | slower,
    )


def network_effect(system: System, collective: str, algorithm: str, what_ifs: tuple[str, ...] = ()) -> Effect:
    """What the network leaves of the NICs' rate to the pattern that this algorithm makes; all of it within one node."""
    if system.nodes < 2 and not what_ifs:
        return Effect(1.0, "", "")
    return _effect(system, pattern_of(collective, algorithm), what_ifs)
