"""Rows of two runs to compare: selection by `--only`, and unmatched rows."""

import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from collbench.analysis.judgement import Judgement, Word
from collbench.cases import Case
from collbench.collectives import COLLECTIVES, find_collective
from collbench.errors import UsageError
from collbench.properties import PROPERTIES
from collbench.results import Explanation, Measurement, Observed, Outcome, Prediction, Result, by_key, family
from collbench.runfile.store import Run
from collbench.units import format_size, parse_size, printable

Key = tuple[Case, str]
Selected = Callable[[Case, str], bool] | None

RIGHT, MISSING = "right", "missing"
WRONG, SKIPPED, FAILED = Outcome.WRONG.value, Outcome.SKIPPED.value, Outcome.FAILED.value
DISTURBED = Outcome.DISTURBED.value
CUT_OFF, LEFT_OUT = "missing (the run was cut off)", "missing (lines of it could not be read)"


@dataclass(frozen=True)
class Selection:
    """The rows that `--only` selects; an empty field selects everything."""

    collectives: frozenset[str] = frozenset()
    implementations: frozenset[str] = frozenset()
    sizes: tuple[tuple[int, float], ...] = ()  # first and last, both included
    properties: frozenset[tuple[str, Any]] = frozenset()  # names and values

    def __call__(self, case: Case, implementation: str) -> bool:
        """Return whether a row is selected."""
        return (
            (not self.collectives or case.collective.name in self.collectives)
            and (not self.implementations or implementation in self.implementations)
            and (not self.sizes or any(first <= case.nbytes <= last for first, last in self.sizes))
            and all((name, getattr(case, name)) in self.properties for name in dict(self.properties))
        )


def selection(text: str, implementations: Collection[str]) -> Selection:
    """Parse `--only allreduce,ring-flags,1M..`; UsageError for an unknown word.

    A word is a collective, an implementation, a property or a size (`4K`, `1K..1M`, `1M..`, `..64K`).  Words of one
    kind are alternatives; all kinds must hold.
    """
    collectives, names, sizes, properties = set(), set(), [], set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        matching = {name for name in implementations if word in (name, family(name))}
        if matching:
            names |= {word} & matching or matching
            continue
        values = {name: each.value(word) for name, each in PROPERTIES.items()}
        if pairs := [(name, value) for name, value in values.items() if value is not None]:
            properties.update(pairs)
            continue
        try:
            collectives.add(find_collective(word).name)
        except UsageError:
            sizes.append(_sizes(word, implementations))
    return Selection(frozenset(collectives), frozenset(names), tuple(sizes), frozenset(properties))


def _sizes(word: str, implementations: Collection[str]) -> tuple[int, float]:
    first, dots, last = word.partition("..")
    try:
        low = parse_size(first) if first else 0
        high: float = parse_size(last) if last else low
    except UsageError:
        properties = (each.word(each.other) for each in PROPERTIES.values())
        choices = ", ".join((*COLLECTIVES, *properties, *implementations))
        raise UsageError(
            f"--only: unknown word {word!r}; choose from: {choices}, or a size like 4K, 1K..1M, 1M.. or ..64K"
        ) from None
    if dots and not last:
        high = float("inf")
    if low > high:
        raise UsageError(f"--only {word} has no sizes; write the smaller size first")
    return low, high


@dataclass(frozen=True)
class Unmatched:
    """A case of an implementation that cannot be compared, with its state in both runs."""

    case: Case
    implementation: str
    base: str
    new: str
    reason: str = ""  # of the later run, if it gives one

    @property
    def regression(self) -> bool:
        """Whether it is wrong in NEW, or was right and failed; for comparisons of bits, only if it became wrong."""
        as_before = self.base == WRONG and self.case.work
        return (self.new == WRONG and not as_before) or (self.base == RIGHT and self.new == FAILED)

    @property
    def hides(self) -> bool:
        """Whether it was right in BASE and its state in NEW is unknown."""
        return self.base == RIGHT and self.new in (SKIPPED, CUT_OFF, LEFT_OUT, DISTURBED)

    @property
    def judgement(self) -> Judgement:
        """The judgement: WRONG for a regression, else UNKNOWN."""
        what = named(self.case, format_size(self.case.nbytes), self.implementation)
        states = f"{self.base} in BASE, {self.new} in NEW" + (f": {self.reason}" if self.reason else "")
        return Judgement(what, "", Word.WRONG if self.regression else Word.UNKNOWN, printable(states))


def named(case: Case, size: str, implementation: str) -> str:
    """Return the name of a judged row."""
    return f"{case.title}, {size}, {printable(implementation)}"


def latest(run: Run, selected: Selected) -> dict[Key, Result]:
    """Return the latest result of each case and implementation, without predictions and explanations."""
    results: dict[Key, Result] = {}
    for result in run.cases:
        measured = not isinstance(result, Prediction | Explanation)
        if measured and (not selected or selected(result.case, result.implementation)):
            results[result.case, result.implementation] = result
    return results


def unmatched(base: Run, new: Run, selected: Selected = None) -> Iterator[Unmatched]:
    """Yield the rows that cannot be compared, in the order of BASE, then of NEW, without rows skipped in both."""
    before, after = latest(base, selected), latest(new, selected)
    for key in dict.fromkeys((*before, *after)):
        states = _state(before.get(key), base), _state(after.get(key), new)
        if states != (RIGHT, RIGHT) and not set(states) <= {SKIPPED, MISSING, CUT_OFF, LEFT_OUT}:
            later = after.get(key)
            reason = later.reason if later else ""
            if isinstance(later, Measurement):
                reason = later.wrong or str(later.scheduling or "")
            yield Unmatched(*key, *states, reason)


def no_common_size(base: Run, new: Run) -> str:
    """Return `no size in common, nearest 8 KiB and 16 KiB` for runs that differ only in sizes; else empty."""
    before, after = (by_key(latest(run, None).values(), lambda result: result.curve) for run in (base, new))
    sizes = []
    for curve in before.keys() & after.keys():
        base_sizes = sorted({row.case.nbytes for row in before[curve]} - {0})
        new_sizes = sorted({row.case.nbytes for row in after[curve]} - {0})
        for size in base_sizes:
            place = bisect(new_sizes, size)
            sizes += [(size, other) for other in new_sizes[max(0, place - 1) : place + 1]]
    if not sizes or any(first == second for first, second in sizes):
        return ""
    nearest = min(sizes, key=lambda pair: (abs(math.log(pair[0] / pair[1])), pair))
    return f"no size in common, nearest {' and '.join(map(format_size, nearest))}"


def _state(result: Result | None, run: Run) -> str:
    if result is None:
        if not run.whole or not run.header.imported.complete:
            return CUT_OFF
        return LEFT_OUT if run.unread else MISSING
    if result.outcome is not Outcome.OK:
        return str(result.outcome.value)
    return RIGHT if is_right(result) or result.digest else "not timed"


def is_right(result: Result | None) -> TypeGuard[Observed]:
    """Return whether a result has a time to compare: correct, undisturbed and with a message size above 0."""
    if not isinstance(result, Observed) or result.outcome is not Outcome.OK:
        return False
    return result.case.nbytes > 0 and min(result.times, default=0) > 0
