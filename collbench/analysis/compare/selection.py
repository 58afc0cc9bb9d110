"""`--only allreduce,ring-flags,1M..`: which rows are wanted.

A word is a collective, an implementation or a size (`4K`, `1K..1M`, `1M..`, `..64K`).  Words of one kind are
alternatives; kinds must all hold.
"""

from collections.abc import Collection
from dataclasses import dataclass

from collbench.cases import Case
from collbench.collectives import COLLECTIVES, find_collective
from collbench.errors import UsageError
from collbench.units import parse_size


@dataclass(frozen=True)
class Selection:
    """What is wanted; a kind of which nothing is named lets everything through."""

    collectives: frozenset[str] = frozenset()
    implementations: frozenset[str] = frozenset()
    sizes: tuple[tuple[int, float], ...] = ()  # first and last, both included

    def __call__(self, case: Case, implementation: str) -> bool:
        """Whether a row is wanted."""
        return (
            (not self.collectives or case.collective.name in self.collectives)
            and (not self.implementations or implementation in self.implementations)
            and (not self.sizes or any(first <= case.nbytes <= last for first, last in self.sizes))
        )


def selection(text: str, implementations: Collection[str]) -> Selection:
    """From the words of `--only`; UsageError for a word that is none of a collective, an implementation or a size."""
    collectives, names, sizes = set(), set(), []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word in implementations:
            names.add(word)
        elif collective := _collective(word):
            collectives.add(collective)
        else:
            sizes.append(_size(word, implementations))
    return Selection(frozenset(collectives), frozenset(names), tuple(sizes))


def _collective(word: str) -> str:
    try:
        return find_collective(word).name
    except UsageError:
        return ""


def _size(word: str, implementations: Collection[str]) -> tuple[int, float]:
    first, dots, last = word.partition("..")
    try:
        low = parse_size(first) if first else 0
        high = parse_size(last) if last else float("inf") if dots else low
    except UsageError:
        choices = ", ".join((*COLLECTIVES, *implementations))
        raise UsageError(
            f"--only: unknown word {word!r}; choose from: {choices}, or a size such as 4K, 1K..1M, 1M.. or ..64K"
        ) from None
    if low > high:
        raise UsageError(f"--only {word}: no size lies in it; write the smaller one first")
    return low, high
