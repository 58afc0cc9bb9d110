"""Intermittent faults of a scan, by a binomial test against noise.

Consecutive slow rounds of a member count once, since noise may last several rounds.  Rounds in which a quarter of all
groups is slow are left out.
"""

from collections.abc import Sequence

import numpy as np

from collbench.analysis.sequential import FEWEST, MEDIAN, TO_DEVIATION
from collbench.commands.scan import effects
from collbench.commands.scan.effects import ACROSS, LIKELY, SURE, Booleans, Effect, Fault, Fit, Integers, chance_of

_HEIGHTS = 1.0, 2.0, 4.0  # thresholds, in units of the limit; noise rarely reaches the higher ones
_LEAST_SHARE = 0.01  # least share of groups that noise slows; a smaller estimate is too uncertain
_PERHAPS = 0.1  # probability of noise below which more rounds may help
_WHILE = 0.25  # share of slow rounds at which a member that was slow for a while is suspected
_EVENT = 0.7  # share of slow groups across a unit in a round that makes the unit slow
_MOST = 8  # faults
_SEEN = 0.99  # share of faults at the limit of sight that are found


class Intermittent:
    """Intermittent faults, from the groups of all sizes that no lasting effect explains."""

    def __init__(self, fits: Sequence[Fit]) -> None:
        self._members = fits[0].times.members
        self._count = len(self._members.names)
        self.least = max(max(fit.limit, effects.FOUND * fit.deviation) for fit in fits)
        """Logarithm of the smallest slowdown that counts, at the size with the largest scatter."""
        self.open = False
        """Whether more rounds might show an intermittent fault."""
        parts = []
        for fit in fits:
            free = (fit.slows == 0) & fit.calm
            if again := [ends for ends, seen in fit.pending.items() if seen > 1]:  # the link itself may be slow
                free &= ~np.isin(fit.codes(), np.array(again) @ [self._count, 1])
            if self._count > effects.EVERY_LINK:  # repeats of a link are left out: they were chosen for being slow
                first = np.unique(np.where(free, fit.codes(), -1), return_index=True)[1]
                free &= np.isin(np.arange(len(free)), first)
            height = fit.above / max(fit.limit, effects.FOUND * fit.deviation)
            parts.append((fit.groups[free], fit.above[free], height[free], fit.round[free]))
        whole = [np.concatenate(part) for part in zip(*parts, strict=True)]
        order = np.argsort(whole[3], kind="stable")  # round by round
        self._groups, self._above, self._height, self._round = (part[order] for part in whole)
        self.effects: list[Effect] = []
        while len(self.effects) < _MOST and len(self._groups) and (found := self._unit(fits[0]) or self._member()):
            self.effects.append(found)

    def rarest(self, without: Sequence[int]) -> float:
        """Return the smallest share of slow rounds that makes a member suspect; members in `without` are left out."""
        from scipy.special import betaincinv

        begins, seen = self._runs(self._height > 1)
        rounds = int(np.delete(seen, without).min(initial=10**6))
        share = max(_LEAST_SHARE, begins.sum() / max(1, seen.sum()))
        hits = np.arange(1, rounds + 1)
        enough = hits[chance_of(hits, rounds, share) * self._count * len(_HEIGHTS) < LIKELY]
        return float(betaincinv(enough[0], rounds - enough[0] + 1, _SEEN)) if len(enough) else 1.0

    def _member(self) -> Effect | None:
        """Return the effect of the member whose slow periods are the least likely as noise; None if noise is likely."""
        best, least = -1, 1.0
        for height in _HEIGHTS:
            begins, seen = self._runs(self._height > height)
            share = (begins.sum() - begins + 0.5) / (seen.sum() - seen + 1)  # of the other members
            chances = self._count * len(_HEIGHTS) * chance_of(begins, seen, np.maximum(share, _LEAST_SHARE))
            chances[begins < FEWEST] = 1.0
            if chances.min() < least:
                best, least = int(np.argmin(chances)), float(chances.min())
        if least < _PERHAPS:
            self.open |= least >= SURE
        if least >= LIKELY:  # a long slow period may be noise, but it prevents an OK
            both = self._groups[self._height > 1], self._groups
            slow, seen = (np.bincount(each.ravel(), minlength=self._count) for each in both)
            share = (slow.sum() - slow + 0.5) / (seen.sum() - seen + 1)
            chances = self._count * chance_of(slow, seen, np.maximum(share, _LEAST_SHARE))
            best, least = int(np.argmax(np.where(chances < SURE, slow / np.maximum(seen, 1), 0.0))), SURE
            if chances[best] >= SURE or slow[best] < _WHILE * seen[best]:
                return None
        mine = (self._groups == best).any(axis=1)
        return self._taken(Fault("member", self._members.names[best]), [best], mine, least)

    def _runs(self, hit: Booleans) -> tuple[Integers, Integers]:
        """Return by member the number of slow periods, and of rounds in which one could have begun."""
        who = self._groups.ravel()
        order = np.argsort(who.astype(np.uint16 if self._count < 2**16 else np.int64), kind="stable")
        who, slow = who[order], np.repeat(hit, self._groups.shape[1])[order]
        goes_on = np.zeros(len(who), bool)
        goes_on[1:] = slow[1:] & slow[:-1] & (who[1:] == who[:-1])
        begins = np.bincount(who[slow & ~goes_on], minlength=self._count)
        return begins, np.bincount(who[~goes_on], minlength=self._count)

    def _unit(self, fit: Fit) -> Effect | None:
        """Return the effect of a unit with rounds in which nearly all groups that cross it are slow, or None."""
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
            chances = np.where(often >= FEWEST, units * chance_of(often, rounds, np.maximum(share, _LEAST_SHARE)), 1.0)
            best = int(np.argmin(chances))
            if chances[best] < LIKELY:
                inside = np.flatnonzero(level.units == best)
                mine = crossed & (level.units[self._groups] == best).any(axis=1)
                return self._taken(Fault(level.kind, level.names[best], ACROSS), inside, mine, float(chances[best]))
        return None

    def _taken(self, fault: Fault, members: Sequence[int] | Integers, mine: Booleans, chance: float) -> Effect:
        """Return the effect on the slow groups among `mine`; remove `mine` from further tests."""
        above, seen = self._above[mine & (self._height > 1)], int(np.count_nonzero(mine))
        slower = float(np.median(above))
        error = TO_DEVIATION * float(np.median(np.abs(above - slower))) * np.sqrt(MEDIAN / len(above))
        rest = ~mine
        self._groups, self._above = self._groups[rest], self._above[rest]
        self._height, self._round = self._height[rest], self._round[rest]
        whose = tuple(map(int, members))
        return Effect(fault, whose, slower, float(error), len(above), len(above), seen, chance, len(above) / seen)
