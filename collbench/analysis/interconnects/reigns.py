"""Who is fastest at which sizes, and between which that changes, as far as intervals and bands tell it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from collbench.analysis.advantage import Advantage
from collbench.analysis.crossover import format_span
from collbench.results import Timed
from collbench.units import format_size


class Lead(NamedTuple):
    """Who is fastest at a size."""

    names: tuple[str, ...]  # the fastest, then those that are not told apart from it
    surely: bool  # whether its interval leaves all others behind; else it is likely so

    def __str__(self) -> str:
        """`dgx-h100`, `likely dgx-h100`, `dgx-h100 or hgx-h200 (not told apart)`."""
        tied = " (not told apart)" if len(self.names) > 1 else ""
        return f"{'' if self.surely else 'likely '}{' or '.join(self.names)}{tied}"


def lead(named: Sequence[tuple[Timed, str]]) -> Lead:
    """Of two rows or more of one size, each with its name."""
    rows = sorted(named, key=lambda pair: pair[0].typical)
    (best, name), *others = rows
    over = {other: Advantage.of(best, row) for row, other in others}
    tied = [other for other, advantage in over.items() if not advantage.sign]
    return Lead((name, *tied), all(over[other].apart for other in over if other not in tied))


class Reign(NamedTuple):
    """Neighbouring sizes at which the same are fastest, and as surely."""

    first: int
    last: int
    lead: Lead

    def __str__(self) -> str:
        """`likely dgx-h100 8 B to 2 KiB`."""
        return f"{self.lead} {format_span(self.first, self.last)}"


class Change(NamedTuple):
    """Sizes between which the fastest becomes another: at both it is told who that is, between them not."""

    after: int
    before: int
    old: str
    new: str
    surely: bool

    def __str__(self) -> str:
        """`between 1 KiB and 4 KiB it changes from one to other`."""
        likely = "" if self.surely else "likely "
        where = f"between {format_size(self.after)} and {format_size(self.before)}"
        return f"{where} the {likely}fastest changes from {self.old} to {self.new}"


def reigns(leads: Iterable[tuple[int, Lead]]) -> tuple[Reign, ...]:
    """Of leads by size: neighbouring sizes with the same lead as one."""
    found: list[Reign] = []
    for nbytes, here in leads:
        if found and _same(found[-1].lead, here):
            found[-1] = found[-1]._replace(last=nbytes)
        else:
            found.append(Reign(nbytes, nbytes, here))
    return tuple(found)


def _same(one: Lead, other: Lead) -> bool:
    return set(one.names) == set(other.names) and one.surely == other.surely


def changes(found: Iterable[Reign]) -> tuple[Change, ...]:
    """Where the fastest becomes another; sizes at which several are not told apart lie between."""
    single = [reign for reign in found if len(reign.lead.names) == 1]
    return tuple(
        Change(one.last, other.first, one.lead.names[0], other.lead.names[0], one.lead.surely and other.lead.surely)
        for one, other in pairwise(single)
        if one.lead.names != other.lead.names
    )
