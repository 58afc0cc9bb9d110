"""Who is slow now and then: more often than noise makes anybody, by a binomial test of the groups that were slow.

Noise that lasts some rounds makes slow groups come together: numbers of groups then count as fewer, by what blocks of
rounds scatter more than binomial ones (quasi-likelihood: R. Wedderburn, 1974).  A round in which a quarter of all
groups is slow says nothing of anybody.
"""

from collections.abc import Sequence

import numpy as np

from collbench.analysis.sequential import FEWEST, MEDIAN, TO_DEVIATION
from collbench.commands.scan.effects import ACROSS, LIKELY, Booleans, Effect, Fault, Fit, Integers

_HIT = 4.0  # standard deviations above which a group was slow
_HEIGHTS = 1.0, 2.0, 4.0  # of that: little of what disturbs anybody is as slow as a fault
_BLOCK = 8  # rounds
_DISTURBED, _MANY = 0.25, 8  # share of a round's groups, of so many at least
_EVENT = 0.7  # share of what crosses a unit that is slow in a round, where the unit is
_MOST = 8  # faults
_SEEN = 0.99  # of faults in sight that are seen


class Intermittent:
    """What comes and goes in the groups that nothing else explains, of all sizes together."""

    def __init__(self, fits: Sequence[Fit]) -> None:
        self._members = fits[0].times.members
        self._count = len(self._members.names)
        self.least = max(max(fit.limit, _HIT * fit.deviation) for fit in fits)
        """Logarithm above which a group was slow, of the size whose times scatter most."""
        parts, first = [], 0
        for fit in fits:
            height = fit.above / max(fit.limit, _HIT * fit.deviation)
            free, number = fit.slows == 0, first + fit.round
            if again := [ends for ends, seen in fit.pending.items() if seen > 1]:  # it may be the link
                free &= ~np.isin(fit.codes(), np.array(again) @ [self._count, 1])
            groups = np.bincount(number[free], minlength=int(number.max(initial=0)) + 1)
            slow = np.bincount(number[free & (height > 1)], minlength=len(groups))
            free &= ((groups < _MANY) | (slow <= _DISTURBED * groups))[number]
            parts.append((fit.groups[free], fit.above[free], height[free], number[free]))
            first += -(-fit.times.rounds // _BLOCK) * _BLOCK
        self._groups, self._above, self._height, self._round = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.effects: list[Effect] = []
        while len(self.effects) < _MOST and len(self._groups) and (found := self._unit(fits[0]) or self._member()):
            self.effects.append(found)

    def rarest(self, without: Sequence[int]) -> float:
        """Return the smallest share of the rounds in which a member, but those, would have been suspected."""
        from scipy.special import betaincinv

        seen = int(np.delete(np.bincount(self._groups.ravel(), minlength=self._count), without).min(initial=10**6))
        hits = np.arange(1, seen + 1)
        background, clumps = self._noise(self._height > 1, np.zeros(self._count, bool))
        enough = hits[_chance(hits, seen, background, clumps) * self._count * len(_HEIGHTS) < LIKELY]
        return float(betaincinv(enough[0], seen - enough[0] + 1, _SEEN)) if len(enough) else 1.0

    def _member(self) -> Effect | None:
        """Take the member whose groups are slow most surprisingly often."""
        seen = np.bincount(self._groups.ravel(), minlength=self._count)
        best, least = -1, LIKELY
        for height in _HEIGHTS:
            hit = self._height > height
            slow = np.bincount(self._groups[hit].ravel(), minlength=self._count)
            top = np.zeros(self._count, bool)
            top[np.argmax(slow / np.maximum(seen, 1))] = True
            chances = self._count * len(_HEIGHTS) * _chance(slow, seen, *self._noise(hit, top))
            chances[slow < FEWEST] = 1.0
            if chances.min() < least:
                best, least = int(np.argmin(chances)), float(chances.min())
        if best < 0:
            return None
        mine = (self._groups == best).any(axis=1)
        return self._taken(Fault("member", self._members.names[best]), [best], mine, least)

    def _noise(self, hit: Booleans, without: Booleans) -> tuple[float, float]:
        """Return the share of groups that are slow, and how many come together, without those of some members."""
        others = ~without[self._groups].any(axis=1)
        share = (np.count_nonzero(hit & others) + 0.5) / (np.count_nonzero(others) + 1)
        keys = ((self._round // _BLOCK)[:, None] * self._count + self._groups)[others]
        seen = np.bincount(keys.ravel())
        slow = np.bincount(keys[hit[others]].ravel(), minlength=len(seen))
        there = seen >= FEWEST
        spread = (slow - seen * share)[there] ** 2 / (seen * share * (1 - share))[there]
        return share, max(1.0, float(spread.mean())) if there.any() else 1.0

    def _unit(self, fit: Fit) -> Effect | None:
        """Take a unit of a level in some rounds of which nearly all that crosses it is slow."""
        for level in fit.times.levels:
            units = len(level.names)
            if level.kind == "rail" or units == 2:
                continue
            crossed = level.crossed(self._groups)
            keys = (self._round[:, None] * units + level.units[self._groups])[crossed]
            seen = np.bincount(keys.ravel(), minlength=units)
            seen = np.pad(seen, (0, -len(seen) % units))
            slow = np.bincount(keys[self._height[crossed] > 1].ravel(), minlength=len(seen))
            there = (seen >= FEWEST).reshape(-1, units)
            event = there & (slow >= _EVENT * seen).reshape(-1, units)
            rounds, often = there.sum(axis=0), event.sum(axis=0)
            share = (event.sum() - often + 0.5) / (there.sum() - rounds + 1)
            chances = np.where(often >= FEWEST, units * _chance(often, rounds, share, 1.0), 1.0)
            best = int(np.argmin(chances))
            if chances[best] < LIKELY:
                inside = np.flatnonzero(level.units == best)
                mine = crossed & (level.units[self._groups] == best).any(axis=1)
                return self._taken(Fault(level.kind, level.names[best], ACROSS), inside, mine, float(chances[best]))
        return None

    def _taken(self, fault: Fault, members: Sequence[int] | Integers, mine: Booleans, chance: float) -> Effect:
        """Return the effect on the slow ones of these groups, and look at these groups no more."""
        above, seen = self._above[mine & (self._height > 1)], int(np.count_nonzero(mine))
        slower = float(np.median(above))
        error = TO_DEVIATION * float(np.median(np.abs(above - slower))) * np.sqrt(MEDIAN / len(above))
        rest = ~mine
        self._groups, self._above = self._groups[rest], self._above[rest]
        self._height, self._round = self._height[rest], self._round[rest]
        whose = tuple(map(int, members))
        return Effect(fault, whose, slower, float(error), len(above), len(above) / seen, seen, chance)


def _chance(slow: Integers, seen: Integers | int, share: float | Integers, clumps: float) -> "np.ndarray":
    """Return the chance of as many slow groups of those seen, where `clumps` of them come together."""
    from scipy.special import betainc  # takes a while to load

    return np.asarray(np.where(slow > 0, betainc(np.maximum(slow, 1) / clumps, (seen - slow) / clumps + 1, share), 1.0))
