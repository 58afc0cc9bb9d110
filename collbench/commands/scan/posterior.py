"""Who is slow, by what rounds of groups took: hypotheses, and how sure each is.

A hypothesis says which groups are slower: all with a member, those in which it sends, those that cross a leaf, ...
Each has profiles, how much slower and how often.  Times are logarithms over what groups of the same shape took; a time
that nothing explains is a straggler, of which there are some everywhere.  Any number of faults may be there: each is
judged given the others, whose groups tell nothing more, and so is whether there is one more (coordinate-wise, as in
iterated conditional modes: J. Besag, On the Statistical Analysis of Dirty Pictures, 1986).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.sequential import PRIOR_ROUNDS, TO_DEVIATION
from collbench.commands.scan.rows import Members, Round

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
EVERY, SENDS, RECEIVES, WITHIN, ACROSS = "", "sends", "receives", "within", "across"
"""Of a fault: every group with it, those in which it sends or receives, those with two of its members, those that have
members of it and others."""
SLOWER = 1.0, 1.4, 1.9, 2.5, 3.3, 4.4, 6.0, 8.5, 12.0, 24.0
"""How much slower faults are looked for: logarithms, over that of what is too slow."""
OFTEN = {1.0: 1.0, 0.5: 2.0, 0.2: 2.0}
"""Shares of the rounds, and from how much slower on: what is a little slower now and then is everywhere."""
_WIDE = 0.12  # of the logarithm of a slowness, which lies between those above
_STRAGGLERS, _STRAGGLING = 0.02, 0.2
"""Share of the times of groups that nothing explains, and the mean of their logarithms, before any were seen."""
_SEEN_BEFORE = 5.0  # stragglers that these count as
_ONE_MORE = 0.1  # how probable it is that there is another fault
_MOST = 16  # faults that are looked for
_EVERY_LINK = 16  # members up to which every link is looked at, and so measured; else those that were slow
_HIT = 3.5  # standard deviations above which a time may be due to a fault
_LEAST = 0.25  # of the logarithm of what is too slow: what members differ by at least, which is of no interest


class Fault(NamedTuple):
    """A fault that may be there: of what kind, of whom by name, and which groups it slows."""

    kind: str  # member, link, or that of a level: node, leaf, ...
    name: str
    way: str = EVERY


class Suspicion(NamedTuple):
    """One fault, given the others: how probable each hypothesis is, the likeliest first."""

    hypotheses: Sequence[tuple[Fault, float]]
    none: float  # probability that there is none
    slower: float  # logarithm of how much slower the groups of the likeliest are
    deviation: float  # standard deviation of a time
    rounds: int  # in which it showed
    seen: int  # rounds that could have shown it
    often: float  # share of the rounds, 1 of a lasting fault

    @property
    def likeliest(self) -> Fault:
        """The likeliest hypothesis."""
        return self.hypotheses[0][0]

    def of_name(self) -> float:
        """Return how probable it is that the likeliest has the fault, whichever way it shows."""
        (kind, name, _), _ = self.hypotheses[0]
        return sum(share for each, share in self.hypotheses if (each.kind, each.name) == (kind, name))


class Belief(NamedTuple):
    """What is known after some rounds."""

    suspicions: Sequence[Suspicion]
    one_more: float  # probability that there is another fault
    masses: Sequence[tuple[Integers, Floats]]  # by fault, and one more: hypotheses and their probabilities


class Hypotheses:
    """All faults that members may have, by number: members three ways, then levels two ways, then links three ways."""

    def __init__(self, members: Members) -> None:
        self.members, self.count = members, len(members.names)
        self._levels: list[tuple[str, Sequence[str], Integers, int, bool]] = []
        shares = [np.repeat([0.45, 0.075, 0.075], self.count) / self.count]
        first = 3 * self.count
        for level in members.levels:
            names, units = np.unique(level.units, return_inverse=True)
            if not 1 < len(names) < self.count:  # all are in one, or each is in its own
                continue
            rail = level.kind == "rail"
            self._levels.append((level.kind, names.tolist(), units, first, rail))
            first += len(names) * (1 if rail else 2)
            shares.append(np.full(first - sum(map(len, shares)), 0.1 / len(names)))
        self._prior = np.log(np.concatenate(shares))
        self._links: Integers = np.zeros(0, np.int64)
        few = np.arange(self.count**2 if self.count <= _EVERY_LINK else 0)
        self._always = few[few // max(1, self.count) != few % max(1, self.count)]

    @property
    def levels(self) -> list[Integers]:
        """The number of each member's node, leaf or rail, of levels that tell some members from others."""
        return [units for _, _, units, _, _ in self._levels]

    def set_links(self, codes: Integers) -> None:
        """Look at these links, sender * members + receiver, and among few members at every other."""
        lower, upper = np.divmod(np.concatenate([codes, self._always]), self.count)
        self._links = np.unique(np.minimum(lower, upper) * self.count + np.maximum(lower, upper))

    @property
    def prior(self) -> Floats:
        """Logarithms of how probable each is, of one fault."""
        link = 0.1 / max(1, self.count * (self.count - 1))
        return np.concatenate([self._prior, np.log(np.repeat([link, link / 4, link / 4], len(self._links)))])

    def __len__(self) -> int:
        return len(self._prior) + 3 * len(self._links)

    def __getitem__(self, number: int) -> Fault:
        names = self.members.names
        if number < 3 * self.count:
            return Fault("member", names[number % self.count], (EVERY, SENDS, RECEIVES)[number // self.count])
        if number >= len(self._prior):
            way, place = divmod(number - len(self._prior), len(self._links))
            pair = [names[end] for end in divmod(int(self._links[place]), self.count)]
            return Fault("link", (" - ", " > ", " > ")[way].join(pair[::-1] if way == 2 else pair))
        kind, units, _, first, rail = next(level for level in reversed(self._levels) if level[3] <= number)
        way, place = divmod(number - first, len(units))
        return Fault(kind, units[place], WITHIN if rail else (EVERY, ACROSS)[way])

    def of_member(self, number: int) -> list[int]:
        """Return the members that a hypothesis is of."""
        if number < 3 * self.count:
            return [number % self.count]
        if number >= len(self._prior):
            return list(divmod(int(self._links[(number - len(self._prior)) % len(self._links)]), self.count))
        _, units, of, first, _ = next(level for level in reversed(self._levels) if level[3] <= number)
        return list(np.flatnonzero(of == (number - first) % len(units)))

    def slowed(self, groups: Integers, one_way: bool) -> tuple[Integers, Integers]:
        """Return which groups, shape (groups, members), a fault would slow: pairs of a group and a hypothesis."""
        count, size = groups.shape
        of, flat = np.repeat(np.arange(count), size), groups.ravel()
        pairs = [(of, flat)]
        if one_way:
            pairs += [(np.arange(count), self.count + groups[:, 0]), (np.arange(count), 2 * self.count + groups[:, 1])]
        else:
            pairs += [(of, self.count + flat), (of, 2 * self.count + flat)]
        for _, units, unit, first, rail in self._levels:
            ordered = np.sort(unit[groups], axis=1)
            same = np.zeros(groups.shape, bool)
            same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
            places, columns = np.nonzero(same if rail else ~same)
            pairs.append((places, first + ordered[places, columns]))
            if not rail:
                crossing = (~same).sum(axis=1)[places] > 1
                pairs.append((places[crossing], first + len(units) + ordered[places, columns][crossing]))
        return self._with_links(pairs, groups, one_way)

    def _with_links(
        self, pairs: list[tuple[Integers, Integers]], groups: Integers, one_way: bool
    ) -> tuple[Integers, Integers]:
        links, first = len(self._links), len(self._prior)
        if links:
            codes, of = edges(groups, one_way, self.count)
            sender, receiver = np.divmod(codes, self.count)
            undirected = np.minimum(sender, receiver) * self.count + np.maximum(sender, receiver)
            place = np.minimum(np.searchsorted(self._links, undirected), links - 1)
            known = self._links[place] == undirected
            place, of, backward = place[known], of[known], (sender > receiver)[known]
            both = np.unique(np.stack([of, place]), axis=1)
            pairs.append((both[0], first + both[1]))
            pairs.append((of, first + links * (1 + backward) + place))
        joined = [np.concatenate(side) for side in zip(*pairs, strict=True)]
        return joined[0], joined[1]


def edges(groups: Integers, one_way: bool, members: int) -> tuple[Integers, Integers]:
    """Return the messages of groups, which send round in a ring, as sender * members + receiver; and their groups."""
    following = np.roll(groups, -1, axis=1)
    sent = (groups * members + following)[:, :1] if one_way else groups * members + following
    return sent.ravel(), np.repeat(np.arange(len(groups)), sent.shape[1])


class Posterior:
    """Takes the rounds so far, and says what is known.

    Args:
        members: Who takes part, and what they are part of.
        deviation: What rounds of a healthy group scatter by, before any was seen: of a logarithm.
        slower: Share of the usual time that is too much.

    """

    def __init__(self, members: Members, deviation: float, slower: float) -> None:
        self.hypotheses = Hypotheses(members)
        self._deviation, self._slower = deviation, np.log1p(slower)
        self._rounds: list[tuple[Integers, bool]] = []
        self._logs: list[Floats] = []
        self._shapes: list[Integers] = []
        self._levels = [np.unique(level.units, return_inverse=True)[1] for level in members.levels]

    def add(self, measured: Round) -> None:
        """Take a round."""
        if not measured.groups:
            return
        groups = np.array(measured.groups, np.int64)
        self._rounds.append((groups, measured.one_way))
        self._logs.append(np.log(measured.seconds))

        # Groups of one shape have the same time where all is well: of as many, within one node, one leaf, or beyond.
        within = np.zeros(len(groups), np.int64)
        for unit in self._levels:
            within = within * 2 + (unit[groups] != unit[groups][:, :1]).any(axis=1)
        self._shapes.append((within * 2 + measured.one_way) * 1024 + groups.shape[1])

    def believe(self) -> Belief:
        """Return what is known now."""
        logs = np.concatenate([*self._logs, np.zeros(0)])
        _, shape = np.unique(np.concatenate([*self._shapes, np.zeros(0, np.int64)]), return_inverse=True)
        hypotheses, slowed = self.hypotheses, np.zeros(len(logs), bool)
        hypotheses.set_links(np.zeros(0, np.int64))
        faults: list[int] = []
        for _ in range(3):  # what is usual depends on who is slow, and the other way round
            above, deviation = self._scaled(logs, shape, slowed if faults else None)
            hypotheses.set_links(self._suspected(above, deviation))
            found = _Faults(hypotheses, (above, deviation), self._incidence(), slowed, self._slower)
            again = found.look()
            slowed = found.slowed(again) > 0
            if again == faults:
                break
            faults = again
        return found.belief(faults)

    def _incidence(self) -> tuple[Integers, Integers]:
        of, by, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for groups, one_way in self._rounds:
            places, numbers = self.hypotheses.slowed(groups, one_way)
            of.append(first + places)
            by.append(numbers)
            first += len(groups)
        return np.concatenate(of), np.concatenate(by)

    def _suspected(self, above: Floats, deviation: Floats) -> Integers:
        """Return the messages of groups that were slow."""
        codes, first = [np.zeros(0, np.int64)], 0
        for groups, one_way in self._rounds:
            slow = above[first : first + len(groups)] > _HIT * deviation[first : first + len(groups)]
            codes.append(edges(groups[slow], one_way, self.hypotheses.count)[0])
            first += len(groups)
        return np.concatenate(codes)

    def _scaled(self, logs: Floats, shape: Integers, slowed: NDArray[np.bool_] | None) -> tuple[Floats, Floats]:
        """Return logarithms over the usual time of their shape, and what those scatter by.

        `slowed` says which have a fault; before that is known the fastest half counts.
        """
        above, deviation = np.zeros(len(logs)), np.full(len(logs), self._deviation)
        for number in range(shape.max(initial=-1) + 1):
            here = shape == number
            values = logs[here] if slowed is None else logs[here & ~slowed]
            if not len(values):
                values = logs[here]
            if slowed is None:
                centre = float(np.quantile(values, 0.25))
                near = np.abs(values[values <= np.median(values)] - centre)
                spread = 2 * TO_DEVIATION * float(np.median(near))
                centre += 0.35 * spread
            else:
                centre = float(np.median(values))
                spread = TO_DEVIATION * float(np.median(np.abs(values - centre)))
            weight = PRIOR_ROUNDS + len(values)
            above[here] = logs[here] - centre
            deviation[here] = np.sqrt((PRIOR_ROUNDS * self._deviation**2 + len(values) * spread**2) / weight)
        return above, np.maximum(deviation, _LEAST * self._slower)


class _Faults:
    """The search for faults, given what is usual."""

    def __init__(
        self,
        hypotheses: Hypotheses,
        scaled: tuple[Floats, Floats],  # times above the usual, and their deviations
        slowed: tuple[Integers, Integers],  # groups, and the hypotheses that would slow them
        explained: NDArray[np.bool_],  # groups that are slow because of what was found so far
        least: float,  # of what is too slow
    ) -> None:
        (above, deviation), (of, by) = scaled, slowed
        self._hypotheses, self._above, self._deviation, self._of, self._by = hypotheses, above, deviation, of, by
        self._prior = hypotheses.prior + np.log(_ONE_MORE)
        self._hit = above > _HIT * deviation
        self._profiles = [
            (slower * least, often) for often, first in OFTEN.items() for slower in SLOWER if slower >= first
        ]
        # How many stragglers there are is learned, and how slow.
        alone = self._hit & ~explained
        stragglers = _SEEN_BEFORE + np.count_nonzero(alone)
        self._alone = min(0.2, stragglers / (_SEEN_BEFORE / _STRAGGLERS + len(above)))
        self._straggling = (_SEEN_BEFORE * _STRAGGLING + above[alone].sum()) / stragglers
        every = np.arange(len(above))
        self._ratios = [self._ratio(profile, every, 0.0) for profile in self._profiles]
        self._alone_scores = self._summed(self._ratios, of, by, len(hypotheses))

    def _ratio(self, profile: tuple[float, float], groups: Integers, already: Floats | float) -> Floats:
        """Return logarithms of how much likelier times of groups are with a fault of that profile than without it.

        `already` is how much slower they are because of another fault, which hides one that is not slower than it: the
        narrowest part of a way decides.
        """
        slower, often = profile
        above, deviation = self._above[groups], self._deviation[groups]
        more = np.maximum(slower, already)
        ratio = self._density(above - more, np.hypot(deviation, _WIDE * slower)) / self._density(
            above - already, deviation
        )
        likelier: Floats = np.where(more > already, np.log1p(often * (ratio - 1 + 1e-12)), 0.0)
        return likelier

    def _density(self, away: Floats, width: Floats) -> Floats:
        """Return the density of times so far from what is usual for them, stragglers among them."""
        density: Floats = np.exp(-((away / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
        tail: Floats = np.exp(-np.abs(away) / self._straggling) / self._straggling
        return np.asarray((1 - self._alone) * density + self._alone * tail)

    def look(self) -> list[int]:
        """Return the numbers of all faults that are more probable than not, given those before."""
        faults: list[int] = []
        while len(faults) < _MOST:
            scores = self._scores(self.slowed(faults)) + self._prior
            best = int(np.argmax(scores))
            if np.logaddexp.reduce(scores) < 0 or best in faults:
                break
            faults.append(best)

        # Each again, given all others: the first was found before there were any.
        for place in range(len(faults)):
            others = faults[:place] + faults[place + 1 :]
            if others:
                faults[place] = int(np.argmax(self._scores(self.slowed(others)) + self._prior))
        return sorted(set(faults))

    def slowed(self, faults: Sequence[int]) -> Floats:
        """Return by how much groups are slow because of one of these faults, a logarithm each; 0 of the others."""
        slowed = np.zeros(len(self._above))
        for fault in faults:
            groups = self._of[self._by == fault]
            groups = groups[self._hit[groups]]
            if len(groups):
                slowed[groups] = np.maximum(slowed[groups], np.median(self._above[groups]))
        return slowed

    def _scores(self, slowed: Floats) -> Floats:
        """Return by hypothesis the logarithm of its likelihood ratio, where groups are as slow already.

        What could only show in these, and does not, is no other fault.
        """
        hidden = np.flatnonzero(slowed)
        scores = self._alone_scores.copy()
        if not len(hidden):
            return scores

        # Only of those that would slow such a group another score is calculated.
        concerned = np.unique(self._by[slowed[self._of] > 0])
        place = np.full(len(scores), -1)
        place[concerned] = np.arange(len(concerned))
        mine = place[self._by] >= 0
        of, by, given = self._of[mine], place[self._by[mine]], []
        for profile, ratio in zip(self._profiles, self._ratios, strict=True):
            given.append(ratio.copy())
            given[-1][hidden] = self._ratio(profile, hidden, slowed[hidden])
        found = self._summed(given, of, by, len(concerned))
        seen = np.bincount(by, slowed[of] == 0, len(concerned))
        found[(seen == 0) & (found <= 0)] = -np.inf
        scores[concerned] = found
        return scores

    def _summed(self, ratios: Sequence[Floats], of: Integers, by: Integers, count: int) -> Floats:
        """Return the scores of so many hypotheses, over all profiles."""
        by_profile = np.array([np.bincount(by, ratio[of], count) for ratio in ratios])
        scores: Floats = np.logaddexp.reduce(by_profile, axis=0) - np.log(len(by_profile))
        return scores

    def belief(self, faults: Sequence[int]) -> Belief:
        """Return each fault given the others, and whether there is one more."""
        suspicions, masses = [], []
        for place, _ in enumerate(faults):
            slowed = self.slowed([*faults[:place], *faults[place + 1 :]])
            chances, none = self._chances(slowed)
            suspicions.append(self._suspicion(chances, none, slowed))
            masses.append(_most(chances))
        chances, none = self._chances(self.slowed(faults))
        return Belief(suspicions, 1 - none, [*masses, _most(chances)])

    def _chances(self, slowed: Floats) -> tuple[Floats, float]:
        """Return the probability of each hypothesis for one fault, and that there is none."""
        scores = self._scores(slowed) + self._prior
        total = np.logaddexp(np.logaddexp.reduce(scores), np.log1p(-_ONE_MORE))
        return np.exp(scores - total), float(np.exp(np.log1p(-_ONE_MORE) - total))

    def _suspicion(self, chances: Floats, none: float, slowed: Floats) -> Suspicion:
        order = np.argsort(-chances)[:50]
        best = int(order[0])
        mine = self._of[self._by == best]
        hits = mine[self._above[mine] - slowed[mine] > _HIT * self._deviation[mine]]
        _, often = max(self._profiles, key=lambda profile: float(self._ratio(profile, mine, slowed[mine]).sum()))
        used = hits if len(hits) and (often < 1 or slowed[mine].any()) else mine
        return Suspicion(
            hypotheses=[(self._hypotheses[int(number)], float(chances[number])) for number in order],
            none=none,
            slower=float(np.median(self._above[used])),
            deviation=float(np.mean(self._deviation[used])),
            rounds=len(hits),
            seen=len(mine),
            often=1.0 if often == 1 else len(hits) / len(mine),
        )


def _most(chances: Floats) -> tuple[Integers, Floats]:
    """Return the hypotheses that hold nearly all of the probability."""
    order = np.argsort(-chances)
    needed = int(np.searchsorted(np.cumsum(chances[order]), 0.999 * chances.sum())) + 1
    return order[:needed], chances[order[:needed]]
