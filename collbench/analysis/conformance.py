"""Which results are right: a matrix of implementations by collectives, and what is wrong in detail."""

from collections import Counter
from collections.abc import Iterator, Sequence

from collbench.results import Outcome, Result, Skipped

Pair = tuple[str, str]  # implementation, collective

ABSENT = "-"
_WORDS = {Outcome.WRONG: "WRONG", Outcome.FAILED: "FAILED", Outcome.OK: "ok"}
"""Words of a cell, the worst first: the worst outcome of its cases counts."""
_SHOWN = 3  # failures of a pair, of which there may be thousands


class Conformance:
    """Outcomes of results."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.outcomes: dict[Pair, set[Outcome]] = {}
        self.reasons: dict[Pair, str] = {}  # the first for which a case was skipped
        self.bad: dict[Pair, list[Result]] = {}
        self.counts = Counter(result.outcome for result in results)
        for result in results:
            pair = result.implementation, result.case.collective.name
            self.outcomes.setdefault(pair, set()).add(result.outcome)
            if isinstance(result, Skipped):
                self.reasons.setdefault(pair, result.reason)
            elif result.outcome.bad:
                self.bad.setdefault(pair, []).append(result)

    def cell(self, pair: Pair) -> str:
        """Return `ok` or the worst outcome; `-` where nothing was checked."""
        outcomes = self.outcomes.get(pair, set())
        return next((word for outcome, word in _WORDS.items() if outcome in outcomes), ABSENT)

    def failures(self) -> Iterator[tuple[list[Result], int]]:
        """Yield the first failures of each implementation and collective, and how many more there are."""
        for results in self.bad.values():
            yield results[:_SHOWN], len(results[_SHOWN:])


def matrix(conformance: Conformance) -> Iterator[str]:
    """Yield a row for each implementation and a column for each collective, in blocks of columns of 80 characters.

    A block leaves out implementations that have nothing in it.
    """
    names = list(dict.fromkeys(name for name, _ in conformance.outcomes))
    first = max(map(len, names), default=0)
    blocks: list[dict[str, int]] = []  # the columns of each, with their widths
    for head in dict.fromkeys(collective for _, collective in conformance.outcomes):
        width = max(len(head), *map(len, _WORDS.values()))
        if not blocks or first + sum(2 + each for each in (*blocks[-1].values(), width)) > 80:
            blocks.append({})
        blocks[-1][head] = width
    for block in blocks:
        rows = [("", list(block))]
        rows += [(name, [conformance.cell((name, collective)) for collective in block]) for name in names]
        for name, cells in rows:
            if set(cells) != {ABSENT}:
                columns = (f"  {cell:<{width}}" for cell, width in zip(cells, block.values(), strict=True))
                yield f"{name:<{first}}{''.join(columns)}".rstrip()
        yield ""
