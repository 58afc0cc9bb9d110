"""Synchronisation strategies, ranked by time and steps to a loss.

A seed fixes the initial weights and the order of samples for all strategies, so they are compared seed by seed.  The
logarithms of ratios are assumed normal, and intervals are Student's.  One seed gives no interval and no verdict.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from statistics import fmean, stdev

from collbench.commands.step.rows import LossPoint, Trained
from collbench.commands.step.strategies import strategies
from collbench.commands.step.work import job_of
from collbench.present.columns import Column
from collbench.results import Result
from collbench.stats import Estimate, student
from collbench.units import format_list, format_seconds

ERROR = 0.05  # probability that an interval misses the true value
_LEARNT = 0.5  # of the first loss: a run that never gets this low has not learnt
_LARGEST_POWER = 700.0  # largest exponent of e with a finite result
_MARGIN = 1.1  # the target over the lowest loss of the worst run, so that one lucky point does not decide
_KNOWN = 20.0  # multiple of the mean above which an interval is uninformative


class Effort(Enum):
    """A strategy's effort to reach the target."""

    SECONDS = "time"
    STEPS = "steps"

    def of(self, run: Trained, point: LossPoint) -> float:
        """Return the seconds of a run up to a point, or the mean steps per rank."""
        return point.seconds if self is Effort.SECONDS else point.batches / run.case.ranks


def geometric_mean(values: Iterable[float], error: float = ERROR) -> Estimate:
    """Return the geometric mean of positive values, with its interval of confidence 1 - *error* for several values."""
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return Estimate(math.exp(mean))
    off = student(1 - error / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Estimate(*(math.exp(min(power, _LARGEST_POWER)) for power in (mean, mean - off, mean + off)))


@dataclass(frozen=True)
class StrategyRuns:
    """The correct runs of a strategy by seed, and where each reached the target."""

    name: str
    runs: Mapping[int, Trained]
    target: float

    @cached_property
    def goals(self) -> dict[int, LossPoint]:
        """Return the point that reached the target, by seed, for the runs that did."""
        reached = {seed: run.reached(self.target) for seed, run in self.runs.items()}
        return {seed: point for seed, point in reached.items() if point and point.batches > 0 and point.seconds > 0}

    @property
    def arrived(self) -> bool:
        """Return whether the target was reached with every seed."""
        return len(self.goals) == len(self.runs)

    def mean(self, effort: Effort) -> Estimate:
        """Return the mean over seeds of the seconds or steps to the target."""
        return geometric_mean(effort.of(self.runs[seed], goal) for seed, goal in self.goals.items())

    @property
    def rate(self) -> Estimate:
        """Return the samples per second."""
        return geometric_mean(run.rate for run in self.runs.values())

    def ratio(self, other: "StrategyRuns", effort: Effort, error: float = ERROR) -> Estimate | None:
        """Return its effort over that of *other*, on the seeds that both have; None without a common seed."""
        ratios = []
        for seed, goal in self.goals.items():
            if seed in other.goals:
                ratios.append(effort.of(self.runs[seed], goal) / effort.of(other.runs[seed], other.goals[seed]))
        return geometric_mean(ratios, error) if ratios else None


@dataclass(frozen=True)
class StrategyRanking:
    """All strategies of a run, and the target loss of their comparison."""

    target: float
    entries: tuple[StrategyRuns, ...]

    @property
    def short(self) -> list[StrategyRuns]:
        """Return the strategies that do not reach the target with every seed."""
        return [entry for entry in self.entries if not entry.arrived]

    def ranked(self, effort: Effort) -> list[StrategyRuns]:
        """Return the strategies that reach the target with every seed, the fastest first."""
        arrived = [entry for entry in self.entries if entry.arrived]
        return sorted(arrived, key=lambda entry: entry.mean(effort).value)

    def after(self, first: StrategyRuns, effort: Effort) -> dict[str, Estimate]:
        """Return the effort of every other strategy over that of *first*, with joint 95 % intervals (Bonferroni)."""
        others = [other for other in self.ranked(effort) if other is not first]
        ratios = {other.name: other.ratio(first, effort, ERROR / len(others)) for other in others}
        return {name: ratio for name, ratio in ratios.items() if ratio}


def ranking(results: Sequence[Result]) -> StrategyRanking | None:
    """Rank strategies by the given target, or by the lowest loss that all learners reach; None if none learns."""
    runs: dict[str, dict[int, Trained]] = {}
    chosen = 0.0
    for result in results:
        if isinstance(result, Trained) and result.right and not result.disturbed and _usable(result):
            job = job_of(result.case)
            runs.setdefault(result.implementation, {})[job.seed] = result
            chosen = chosen or job.target
    if not chosen:
        # Only strategies that learn with every seed count for the target.
        least: list[float] = []
        for by_seed in runs.values():
            if all(run.least <= _LEARNT * run.points[0].loss for run in by_seed.values()):
                least += [run.least for run in by_seed.values()]
        if not least:
            return None
        chosen = round_up(_MARGIN * max(least))
    # Run files of other releases may have other strategies: they come last.
    names = list(dict.fromkeys([*(name for name in strategies() if name in runs), *runs]))
    return StrategyRanking(chosen, tuple(StrategyRuns(name, runs[name], chosen) for name in names))


def _usable(run: Trained) -> bool:
    """Return whether a run can be compared: a run file may contain a loss of 0, or no batches."""
    return bool(run.case.work) and run.rate > 0 and run.least > 0 and run.points[0].batches < run.points[-1].batches


def round_up(value: float) -> float:
    """Return the value rounded up to two digits."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.6g}")


def ranked_rows(outcome: StrategyRanking) -> list[StrategyRuns]:
    """Return the strategies ordered by time to the target; strategies that miss it come last."""
    return [*outcome.ranked(Effort.SECONDS), *outcome.short]


def ranking_columns(outcome: StrategyRanking) -> tuple[Column[StrategyRuns], ...]:
    """Return the columns of a ranking; intervals are text."""

    def mean(effort: Effort, form: Callable[[float], str]) -> Callable[[StrategyRuns], str | None]:
        return lambda row: _text(row.mean(effort), form) if row.arrived else None

    def over_first(effort: Effort) -> Callable[[StrategyRuns], str | None]:
        after = outcome.after(ranked_rows(outcome)[0], effort)
        return lambda row: _times(after[row.name]) if row.name in after else None

    seconds = mean(Effort.SECONDS, format_seconds)
    return (
        Column("", lambda row: row.name, key="strategy"),
        Column(f"seconds to loss {outcome.target:g}", lambda row: seconds(row) or "not reached", form=">"),
        Column("steps", mean(Effort.STEPS, "{:.0f}".format), importance=2, form=">"),
        Column("samples/s", lambda row: _text(row.rate, "{:,.0f}".format), importance=1, form=">"),
        Column("time over the first's", over_first(Effort.SECONDS)),
        Column("steps over the first's", over_first(Effort.STEPS), importance=3),
    )


def verdict(outcome: StrategyRanking | None) -> list[str]:
    """Return lines: the first strategy in seconds and in steps, and the strategies that miss the target."""
    if not outcome:
        return []
    lines = []
    if len(outcome.entries) - len(outcome.short) > 1:
        lines += [f"in time: {_first(outcome, Effort.SECONDS)}", f"in steps: {_first(outcome, Effort.STEPS)}"]
    for entry in outcome.short:
        far = len(entry.runs) - len(entry.goals)
        lines.append(f"{entry.name} does not reach loss {outcome.target:g} with {far} of {len(entry.runs)} seeds")
    return lines


def _first(outcome: StrategyRanking, effort: Effort) -> str:
    first = outcome.ranked(effort)[0]
    after = outcome.after(first, effort)
    later = [name for name, ratio in after.items() if ratio.surely_above(1)]
    # A strategy may be as fast if its interval includes 1.
    unsure = [name for name in after if name not in later]
    if unsure:
        words = (
            f"inconclusive: to loss {outcome.target:g}, {first.name} has the lowest mean, "
            f"{format_list(unsure)} may be as fast ({unsure[0]}: {_times(after[unsure[0]])})"
        )
        surely = [f"{name}, {_times(after[name])} the {effort.value}" for name in later]
        return f"{words}; surely later: {'; '.join(surely)}" if surely else words
    rest = f"; {later[0]}, the next, needs {_times(after[later[0]])} the {effort.value}" if later else ""
    return f"{first.name} reaches loss {outcome.target:g} first{rest}"


def _text(mean: Estimate, form: Callable[[float], str], unit: str = "", alone: str = "") -> str:
    """Return a mean with its interval if that is informative, or with *alone* for a single seed."""
    if not mean.known:
        return f"{form(mean.value)}{unit}{alone}"
    return f"{form(mean.value)}{unit} (very uncertain)" if mean.high > _KNOWN * mean.value else mean.text(form, unit)


def _times(ratio: Estimate) -> str:
    """Return a ratio with its interval: `1.90x (1.60 .. 2.30)`."""
    return _text(ratio, "{:.2f}".format, "x", " (one seed: no interval)")
