"""A scan as its first process sees it: which groups to measure next, until another round would change nothing.

Of few members every pair comes once in a cycle (the circle method: E. Lucas, 1883), so that links are seen too.  Many
are dealt anew each round, suspects apart; in every second round half of the units of a level stay among themselves,
which tells a leaf's nodes from its uplinks.  In some rounds only the first of each pair sends.  A link that looks slow
is measured again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collbench.commands.scan.effects import EVERY_LINK, Fit, Floats, Integers
from collbench.commands.scan.every_pair import matchings
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, Evidence, ScanVerdict

_CYCLE, _ONE_WAY = 3, 5  # every so manieth cycle or round is one way
_SPELL = 6  # rounds after which what disturbed a link for a while is over
_LINKS = 8  # of so many groups at most one is a link that looks slow
_ENOUGH = 12  # groups of a slow member after which it is left out, in as many rounds before the least


class RoundPlan(NamedTuple):
    """A round: disjoint groups, shape (groups, members); one way, only the first of each pair sends."""

    groups: Integers
    one_way: bool = False
    nbytes: int = 0


class Scanner:
    """The first process's knowledge of a scan: its members, its rounds, and the groups to measure next."""

    def __init__(self, members: Members, work: Scan, rounds: Sequence[Round] = ()) -> None:
        self._work, self._sizes, self.count = work, work.sizes or (members.case.nbytes,), 0
        self._members, self._evidence = len(members.names), Evidence(members, work.slower, self._sizes)
        for each in rounds:
            self.add(each)
        self.verdict: ScanVerdict = self._evidence.verdict()
        """What is known so far."""

    def add(self, measured: Round) -> None:
        """Take a round."""
        self.count += 1
        self._evidence.add(measured)

    def next(self) -> RoundPlan | None:
        """Return the next round; None once another would change nothing, or after MOST_ROUNDS."""
        self.verdict = self._evidence.verdict()
        if self.verdict.sure or self.count >= MOST_ROUNDS:
            return None
        size, group = self._sizes[self.count % len(self._sizes)], self._work.group
        out = {*self._work.lost}
        if self.count > LEAST_ROUNDS - _ENOUGH:  # who is slow in all its groups would only slow others
            lasting = [
                each.effect for each in self.verdict.faulty if each.effect.often == 1 and not each.effect.fault.way
            ]
            known = [each for each in lasting if each.groups >= _ENOUGH and each.fault.kind != "link"]
            slow = {member for effect in known for member in effect.members}
            out |= slow if 2 * len(slow) < self._members - group else set()
        if self._members - len(out) < group:
            return None
        return choose(self._evidence.fits[size], group, bool(self.verdict.findings), sorted(out))._replace(nbytes=size)


def choose(fit: Fit, size: int, suspected: bool, out: Sequence[int]) -> RoundPlan:
    """Return the next round of groups of that many, without the members `out`; `suspected` says that somebody is."""
    number = fit.times.rounds
    levels = [level for level in fit.times.levels if level.kind != "rail"]
    random = np.random.default_rng([number, fit.times.count])
    there = np.setdiff1d(np.arange(fit.times.count), out)
    one_way = size == 2 and suspected and number % 2 == 1
    cycle = list(matchings(len(there))) if size == 2 and len(there) <= EVERY_LINK else []
    if cycle and (number < len(cycle) or number % 2 == 0 or not fit.pending):
        groups = there[np.array(cycle[number % len(cycle)])]
        one_way |= number // len(cycle) % _CYCLE == _CYCLE - 1
        return RoundPlan(_turned(groups, random) if one_way else groups, one_way)
    one_way |= size == 2 and number % _ONE_WAY == _ONE_WAY - 1
    links: list[tuple[int, int]] = []
    for link in sorted(fit.pending, key=lambda link: -fit.pending[link]) if size == 2 else ():
        last = fit.round[(np.isin(fit.groups, link)).all(axis=1)].max()
        if fit.round.max() - last >= _SPELL and not {*out, *np.ravel(links)} & {*link}:
            links.append(link)
        if len(links) >= max(1, len(there) // _LINKS):
            break
    taken = np.array(links, np.int64).reshape(-1, 2)
    parts, rest = [taken] if links else [], np.setdiff1d(there, taken)
    if levels and number % 2:  # in the same round as others across, or a drift would tell the two apart
        units = levels[-1].units[rest]
        turn = (np.searchsorted(np.unique(units), units) + number // 2) % (len(levels) + 1)
        for stays, level in enumerate(levels):
            inside = rest[turn == stays]
            parts += [
                _dealt(inside[level.units[inside] == unit], fit.middle, size, random)
                for unit in np.unique(level.units[inside])
            ]
        rest = rest[turn == len(levels)]
    groups = np.concatenate([*parts, _dealt(rest, fit.middle, size, random)])
    return RoundPlan(_turned(groups, random) if one_way else groups, one_way)


def _dealt(members: Integers, suspicion: Floats, size: int, random: np.random.Generator) -> Integers:
    """Return groups of members, of whom the most suspect are apart, and the last may be left over."""
    mass = np.nan_to_num(suspicion[members], nan=0.0)
    order = members[np.lexsort((random.random(len(members)), -np.maximum(mass, mass.mean() if len(mass) else 0)))]
    count = len(order) // size
    first, others = order[:count], random.permutation(order[count:])[: count * (size - 1)]
    return np.column_stack([first, others.reshape(count, size - 1)])


def _turned(groups: Integers, random: np.random.Generator) -> Integers:
    """Return the groups with either end first."""
    return np.where(random.random(len(groups))[:, None] < 0.5, groups[:, ::-1], groups)
