"""Made-up clusters that judge `collbench scan`: who is slow is known, and how times come about owes it nothing."""

from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from collbench.analysis.judgement import Word

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SIZES = (8 << 10, 1 << 20)  # latency decides the one, bandwidth the other
LIMIT, GREY = 1.1, (1.09, 1.11)  # times the usual time: what is too much, and where either answer is right
WAYS = ("slower end", "pipelined", "staged")  # always decides; decides for long messages; never, for ends add up


class Sight(NamedTuple):
    """What a scan says that it would have seen."""

    slower: float  # times the usual time, lasting
    often: float  # share of the rounds
    links: bool
    sizes: tuple[int, ...]


class Answer(NamedTuple):
    """What a scan says."""

    word: Word
    named: frozenset[str]
    rounds: int
    sight: Sight


class Fault(NamedTuple):
    """What is slow: a node, always or where it sends, what leaves a leaf, or the link of two nodes."""

    kind: str  # node, send, leaf, link
    of: tuple[int, ...]
    factor: float
    share: float = 1.0  # of the rounds
    least: int = 0  # bytes of the shortest message that it slows

    @property
    def name(self) -> str:
        """How an answer has to name it."""
        return f"leaf {self.of[0]}" if self.kind == "leaf" else " - ".join(f"node {one}" for one in sorted(self.of))

    def inside(self, sight: Sight) -> bool:
        """Whether a scan with this sight says that it would have seen the fault."""
        looked = max(sight.sizes) >= self.least and (sight.links or self.kind != "link")
        return looked and self.factor >= sight.slower and (self.share == 1 or self.share >= sight.often)


def _steady(random: Generator, members: int) -> Iterator[Floats]:
    """Members that are alike in each round; like its siblings, the log of how slow each is, round by round."""
    while True:
        yield np.zeros(members)


def _clocks(random: Generator, members: int) -> Iterator[Floats]:
    """Members that switch between two clocks, and keep one for 4 to 12 rounds in the mean."""
    gap, stay, slow = random.uniform(0.04, 0.05), random.uniform(4, 12), random.random(members) < 0.5
    while True:
        yield gap * slow
        slow = slow ^ (random.random(members) < 1 / stay)


def _wandering(random: Generator, members: int) -> Iterator[Floats]:
    """AR(1): what a member's round takes is close to what its last one took."""
    state = random.normal(0, 0.04, members)
    while True:
        yield state
        state = 0.9 * state + random.normal(0, 0.04 * np.sqrt(1 - 0.9**2), members)


def _spells(random: Generator, members: int) -> Iterator[Floats]:
    """Each member has, in 3 % of the rounds, a spell of 2 to 6 rounds."""
    left = np.where(random.random(members) < 0.03, random.integers(1, 6, members), 0)
    size = np.log(random.uniform(1.15, 1.3, members))
    while True:
        yield np.where(left > 0, size, 0.0)
        begins = (left <= 1) & (random.random(members) < 0.03 / 0.97 / 4)
        left = np.where(begins, random.integers(2, 7, members), left - 1)
        size = np.where(begins, np.log(random.uniform(1.15, 1.3, members)), size)


def _drifts(random: Generator, members: int) -> Iterator[Floats]:
    """Each member drifts by itself: in this world all along lines, up to 8 % in 60 rounds, or all at random."""
    slopes = random.uniform(-0.08, 0.08, members) / 60 if random.random() < 0.5 else None
    state = np.zeros(members)
    while True:
        yield state
        state = state + (random.normal(0, 0.005, members) if slopes is None else slopes)


def _pareto(random: Generator, times: int) -> Floats:
    """By how much times of a tail are longer: half by over 6 %, a tenth by over 36 %."""
    return 0.1 * random.pareto(1.5, times)


def _exponential(random: Generator, times: int) -> Floats:
    """By how much stragglers are longer."""
    return random.exponential(0.12, times)


class Noise(NamedTuple):
    """What makes times differ where nothing is wrong."""

    normal: float = 0.01  # of each time
    tails: float = 0.0  # share of the times that are longer by what `tail` draws
    tail: Callable[[Generator, int], Floats] = _pareto
    links: float = 0.0  # by which links differ, for good
    drift: float = 0.0  # of all members together, a round
    jitter: float = 0.0  # share of the rounds in which half of the groups take 20 to 100 % longer
    members: Callable[[Generator, int], Iterator[Floats]] = _steady


QUIET = Noise(0.003, 0.04, _exponential)
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


class World:
    """A cluster: the times of its rounds, and who of it was slow."""

    def __init__(self, leaves: Ints, noise: Noise, faults: tuple[Fault, ...], random: Generator) -> None:
        self.leaves, self.noise, self.faults, self.random, self.members = leaves, noise, faults, random, len(leaves)
        self.way = WAYS[random.integers(3)]
        self.alpha, self.beta = random.uniform(4e-6, 8e-6), random.uniform(20e9, 50e9)
        self.far = random.uniform(1.1, 1.5), random.uniform(1, 1.25)  # latency and transfer across leaves
        self.duplex = random.uniform(1, 1.3)  # transfer while the other end sends, too
        links = np.triu(random.normal(0, noise.links, (self.members, self.members)), 1)
        self.links, self.states = np.exp(links + links.T), noise.members(random, self.members)
        self.past: list[Floats] = []  # of each round, the log of how slow each member was by noise

    def times(self, groups: Ints, one_way: bool, nbytes: int) -> Floats:
        """The seconds of each group in the next round."""
        random, state, sends = self.random, next(self.states), np.ones(groups.shape, bool)
        self.past.append(state)
        sends[:, 1:] = not one_way
        ends, path = np.exp(state)[groups], []
        for fault in self.faults:
            if random.random() >= fault.share or nbytes < fault.least:
                continue
            touched = self.leaves[groups] == fault.of[0] if fault.kind == "leaf" else np.isin(groups, fault.of)
            if fault.kind in ("node", "send"):
                ends = ends * np.where(touched & (sends | (fault.kind == "node")), fault.factor, 1)
            elif fault.kind == "leaf":
                path.append(np.where(touched.any(axis=1) & ~touched.all(axis=1), fault.factor, 0))
            else:
                path.append(np.where(touched.sum(axis=1) == 2, fault.factor, 0))
        across = (self.leaves[groups] != self.leaves[groups[:, :1]]).any(axis=1)
        latency = self.alpha * np.where(across, self.far[0], 1)
        transfer = nbytes / self.beta * np.where(across, self.far[1], 1) * (1 if one_way else self.duplex)
        parts = np.column_stack([ends, *path])
        if self.way == "staged" or (self.way == "pipelined" and nbytes < self.alpha * self.beta):
            slow = 1 + np.sum(np.where(parts > 0, parts - 1, 0), axis=1)
        else:
            slow = np.max(parts, axis=1)
        return np.asarray((latency + transfer) * slow * self._noise(groups))

    def _noise(self, groups: Ints) -> Floats:
        """By how many times the groups take longer than they would without what differs group by group."""
        random, noise, many = self.random, self.noise, len(groups)
        logs = random.normal(0, noise.normal, many) + noise.drift * len(self.past)
        tails = np.where(random.random(many) < noise.tails, noise.tail(random, many), 0)
        if random.random() < noise.jitter:
            tails += np.where(random.random(many) < 0.5, random.uniform(0.2, 1, many), 0)
        return np.asarray(np.exp(logs) * (1 + tails) * self.links[groups, np.roll(groups, -1, axis=1)].max(axis=1))

    def _lasting(self) -> Floats:
        """By how many times each node was slower than is typical, in the mean over the rounds."""
        means = np.mean(self.past, axis=0)
        ratios = np.exp(means - np.median(means))
        for fault in self.faults:
            if fault.kind == "node" and fault.share == 1 and not fault.least:
                ratios[list(fault.of)] *= fault.factor
        return np.asarray(ratios)

    def truth(self) -> dict[str, Fault]:
        """After a scan: what was slow, by its name."""
        slow = [Fault("node", (int(node),), ratio) for node, ratio in enumerate(self._lasting()) if ratio > LIMIT]
        lasting = [fault.kind == "node" and fault.share == 1 and not fault.least for fault in self.faults]
        planted = [fault for fault, decided in zip(self.faults, lasting, strict=True) if not decided]
        return {fault.name: fault for fault in (*slow, *planted)}

    def slow(self) -> set[str]:
        """After a scan: the names of what was slow."""
        return set(self.truth())

    def grey(self) -> set[str]:
        """After a scan: the nodes so close to the limit that either answer is right."""
        return {f"node {node}" for node, ratio in enumerate(self._lasting()) if GREY[0] <= ratio <= GREY[1]}


Planted = Callable[[Generator, Ints], tuple[Fault, ...]]


def nodes(
    least: float,
    most: float | None = None,
    many: int | None = 1,
    kind: str = "node",
    shares: tuple[float, float] = (1, 1),
    together: bool = False,
    size: int = 0,
) -> Planted:
    """Nodes, of one leaf where they are together, with factors and shares between two; of no number, 3 to 8."""

    def planted(random: Generator, leaves: Ints) -> tuple[Fault, ...]:
        whole = np.bincount(leaves)
        among = np.flatnonzero(leaves == random.choice(np.flatnonzero(whole == whole.max())))
        highest = min(8, len(among) // 2, len(leaves) // 4)
        number = random.integers(3, highest + 1) if many is None else many
        chosen = random.choice(among if together else len(leaves), number, replace=False)
        factors, share = random.uniform(least, most or least, number), random.uniform(*shares)
        return tuple(Fault(kind, (int(one),), f, share, size) for one, f in zip(chosen, factors, strict=True))

    return planted


def a_leaf(factor: float) -> Planted:
    """A leaf whose uplinks are slow."""
    return lambda random, leaves: (Fault("leaf", (int(random.integers(leaves.max() + 1)),), factor),)


def a_link(random: Generator, leaves: Ints) -> tuple[Fault, ...]:
    """The link of two nodes, at half speed."""
    first, second = sorted(random.choice(len(leaves), 2, replace=False).tolist())
    return (Fault("link", (first, second), 2.0),)


def healthy(random: Generator, leaves: Ints) -> tuple[Fault, ...]:
    """Nothing is wrong."""
    return ()


FAULTS: dict[str, Planted] = {
    "healthy": healthy,
    "a node, 1.2 to 2 times": nodes(1.2, 2),
    "3 to 8 nodes of a leaf, 1.25 times": nodes(1.25, many=None, together=True),
    "a leaf, 1.43 times": a_leaf(1.43),
    "a link, 2 times": a_link,
    "a node, 1.67 times in a fifth to a half of the rounds": nodes(1.67, shares=(0.2, 0.5)),
}


def drawn(noise: str, fault: str, seed: int) -> World:
    """A world of 16 to 64 nodes, with leaves of 8, 16 or 32, with this noise and this fault."""
    random = np.random.default_rng((crc32(f"{noise}; {fault}".encode()), seed))
    size, members = int(random.choice((8, 16, 32))), int(random.integers(16, 65))
    if "a leaf," in fault:
        size = int(random.choice((8, 16)))
        members = size * int(random.integers(4, 64 // size + 1))
    leaves = np.arange(members) // size
    return World(leaves, NOISES[noise], FAULTS[fault](random, leaves), random)


class Row(NamedTuple):
    """A cluster of the table, and the answers that are right: `named` is who is slow, and nobody else."""

    members: int
    size: int  # of a leaf
    planted: Planted
    answers: frozenset[str]
    noise: Noise = QUIET

    def drawn(self, seed: int) -> World:
        """One of its worlds."""
        random, leaves = np.random.default_rng(seed), np.arange(self.members) // self.size
        return World(leaves, self.noise, self.planted(random, leaves), random)


_OK, _NAMED, _UNKNOWN = frozenset({"OK"}), frozenset({"named"}), frozenset({"UNKNOWN"})
_DRIFT, _JITTER = QUIET._replace(drift=0.01), QUIET._replace(jitter=0.2)
TABLE = {
    "3 nodes, one at 0.6": Row(3, 32, nodes(1 / 0.6), _NAMED | _UNKNOWN),
    "4 nodes, two at 0.5": Row(4, 32, nodes(2, many=2), _NAMED | _UNKNOWN),
    "5 nodes, two at 0.5": Row(5, 32, nodes(2, many=2), _NAMED | _UNKNOWN),
    "32 nodes, 14 at 0.8": Row(32, 8, nodes(1.25, many=14), _NAMED | _UNKNOWN),
    "32 nodes, 20 at 0.8": Row(32, 8, nodes(1.25, many=20), _NAMED | _UNKNOWN),
    "96 nodes, one of three leaves at 0.7": Row(96, 32, a_leaf(1 / 0.7), _NAMED | _UNKNOWN),
    **{
        f"{4 * size} nodes, {many} of a leaf at 0.8": Row(4 * size, size, nodes(1.25, many=many, together=True), _NAMED)
        for size in (16, 32)
        for many in (3, 4, 6, 8)
    },
    "64 nodes, one at 0.95": Row(64, 16, nodes(1 / 0.95), _OK),
    "64 nodes, one at 0.94": Row(64, 16, nodes(1 / 0.94), _OK),
    "64 nodes, 6 slow by 6 to 8 %": Row(64, 16, nodes(1.06, 1.08, 6), _OK),
    "64 nodes, one of two leaves at 0.7": Row(64, 32, a_leaf(1 / 0.7), _UNKNOWN),
    "64 nodes, two leaves, healthy": Row(64, 32, healthy, _OK | _UNKNOWN),
    "64 nodes, a link at 0.5": Row(64, 16, a_link, _OK | _NAMED),
    "64 nodes, one at 0.5 from 64 MiB on": Row(64, 16, nodes(2, size=64 << 20), _OK | _NAMED),
    "all drift, one at 0.9": Row(64, 16, nodes(1 / 0.9), _NAMED, _DRIFT),
    "all drift, one at 1 / 1.15": Row(64, 16, nodes(1.15), _NAMED, _DRIFT),
    "jitter, healthy": Row(64, 16, healthy, _OK, _JITTER),
    "jitter, a node at 0.8": Row(64, 16, nodes(1.25), _NAMED, _JITTER),
    "jitter, one of four leaves at 0.7": Row(64, 16, a_leaf(1 / 0.7), _NAMED, _JITTER),
    "64 nodes, one that sends at 0.8": Row(64, 16, nodes(1.25, kind="send"), _NAMED),
}
