"""A scan as its first process sees it: which groups to measure next, until another round would change nothing.

Of few members every pair comes once in a cycle (the circle method: E. Lucas, 1883), so that links are seen too.  Many
are dealt anew each round, suspects apart; in every second round half of each leaf's members stay among themselves: that
tells a leaf's nodes from its uplinks.  In some rounds only the first of each pair sends.  A link that looks slow
is measured again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collbench.commands.scan.effects import EVERY_LINK, Fit, Integers
from collbench.commands.scan.every_pair import matchings
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, Evidence, ScanVerdict

_CYCLE, _ONE_WAY = 3, 3  # every so manieth cycle or round is one way
_SPELL = 6  # rounds after which what disturbed a link for a while is over
_LINKS = 8  # of so many members at most one link that looks slow is measured again
_ENOUGH = 12  # groups of a slow member after which it is left out, in as many rounds before the least


class RoundPlan(NamedTuple):
    """A round: disjoint pairs, shape (pairs, 2); one way, only the first of each sends."""

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
        size, out = self._sizes[self.count % len(self._sizes)], {*self._work.lost}
        if self.count > LEAST_ROUNDS - _ENOUGH:  # who is slow in all its groups would only slow others
            lasting = [
                each.effect for each in self.verdict.faulty if each.effect.often == 1 and not each.effect.fault.way
            ]
            known = [each for each in lasting if each.groups >= _ENOUGH and each.fault.kind != "link"]
            slow = {member for effect in known for member in effect.members}
            out |= slow if 2 * len(slow) < self._members - 2 else set()
        if self._members - len(out) < 2:
            return None
        return choose(self._evidence.fits[size], bool(self.verdict.findings), sorted(out))._replace(nbytes=size)


def choose(fit: Fit, suspected: bool, out: Sequence[int]) -> RoundPlan:
    """Return the next round of pairs, without the members `out`; `suspected` says that somebody is."""
    number, count = fit.times.rounds, fit.times.count
    random, there = np.random.default_rng([number, count]), np.setdiff1d(np.arange(count), out)
    one_way = suspected and number % 2 == 1
    cycle = list(matchings(len(there))) if len(there) <= EVERY_LINK else []
    if cycle and (number < len(cycle) or number % 2 == 0 or not fit.pending):
        groups = there[np.array(cycle[number % len(cycle)])]
        one_way |= number // len(cycle) % _CYCLE == _CYCLE - 1
    else:
        groups = _dealt(fit, number, there, out, random)
        one_way |= number % _ONE_WAY == _ONE_WAY - 1
    if one_way:  # the end that has sent less
        sent = np.bincount(fit.groups[fit.one_way, 0], minlength=count) + random.random(count)
        groups = np.where((sent[groups[:, 0]] > sent[groups[:, 1]])[:, None], groups[:, ::-1], groups)
    return RoundPlan(groups, one_way)


def _dealt(fit: Fit, number: int, there: Integers, out: Sequence[int], random: np.random.Generator) -> Integers:
    """Return links that look slow, in every second round pairs inside units of levels, and all others by chance."""
    parts: list[Integers] = []
    codes, back = np.unique(fit.codes()[::-1], return_index=True)
    last, busy = dict(zip(codes.tolist(), fit.round[::-1][back].tolist(), strict=True)), set(out)
    for first, second in sorted(fit.pending, key=lambda link: -fit.pending[link])[: max(1, len(there) // _LINKS)]:
        if fit.round[-1] - last[first * fit.times.count + second] >= _SPELL and not {first, second} & busy:
            parts.append(np.array([[first, second]]))
            busy |= {first, second}
    rest = np.setdiff1d(there, np.ravel(parts))
    levels = [level for level in fit.times.levels if level.kind != "rail"] if number % 2 else []
    for place, level in enumerate(levels):  # half of each, since what leaves a leaf loads it as others are
        for unit in np.unique(level.units[rest]):
            inside = rest[level.units[rest] == unit]
            turned = np.random.default_rng([number // 2 // (len(levels) + 1), unit]).permutation(inside)
            turned = np.roll(turned, number // 2 * (len(inside) // (len(levels) + 1)))
            pairs = min(len(inside) // 2, int(len(inside) / 2 / (len(levels) + 1 - place) + random.random()))
            parts.append(turned[: 2 * pairs].reshape(-1, 2))
        rest = np.setdiff1d(rest, np.concatenate(parts))

    # Suspects are apart.
    mass = np.nan_to_num(fit.middle[rest], nan=1.0)  # of those that are found slow nothing is left
    order = rest[np.lexsort((random.random(len(rest)), -np.maximum(mass, mass.mean() if len(mass) else 0.0)))]
    half = len(order) // 2
    return np.concatenate([*parts, np.column_stack([order[:half], random.permutation(order[half:])[:half]])])
