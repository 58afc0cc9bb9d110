"""Search for layouts that fit into memory, ranked by time and then memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from inspect import isfunction, signature
from math import hypot
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.collectives import find_collective
from collbench.commands.train import communication, formulas
from collbench.commands.train.curves import HIGH, LOW, TYPICAL, Array, ModelCurves, Network
from collbench.commands.train.layouts import CODES, Choices, Layout, candidates, coded, in_words, layouts
from collbench.commands.train.rows import PlannedStep
from collbench.commands.train.setting import PlanSetting, choices, inputs, machine_of
from collbench.datatypes import find_datatype, find_reduction
from collbench.errors import CollbenchError, UsageError
from collbench.notebook import Shown
from collbench.topology.system import System
from collbench.units import counted, format_size

AT_ONCE = 60_000  # layouts evaluated together, within 100 MB
_DTYPES = {2: "bfloat16", 4: "float"}
_COSTLY = ("recompute", "offload")  # choices that only cost time


Formula = Callable[..., Any]


def _formulas(module: ModuleType) -> tuple[Formula, ...]:
    """Return the formulas that a module defines, in its order."""
    return tuple(one for one in vars(module).values() if isfunction(one) and one.__module__ == module.__name__)


WITHOUT_CURVES = _formulas(formulas)
WITH_CURVES = _formulas(communication)
TERMS = (*WITHOUT_CURVES, *WITH_CURVES)
"""All formulas of a plan, in the order in which they are evaluated."""


def evaluate(terms: Iterable[Formula], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values* with the results of all terms not among them; parameters name the arguments."""
    known = dict(values)
    for term in terms:
        if term.__name__ not in known:
            known[term.__name__] = term(*[known[name] for name in _parameters(term)])
    return known


@cache
def _parameters(term: Formula) -> tuple[str, ...]:
    return tuple(signature(term).parameters)


def values_of(given: PlanSetting, layout: Layout, edge: str = TYPICAL, faster: float = 1.0) -> dict[str, Any]:
    """Return the values of all formulas for a layout, at an `edge` of the curves' band and `faster` computing."""
    known = inputs(given) | choices({name: np.asarray(value) for name, value in coded(layout).items()}, given)
    network = Network(given.curves, edge, given.inside, given.across)
    changed = {"network": network, "efficiency": given.job.efficiency * faster}
    return evaluate(TERMS, known | changed)


def evaluate_layout(given: PlanSetting, layout: Layout) -> PlannedStep:
    """Return the plan of a layout: parts, memory and the band of its step.

    Errors of curves and computing are independent, so their squares add up.  The case is the all-reduce of the layout's
    gradients.
    """
    constants, job = given.machine.constants, given.job
    spread = 1 + (constants.spread_experts if job.model.experts else constants.spread)
    values = values_of(given, layout)
    seconds = float(values["step"])

    def error(edge: str, faster: float) -> float:
        by_curves = float(values_of(given, layout, edge)["step"]) - seconds
        by_computing = float(values_of(given, layout, TYPICAL, faster)["step"]) - seconds
        return hypot(by_curves, by_computing)

    size = int(values["gradient_bytes"])
    summed = find_datatype(_DTYPES[size]), find_reduction("sum")
    nbytes = round(float(values["whole"])) * size
    return PlannedStep(
        Case(find_collective("allreduce"), nbytes, *summed, 0, layout.gpus, in_place=True),
        layout.name,
        purpose="layout",
        system=given.machine.name,
        parts={name: float(values[name]) for name in communication.PARTS},
        memory={name: float(values[name]) for name in formulas.PARTS},
        capacity=given.capacity,
        low=max(0.0, seconds - error(LOW, spread)),
        high=seconds + error(HIGH, 1 / spread),
        tokens=float(job.tokens),
        utilisation=job.flops / seconds / layout.gpus / given.machine.product.flops,
    )


def search(given: PlanSetting, fixed: Choices) -> "Plan":
    """Return all layouts with the fixed choices, and the steps of the layouts that fit, possibly none.

    A layout is not timed if the same one with less recomputation or offloading fits, as it is slower.
    """
    arrays = candidates(given.job, given.curves.system, fixed)
    everything = np.arange(len(arrays["data"]))
    needs = np.concatenate([_spread(known["needed"], known) for known in _evaluated(given, arrays, everything)])

    # Memory is cheap to compute and times are not, so only fitting layouts are timed.
    fitting = np.flatnonzero(needs <= given.capacity)
    timed = fitting[_worth_timing(arrays, fitting)]
    network = {"network": Network(given.curves, TYPICAL)}
    every = _evaluated(given, arrays, timed)
    times = [_spread(evaluate(WITH_CURVES, known | network)["step"], known) for known in every]
    steps = np.concatenate(times) if times else np.zeros(0)
    order = np.argsort(steps, kind="stable")
    return Plan(given, fixed, arrays, steps[order], timed[order], needs, len(fitting))


def _evaluated(given: PlanSetting, arrays: Mapping[str, Array], places: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Yield the values of all formulas without curves at these indices, AT_ONCE layouts at a time."""
    known = inputs(given)
    for start in range(0, len(places), AT_ONCE):
        part = {name: array[places[start : start + AT_ONCE]] for name, array in arrays.items()}
        yield evaluate(WITHOUT_CURVES, known | choices(part, given))


def _spread(value: Any, known: Mapping[str, Any]) -> Array:
    """Return a value as an array with a number per layout."""
    return np.broadcast_to(value, known["data"].shape)


def _worth_timing(arrays: Mapping[str, Array], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the candidates without an equal one that recomputes or offloads less."""
    # Number the kinds: candidates of a kind differ only in the costly choices.
    kinds = np.zeros(len(places), np.int64)
    for name in arrays:
        if name not in _COSTLY:
            values = np.unique(arrays[name][places])  # few, so looking them up is faster than sorting all
            kinds = kinds * len(values) + np.searchsorted(values, arrays[name][places])
    _, kinds = np.unique(kinds, return_inverse=True)
    again, away = (arrays[name][places].astype(np.int64) for name in _COSTLY)
    fits = np.zeros((int(kinds.max(initial=-1)) + 1, len(CODES["recompute"]) + 1, 3), bool)  # a margin of none in front
    fits[kinds, again + 1, away + 1] = True

    # A running "or" along both choices: whether any candidate of lower cost fits.
    below = np.logical_or.accumulate(np.logical_or.accumulate(fits, axis=1), axis=2)
    return np.asarray(~(below[kinds, again, away + 1] | below[kinds, again + 1, away]))


GROUPED = ("tensor", "pipeline", "context", "expert", "data")
"""The fields that make layouts distinct in a ranking, which shows the best layout of each group."""

EQUAL = 0.01
"""Relative difference below which predicted steps count as equal."""


@dataclass(frozen=True)
class Plan(Shown):
    """All layouts with the fixed choices, as indices into arrays, and the timed ones, the fastest first."""

    SHOWN = ("setting", "fixed", "tried", "fits")
    setting: PlanSetting
    fixed: Choices
    arrays: dict[str, Array]
    steps: Array  # likely seconds of the timed layouts
    timed: NDArray[np.int64]  # their indices
    needs: Array  # bytes per GPU of all layouts
    fits: int  # number of layouts that fit, timed or not

    @property
    def tried(self) -> int:
        """Number of all layouts."""
        return len(self.needs)

    @property
    def smallest(self) -> Layout:
        """The layout with the smallest memory."""
        return layouts(self.arrays, [int(np.argmin(self.needs))])[0]

    @cached_property
    def places(self) -> Sequence[int]:
        """Indices of the fastest layout of every group; within EQUAL of each other, the smallest memory first."""
        keys = np.stack([self.arrays[name][self.timed] for name in GROUPED])
        _, first = np.unique(keys, axis=1, return_index=True)
        order = np.sort(first)
        steps, needs = self.steps[order], self.needs[self.timed[order]]

        # Steps within EQUAL of the first of a chain count as equal, and memory decides.
        fastest = steps.copy()  # by layout: the first step of its chain
        for place in range(1, len(steps)):
            if steps[place] <= fastest[place - 1] * (1 + EQUAL):
                fastest[place] = fastest[place - 1]
        return [int(place) for place in self.timed[order[np.lexsort((needs, fastest))]]]

    def ranked(self, count: int = 10) -> list[PlannedStep]:
        """Return the plans of the best layouts."""
        return [evaluate_layout(self.setting, layout) for layout in layouts(self.arrays, self.places[:count])]

    @cached_property
    def best(self) -> PlannedStep:
        """The plan of the layout that comes first."""
        return self.ranked(1)[0]


def plan_on(given: PlanSetting, fixed: Choices, advised: bool = True) -> Plan:
    """Return the plan for a setting; UsageError if nothing fits, with the missing memory and remedies."""
    plan = search(given, fixed)
    if plan.fits:
        return plan
    short = format_size(2**20 * round((float(min(plan.needs)) - given.capacity) / 2**20 + 0.5))
    reason = (
        f"no layout of {given.job.model.name} on {counted(given.job.gpus, 'GPU')} fits {format_size(given.capacity)}: "
        f"{short} short with {plan.smallest.name}"
    )
    if not advised:
        raise UsageError(reason)
    raise UsageError(f"{reason}; {_what_fits(given, fixed)}")


def best_of(given: PlanSetting, fixed: Choices) -> PlannedStep:
    """Return the best layout with the fixed choices; if none fits, the one with the smallest memory."""
    plan = search(given, fixed)
    return evaluate_layout(given, layouts(plan.arrays, plan.timed[:1])[0] if plan.fits else plan.smallest)


def _what_fits(given: PlanSetting, fixed: Choices) -> str:
    """Return remedies: fewer fixed choices, another optimiser, newer software, or more GPUs."""
    ways = []
    smallest: dict[str, Any] = {"sharding": "zero3", "recompute": "full", "offload": True}
    for name, choice in smallest.items():
        relaxed = {**fixed, name: choice}
        if fixed.get(name, choice) != choice and _fits(given, relaxed):
            ways.append(f'--layout "{in_words(relaxed)}"')
    if fixed and not ways and _fits(given, {}):
        ways.append("another --layout")
    smaller_job: dict[str, Any] = {"optimiser": "adam8bit", "stack": "modern", "gradients": "bf16"}
    for name, word in smaller_job.items():
        job = replace(given.job, **{name: word})
        if job != given.job and _fits(replace(given, job=job), fixed):
            ways.append(f"--{name} {word}")
    # More GPUs are more replicas, so their number cannot stay fixed.
    free = {name: value for name, value in fixed.items() if name != "data"}
    for gpus in (given.job.gpus * 2**power for power in range(1, 13)):
        if _fits(given, free, gpus):
            ways.append(f"--gpus {gpus}")
            break
    return f"these fit: {', '.join(ways)}" if ways else "give more GPUs, or GPUs with more memory"


def _fits(given: PlanSetting, fixed: Choices, gpus: int = 0) -> bool:
    try:
        return search(resized(given, gpus) if gpus else given, fixed).fits > 0
    except UsageError:
        return False


def resized(given: PlanSetting, gpus: int) -> PlanSetting:
    """Return the setting on another number of GPUs; UsageError if the system has too few."""
    return replace(given, job=replace(given.job, gpus=gpus), curves=given.curves.on(gpus))


@dataclass(frozen=True)
class OnSystem(Shown):
    """The best layout on a number of GPUs of a system, or the reason why none fits."""

    system: str
    gpus: int
    best: PlannedStep | None
    reason: str = ""


def best_on(given: PlanSetting, fixed: Choices, gpus: int, system: System | None = None) -> OnSystem:
    """Return the best layout of the batch on another number of GPUs, or on another system with the same software.

    A fixed data-parallel size is freed for another number of GPUs.
    """
    name = system.name if system else given.machine.name
    try:
        if system:
            return OnSystem(name, gpus, plan_on(on_system(given, system), fixed, advised=False).best)
        free = {choice: value for choice, value in fixed.items() if choice != "data"}
        return OnSystem(name, gpus, plan_on(resized(given, gpus), free, advised=False).best)
    except CollbenchError as error:
        return OnSystem(name, gpus, None, str(error))


def on_system(given: PlanSetting, system: System) -> PlanSetting:
    """Return the setting on as many GPUs of another system; UsageError if it has too few."""
    curves = ModelCurves(system, given.job.gpus)
    return replace(given, curves=curves, machine=machine_of(curves.system))
