"""A race of styles in words: who is first in seconds and in steps, how sure that is, and what the others trade."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from collbench.analysis.race import DOUBT, LEVEL, Entry, Estimate, Part, Race
from collbench.units import format_seconds

COLUMNS = ("style", "seconds to the target", "steps", "samples/s", "time over the first's")
"""What the texts of a Standing are."""
_KNOWN = 20.0  # times a mean, from which on the ends of an interval tell nobody anything
SECONDS: Part = Entry.seconds
STEPS: Part = Entry.steps


class Standing(NamedTuple):
    """A style in the race, over all seeds, as texts with intervals."""

    style: str
    seconds: str
    steps: str
    rate: str
    ratio: str


def standings(race: Race) -> Iterator[Standing]:
    """Every style, the first to the target first."""
    behind = race.behind(SECONDS)
    for entry in (*race.ranked(SECONDS), *race.short):
        there = entry.arrived
        yield Standing(
            style=entry.name,
            seconds=_shown(entry.over(entry.seconds), format_seconds) if there else "not reached",
            steps=_shown(entry.over(entry.steps), lambda value: f"{value:.0f}") if there else "",
            rate=_shown(entry.rate, lambda value: f"{value:,.0f}"),
            ratio=times(behind[entry.name]) if entry.name in behind else "",
        )


def _shown(estimate: Estimate, text: Callable[[float], str]) -> str:
    if not math.isfinite(estimate.high):
        return text(estimate.value)
    if estimate.high > _KNOWN * estimate.value:
        return f"{text(estimate.value)} (hardly known)"
    return f"{text(estimate.value)} ({text(estimate.low)} .. {text(estimate.high)})"


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
    later = next((entry.name for entry in others if entry.name in behind and entry.name not in level), "")
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


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
