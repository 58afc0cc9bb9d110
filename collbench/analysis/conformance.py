"""Which results are right: a table of every implementation and collective by element type."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from collbench.measurement import Failed, Measurement, Result, Skipped

Pair = tuple[str, str]  # implementation, collective

_ORDER = ("WRONG", "FAILED", "ok", "skip")  # what one word says of many cases: the worst of them


@dataclass
class Conformance:
    """Outcomes, gathered one by one."""

    outcomes: dict[Pair, dict[str, set[str]]] = field(default_factory=dict)
    reasons: dict[str, set[str]] = field(default_factory=dict)  # why something was skipped, by implementation
    bad: list[Result] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ORDER, 0))

    def add(self, result: Result) -> None:
        """Take one result in."""
        word = outcome(result)
        self.counts[word] += 1
        row = self.outcomes.setdefault((result.implementation, result.case.collective.name), {})
        row.setdefault(result.case.dtype.name, set()).add(word)
        if isinstance(result, Skipped):
            self.reasons.setdefault(result.implementation, set()).add(result.reason)
        elif word != "ok":
            self.bad.append(result)

    def word(self, row: Pair, dtype: str) -> str:
        """`ok`, the worst that happened, `skip`, or `ok/skip` where only some cases were skipped."""
        words = self.outcomes[row].get(dtype, set())
        if words == {"ok", "skip"}:
            return "ok/skip"
        return next((word for word in _ORDER if word in words), "missing")


def outcome(result: Result) -> str:
    """One result in a word."""
    if isinstance(result, Failed):
        return "FAILED"
    if isinstance(result, Measurement):
        return "WRONG" if result.mismatch else "ok"
    return "skip"


def table(conformance: Conformance, dtypes: Iterable[str]) -> list[str]:
    """A line for each implementation and collective, a column for each element type."""
    names = list(dtypes)
    lines = [f"{'':<16} {'':<13} " + " ".join(f"{name:<8}" for name in names)]
    for row in conformance.outcomes:
        words = " ".join(f"{conformance.word(row, name):<8}" for name in names)
        lines.append(f"{row[0]:<16} {row[1]:<13} {words}")
    return [line.rstrip() for line in lines]
