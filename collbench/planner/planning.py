"""The planner's front: a question in a user's words, and the answer as records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from collbench.errors import UsageError
from collbench.planner.candidates import layouts
from collbench.planner.curves import Modelled
from collbench.planner.job import Job
from collbench.planner.layout import Layout, Said, in_words, parse_layout
from collbench.planner.machine import Machine, machine_of
from collbench.planner.model_files import load_model
from collbench.planner.models import Model
from collbench.planner.planner import Planned, Searched, reckon_one, search
from collbench.planner.setting import Setting
from collbench.topology.system import System
from collbench.units import format_size

GROUPED = ("tensor", "pipeline", "context", "expert", "data")
"""What makes layouts different ones in a ranking; of those that differ in less, the best stands for all."""

EQUAL = 0.01
"""Steps that differ by less are equal: no plan can tell."""

SMALLER: Said = {"sharding": "zero3", "recompute": "full", "offload": True}
"""Choices that need less memory than others of their kind."""
HOPELESS = 2**12
"""Times the memory of a GPU that a layout needs, beyond which no number of GPUs is looked for."""


@dataclass(frozen=True)
class Plan:
    """An answer: the layouts that fit, those first that take least, the mean over their bands."""

    setting: Setting
    said: Said
    searched: Searched

    @cached_property
    def places(self) -> Sequence[int]:
        """In the order of their means, the best of every group; of equal ones that with most memory to spare."""
        keys = np.stack([self.searched.arrays[name][self.searched.fitting] for name in GROUPED])
        _, first = np.unique(keys, axis=1, return_index=True)
        order = np.sort(first)
        means, needs = self.searched.means[order], self.searched.needs[self.searched.fitting[order]]
        ranks, begin = np.zeros(len(order), np.int64), means[0]
        for place, mean in enumerate(means):
            begin = begin if mean <= begin * (1 + EQUAL) else mean
            ranks[place] = np.searchsorted(means, begin)
        return [int(place) for place in self.searched.fitting[order[np.lexsort((needs, ranks))]]]

    def ranked(self, count: int = 10) -> list[Planned]:
        """The best, with their books."""
        return [reckon_one(self.setting, layout) for layout in layouts(self.searched.arrays, self.places[:count])]

    @cached_property
    def best(self) -> Planned:
        """The layout that comes first."""
        return self.ranked(1)[0]

    @cached_property
    def boldest(self) -> Planned:
        """The layout whose likely step is shortest, however sure that is."""
        place = self.searched.fitting[int(np.argmin(self.searched.steps))]
        return reckon_one(self.setting, layouts(self.searched.arrays, [int(place)])[0])

    @property
    def fitting(self) -> int:
        """How many layouts fit."""
        return self.searched.fits

    def layout(self, text: str) -> Planned:
        """The best that agrees with a layout's name, whether it fits or not."""
        return best_of(self.setting, parse_layout(text))


def plan(
    model: str | Model,
    on: System,
    gpus: int,
    batch: int,
    *,
    layout: str = "",
    loader: float = inf,
    sequence: int = 0,
    **how: str | float,
) -> Plan:
    """All layouts of a training run on a described system, ranked.

    `model` is a Model, or what `--model` takes: a preset's name, a file, dimensions; `batch` counts the samples of a
    step, `loader` those that can be read in a second, `layout` fixes choices ("tp8 pp16"), and `how` are fields of
    Job: precision, optimiser, gradients, stack.
    UsageError in one line, with a way out, for what cannot be, or where no layout fits into memory.

    >>> from collbench.topology.files import load
    >>> answer = plan("gpt3-175b", load("dgx-a100"), gpus=1024, batch=1536, layout="tp8 pp16")
    >>> answer.best.layout.data, answer.best.layout.recompute
    (8, 'full')
    >>> 29 < answer.best.step < 35 and answer.best.low < answer.best.step < answer.best.high
    True
    """
    known = load_model(model) if isinstance(model, str) else model
    curves = Modelled(on, gpus)
    machine = machine_of(curves.system)
    job = Job(known, gpus, batch, sequence or known.sequence, **({"stack": machine.stack} | how))  # type: ignore[arg-type]
    return plan_on(Setting(job.checked(), curves, machine, loader), parse_layout(layout) if layout else {})


def plan_on(given: Setting, said: Said, advised: bool = True) -> Plan:
    """The same for a setting; UsageError if nothing fits, saying by how much, and if `advised` what would."""
    searched = search(given, said)
    if not len(searched.means):
        near = float(searched.needs[searched.smallest]) < HOPELESS * given.capacity
        way_out = _what_fits(given, said) if near else "give a smaller model"
        raise UsageError(_why_nothing_fits(given, searched) + (f"; {way_out}" if advised else ""))
    return Plan(given, said, searched)


def best_of(given: Setting, said: Said) -> Planned:
    """The first of those that agree with what is said; where none fits, the one that needs least memory."""
    searched = search(given, said)
    place = int(searched.fitting[0]) if len(searched.fitting) else searched.smallest
    return reckon_one(given, layouts(searched.arrays, [place])[0])


def _why_nothing_fits(given: Setting, searched: Searched) -> str:
    missing = float(searched.needs[searched.smallest]) - given.capacity
    short = format_size(2**20 * round(missing / 2**20 + 0.5))
    capacity = format_size(given.capacity)
    (nearest,) = layouts(searched.arrays, [searched.smallest])
    return (
        f"no layout of {given.job.model.name} on {given.job.gpus} GPUs fits {capacity}: {short} short with "
        f"{nearest.name}"
    )


def _what_fits(given: Setting, said: Said) -> str:
    """What would make it possible: less said, another optimiser, newer software, or more GPUs."""
    relaxed = [{**said, name: value} for name, value in SMALLER.items() if said.get(name, value) != value]
    ways = [f'--layout "{in_words(other)}"' for other in relaxed if fits(given, other)]
    if said and not ways and fits(given, {}):
        ways.append("another --layout")
    for name, value in (("optimiser", "adam8bit"), ("stack", "modern"), ("gradients", "bf16")):
        changed = _changed(given.job, name, value)
        if changed != given.job and fits(replace(given, job=changed), said):
            ways.append(f"--{name} {value}")
    more = _enough(given, said)
    ways += [f"--gpus {more}"] if more else []
    return f"these fit: {', '.join(ways)}" if ways else "give more GPUs, or GPUs with more memory"


def _changed(job: Job, name: str, value: str) -> Job:
    return replace(job, **{name: value})  # type: ignore[arg-type]


def fits(given: Setting, said: Said) -> Layout | None:
    """A layout that does, if there is one."""
    try:
        searched = search(given, said)
    except UsageError:
        return None
    return layouts(searched.arrays, searched.fitting[:1])[0] if len(searched.fitting) else None


def _enough(given: Setting, said: Said) -> int:
    """The next doubling of GPUs on which something fits, with a batch that is large enough; 0 if none does."""
    gpus = given.job.gpus
    for _ in range(12):
        gpus *= 2
        grown = resized(given, gpus)
        if grown and fits(grown, {name: value for name, value in said.items() if name != "data"}):
            return gpus
    return 0


def resized(given: Setting, gpus: int) -> Setting | None:
    """The same on another number of GPUs; None where those cannot be had, as of a run that was measured."""
    if isinstance(given.curves, Modelled):
        try:
            curves = Modelled(given.curves.whole, gpus)
        except UsageError:
            return None
        return replace(given, job=given.job.on(gpus), curves=curves)
    return replace(given, job=given.job.on(gpus))


__all__ = ["Machine", "Plan", "best_of", "plan", "plan_on", "resized"]
