"""Which results are right: a matrix of implementations by collectives, and what is wrong in detail."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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
    for block in _blocks(dict.fromkeys(collective for _, collective in conformance.outcomes), 80 - first):
        yield _line("", block, block, first)
        for name in names:
            cells = [conformance.cell((name, collective)) for collective in block]
            if set(cells) != {ABSENT}:
                yield _line(name, cells, block, first)
        yield ""


def _line(name: str, cells: Iterable[str], heads: Iterable[str], first: int) -> str:
    columns = (f"  {cell:<{_columns(head)}}" for cell, head in zip(cells, heads, strict=True))
    return f"{name:<{first}}{''.join(columns)}".rstrip()


def _columns(head: str) -> int:
    return max(len(head), *map(len, _WORDS.values()))


def _blocks(heads: Iterable[str], width: int) -> Iterator[list[str]]:
    """Yield the heads in groups whose columns take at most so many characters, each with two blanks before."""
    block: list[str] = []
    for head in heads:
        if block and sum(2 + _columns(each) for each in (*block, head)) > width:
            yield block
            block = []
        block.append(head)
    if block:
        yield block
