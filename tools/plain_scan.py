"""The plain opponent of `collbench scan`: medians of random pairs, of which the worst is named and taken away."""

import numpy as np
from scipy.stats import binom

from collbench.analysis.judgement import Word
from tools.scan_worlds import SIZES, Answer, Floats, Ints, World

ROUNDS, LIMIT, CHANCE = 36, 1.1, 0.01  # what is too much; how often chance may accuse somebody of a healthy cluster


def matching(random: np.random.Generator, leaves: Ints, inside: bool) -> Ints:
    """Pairs at random; inside leaves as many as there are."""
    wholes = [np.flatnonzero(leaves == leaf) for leaf in np.unique(leaves)] if inside else [np.arange(len(leaves))]
    return np.concatenate([random.permutation(each)[: len(each) // 2 * 2].reshape(-1, 2) for each in wholes])


def measured(world: World) -> tuple[Ints, Floats, float]:
    """All pairs, their times over the usual ones of their round and shape, and the share far above the fast ones."""
    random, pairs, ratios, far = np.random.default_rng(1), [], [], []
    for number in range(ROUNDS):
        groups = matching(random, world.leaves, number % 3 == 2)
        seconds = world.times(groups, False, SIZES[1])
        across = np.ptp(world.leaves[groups], axis=1) > 0
        for shape in (shape for shape in (across, ~across) if shape.any()):
            pairs.append(groups[shape])
            ratios.append(seconds[shape] / np.median(seconds[shape]))
            far.append(seconds[shape] > LIMIT * np.quantile(seconds[shape], 0.1))
    return np.concatenate(pairs), np.concatenate(ratios), float(np.mean(np.concatenate(far)))


def plain_scan(world: World) -> Answer:
    """Return the answer of the opponent to a world."""
    pairs, ratios, far = measured(world)
    named, kept, across = set(), np.ones(len(pairs), bool), np.ptp(world.leaves[pairs], axis=1) > 0
    has = np.array([(pairs == node).any(axis=1) for node in range(world.members)])  # of each node, which pairs
    for leaf in np.unique(world.leaves):
        leaving = has[world.leaves == leaf] & across
        if len(leaving) > 1 and all(one.any() and np.median(ratios[one]) > LIMIT for one in leaving):
            named.add(f"leaf {leaf}")
            kept &= ~leaving.any(axis=0)
    while True:
        figures = [np.median(ratios[one & kept]) if (one & kept).any() else 0 for one in has]
        worst = int(np.argmax(figures))
        if figures[worst] <= LIMIT:
            break
        named.add(f"node {worst}")
        kept &= ~has[worst]
    slow = (ratios > LIMIT) & kept
    chances = binom.sf((has & slow).sum(axis=1) - 1, (has & kept).sum(axis=1), slow.sum() / max(1, kept.sum()))
    named |= {f"node {node}" for node in np.flatnonzero(chances < CHANCE / world.members)}
    word = Word.UNKNOWN if far > 0.5 else Word.SLOW if named else Word.OK
    return Answer(word, frozenset(named if far <= 0.5 else ()), ROUNDS, LIMIT, often=0.2)
