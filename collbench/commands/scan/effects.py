"""Suspects of a scan: slowdowns of their groups, and the probability of noise.

A time is the logarithm of its ratio to the usual time of its shape (inside a leaf, across, one way) in its round.
Rounds drift, and they load shared links differently.  At first the usual time is that of groups of the faster half of
the members, which holds even if most groups have a slow member.  Later it is the median of nearby groups without a
known effect.

Members are explained before levels: a member that is slow in all kinds of groups is slow itself, even if others share
its leaf.  Remaining groups that cross a leaf are explained by its uplinks, and the rest by links.  The size of each
effect is the median of the groups that no other effect slows (least absolute deviations, coordinate by coordinate).
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
"""Groups that a fault slows: all of its groups, those in which it sends or receives, those with two of its members, and
those with members of it and others."""
SIGMAS = 3.0
"""Half width of an interval in standard deviations: 99.7 %, so that of a hundred members hardly one lies outside."""
LIKELY, SURE = 0.02, 0.001
"""Probabilities of noise below which a fault is suspected, and below which it is named."""
FOUND = 4.0
"""Standard deviations of the smallest effect, and of the smallest excess of a slow group."""
EVERY_LINK = 16
"""Largest number of members for which all pairs are measured."""
_WINDOW = 18  # groups in the window of rounds that gives the usual time
_FIRST = 4  # factor on _WINDOW before any effect is known
_FILLED = 12  # groups of a shape that give it a usual time in a single round
_KNOWN = 4  # fewest groups of a shape; fewer would be compared with themselves
_FAST = 0.25  # quantile of fast groups; a member that is always slow exceeds it too
_MOST_OF = 0.8  # share of slow members in a slow unit
_TURNS = 8  # most iterations until the set of slow members is stable
_DISTURBED, _MANY = 0.25, 8  # share of slow groups that makes a round disturbed, and the fewest groups of such a round
_FASTER = 6.0  # standard deviations by which shares of fast groups differ if some members are fast
_CELLS = 16  # cells of a table whose true scatter may be the square root of 2 larger than measured
_SOLID = 8.0  # standard deviations at which a single value of a table is evidence enough


class Fault(NamedTuple):
    """A fault: its kind, its name and the groups that it slows."""

    kind: str  # member, link, or the kind of a level: node, leaf, ...
    name: str
    way: str = EVERY


class Effect(NamedTuple):
    """A fault and the slowdown of its groups."""

    fault: Fault
    members: tuple[int, ...]
    slower: float  # logarithm of the slowdown
    error: float  # standard deviation of `slower`
    groups: int  # groups that show the fault
    hits: int  # of these, groups slower by more than half of `slower`
    seen: int  # groups that could have shown the fault
    chance: float  # probability that noise alone does this to any member
    often: float = 1.0  # share of the rounds; 1 for a lasting fault


@dataclass(frozen=True, eq=False)
class Level:
    """A level with several units, such as leaves: the unit of each member, and the names of units."""

    kind: str
    units: Integers
    names: Sequence[str]

    def crossed(self, groups: Integers) -> Booleans:
        """Mark the groups with members of several units."""
        units = self.units[groups]
        return np.asarray((units != units[:, :1]).any(axis=1))


class Times:
    """The measured groups of one message size, and their times."""

    def __init__(self, members: Members) -> None:
        self.members, self.count, self.rounds = members, len(members.names), 0
        self.levels: list[Level] = []
        for level in members.levels:
            names, units = np.unique(level.units, return_inverse=True)
            if 1 < len(names) < self.count:  # else one unit has all members, or each member its own unit
                self.levels.append(Level(level.kind, units, names.tolist()))
        none = np.zeros(0, np.int64)
        self._parts: list[tuple[Any, ...]] = [(none.reshape(0, 2), none * 1.0, none > 0, none, none)]

    def add(self, measured: Round) -> None:
        """Add a round."""
        self.rounds += 1
        if not measured.groups:
            return
        groups = np.array(measured.groups, np.int64)
        same = np.ones(len(groups), np.int64)
        shape = measured.one_way + sum(2 * level.crossed(groups) << place for place, level in enumerate(self.levels))
        part = groups, np.log(measured.seconds), same * measured.one_way > 0, same * shape, same * measured.number
        self._parts = [part] if not len(self._parts[0][0]) else [*self._parts, part]

    def joined(self) -> tuple[Any, ...]:
        """Return arrays by group: members, logarithm of seconds, one way, shape, and number of the round."""
        return tuple(np.concatenate(parts) for parts in zip(*self._parts, strict=True))


def by_key(keys: Integers, values: Floats, share: float, count: int, rising: bool = False) -> tuple[Floats, Integers]:
    """Return the quantile `share` of the values of each key below `count`, and the number of its values.

    A quantile between two values is the lower one; NaN without values.  `rising` says that the values are sorted.
    """
    order = np.arange(len(values)) if rising else np.argsort(values)
    narrow = keys[order].astype(np.uint16 if count < 2**16 else np.int64)
    order = order[np.argsort(narrow, kind="stable")]  # 16-bit keys use radix sort, ten times as fast
    counts, quantiles = np.bincount(keys, minlength=count), np.full(count, np.nan)
    place = (np.cumsum(counts) - counts + share * (counts - 1)).astype(np.int64)
    quantiles[counts > 0] = values[order[place[counts > 0]]]
    return quantiles, counts


def chance_of(slow: Integers, seen: Integers | int, share: float | Floats) -> Floats:
    """Return the binomial probability of `slow` or more of `seen` groups, if noise makes the share `share` slow."""
    from scipy.special import betainc  # takes a while to load

    return np.asarray(np.where(slow > 0, betainc(np.maximum(slow, 1), seen - slow + 1, share), 1.0))


class _Medians(NamedTuple):
    """Medians of members or units, and flags of the slow ones, with the entries they rest on, sorted by time."""

    slow: Booleans
    middle: Floats
    of: Integers  # the group of each entry
    who: Integers  # the member or unit of each entry
    clean: Booleans  # whether no other member or unit slows the group


class Fit:
    """The effects that explain the groups of one size.

    `slower` is the limit of a slowdown and `deviation` the prior scatter of times, both as logarithms.  `solid` says
    that each time stands for many measurements, as in a table of pairs.
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
        """Links to measure again, with the number of times that they were slow."""
        self.calm = np.ones(total, bool)
        """Groups of undisturbed rounds, in which less than a quarter of the groups was slow."""
        self.slows, self.above = np.zeros(total), np.zeros(total)
        """Slowdown of each group by known effects, and logarithm of its time over the usual time."""
        self.middle, self.error = np.full(times.count, np.nan), np.full(times.count, np.inf)
        """Median of each member's groups that no effect slows, and its standard deviation."""
        if not total:
            return
        self._usual(np.ones(total, bool), _FAST, _FIRST * _WINDOW)
        self._at += self._of_the_fastest()
        for _ in range(3):  # usual times depend on the effects, and effects on usual times
            self._scale()
            before = self.slows > 0
            self._search()
            near = np.abs(self.above) < max(self.limit, FOUND * self.deviation)  # else slow times may become usual
            self._usual(near & (self.slows == 0), 0.5, _WINDOW)
            if np.array_equal(before, self.slows > 0):
                break
        self._scale()

    def _usual(self, free: Booleans, share: float, least: int) -> None:
        """Set usual times by shape and by windows of rounds with at least `least` groups: a quantile of `free`."""
        shapes, total, drift = int(self._shape.max()) + 1, len(self._logs), np.zeros(len(self._logs))
        window = np.minimum(np.searchsorted(self.round, self.round) // least, max(0, total // least - 1))
        for _ in range(3):
            rest = self._logs - drift
            base, counts = by_key(self._shape[free], rest[free], share, shapes)
            base = np.where(counts > 0, base, by_key(self._shape, rest, _FAST, shapes)[0])[self._shape]
            usual, counts = by_key(window[free], (self._logs - base)[free], _FAST, int(window.max()) + 1)
            self._at = base + drift
            drift = np.where(counts > 0, usual, np.nanmedian(usual) if counts.any() else 0.0)[window]
        if least == _WINDOW:  # a shape with many groups in a round has its own time there, by the load
            _, cell, sizes = np.unique(self.round * shapes + self._shape, return_inverse=True, return_counts=True)
            offsets, counts = by_key(cell[free], (self._logs - self._at)[free], share, len(sizes))
            self._at = self._at + np.where(counts >= _FILLED, offsets, 0.0)[cell]

    def _of_the_fastest(self) -> Floats:
        """Return the correction of each group's usual time, at most 0: the median over groups of the faster half."""
        above, count, corrections = self._logs - self._at, self.times.count, np.zeros(len(self._logs))
        for place in range(self._place.max() + 1):
            here = self._place == place
            groups, values = self.groups[here], above[here]
            fast, seen = by_key(groups.ravel(), np.repeat(values, groups.shape[1]), _FAST, count)
            order = np.argsort(fast)  # members without groups come last
            best = np.zeros(count, bool)
            best[order[: max(groups.shape[1], int(np.count_nonzero(seen)) // 2)]] = True
            among = values[best[groups].all(axis=1)]
            if len(among) >= FEWEST:
                corrections[here] = min(0.0, float(np.median(among)))
        return corrections

    def _scale(self) -> None:
        """Set the excess of each time over the usual, and the scatter of groups without an effect."""
        self.above = self._logs - self._at
        free = self.above[self.slows == 0]
        if not self.effects:  # most groups may be slow, so only times below the usual count
            free = free[free <= 0]
        spread = TO_DEVIATION * np.median(np.abs(free)) if len(free) else self._prior
        both = PRIOR_ROUNDS * self._prior**2 + len(free) * spread**2
        few = 1 + _CELLS / len(self.above) if self.solid else 1.0
        self.deviation = float(np.sqrt(few * both / (PRIOR_ROUNDS + len(free))))

    def _search(self) -> None:
        """Find all effects: of members, then of units of levels, then of directions and links."""
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

        # Medians of the members' remaining groups; members that are slow in all their groups have none.
        medians = self._medians(self.groups, self.slows == 0, nobody)
        away = np.abs(self.above[medians.of] - medians.middle[medians.who])
        scatter, seen = by_key(medians.who, away, 0.5, self.times.count)
        error = self._error(np.where(seen >= FEWEST, scatter, 0.0), np.maximum(seen, 1))
        self.middle, self.error = medians.middle, np.where(seen > 0, error, np.inf)

    def _members(self) -> tuple[Booleans, Booleans]:
        """Mark the members that are slow in groups of every kind, and those slow only in some kinds."""
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
                fails |= medians.slow & (low < medians.middle / 3)  # intermittent
                for kind, unit in kinds:
                    keys = who * 3 + kind[of, column[mine]]
                    part, counts = by_key(keys, self.above[of], 0.5, 3 * count, True)
                    apart = (counts >= FEWEST) & (part < np.repeat(medians.middle, 3) / 2)
                    partly |= apart.reshape(-1, 3).any(axis=1)

                    # A member without groups outside its unit counts like most members of the unit.
                    most = np.bincount(unit, partly) > np.bincount(unit) / 2
                    partly |= medians.slow & most[unit] & (counts[::3] < FEWEST)
            if not (fails | partly & medians.slow).any():
                break
            barred |= fails | partly
        return medians.slow & ~barred, partly

    def _medians(self, ids: Integers, among: Booleans, barred: Booleans) -> _Medians:
        """Return medians and slow flags by the groups `among`; `ids` has the members or units of each group, or -1."""
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
        """Return the error of medians of `seen` values with median distance `away`, at least by the usual scatter."""
        variance = (PRIOR_ROUNDS * self.deviation**2 + seen * (TO_DEVIATION * away) ** 2) / (PRIOR_ROUNDS + seen)
        return np.maximum(self.deviation, np.sqrt(variance)) * np.sqrt(MEDIAN / seen)

    def _units(self, level: Level) -> None:
        """Find units that slow the groups that cross them (rails: that stay on them) in most of their members."""
        count, rail, ids = self.times.count, level.kind == "rail", np.sort(level.units[self.groups], axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1  # each unit once
        among = level.crossed(self.groups) ^ rail
        if rail:
            among &= np.logical_or.reduce([each.crossed(self.groups) for each in self.times.levels])
        barred = np.zeros(len(level.names), bool)
        if len(barred) == 2 and not rail:
            return  # with two units, each group that crosses one crosses the other
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
        """Find members that are slow when they send, or when they receive, and so in groups that go both ways."""
        ids = np.where(self.one_way, self.groups[:, int(way == RECEIVES)], -1)[:, None]
        medians = self._medians(ids, self.slows == 0, np.zeros(self.times.count, bool))
        seen = np.bincount(medians.who, minlength=self.times.count)
        for member in np.flatnonzero(medians.slow & (seen >= FEWEST)).tolist():
            free, half = self.slows == 0, medians.middle[member] / 2
            mine = (ids[:, 0] == member) & free
            both = (self.groups == member).any(axis=1) & ~self.one_way & free
            slow, fast = (np.quantile(self.above[both], [_FAST, 1 - _FAST]) if both.any() else (0.0, 0.0)) > half
            if (self.above[mine] > half).all() and slow == fast:  # else it is intermittent
                self._add(Fault("member", self.times.members.names[member], way), [member], mine | (both & slow))

    def _partly(self, member: int) -> None:
        """Find out whether a member is slow only across a level."""
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
        """Find slow links: all groups of two members are slow without another effect."""
        least = max(self.limit, (_SOLID if self.solid else FOUND) * self.deviation)
        free, slow = self.slows == 0, self.above > least
        groups = np.bincount(self.round[free], minlength=self.round.max() + 1)
        wide = np.bincount(self.round[free & slow], minlength=len(groups)) > _DISTURBED * groups
        self.calm = (~wide | (groups < _MANY) | self.solid)[self.round]
        free = np.flatnonzero(free & self.calm)
        above, count = self.above[free], self.times.count
        cell = SURE if self.times.members.platform == "cpu" else 0.0  # on a CPU a cell depends on caches and cores
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
                continue  # the entry of the other direction stands for both

            # Chance by the share of other groups, of all members or of either end, that show half of the slowdown.
            hit, other = above > np.median(self.above[mine]) / 2, codes != links[number]
            near = [other, *(other & (self.groups[free] == end).any(axis=1) for end in (first, second))]
            share = max((np.count_nonzero(hit & each) + 0.5) / (np.count_nonzero(each) + 1) for each in near)
            chance = cell if self.solid else float(len(links) * share ** len(mine))
            if chance < LIKELY and (self.solid or len(mine) >= FEWEST):
                self._add(self._link(first, second), [first, second], mine, chance)
            if chance >= SURE:
                self.pending[first, second] = len(mine)

    def codes(self) -> Integers:
        """Return the code of each pair's link: the lower member times the number of members, plus the upper."""
        return np.asarray(self.groups.min(axis=1) * self.times.count + self.groups.max(axis=1))

    def _link(self, first: int, second: int) -> Fault:
        """Return the fault of a link: one direction if the other is fast, else both."""
        names, slow = self.times.members.names, []
        for ends in ((first, second), (second, first)):
            sent = self.above[self.one_way & (self.groups == ends).all(axis=1)]
            slow.append(float(np.median(sent)) if len(sent) else np.nan)
        if slow[0] < slow[1] / 2:
            return Fault("link", f"{names[second]} > {names[first]}")
        return Fault("link", f"{names[first]} {'>' if slow[1] < slow[0] / 2 else '-'} {names[second]}")

    def _add(self, fault: Fault, members: Sequence[int] | Integers, groups: Any, chance: float = -1.0) -> None:
        """Add an effect, measured by its groups that no other effect slows; a chance below 0 is set later."""
        groups = np.flatnonzero(groups) if groups.dtype == bool else groups
        effect = Effect(fault, tuple(map(int, members)), 0.0, 0.0, 0, 0, len(groups), chance)
        effect = self._by(effect, groups[self.slows[groups] == 0], groups)
        self.effects.append(effect)
        self._slowed.append(groups)
        self.slows[groups] = np.maximum(self.slows[groups], effect.slower)

    def _measure_again(self) -> None:
        """Measure each effect again by groups without other effects, and drop units that noise may explain."""
        often = np.bincount(np.concatenate([*self._slowed, np.zeros(0, np.int64)]), minlength=len(self.above))
        effects, self.effects = self.effects, []
        for effect, groups in zip(effects, self._slowed, strict=True):
            alone = groups[often[groups] == 1]
            again = self._by(effect, alone, groups) if len(alone) >= FEWEST else effect
            again = again._replace(chance=self._chance(again)) if again.chance < 0 else again
            if again.chance < LIKELY or again.fault.kind == "member":
                self.effects.append(again)
            else:
                self.slows[alone] = 0.0

    def _by(self, effect: Effect, alone: Integers, groups: Integers) -> Effect:
        """Return the effect as the groups `alone` show it, or all `groups` if there are none."""
        values = self.above[alone if len(alone) else groups]
        slower, count = float(np.median(values)), len(values)
        error = float(self._error(np.median(np.abs(values - slower)) if count >= FEWEST else 0.0, count))
        hits = int(np.count_nonzero(values > slower / 2))
        return effect._replace(slower=slower, error=error, groups=count, hits=hits)

    def _chance(self, effect: Effect) -> float:
        """Return the probability that noise slows any member's groups this much, by the groups without an effect."""
        usual = self.above[self.slows == 0]
        share = (np.count_nonzero(usual > effect.slower / 2) + 1) / (len(usual) + 2)
        sure = SURE / LIKELY if self.solid else 1.0
        return float(sure * self.times.count * chance_of(np.array(effect.hits), effect.groups, share))

    def across(self, level: Level) -> float:
        """Return the excess of groups across a level over groups that cross the same inner levels, as a logarithm."""
        rest, among = self._logs, (self.slows == 0) & ~self.one_way
        for inner in self.times.levels[: self.times.levels.index(level)]:
            among &= inner.crossed(self.groups) | (inner.kind == "rail")
        crossed = level.crossed(self.groups)
        parts = [rest[among & crossed], rest[among & ~crossed]]
        return float(np.median(parts[0]) - np.median(parts[1])) if all(map(len, parts)) else 0.0

    def faster(self) -> bool:
        """Return whether some members' groups are much faster than usual, which shows that the usual time is slow."""
        free = self.slows == 0
        low = (self.above < -self.limit) & free
        seen, fast = (np.bincount(self.groups[each].ravel(), minlength=self.times.count) for each in (free, low))
        there, share = seen > 0, float(low.sum() / max(1, int(free.sum())))
        if np.count_nonzero(low) < FEWEST or share == 1:
            return False
        if self.times.count <= EVERY_LINK // 2:  # among few members, only one link may be healthy
            _, place, often = np.unique(self.codes(), return_inverse=True, return_counts=True)
            if ((often >= FEWEST) & (np.bincount(place, low) == often)).any():
                return True
        spread = ((fast - seen * share)[there] ** 2 / (seen * share * (1 - share))[there]).sum()
        freedom = np.count_nonzero(there) - 1
        return bool(spread - freedom > _FASTER * np.sqrt(2 * freedom))
