"""Which style of synchronisation reaches a loss first, in seconds and in steps, and how sure that is over seeds.

A seed is one draw of first weights and order of samples, the same for all styles, so they are compared seed by seed:
the logarithms of ratios are taken to vary as a normal distribution does, and an interval is Student's.  Without two
seeds there is none, and no verdict.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from collbench.results import Point, Result, Trained
from collbench.stats import student
from collbench.styles import styles

DOUBT = 0.05  # that an interval does not cover
LEVEL = 0.01  # apart: what surely differs by less is as good as the same
_LEARNT = 0.5  # of its first loss: a run that never gets that low has learnt nothing that another could be compared by
_LARGEST = 700.0  # power of e that is a number
_ROOM = 1.1  # the target over the least loss of the run that gets least low, so that one lucky point is not it


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, of what is multiplied rather than added; (0, inf) where one seed says nothing of others."""

    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        """Whether it is surely above 1, and by more than what is as good as the same."""
        return self.low > 1 and not self.level

    @property
    def level(self) -> bool:
        """Whether it surely is as good as 1."""
        return self.low > 1 / (1 + LEVEL) and self.high < 1 + LEVEL

    @property
    def decided(self) -> bool:
        """Whether it surely differs from 1."""
        return self.low > 1 or self.high < 1


def estimate(values: Iterable[float], doubt: float = DOUBT) -> Estimate:
    """The geometric mean of values above 0, and the interval that does not cover it with that probability."""
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return Estimate(_exp(mean), 0.0, math.inf)
    off = student(1 - doubt / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Estimate(_exp(mean), _exp(mean - off), _exp(mean + off))


def _exp(power: float) -> float:
    """Infinite where no number is as large."""
    return math.exp(power) if power < _LARGEST else math.inf


@dataclass(frozen=True)
class Entry:
    """A style in the race: its right runs by seed, and where each reached the target."""

    name: str
    runs: Mapping[int, Trained]
    target: float

    @cached_property
    def goals(self) -> dict[int, Point]:
        """By seed; without those that never got so low."""
        reached = ((seed, run.reached(self.target)) for seed, run in self.runs.items())
        return {seed: point for seed, point in reached if point and point.batches > 0 and point.seconds > 0}

    @property
    def arrived(self) -> bool:
        """Whether it got there with every seed."""
        return bool(self.runs) and len(self.goals) == len(self.runs)

    def seconds(self, seed: int) -> float:
        """To the target."""
        return self.goals[seed].seconds

    def steps(self, seed: int) -> float:
        """To the target, counted as if all ranks had made as many: samples over ranks and batch."""
        return self.goals[seed].batches / self.runs[seed].case.ranks

    def over(self, part: Callable[[int], float], doubt: float = DOUBT) -> Estimate:
        """The mean over seeds of seconds or steps."""
        return estimate(map(part, self.goals), doubt)

    @property
    def rate(self) -> Estimate:
        """Samples per second."""
        return estimate(run.rate for run in self.runs.values())


Part = Callable[[Entry, int], float]


@dataclass(frozen=True)
class Race:
    """All styles of a run and the loss that they race to."""

    target: float
    entries: tuple[Entry, ...]

    @property
    def arrived(self) -> list[Entry]:
        """Those that reach the target with every seed."""
        return [entry for entry in self.entries if entry.arrived]

    @property
    def short(self) -> list[Entry]:
        """Those that do not."""
        return [entry for entry in self.entries if not entry.arrived]

    def ranked(self, part: Part) -> list[Entry]:
        """Those that arrive, the first one first."""
        return sorted(self.arrived, key=lambda entry: entry.over(lambda seed: part(entry, seed)).value)

    def ratio(self, one: Entry, other: Entry, part: Part, doubt: float = DOUBT) -> Estimate | None:
        """How many times as much `one` needs as `other`, over the seeds that both have; None without any."""
        seeds = [seed for seed in one.goals if seed in other.goals]
        return estimate((part(one, seed) / part(other, seed) for seed in seeds), doubt) if seeds else None

    def behind(self, part: Part) -> dict[str, Estimate]:
        """How many times as much all others need as the first; together these intervals cover with 95 %.

        The doubt is divided by their number (Bonferroni), as many could beat one by chance.
        """
        ranked = self.ranked(part)
        others = ranked[1:]
        ratios = {other.name: self.ratio(other, ranked[0], part, DOUBT / len(others)) for other in others}
        return {name: ratio for name, ratio in ratios.items() if ratio}

    def frugal(self) -> tuple[Entry, list[Entry]]:
        """The quickest of the most that are level in steps, of as many those with the fewest; and all that are not."""

        def level(one: Entry) -> list[Entry]:
            ratios = [(other, self.ratio(other, one, Entry.steps)) for other in self.ranked(Entry.seconds)]
            return [other for other, ratio in ratios if other is one or (ratio and ratio.level)]

        group = max(map(level, self.ranked(Entry.steps)), key=len)
        return group[0], [entry for entry in self.ranked(Entry.seconds) if entry not in group]


def race(results: Sequence[Result]) -> Race | None:
    """The race of a run to the target that was set, or to the lowest loss that all who learn get to.

    None if nobody learns.
    """
    runs: dict[str, dict[int, Trained]] = {}
    for result in results:
        if isinstance(result, Trained) and result.right and not result.disturbed and result.case.job and _sound(result):
            runs.setdefault(result.implementation, {})[result.case.job.seed] = result
    targets = (run.case.job.target for by_seed in runs.values() for run in by_seed.values() if run.case.job)
    chosen = next(filter(None, targets), None) or _common_loss(runs)
    if chosen is None:
        return None
    order = [name for name in styles() if name in runs]
    names = [*order, *(name for name in runs if name not in order)]  # files of other releases may have other styles
    return Race(chosen, tuple(Entry(name, runs[name], chosen) for name in names))


def _common_loss(runs: Mapping[str, Mapping[int, Trained]]) -> float | None:
    learners = [by_seed.values() for by_seed in runs.values() if all(map(_learns, by_seed.values()))]
    if not learners:
        return None
    return round_up(_ROOM * max(run.least for style in learners for run in style))


def _sound(run: Trained) -> bool:
    """Whether it can be reckoned with: a run file may say that nothing was learnt from, or that a loss is none."""
    return run.rate > 0 and run.least > 0 and run.points[0].batches < run.points[-1].batches


def _learns(run: Trained) -> bool:
    return run.least <= _LEARNT * run.points[0].loss


def round_up(value: float) -> float:
    """To two digits."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.6g}")
