"""The numbers of runs, by what a text calls them: `{ring-host / ring-flags at 8 B}`.

A title is one of

    A / B at SIZE           how many times as long A took
    A at SIZE               the time of A
    busbw of A at SIZE      in GB/s
    PART of A at SIZE       share of an explanation: launch, waited, moved, added, published
    best at SIZE            the fastest hand-written implementation
    best time at SIZE       the time of that

where A may be `library`: the library of the runs, whatever its name.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from collbench.algorithms import find, libraries
from collbench.results import PARTS, Explanation, Result, family
from collbench.results.base import Timed
from collbench.units import format_rate, format_seconds, parse_size

ABSENT = "not measured here"
"""What stands in a text for a number that the runs have not."""
NUMBER = re.compile(r"[\d.]+")
_TITLE = re.compile(r"\{([^{}]+)\}")
LIBRARY = "library"
BEST = ("best", "best time")


@dataclass(frozen=True)
class Numbers:
    """The all-reduces of runs, by implementation and bytes: with a time, and explained."""

    timed: Mapping[tuple[str, int], Timed]
    explained: Mapping[tuple[str, int], Explanation]

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Return what right, or predicted, all-reduces say; the last of several counts."""
        timed: dict[tuple[str, int], Timed] = {}
        explained: dict[tuple[str, int], Explanation] = {}
        for result in results:
            if result.case.collective.name != "allreduce" or result.case.step or result.case.job:
                continue
            key = result.implementation, result.case.nbytes
            if isinstance(result, Explanation):
                explained[key] = result
            elif isinstance(result, Timed) and (result.right or result.predicted):
                timed[key] = result
        return cls(timed, explained)

    @property
    def library(self) -> str:
        """The name of the library that kernels are compared with; empty if there is none."""
        names = dict.fromkeys(name for name, _ in (*self.timed, *self.explained))
        return next((name for known in libraries() for name in names if family(name) == known), "")

    def curves(self) -> dict[str, dict[int, float]]:
        """Return seconds by implementation and size."""
        found: dict[str, dict[int, float]] = {}
        for (name, nbytes), row in sorted(self.timed.items(), key=lambda item: item[0][1]):
            found.setdefault(name, {})[nbytes] = row.typical
        return found

    def seconds(self, name: str, nbytes: int) -> float:
        """Return the time of an operation: as it was measured, else as it took when it was explained; or KeyError."""
        name = self.library if name == LIBRARY else name
        row = self.timed.get((name, nbytes))
        return row.typical if row else self.explained[name, nbytes].seconds

    def best(self, nbytes: int) -> str:
        """Return the fastest hand-written implementation whose results are exact; KeyError if there is none."""
        times = {name: row.typical for (name, size), row in self.timed.items() if size == nbytes and hand_written(name)}
        if not times:
            raise KeyError(nbytes)
        return min(times, key=lambda name: times[name])

    def figure(self, title: str) -> float:
        """Return the number of a title: a ratio, a share or seconds; KeyError if the runs have no such thing."""
        words, _, size = title.rpartition(" at ")
        nbytes = parse_size(size)
        if " / " in words:
            above, below = (self.seconds(name, nbytes) for name in words.split(" / "))
            return above / below
        what, _, name = words.rpartition(" of ")
        if what in PARTS:
            return self.explained[name, nbytes].share(what)
        if what == "busbw":
            return self.timed[name, nbytes].busbw
        if what:
            raise KeyError(title)
        return self.seconds(self.best(nbytes) if words in BEST else name, nbytes)

    def value(self, title: str) -> str:
        """Return what a title says, with its unit; KeyError if the runs have no such thing."""
        words, _, size = title.rpartition(" at ")
        if words == BEST[0]:
            return self.best(parse_size(size))
        number, what = self.figure(title), words.partition(" of ")[0]
        if " / " in words:
            return ratio(number)
        if " of " in words:
            return f"{format_rate(number)} GB/s" if what == "busbw" else f"{number:.0%}"
        return format_seconds(number)


def hand_written(name: str) -> bool:
    """Return whether it is a rung: no library, not the choice among rungs, and with exact results."""
    found = find(name)
    return bool(found and not found.library and not found.wire and not found.uses())


def ratio(number: float) -> str:
    """Two digits that count."""
    return f"{number:.2f}x" if number < 1 else f"{number:.1f}x" if number < 10 else f"{number:.0f}x"


def nearest(number: float, choices: Sequence[float]) -> int:
    """Return the index of the choice that is nearest as a factor, or, of shares, by difference."""
    if max(choices) <= 1:
        return min(range(len(choices)), key=lambda index: abs(choices[index] - number))
    return min(range(len(choices)), key=lambda index: abs(math.log(choices[index] / number)))


def filled(text: str, value: Callable[[str], str]) -> str:
    """Return a text with each title in braces replaced by what it says; ABSENT where *value* raises KeyError."""

    def number(match: re.Match[str]) -> str:
        try:
            return value(match[1])
        except KeyError:
            return ABSENT

    return _TITLE.sub(number, text)


def titles(text: str) -> list[str]:
    """Return the titles that stand in braces in a text."""
    return _TITLE.findall(text)
