"""The plain opponent of `collbench scan`: medians of random pairs, of which the worst is named and taken away."""

import numpy as np
from scipy.stats import binom

from collbench.analysis.judgement import Word
from tools.scan_worlds import SIZES, Answer, Floats, Ints, Sight, World

ROUNDS, LIMIT, CHANCE = 36, 0.1, 0.01  # what is too much; how often a healthy cluster may be accused by the test
SIGHT = Sight(1 + LIMIT, 0.2, False, SIZES[1:])


def matching(random: np.random.Generator, leaves: Ints, inside: bool) -> Ints:
    """Pairs at random; inside leaves as many as there are."""
    orders = [random.permutation(len(leaves))]
    if inside:
        orders = [random.permutation(np.flatnonzero(leaves == leaf)) for leaf in np.unique(leaves)]
    return np.concatenate([order[: len(order) // 2 * 2].reshape(-1, 2) for order in orders])


def measured(world: World, random: np.random.Generator) -> tuple[Ints, Floats, float]:
    """All pairs, their times over the usual ones of their round and shape, and the share far above the fast ones."""
    pairs, ratios, far = [], [], []
    for number in range(ROUNDS):
        groups = matching(random, world.leaves, number % 3 == 2)
        seconds = world.times(groups, False, SIZES[1])
        across = np.ptp(world.leaves[groups], axis=1) > 0
        for shape in (groups[across], seconds[across]), (groups[~across], seconds[~across]):
            if len(shape[0]):
                pairs.append(shape[0])
                ratios.append(shape[1] / np.median(shape[1]))
                far.append(shape[1] > (1 + LIMIT) * np.quantile(shape[1], 0.1))
    return np.concatenate(pairs), np.concatenate(ratios), float(np.mean(np.concatenate(far)))


def plain_scan(world: World) -> Answer:
    """What the opponent says of a world."""
    pairs, ratios, far = measured(world, np.random.default_rng(1))
    if far > 0.5:
        return Answer(Word.UNKNOWN, frozenset(), ROUNDS, SIGHT)
    named, kept = set(), np.ones(len(pairs), bool)
    has = np.array([(pairs == node).any(axis=1) for node in range(world.members)])  # of each node, which pairs
    across = np.ptp(world.leaves[pairs], axis=1) > 0
    for leaf in np.unique(world.leaves) if across.any() else ():
        leaving = has[world.leaves == leaf] & across
        if len(leaving) > 1 and all(one.any() and np.median(ratios[one]) > 1 + LIMIT for one in leaving):
            named.add(f"leaf {leaf}")
            kept &= ~leaving.any(axis=0)
    while kept.any():
        figures = [np.median(ratios[one & kept]) if (one & kept).any() else 0 for one in has]
        worst = int(np.argmax(figures))
        if figures[worst] <= 1 + LIMIT:
            break
        named.add(f"node {worst}")
        kept &= ~has[worst]
    slow = (ratios > 1 + LIMIT) & kept
    usual = slow.sum() / max(1, kept.sum())
    chances = binom.sf((has & slow).sum(axis=1) - 1, (has & kept).sum(axis=1), usual)
    named |= {f"node {node}" for node in np.flatnonzero(chances < CHANCE / world.members)}
    return Answer(Word.SLOW if named else Word.OK, frozenset(named), ROUNDS, SIGHT)
