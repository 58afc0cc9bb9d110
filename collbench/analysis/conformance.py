"""Which results are right: a table of every implementation and collective by element type."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from collbench.results import Outcome, Result, Skipped

Pair = tuple[str, str]  # implementation, collective

_WORDS = {Outcome.WRONG: "WRONG", Outcome.FAILED: "FAILED", Outcome.OK: "ok", Outcome.SKIPPED: "skip"}
"""Words of a cell, the worst first: the worst outcome of its cases counts."""


@dataclass
class Conformance:
    """Outcomes of results, gathered as they come."""

    outcomes: dict[Pair, dict[str, set[Outcome]]] = field(default_factory=dict)
    reasons: dict[str, set[str]] = field(default_factory=dict)  # why something was skipped, by implementation
    bad: list[Result] = field(default_factory=list)
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))

    def add(self, result: Result) -> None:
        """Add a result."""
        self.counts[result.outcome] += 1
        row = self.outcomes.setdefault((result.implementation, result.case.collective.name), {})
        row.setdefault(result.case.dtype.name, set()).add(result.outcome)
        if isinstance(result, Skipped):
            self.reasons.setdefault(result.implementation, set()).add(result.reason)
        elif result.outcome.bad:
            self.bad.append(result)

    def word(self, row: Pair, dtype: str) -> str:
        """Return `ok`, the worst outcome, `skip`, or `ok/skip` where only some cases were skipped."""
        outcomes = self.outcomes[row].get(dtype, set())
        if outcomes == {Outcome.OK, Outcome.SKIPPED}:
            return "ok/skip"
        return next((word for outcome, word in _WORDS.items() if outcome in outcomes), "missing")


def table(conformance: Conformance, dtypes: Iterable[str]) -> list[str]:
    """Return a line for each implementation and collective, with a column for each element type."""
    names = list(dtypes)
    lines = [f"{'':<16} {'':<13} " + " ".join(f"{name:<8}" for name in names)]
    for row in conformance.outcomes:
        words = " ".join(f"{conformance.word(row, name):<8}" for name in names)
        lines.append(f"{row[0]:<16} {row[1]:<13} {words}")
    return [line.rstrip() for line in lines]
