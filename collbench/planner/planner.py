"""From a job and curves to layouts with their books: all that fit, those first that take least by all that is known."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.planner.candidates import CODES, candidates, coded
from collbench.planner.curves import HIGH, LOW, TYPICAL, Array
from collbench.planner.footprint import FOOTPRINT
from collbench.planner.footprint import PARTS as MEMORY_PARTS
from collbench.planner.job import Job
from collbench.planner.layout import Layout, Said
from collbench.planner.ledger import Network
from collbench.planner.ledger import reckon as enter
from collbench.planner.setting import Inputs, Setting, choices, inputs
from collbench.planner.stepping import PARTS as STEP_PARTS
from collbench.planner.stepping import STEPPING
from collbench.planner.traffic import TRAFFIC
from collbench.planner.work import WORK

AT_ONCE = 60_000  # layouts that are reckoned together: as many as stay within 100 MB
_COSTLY = ("recompute", "offload")  # choices that cost time and never save any


@dataclass(frozen=True)
class Planned:
    """A layout with its books."""

    layout: Layout
    job: Job
    values: Mapping[str, Any]
    low: float
    high: float

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return float(self.values["step"])

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of a step by what they are spent on."""
        return {name: float(self.values[name]) for name in STEP_PARTS}

    @property
    def memory(self) -> dict[str, float]:
        """Bytes of a GPU by what they are needed for."""
        return {name: float(self.values[name]) for name in MEMORY_PARTS}

    @property
    def needed(self) -> float:
        """Bytes of a GPU."""
        return float(self.values["needed"])

    @property
    def utilisation(self) -> float:
        """Of the data sheet's FLOP/s, by the FLOPs that are counted (MFU)."""
        return self.job.flops / self.step / self.layout.gpus / float(self.values["peak16"])

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs together."""
        return self.job.tokens / self.step


SECTIONS = (WORK, FOOTPRINT, TRAFFIC, STEPPING)


EDGES = (TYPICAL, LOW, HIGH, TYPICAL, TYPICAL)
"""Of the curves, in the five books of a layout: as expected, curves at their edges, computing faster and slower."""


def reckon_one(given: Setting, layout: Layout) -> Planned:
    """The books of one layout, with the band of its step.

    What curves and what computing may be off know nothing of each other: both are squared and added.
    """
    constants = given.machine.constants
    spread = 1 + (constants.spread_experts if given.job.model.experts else constants.spread)
    known = inputs(given) | choices({name: np.asarray(value) for name, value in coded(layout).items()}, given)
    known["efficiency"] = given.job.efficiency * np.array([1, 1, 1, spread, 1 / spread])
    books = enter(SECTIONS, known | {"network": Network(given.curves, EDGES)})
    step, fast_curves, slow_curves, fast, slow = np.broadcast_to(books["step"], len(EDGES)).tolist()
    values = {name: value if name == "network" else np.asarray(value).flat[0] for name, value in books.items()}
    low = step - math.hypot(step - fast_curves, step - fast)
    return Planned(layout, given.job, values, max(0.0, low), step + math.hypot(slow_curves - step, slow - step))


def mean_of(low: Array, likely: Array, high: Array) -> Array:
    """Over a band, of which the likely value counts four times (Malcolm et al. 1959, PERT)."""
    return (low + 4 * likely + high) / 6


@dataclass(frozen=True)
class Searched:
    """What a search yields: places in its arrays, in the order of the means over their bands.

    A layout that leans on a link of which little is known comes behind one that is a little slower for sure.
    """

    arrays: dict[str, Array]
    means: Array  # seconds over the curves' bands, without waiting for samples, of those that fit and are worth timing
    steps: Array  # likely seconds of the same
    fitting: NDArray[np.int64]  # their places
    needs: Array  # bytes of a GPU, of all
    fits: int  # how many do, timed or not

    @property
    def tried(self) -> int:
        """How many there are."""
        return len(self.needs)

    @property
    def smallest(self) -> int:
        """The place of the one that needs least."""
        return int(np.argmin(self.needs))


def search(given: Setting, said: Said) -> Searched:
    """All layouts that agree with what is said, and the means of steps of those that fit.

    A layout is not timed where one that recomputes or offloads less and is otherwise the same fits too: it is slower.
    """
    arrays = candidates(given.job, given.curves.system, said)
    known, count = inputs(given), len(arrays["data"])
    needs = np.concatenate([_needed(given, known, part) for part in _parts(arrays, np.arange(count))])
    fitting = np.flatnonzero(needs <= given.capacity)
    timed = fitting[_worth_timing(arrays, fitting)]
    times = [_times(given, known, part) for part in _parts(arrays, timed)]
    means, steps = np.concatenate(times, axis=1) if times else np.zeros((2, 0))
    order = np.argsort(means, kind="stable")
    return Searched(arrays, means[order], steps[order], timed[order], needs, len(fitting))


def _parts(arrays: Mapping[str, Array], places: NDArray[np.int64]) -> Iterator[dict[str, Array]]:
    """The arrays at these places, as many at once as memory allows."""
    for start in range(0, len(places), AT_ONCE):
        own = places[start : start + AT_ONCE]
        yield {name: array[own] for name, array in arrays.items()}


def _needed(given: Setting, known: Inputs, part: dict[str, Array]) -> Array:
    values = enter((WORK, FOOTPRINT), {**known, **choices(part, given)})
    return np.broadcast_to(values["needed"], part["data"].shape)


def _times(given: Setting, known: Inputs, part: dict[str, Array]) -> Array:
    """Means and likely steps: two rows."""
    alike = enter((WORK, FOOTPRINT), {**known, **choices(part, given)})
    low, step, high = (
        enter((TRAFFIC, STEPPING), {**alike, "network": Network(given.curves, edge)})["busy"]  # starving or not
        for edge in (LOW, TYPICAL, HIGH)
    )
    return np.array([np.broadcast_to(seconds, part["data"].shape) for seconds in (mean_of(low, step, high), step)])


def _worth_timing(arrays: Mapping[str, Array], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether nothing among the same but for recomputation and offloading does less of one and no more of the other."""
    kinds = np.zeros(len(places), np.int64)
    for name in arrays:
        if name not in _COSTLY:
            values, codes = np.unique(arrays[name][places], return_inverse=True)
            kinds = kinds * len(values) + codes
    _, kinds = np.unique(kinds, return_inverse=True)
    again, away = (arrays[name][places].astype(np.int64) for name in _COSTLY)
    fits = np.zeros((int(kinds.max(initial=-1)) + 1, len(CODES["recompute"]) + 1, 3), bool)  # a margin of none in front
    fits[kinds, again + 1, away + 1] = True
    below = np.logical_or.accumulate(np.logical_or.accumulate(fits, axis=1), axis=2)
    return np.asarray(~(below[kinds, again, away + 1] | below[kinds, again + 1, away]))
