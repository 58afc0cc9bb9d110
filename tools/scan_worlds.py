"""Simulated clusters with known faults, for tests of `collbench scan`; their physics is independent of its model."""

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from scipy.signal import lfilter

from collbench.analysis.judgement import Word

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SIZES = (8 << 10, 1 << 20)  # latency dominates the first, bandwidth the second
LIMIT, GREY = 1.1, (1.09, 1.11)  # times the usual time: too much; either answer is right
MOST = 400  # most rounds of a world


class Answer(NamedTuple):
    """The answer of a scan, and its sight."""

    word: Word
    named: frozenset[str]
    rounds: int
    slower: float = LIMIT  # factor of a lasting fault that the scan would see
    often: float = 1.0  # share of rounds of an occasional fault that the scan would see
    links: bool = False
    sizes: tuple[int, ...] = SIZES[1:]


class Fault(NamedTuple):
    """A slow node, always or only as a sender; a slow leaf, for messages that leave it; or a slow link of two nodes."""

    kind: str  # node, send, leaf, link
    of: tuple[int, ...]
    factor: float
    share: float = 1.0  # of the rounds
    least: int = 0  # bytes of the shortest message that is slowed

    @property
    def name(self) -> str:
        """The name of the fault in an answer."""
        return f"leaf {self.of[0]}" if self.kind == "leaf" else " - ".join(f"node {one}" for one in sorted(self.of))

    def inside(self, sight: Answer) -> bool:
        """Return whether the scan claims to see the fault."""
        looked = max(sight.sizes) >= self.least and (sight.links or self.kind != "link")
        return looked and self.factor >= sight.slower and (self.share == 1 or self.share >= sight.often)


def _clocks(random: Generator, members: int) -> Floats:
    """Draw members that switch between two clocks after 4 to 12 rounds in the mean."""
    chances = np.full((MOST, members), 1 / random.uniform(4, 12))
    chances[0] = 0.5
    return random.uniform(0.04, 0.05) * ((random.random(chances.shape) < chances).cumsum(axis=0) % 2)


def _wandering(random: Generator, members: int) -> Floats:
    """Draw AR(1) noise: a member's time is correlated with its previous one."""
    steps = random.normal(0, 0.04 * np.sqrt(1 - 0.9**2), (MOST + 100, members))
    return np.asarray(lfilter([1], [1, -0.9], steps, axis=0)[100:])


def _spells(random: Generator, members: int) -> Floats:
    """Draw spells of 2 to 6 slow rounds for each member, in 3 % of the rounds."""
    shape = MOST + 5, members
    lengths = (random.random(shape) < 0.03 / 4) * random.integers(2, 7, shape)
    sizes = np.log(random.uniform(1.15, 1.3, shape))
    ago = [(lengths > rounds)[5 - rounds :][:MOST] * sizes[5 - rounds :][:MOST] for rounds in range(6)]
    return np.asarray(np.max(ago, axis=0))


def _drifts(random: Generator, members: int) -> Floats:
    """Draw an independent drift for each member: linear in the whole world, up to 8 % in 60 rounds, or random walks."""
    walks = random.normal(0, 0.005, (MOST, members)).cumsum(axis=0)
    lines = np.arange(MOST)[:, None] / 60 * random.uniform(-0.08, 0.08, members)
    return walks if random.random() < 0.5 else lines


class Noise(NamedTuple):
    """A source of differing times without a fault."""

    normal: float = 0.01  # standard deviation of each time
    tails: float = 0.0  # share of the times that take longer, by the factor that `tail` draws
    tail: Callable[[Generator, int], Floats] = lambda random, times: 0.1 * random.pareto(1.5, times)
    links: float = 0.0  # standard deviation between links, constant in time
    drift: float = 0.0  # drift of all members together, a round
    jitter: float = 0.0  # share of the rounds in which half of the groups take 20 to 100 % longer
    members: Callable[[Generator, int], Floats] = lambda random, members: np.zeros((MOST, members))  # logs by round


QUIET = Noise(0.003, 0.04, lambda random, times: random.exponential(0.12, times))
NOISES = {
    "normal, 3 %": Noise(0.03),
    "normal, 6 %": Noise(0.06),
    "Pareto tails, 8 % of the times": Noise(tails=0.08),
    "Pareto tails, 20 % of the times": Noise(tails=0.2),
    "links that differ by 3 %": Noise(links=0.03),
    "nodes of two clocks": Noise(members=_clocks),
    "nodes that wander, AR(1)": Noise(members=_wandering),
    "spells of nodes": Noise(members=_spells),
    "all drift together": Noise(drift=0.01),
    "each node drifts": Noise(members=_drifts),
    "jitter in a fifth of the rounds": Noise(jitter=0.2),
}
Planted = Callable[[Generator, Ints], tuple[Fault, ...]]


def plant(kind: str, low: float, high: float = 0, many: int = 1, of_leaf: bool = False, **fault: Any) -> Planted:
    """Return a function that draws faults: nodes (of one leaf), leaves or a link; of `many` = 0, 3 to 8."""

    def planted(random: Generator, leaves: Ints) -> tuple[Fault, ...]:
        among, whole = np.arange(leaves.max() + 1 if kind == "leaf" else len(leaves)), np.bincount(leaves)
        if of_leaf:
            among = np.flatnonzero(leaves == random.choice(np.flatnonzero(whole == whole.max())))
        number = many or random.integers(3, min(8, len(among) // 2, len(leaves) // 4) + 1)
        chosen = random.choice(among, (1, 2) if kind == "link" else (number, 1), replace=False).tolist()
        factors = random.uniform(low, high or low, len(chosen)).tolist()
        return tuple(Fault(kind, tuple(of), f)._replace(**fault) for of, f in zip(chosen, factors, strict=True))

    return planted


class World:
    """A cluster: the times of its rounds, and its faults."""

    def __init__(self, members: int, size: int, planted: Planted, noise: Noise, random: Generator) -> None:
        self.members, self.leaves, self.noise, self.random = members, np.arange(members) // size, noise, random
        self.faults = planted(random, self.leaves)
        self.lasting = {fault for fault in self.faults if fault.kind == "node" and fault.share == 1 and not fault.least}
        self.way = random.choice(("slower end", "pipelined", "staged"))  # how the delays of ends and path combine
        self.alpha, self.beta = random.uniform(4e-6, 8e-6), random.uniform(20e9, 50e9)
        self.far = random.uniform(1.1, 1.5), random.uniform(1, 1.25)  # factors of latency and transfer across leaves
        self.duplex = random.uniform(1, 1.3)  # factor of transfer while the other end sends, too
        links = np.triu(random.normal(0, noise.links, (members, members)), 1)
        self.links, self.states, self.rounds = np.exp(links + links.T), noise.members(random, members), 0

    def times(self, groups: Ints, one_way: bool, nbytes: int) -> Floats:
        """Return the seconds of each group in the next round."""
        sends = np.ones(groups.shape, bool)
        sends[:, 1:] = not one_way
        ends, path = np.exp(self.states[self.rounds])[groups], []
        self.rounds += 1
        for fault in self.faults:
            factor = fault.factor if nbytes >= fault.least and self.random.random() < fault.share else 1.0
            touched = self.leaves[groups] == fault.of[0] if fault.kind == "leaf" else np.isin(groups, fault.of)
            if fault.kind in ("node", "send"):
                ends = np.where(touched & (sends | (fault.kind == "node")), ends * factor, ends)
            else:
                both = touched.sum(axis=1) == 2 if fault.kind == "link" else touched.any(axis=1) & ~touched.all(axis=1)
                path.append(np.where(both & (factor > 1), factor, 0))
        across = (self.leaves[groups] != self.leaves[groups[:, :1]]).any(axis=1)
        latency = self.alpha * np.where(across, self.far[0], 1)
        transfer = nbytes / self.beta * np.where(across, self.far[1], 1) * (1 if one_way else self.duplex)
        parts = np.column_stack([ends, *path])
        adds = self.way == "staged" or (self.way == "pipelined" and nbytes < self.alpha * self.beta)
        slow = 1 + np.where(parts > 0, parts - 1, 0).sum(axis=1) if adds else parts.max(axis=1)
        random, noise, many = self.random, self.noise, len(groups)
        longer = np.where(random.random(many) < noise.tails, noise.tail(random, many), 0)
        if random.random() < noise.jitter:
            longer += np.where(random.random(many) < 0.5, random.uniform(0.2, 1, many), 0)
        usual = np.exp(random.normal(0, noise.normal, many) + noise.drift * self.rounds)
        links = self.links[groups, np.roll(groups, -1, axis=1)].max(axis=1)
        return np.asarray((latency + transfer) * slow * usual * (1 + longer) * links)

    def ratios(self) -> Floats:
        """Return, after a scan, the mean slowdown of each node over the typical node."""
        means = self.states[: self.rounds].mean(axis=0)
        ratios = np.exp(means - np.median(means))
        for fault in self.lasting:
            ratios[list(fault.of)] *= fault.factor
        return np.asarray(ratios)

    def slow(self) -> dict[str, Fault]:
        """Return, after a scan, the faults by their names."""
        slow = [Fault("node", (node,), ratio) for node, ratio in enumerate(self.ratios()) if ratio > LIMIT]
        return {fault.name: fault for fault in (*slow, *(set(self.faults) - self.lasting))}

    def grey(self) -> set[str]:
        """Return, after a scan, the nodes so close to the limit that either answer is right."""
        return {f"node {node}" for node, ratio in enumerate(self.ratios()) if GREY[0] <= ratio <= GREY[1]}


FAULTS: dict[str, Planted] = {
    "healthy": plant("node", 1),
    "a node, 1.2 to 2 times": plant("node", 1.2, 2),
    "3 to 8 nodes of a leaf, 1.25 times": plant("node", 1.25, many=0, of_leaf=True),
    "a leaf, 1.43 times": plant("leaf", 1.43),
    "a link, 2 times": plant("link", 2),
    "a node, 1.67 times now and then": lambda random, _: plant("node", 1.67, share=random.uniform(0.2, 0.5))(random, _),
}


def drawn(noise: str, fault: str, seed: int) -> World:
    """Draw a world of 16 to 64 nodes with leaves of 8, 16 or 32, with this noise and this fault."""
    random = default_rng((crc32(f"{noise}; {fault}".encode()), seed))
    size = int(random.choice((8, 16) if "a leaf," in fault else (8, 16, 32)))
    members = size * random.integers(4, 64 // size + 1) if "a leaf," in fault else random.integers(16, 65)
    return World(int(members), size, FAULTS[fault], NOISES[noise], random)


class Row(NamedTuple):
    """A cluster of the table, and the right answers: `named` means exactly the slow members."""

    right: str
    planted: Planted
    members: int = 64
    size: int = 16  # nodes of a leaf
    noise: Noise = QUIET

    def drawn(self, seed: int) -> World:
        return World(self.members, self.size, self.planted, self.noise, default_rng(seed))


DRIFT, JITTER = QUIET._replace(drift=0.01), QUIET._replace(jitter=0.2)
TABLE = {
    "3 nodes, one at 0.6": Row("named or UNKNOWN", plant("node", 1 / 0.6), 3),
    "4 nodes, two at 0.5": Row("named or UNKNOWN", plant("node", 2, many=2), 4),
    "5 nodes, two at 0.5": Row("named or UNKNOWN", plant("node", 2, many=2), 5),
    "32 nodes, 14 at 0.8": Row("named or UNKNOWN", plant("node", 1.25, many=14), 32, 8),
    "32 nodes, 20 at 0.8": Row("named or UNKNOWN", plant("node", 1.25, many=20), 32, 8),
    "96 nodes, one of three leaves at 0.7": Row("named or UNKNOWN", plant("leaf", 1 / 0.7), 96, 32),
    **{
        f"{4 * size} nodes, {many} of a leaf at 0.8": Row("named", plant("node", 1.25, 0, many, True), 4 * size, size)
        for size in (16, 32)
        for many in (3, 4, 6, 8)
    },
    "64 nodes, one at 0.95": Row("OK", plant("node", 1 / 0.95)),
    "64 nodes, one at 0.94": Row("OK", plant("node", 1 / 0.94)),
    "64 nodes, 6 slow by 6 to 8 %": Row("OK", plant("node", 1.06, 1.08, 6)),
    "64 nodes, one of two leaves at 0.7": Row("UNKNOWN", plant("leaf", 1 / 0.7), size=32),
    "64 nodes, two leaves, healthy": Row("OK or UNKNOWN", plant("node", 1), size=32),
    "64 nodes, a link at 0.5": Row("OK or named", plant("link", 2)),
    "64 nodes, one at 0.5 from 64 MiB on": Row("OK or named", plant("node", 2, least=64 << 20)),
    "all drift, one at 0.9": Row("named", plant("node", 1 / 0.9), noise=DRIFT),
    "all drift, one at 1 / 1.15": Row("named", plant("node", 1.15), noise=DRIFT),
    "jitter, healthy": Row("OK", plant("node", 1), noise=JITTER),
    "jitter, a node at 0.8": Row("named", plant("node", 1.25), noise=JITTER),
    "jitter, one of four leaves at 0.7": Row("named", plant("leaf", 1 / 0.7), noise=JITTER),
    "64 nodes, one that sends at 0.8": Row("named", plant("send", 1.25)),
}
