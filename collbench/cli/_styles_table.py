"""The race of styles as lines: a row for each run, a table over seeds, and the verdict in words."""

import math
from collections.abc import Callable, Iterator

from collbench.analysis.race import DOUBT, LEVEL, Entry, Estimate, Part, Race
from collbench.measurement import Result, Skipped, Untimed
from collbench.trained import Trained
from collbench.units import format_seconds

LEGEND = (
    "time: until the last rank was done; samples/s: of all ranks; steps: the fewest and the most of a rank\n"
    "age: of a gradient, in updates between reading weights and changing them, the mean; loss: on samples held out\n"
    "check: every update is held against NumPy's gradient in float64, within a bound on rounding that is proved"
)
_RUN = "{seed:>5}  {style:<17} {time:>9} {rate:>11} {steps:>11} {age:>5} {loss:>9}  {check}"
_OVERALL = "{style:<17} {seconds:>30} {steps:>24} {rate:>28} {ratio:>22}"
_KNOWN = 20.0  # times a mean, from which on the ends of an interval tell nobody anything
SECONDS: Part = Entry.seconds
STEPS: Part = Entry.steps


def heading() -> str:
    """The names of the columns of runs."""
    names = ("time", "steps", "age", "loss", "check")
    return _RUN.format(seed="seed", style="", rate="samples/s", **{name: name for name in names}).rstrip()


def row(result: Result) -> str:
    """One run."""
    seed = result.case.job.seed if result.case.job else ""
    if not isinstance(result, Trained) or not result.right:
        return f"{seed:>5}  {result.implementation:<17} {_reason(result)}"
    fewest, most = min(result.steps), max(result.steps)
    return _RUN.format(
        seed=seed,
        style=result.implementation,
        time=format_seconds(result.seconds),
        rate=f"{result.rate:,.0f}",
        steps=f"{fewest}" if fewest == most else f"{fewest} .. {most}",
        age=f"{result.age:.1f}",
        loss=f"{result.points[-1].loss:.4g}",
        check=", ".join(filter(None, ["ok", str(result.note)])),
    )


def _reason(result: Result) -> str:
    if isinstance(result, Untimed):
        return f"{'skipped' if isinstance(result, Skipped) else 'FAILED'}: {result.reason}"
    return f"WRONG: {result.wrong}"


def overall(race: Race) -> Iterator[str]:
    """A line for each style, the first to the target first."""
    title = f"seconds to loss {race.target:g}"
    yield _OVERALL.format(
        style="", seconds=title, steps="steps", rate="samples/s", ratio="time over the first's"
    ).rstrip()
    behind = race.behind(SECONDS)
    for entry in (*race.ranked(SECONDS), *race.short):
        there = entry.arrived
        yield _OVERALL.format(
            style=entry.name,
            seconds=_shown(entry.over(entry.seconds), format_seconds) if there else "not reached",
            steps=_shown(entry.over(entry.steps), lambda value: f"{value:.0f}") if there else "",
            rate=_shown(entry.rate, lambda value: f"{value:,.0f}"),
            ratio=times(behind[entry.name]) if entry.name in behind else "",
        ).rstrip()


def verdict(race: Race) -> Iterator[str]:
    """Who is first, in seconds and in steps, and who never gets there; "inconclusive" where nobody can say."""
    if len(race.arrived) > 1:
        yield f"in time: {_first(race, SECONDS, 'time')}"
        yield f"in steps: {_first(race, STEPS, 'steps')}"
        yield from _traded(race)
    for entry in race.short:
        far, of = len(entry.runs) - len(entry.goals), len(entry.runs)
        yield f"{entry.name} does not reach loss {race.target:g} with {far} of {of} seeds"


def _first(race: Race, part: Part, what: str) -> str:
    first, *others = race.ranked(part)
    behind = race.behind(part)
    level = [name for name, ratio in behind.items() if ratio.level]
    open_ = [name for name, ratio in behind.items() if not ratio.above and not ratio.level]
    if open_:
        words = (
            f"inconclusive which is first to loss {race.target:g}: {first.name} has the lowest mean, "
            f"but {_listed(open_)} cannot be told from it ({open_[0]}: {times(behind[open_[0]])})"
        )
        surely = [f"{name}, {times(ratio)} the {what}" for name, ratio in behind.items() if ratio.above]
        return f"{words}; surely behind it: {'; '.join(surely)}" if surely else words
    later = next((entry.name for entry in others if entry.name not in level), "")
    rest = f"; {later}, the next, needs {times(behind[later])} the {what}" if later else ""
    if level:
        return f"{_listed([first.name, *level])} reach loss {race.target:g} first, level within {LEVEL:.0%}{rest}"
    return f"{first.name} reaches loss {race.target:g} first{rest}"


def _traded(race: Race) -> Iterator[str]:
    """What the others win or lose, in time and in steps, against the quickest of those that are level in steps."""
    base, others = race.frugal()
    for other in others:
        doubt = DOUBT / len(others)
        seconds, steps = (race.ratio(other, base, part, doubt) for part in (SECONDS, STEPS))
        if seconds and steps:
            told = f"{_standing(seconds)} in time, {times(seconds)}; {_standing(steps)} in steps, {times(steps)}"
            yield f"{other.name} against {base.name}: {told}"


def _standing(ratio: Estimate) -> str:
    if ratio.level:
        return "level"
    if not ratio.decided:
        return "inconclusive"
    return "behind" if ratio.above else "ahead"


def times(ratio: Estimate) -> str:
    """A ratio with its interval: `1.9x (1.6 .. 2.3)`."""
    if not math.isfinite(ratio.high):
        return f"{ratio.value:.2f}x (one seed: no interval)"
    if ratio.high > _KNOWN * ratio.value:
        return f"{ratio.value:.2f}x (hardly known)"
    return f"{ratio.value:.2f}x ({ratio.low:.2f} .. {ratio.high:.2f})"


def _shown(estimate: Estimate, text: Callable[[float], str]) -> str:
    if not math.isfinite(estimate.high):
        return text(estimate.value)
    if estimate.high > _KNOWN * estimate.value:
        return f"{text(estimate.value)} (hardly known)"
    return f"{text(estimate.value)} ({text(estimate.low)} .. {text(estimate.high)})"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
