"""The suspects of a scan: by how much each slows its groups, and the probability that noise alone would do so.

A time is a logarithm over the usual one of its shape (inside a leaf, across, one way) in its round; rounds drift, and
load shared links differently.  The usual time is at first that of groups of the faster half of the members: it stays
right where most groups have a slow one.  Then it is the median of the nearby groups that nothing explains.

Members come before levels: a member that is slow in all kinds of groups is slow itself, however many share its leaf.
Then a leaf's uplinks are blamed for the groups that cross them, and a link for the rest.  Each is judged by the median
of its groups that no other slows, found by turns (least absolute deviations, coordinate by coordinate).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.sequential import FEWEST, MEDIAN, PRIOR_ROUNDS, TO_DEVIATION
from collbench.commands.scan.rows import Members, Round

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
EVERY, SENDS, RECEIVES, WITHIN, ACROSS = "", "sends", "receives", "within", "across"
"""Of a fault: every group with it, those in which it sends or receives, those with two of its members, those that have
members of it and others."""
SIGMAS = 3.0
"""Half of an interval in standard deviations: 99.7 %, so that among some hundred members hardly one lies outside."""
LIKELY, SURE = 0.02, 0.001
"""Chances that it is noise below which somebody is suspected, and named."""
FOUND = 4.0
"""Standard deviations from which on an effect is one, and a group slow."""
EVERY_LINK = 16
"""Members up to which all pairs are measured."""
_WINDOW = 18  # groups that tell what is usual in a round, of as many rounds as that takes
_FIRST = 4  # times as many, before it is known who is slow
_FILLED = 12  # groups of a shape in one round that tell its time there
_KNOWN = 4  # groups of a shape from which on they count: of fewer, what is usual would be themselves
_FAST = 0.25  # quantile that a fast group has, and that who is slow in all its groups exceeds too
_MOST_OF = 0.8  # share of a unit's members that must be slow, where the unit is
_TURNS = 8  # at most, until who is slow changes no more
_DISTURBED, _MANY = 0.25, 8  # share of a round's groups, of so many at least
_FASTER = 6.0  # standard deviations by which members differ in how often they are fast, where some are
_CELLS = 16  # of a table that may well scatter by the square root of 2 more than it seems
_SOLID = 8.0  # standard deviations from which on one value of a table is enough


class Fault(NamedTuple):
    """A fault: the kind and the name of the guilty, and the groups that it slows."""

    kind: str  # member, link, or that of a level: node, leaf, ...
    name: str
    way: str = EVERY


class Effect(NamedTuple):
    """A fault, by how much it slows groups, and how well that is known: logarithms."""

    fault: Fault
    members: tuple[int, ...]
    slower: float
    error: float  # standard deviation of `slower`
    groups: int  # that show it
    hits: int  # of these, that were slower by half of that or more
    seen: int  # groups that could have shown it
    chance: float  # that noise alone would have done this to anybody
    often: float = 1.0  # share of the rounds, 1 of a lasting fault


@dataclass(frozen=True, eq=False)
class Level:
    """A level that tells some members from others: the number of each member's unit, and what units are called."""

    kind: str
    units: Integers
    names: Sequence[str]

    def crossed(self, groups: Integers) -> Booleans:
        """Return which groups have members of several units."""
        units = self.units[groups]
        return np.asarray((units != units[:, :1]).any(axis=1))


class Times:
    """The groups of one size so far, and their times."""

    def __init__(self, members: Members) -> None:
        self.members, self.count, self.rounds = members, len(members.names), 0
        self.levels: list[Level] = []
        for level in members.levels:
            names, units = np.unique(level.units, return_inverse=True)
            if 1 < len(names) < self.count:  # else all are in one, or each is in its own
                self.levels.append(Level(level.kind, units, names.tolist()))
        none = np.zeros(0, np.int64)
        self._parts: list[tuple[Any, ...]] = [(none.reshape(0, 2), none * 1.0, none > 0, none, none)]

    def add(self, measured: Round) -> None:
        """Take a round."""
        self.rounds += 1
        if not measured.groups:
            return
        groups = np.array(measured.groups, np.int64)
        same = np.ones(len(groups), np.int64)
        shape = measured.one_way + sum(2 * level.crossed(groups) << place for place, level in enumerate(self.levels))
        part = groups, np.log(measured.seconds), same * measured.one_way > 0, same * shape, same * measured.number
        self._parts = [part] if not len(self._parts[0][0]) else [*self._parts, part]

    def joined(self) -> tuple[Any, ...]:
        """Return groups, logarithms of seconds, which are one way, shapes, and the numbers of the rounds."""
        return tuple(np.concatenate(parts) for parts in zip(*self._parts, strict=True))


def by_key(keys: Integers, values: Floats, share: float, count: int, rising: bool = False) -> tuple[Floats, Integers]:
    """Return a quantile of the values of each key below `count`, NaN of those without any; and how many it has.

    The lower one of two is taken.  `rising` says that values are sorted.
    """
    order = np.arange(len(values)) if rising else np.argsort(values)
    narrow = keys[order].astype(np.uint16 if count < 2**16 else np.int64)
    order = order[np.argsort(narrow, kind="stable")]  # of 16 bits by radix, ten times as fast
    counts, found = np.bincount(keys, minlength=count), np.full(count, np.nan)
    place = (np.cumsum(counts) - counts + share * (counts - 1)).astype(np.int64)
    found[counts > 0] = values[order[place[counts > 0]]]
    return found, counts


def chance_of(slow: Integers, seen: Integers | int, share: float | Floats) -> Floats:
    """Return the chance of as many slow ones of those seen, where noise makes that share of all slow."""
    from scipy.special import betainc  # takes a while to load

    return np.asarray(np.where(slow > 0, betainc(np.maximum(slow, 1), seen - slow + 1, share), 1.0))


class _Medians(NamedTuple):
    """The medians of several, and the slow ones; their entries are sorted by time, and a clean one counts."""

    slow: Booleans
    middle: Floats
    of: Integers  # the group of an entry
    who: Integers
    clean: Booleans  # no other slows it


class Fit:
    """The effects that explain the groups of one size.

    `slower` is too slow, and times scatter by `deviation` before any was seen: logarithms.  `solid` says that each time
    stands for many, as in a table of pairs.
    """

    def __init__(self, times: Times, slower: float, deviation: float, solid: bool = False) -> None:
        self.times, self.limit, self.solid, self.rounds = times, slower, solid, times.rounds
        self.deviation = self._prior = deviation
        every = times.joined()
        _, number, seen = np.unique(every[3], return_inverse=True, return_counts=True)
        self.groups, self._logs, self.one_way, shape, self.round = (part[seen[number] >= _KNOWN] for part in every)
        total = len(self._logs)
        self._place = np.unique(shape // 2, return_inverse=True)[1]  # which levels a group crosses
        self._shape = np.unique(shape, return_inverse=True)[1]
        self.effects: list[Effect] = []
        self.pending: dict[tuple[int, int], int] = {}
        """How often links were slow, each time so far, whose ends are to be measured again."""
        self.calm = np.ones(total, bool)
        """Groups of rounds in which not a quarter of all was slow, as where a whole cluster is disturbed."""
        self.slows, self.above = np.zeros(total), np.zeros(total)
        """By how much an effect slows each group, and the logarithm of each time over what is usual."""
        self.middle, self.error = np.full(times.count, np.nan), np.full(times.count, np.inf)
        """Of each member the median of its groups that no other slows, and its standard deviation."""
        if not total:
            return
        self._usual(np.ones(total, bool), _FAST, _FIRST * _WINDOW)
        self._at += self._of_the_fastest()
        for _ in range(3):  # what is usual depends on who is slow, and the other way round
            self._scale()
            before = self.slows > 0
            self._search()
            near = np.abs(self.above) < max(self.limit, FOUND * self.deviation)  # else the slow may become usual
            self._usual(near & (self.slows == 0), 0.5, _WINDOW)
            if np.array_equal(before, self.slows > 0):
                break
        self._scale()

    # What is usual.

    def _usual(self, free: Booleans, share: float, least: int) -> None:
        """Set the usual time of each shape, by that quantile of these groups, and of rounds with so many at least."""
        shapes, total, drift = int(self._shape.max()) + 1, len(self._logs), np.zeros(len(self._logs))
        window = np.minimum(np.searchsorted(self.round, self.round) // least, max(0, total // least - 1))
        for _ in range(3):
            rest = self._logs - drift
            base, counts = by_key(self._shape[free], rest[free], share, shapes)
            base = np.where(counts > 0, base, by_key(self._shape, rest, _FAST, shapes)[0])[self._shape]
            usual, counts = by_key(window[free], (self._logs - base)[free], _FAST, int(window.max()) + 1)
            self._at = base + drift
            drift = np.where(counts > 0, usual, np.nanmedian(usual) if counts.any() else 0.0)[window]
        if least == _WINDOW:  # a kind that fills a round has a time of its own there, by how loaded it was
            _, cell, many = np.unique(self.round * shapes + self._shape, return_inverse=True, return_counts=True)
            own, counts = by_key(cell[free], (self._logs - self._at)[free], share, len(many))
            self._at = self._at + np.where(counts >= _FILLED, own, 0.0)[cell]

    def _of_the_fastest(self) -> Floats:
        """Return by group how much those of the fastest members take, over what groups of all do."""
        above, count, found = self._logs - self._at, self.times.count, np.zeros(len(self._logs))
        for place in range(self._place.max() + 1):
            here = self._place == place
            groups, values = self.groups[here], above[here]
            fast, seen = by_key(groups.ravel(), np.repeat(values, groups.shape[1]), _FAST, count)
            order = np.argsort(fast)  # those without groups come last
            best = np.zeros(count, bool)
            best[order[: max(groups.shape[1], int(np.count_nonzero(seen)) // 2)]] = True
            among = values[best[groups].all(axis=1)]
            if len(among) >= FEWEST:
                found[here] = min(0.0, float(np.median(among)))
        return found

    def _scale(self) -> None:
        """Set times above the usual, and what those that nothing explains scatter by."""
        self.above = self._logs - self._at
        free = self.above[self.slows == 0]
        if not self.effects:  # most may be slow as yet: by those below the usual
            free = free[free <= 0]
        spread = TO_DEVIATION * np.median(np.abs(free)) if len(free) else self._prior
        both = PRIOR_ROUNDS * self._prior**2 + len(free) * spread**2
        few = 1 + _CELLS / len(self.above) if self.solid else 1.0
        self.deviation = float(np.sqrt(few * both / (PRIOR_ROUNDS + len(free))))

    # Who is slow.

    def _search(self) -> None:
        """Find all effects: of members, then of what joins them, then of directions and links."""
        self.effects, self.slows, self._rising = [], np.zeros(len(self.above)), np.argsort(self.above)
        self._slowed: list[Integers] = []
        levels, names, nobody = self.times.levels, self.times.members.names, np.ones(self.times.count, bool)
        slow, partly = self._members()
        for level in levels:
            for unit in np.unique(level.units[slow]) if level.kind != "rail" else ():
                inside = np.flatnonzero(level.units == unit)
                if 1 < len(inside) < len(slow) and slow[inside].all():
                    self._add(Fault(level.kind, level.names[unit]), inside, np.isin(self.groups, inside).any(axis=1))
                    slow[inside] = False
        for member in np.flatnonzero(slow).tolist():
            self._add(Fault("member", names[member]), [member], (self.groups == member).any(axis=1))
        for level in sorted(levels, key=lambda level: (level.kind == "rail", -levels.index(level))):
            self._units(level)
        for way in (SENDS, RECEIVES):
            self._directions(way)
        still = self._medians(self.groups, self.slows == 0, nobody).middle > self.limit / 2
        for member in np.flatnonzero(partly & still).tolist():
            self._partly(member)
        if self.groups.shape[1] == 2:
            self._links()
        self._measure_again()

        # What is left of each member: nothing of those that are slow in all their groups.
        medians = self._medians(self.groups, self.slows == 0, nobody)
        away = np.abs(self.above[medians.of] - medians.middle[medians.who])
        scatter, seen = by_key(medians.who, away, 0.5, self.times.count)
        error = self._error(np.where(seen >= FEWEST, scatter, 0.0), np.maximum(seen, 1))
        self.middle, self.error = medians.middle, np.where(seen > 0, error, np.inf)

    def _members(self) -> tuple[Booleans, Booleans]:
        """Return who is slow in groups of every kind, and who is in groups of some kinds alone."""
        groups, size, count = self.groups, self.groups.shape[1], self.times.count
        barred, partly = np.zeros(count, bool), np.zeros(count, bool)
        role = np.where(self.one_way[:, None], 1 + np.arange(size), 0)
        kinds = [(role, np.arange(count))]
        kinds += [(np.tile(level.crossed(groups)[:, None], size), level.units) for level in self.times.levels]
        column = np.tile(np.arange(size), len(groups))
        for turn in range(_TURNS):
            medians = self._medians(groups, self.slows == 0, barred)
            fails, theirs = np.zeros(count, bool), medians.slow[medians.who]
            for mine in (theirs, theirs & medians.clean)[: 1 + min(turn, 1)]:  # at first a whole leaf may seem slow
                of, who = medians.of[mine], medians.who[mine]
                low, _ = by_key(who, self.above[of], _FAST, count, True)
                fails |= medians.slow & (low < medians.middle / 3)  # it comes and goes
                for kind, unit in kinds:
                    keys = who * 3 + kind[of, column[mine]]
                    part, counts = by_key(keys, self.above[of], 0.5, 3 * count, True)
                    apart = (counts >= FEWEST) & (part < np.repeat(medians.middle, 3) / 2)
                    partly |= apart.reshape(-1, 3).any(axis=1)

                    # Who was never alone with its unit is slow as most of that is.
                    most = np.bincount(unit, partly) > np.bincount(unit) / 2
                    partly |= medians.slow & most[unit] & (counts[::3] < FEWEST)
            if not (fails | partly & medians.slow).any():
                break
            barred |= fails | partly
        return medians.slow & ~barred, partly

    def _medians(self, ids: Integers, among: Booleans, barred: Booleans) -> _Medians:
        """Return who of several is slow, as these groups tell; `ids` says whose each is, -1 for nobody's."""
        count, order = len(barred), self._rising
        of, who = np.repeat(order, ids.shape[1]), ids[order].ravel()
        usable = (who >= 0) & among[of]
        of, who = of[usable], who[usable]
        values = self.above[of]
        low, _ = by_key(who, values, _FAST, count, True)
        slow = (low > self.limit / 2) & ~barred
        for _ in range(_TURNS):
            clean = np.bincount(of, slow[who], len(ids))[of] == slow[who]
            middle, seen = by_key(who[clean], values[clean], 0.5, count, True)
            middle = np.where(seen >= FEWEST, middle, low)
            least = FOUND * self.deviation * np.sqrt(MEDIAN / np.maximum(seen, 1))
            again = (middle > np.maximum(self.limit / 2, least)) & ~barred
            if np.array_equal(again, slow):
                break
            slow = again
        return _Medians(slow, middle, of, who, clean)

    def _error(self, away: Any, seen: Any) -> Any:
        """Return the error of medians of so many, by their median distance to it, or by what all groups scatter."""
        own = (PRIOR_ROUNDS * self.deviation**2 + seen * (TO_DEVIATION * away) ** 2) / (PRIOR_ROUNDS + seen)
        return np.maximum(self.deviation, np.sqrt(own)) * np.sqrt(MEDIAN / seen)

    def _units(self, level: Level) -> None:
        """Find units that slow what crosses them, or of rails what stays on them: most of their members show it."""
        count, rail, ids = self.times.count, level.kind == "rail", np.sort(level.units[self.groups], axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1  # each unit once
        among = level.crossed(self.groups) ^ rail
        if rail:
            among &= np.logical_or.reduce([each.crossed(self.groups) for each in self.times.levels])
        barred = np.zeros(len(level.names), bool)
        if len(barred) == 2 and not rail:
            return  # whatever crosses one crosses the other
        for _ in range(_TURNS):
            medians = self._medians(ids, among & (self.slows == 0), barred)
            keys, of = self.groups[medians.of].ravel(), np.repeat(np.arange(len(medians.of)), self.groups.shape[1])
            mine = (medians.clean & medians.slow[medians.who])[of] & (level.units[keys] == medians.who[of])
            part, counts = by_key(keys[mine], self.above[medians.of[of[mine]]], 0.5, count, True)
            shows = np.bincount(level.units, (part > medians.middle[level.units] / 2) & (counts > 0), len(barred))
            fails = medians.slow & (shows < _MOST_OF * np.bincount(level.units, counts > 0, len(barred)))
            if not fails.any():
                break
            barred |= fails
        for unit in np.flatnonzero(medians.slow).tolist():
            fault = Fault(level.kind, level.names[unit], WITHIN if rail else ACROSS)
            self._add(fault, np.flatnonzero(level.units == unit), among & (ids == unit).any(axis=1))

    def _directions(self, way: str) -> None:
        """Find members that are slow where they send, or receive, and so where both do."""
        ids = np.where(self.one_way, self.groups[:, int(way == RECEIVES)], -1)[:, None]
        medians = self._medians(ids, self.slows == 0, np.zeros(self.times.count, bool))
        seen = np.bincount(medians.who, minlength=self.times.count)
        for member in np.flatnonzero(medians.slow & (seen >= FEWEST)).tolist():
            free, half = self.slows == 0, medians.middle[member] / 2
            mine = (ids[:, 0] == member) & free
            both = (self.groups == member).any(axis=1) & ~self.one_way & free
            slow, fast = (np.quantile(self.above[both], [_FAST, 1 - _FAST]) if both.any() else (0.0, 0.0)) > half
            if (self.above[mine] > half).all() and slow == fast:  # else it comes and goes
                self._add(Fault("member", self.times.members.names[member], way), [member], mine | (both & slow))

    def _partly(self, member: int) -> None:
        """Find whether a member is slow where it crosses a level."""
        mine = (self.groups == member).any(axis=1) & (self.slows == 0)
        for level in self.times.levels:
            crosses = level.crossed(self.groups)
            slow, fast = self.above[mine & crosses], self.above[mine & ~crosses]
            if min(len(slow), len(fast)) < FEWEST:
                continue
            apart = np.median(slow) - np.median(fast)
            if apart > self.limit / 2 and np.quantile(slow, _FAST) > apart / 3:
                self._add(Fault("member", self.times.members.names[member], ACROSS), [member], mine & crosses)
                return

    def _links(self) -> None:
        """Find links: all groups of two members are slow, and nothing else says why."""
        least = max(self.limit, (_SOLID if self.solid else FOUND) * self.deviation)
        free, slow = self.slows == 0, self.above > least
        groups = np.bincount(self.round[free], minlength=self.round.max() + 1)
        wide = np.bincount(self.round[free & slow], minlength=len(groups)) > _DISTURBED * groups
        self.calm = (~wide | (groups < _MANY) | self.solid)[self.round]
        free = np.flatnonzero(free & self.calm)
        above, count = self.above[free], self.times.count
        cell = SURE if self.times.members.platform == "cpu" else 0.0  # there a cell depends on caches and cores
        directed = self.solid and bool(self.one_way.all())
        codes = (self.groups @ [count, 1] if directed else self.codes())[free]
        links, place, seen = np.unique(codes, return_inverse=True, return_counts=True)
        every = np.bincount(place, above > least, len(links)) == seen
        once = np.flatnonzero(every & (seen == 1) & (not self.solid))
        self.pending = {divmod(int(links[number]), count): 1 for number in once[: count // 2]}
        for number in np.flatnonzero(every & ((seen > 1) | self.solid)):
            first, second = divmod(int(links[number]), count)
            mine = free[codes == links[number]]
            back = self.above[free[codes == second * count + first]]
            if first > second and len(back) and np.median(back) > least:
                continue  # in a table the other direction stands for both

            # By what share of other groups, of all or of either end, is as slow as half of it.
            hit, other = above > np.median(self.above[mine]) / 2, codes != links[number]
            near = [other, *(other & (self.groups[free] == end).any(axis=1) for end in (first, second))]
            share = max((np.count_nonzero(hit & each) + 0.5) / (np.count_nonzero(each) + 1) for each in near)
            chance = cell if self.solid else float(len(links) * share ** len(mine))
            if chance < LIKELY and (self.solid or len(mine) >= FEWEST):
                self._add(self._link(first, second), [first, second], mine, chance)
            if chance >= SURE:
                self.pending[first, second] = len(mine)

    def codes(self) -> Integers:
        """Return the link of each group of two: the lower member times the number of members, and the upper."""
        return np.asarray(self.groups.min(axis=1) * self.times.count + self.groups.max(axis=1))

    def _link(self, first: int, second: int) -> Fault:
        """Return a link, of one direction where the other one is fast."""
        names, slow = self.times.members.names, []
        for ends in ((first, second), (second, first)):
            sent = self.above[self.one_way & (self.groups == ends).all(axis=1)]
            slow.append(float(np.median(sent)) if len(sent) else np.nan)
        if slow[0] < slow[1] / 2:
            return Fault("link", f"{names[second]} > {names[first]}")
        return Fault("link", f"{names[first]} {'>' if slow[1] < slow[0] / 2 else '-'} {names[second]}")

    def _add(self, fault: Fault, members: Sequence[int] | Integers, groups: Any, chance: float = -1.0) -> None:
        """Take an effect on these groups, by the median of those that no other slows; a chance below 0 comes later."""
        groups = np.flatnonzero(groups) if groups.dtype == bool else groups
        effect = Effect(fault, tuple(map(int, members)), 0.0, 0.0, 0, 0, len(groups), chance)
        effect = self._by(effect, groups[self.slows[groups] == 0], groups)
        self.effects.append(effect)
        self._slowed.append(groups)
        self.slows[groups] = np.maximum(self.slows[groups], effect.slower)

    def _measure_again(self) -> None:
        """Measure each effect where no other is, now that all are known, and drop units that noise may explain."""
        often = np.bincount(np.concatenate([*self._slowed, np.zeros(0, np.int64)]), minlength=len(self.above))
        found, self.effects = self.effects, []
        for effect, groups in zip(found, self._slowed, strict=True):
            alone = groups[often[groups] == 1]
            again = self._by(effect, alone, groups) if len(alone) >= FEWEST else effect
            again = again._replace(chance=self._chance(again)) if again.chance < 0 else again
            if again.chance < LIKELY or again.fault.kind == "member":
                self.effects.append(again)
            else:
                self.slows[alone] = 0.0

    def _by(self, effect: Effect, alone: Integers, groups: Integers) -> Effect:
        """Return the effect as some of its groups show it, or all of them where these are none."""
        values = self.above[alone if len(alone) else groups]
        slower, count = float(np.median(values)), len(values)
        error = float(self._error(np.median(np.abs(values - slower)) if count >= FEWEST else 0.0, count))
        hits = int(np.count_nonzero(values > slower / 2))
        return effect._replace(slower=slower, error=error, groups=count, hits=hits)

    def _chance(self, effect: Effect) -> float:
        """Return the chance that noise makes anybody's groups as slow as that, by the groups that nothing slows."""
        usual = self.above[self.slows == 0]
        share = (np.count_nonzero(usual > effect.slower / 2) + 1) / (len(usual) + 2)
        sure = SURE / LIKELY if self.solid else 1.0
        return float(sure * self.times.count * chance_of(np.array(effect.hits), effect.groups, share))

    # What may be wrong.

    def across(self, level: Level) -> float:
        """Return how much longer groups across a level take than others that cross the same levels inside of it."""
        rest, among = self._logs, (self.slows == 0) & ~self.one_way
        for inner in self.times.levels[: self.times.levels.index(level)]:
            among &= inner.crossed(self.groups) | (inner.kind == "rail")
        crossed = level.crossed(self.groups)
        parts = [rest[among & crossed], rest[among & ~crossed]]
        return float(np.median(parts[0]) - np.median(parts[1])) if all(map(len, parts)) else 0.0

    def faster(self) -> bool:
        """Return whether groups of some members are faster than usual by too much: then what is usual here is slow."""
        free = self.slows == 0
        low = (self.above < -self.limit) & free
        seen, fast = (np.bincount(self.groups[each].ravel(), minlength=self.times.count) for each in (free, low))
        there, share = seen > 0, float(low.sum() / max(1, int(free.sum())))
        if np.count_nonzero(low) < FEWEST or share == 1:
            return False
        if self.times.count <= EVERY_LINK // 2:  # among few, one link may be all that is as it should be
            _, place, often = np.unique(self.codes(), return_inverse=True, return_counts=True)
            if ((often >= FEWEST) & (np.bincount(place, low) == often)).any():
                return True
        spread = ((fast - seen * share)[there] ** 2 / (seen * share * (1 - share))[there]).sum()
        freedom = np.count_nonzero(there) - 1
        return bool(spread - freedom > _FASTER * np.sqrt(2 * freedom))
