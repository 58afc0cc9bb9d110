"""Which groups to measure next: of several ways to deal the members, the one that is expected to tell most.

What a round tells is the mutual information between who is slow and which groups are: the entropy of the groups that
are slow, over all hypotheses by their probability (group testing by expected information: R. Dorfman, 1943; M. Cuturi
and others, Noisy Adaptive Group Testing using Bayesian Sequential Experimental Design, 2020).  All members are busy at
once and a group's messages take as long however many it has, so the cost is the same and the entropy alone decides.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collbench.commands.scan.posterior import Belief, Floats, Hypotheses, Integers

_TRIES = 3  # draws of each way to deal
_SUSPECTS, _LINKS = 500, 3  # that ways to deal look at, of each fault


class RoundPlan(NamedTuple):
    """A round: disjoint groups, shape (groups, members); one way, only the first of each pair sends."""

    groups: Integers
    one_way: bool = False


def choose(
    hypotheses: Hypotheses, belief: Belief, size: int, random: np.random.Generator, out: Sequence[int] = ()
) -> RoundPlan:
    """Return the round that tells most of the faults that are suspected and of one more, without the members `out`."""
    plans = list(_plans(hypotheses, belief, size, random, out))
    return max(plans, key=lambda plan: _information(hypotheses, belief, plan))


def _information(hypotheses: Hypotheses, belief: Belief, plan: RoundPlan) -> float:
    """Return the entropy of which groups will be slow, in nats, summed over faults."""
    of, by = hypotheses.slowed(plan.groups, plan.one_way)
    known = [int(numbers[0]) for numbers, _ in belief.masses[:-1]]
    entropy = 0.0
    for place, (numbers, chances) in enumerate(belief.masses):
        # A signature for each hypothesis: the sum of numbers drawn for the groups that it slows.  What another fault
        # slows already shows nothing.
        drawn = np.random.default_rng(0).random(len(plan.groups))
        drawn[of[np.isin(by, known[:place] + known[place + 1 :])]] = 0.0
        signatures = np.bincount(by, drawn[of], len(hypotheses)).round(9)
        seen, outcome = np.unique(np.append(signatures[numbers], 0.0), return_inverse=True)
        shares = np.bincount(outcome, np.append(chances, max(0.0, 1 - chances.sum())), len(seen))
        shares = shares[shares > 0]
        entropy -= float((shares * np.log(shares)).sum())
    return entropy


def _plans(
    hypotheses: Hypotheses, belief: Belief, size: int, random: np.random.Generator, out: Sequence[int]
) -> Iterator[RoundPlan]:
    """Yield ways to deal the members: suspects apart, within levels, the ends of a link together, and one way."""
    mass, links = _suspects(hypotheses, belief, out)
    for _ in range(_TRIES):
        order = np.lexsort((random.random(len(mass)), -mass))
        order = order[~np.isin(order, out)]
        yield from _ways(_dealt(order, size, random), random)
        for level in hypotheses.levels:
            inside = [_dealt(part, size, random) for part in _parts(order, level)]
            if sum(map(len, inside)):
                yield from _ways(np.concatenate(inside), random)
        for link in links:
            others = _dealt(order[~np.isin(order, link)], size, random)
            if size == 2:
                for ends in (link, link[::-1]):
                    yield RoundPlan(np.concatenate([[ends], others]), one_way=True)
                yield RoundPlan(np.concatenate([[link], others]))


def _ways(groups: Integers, random: np.random.Generator) -> Iterator[RoundPlan]:
    """Yield the round of these groups; of pairs one too in which either end sends."""
    yield RoundPlan(groups)
    if groups.shape[1] == 2:
        turned = random.random(len(groups)) < 0.5
        yield RoundPlan(np.where(turned[:, None], groups[:, ::-1], groups), one_way=True)


def _suspects(hypotheses: Hypotheses, belief: Belief, out: Sequence[int]) -> tuple[Floats, list[tuple[int, ...]]]:
    """Return how suspect each member is, and the ends of the likeliest links."""
    mass, links = np.zeros(hypotheses.count), dict[tuple[int, ...], float]()
    for numbers, chances in belief.masses:
        for number, chance in list(zip(numbers.tolist(), chances.tolist(), strict=True))[:_SUSPECTS]:
            members = hypotheses.of_member(number)
            mass[members] += chance / len(members)
            if hypotheses[number].kind == "link" and not set(members) & set(out):
                links[tuple(members)] = max(chance, links.get(tuple(members), 0.0))
    return mass, sorted(links, key=lambda link: -links[link])[:_LINKS]


def _parts(order: Integers, unit: Integers) -> list[Integers]:
    """Return the members of each unit, in their order."""
    by_unit = order[np.argsort(unit[order], kind="stable")]
    return np.split(by_unit, np.flatnonzero(np.diff(unit[by_unit])) + 1)


def _dealt(order: Integers, size: int, random: np.random.Generator) -> Integers:
    """Return groups of members, the first of whom are apart, and the last of whom may be left over."""
    count = len(order) // size
    first, others = order[:count], random.permutation(order[count : count * size])
    return np.column_stack([first, others.reshape(count, size - 1)])
