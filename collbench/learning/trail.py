"""What ranks did to the weights, update by update: every one is checked afterwards, none while the clock runs.

The weights of every update are kept, and by what they were made: so each update stands for itself, and is held against
what it must be within a bound that is proved (rounding.py).  By induction the whole run is right, or the row says where
it is not: a contribution that was lost, counted twice or computed on other weights, an average of something else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Job
from collbench.learning.data import Data, lessons
from collbench.learning.rounding import FLOOR, SLACK, UNIT, bounded_gradient, gamma
from collbench.results import WeightMismatch

Name = int | tuple[int, int]
"""Weights: those that all ranks share by the number of batches that went into them; a rank's own by rank and number."""

Weights = NDArray[np.float32]
Known = Mapping[Name, Weights]


class Part(NamedTuple):
    """A gradient: whose, of which step of that rank, and on which weights."""

    rank: int
    step: int
    read: Name


class Origin(Protocol):
    """By what weights were made."""

    def off(self, job: Job, after: Weights, known: Known) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the weights must be, and how far from it they may be; KeyError if it was made of weights nobody has."""


@dataclass(frozen=True)
class Stepped:
    """Gradients subtracted, `over` of which make a mean."""

    before: Name
    parts: tuple[Part, ...]
    over: int

    def off(self, job: Job, after: Weights, known: Known) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In float32: the gradients are added, multiplied by a number, and subtracted."""
        made = [
            bounded_gradient(job, known[part.read], lessons(job, part.rank).batch(part.step)) for part in self.parts
        ]
        total, off = sum(value for value, _ in made), sum(bound for _, bound in made)
        size = sum(np.abs(value) + bound for value, bound in made)
        rate = float(rate_of(job, self.over))
        bound = rate * (off + gamma(len(made)) * size) + UNIT * np.abs(after.astype(np.float64))
        return known[self.before].astype(np.float64) - rate * total, SLACK * bound + FLOOR


@dataclass(frozen=True)
class Averaged:
    """The mean of weights."""

    of: tuple[Name, ...]

    def off(self, job: Job, after: Weights, known: Known) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In float32: all are added, then multiplied by what float32 has for one over their number."""
        made = [known[name].astype(np.float64) for name in self.of]
        size = np.mean(np.abs(made), axis=0)
        return np.mean(made, axis=0), SLACK * gamma(len(made) + 1) * size + FLOOR


@dataclass(frozen=True)
class Copied:
    """The same as another rank has, to the bit, as training on many ranks takes for granted."""

    of: Name

    def off(self, job: Job, after: Weights, known: Known) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nothing is rounded."""
        return known[self.of].astype(np.float64), np.zeros(len(after))


@dataclass(frozen=True)
class Kept:
    """Weights as they were after an update, when, and by what."""

    name: Name
    moment: float  # seconds on its machine's clock
    weights: Weights
    origin: Origin


def rate_of(job: Job, over: int) -> np.float32:
    """What a gradient is multiplied by where so many make a mean."""
    return np.float32(job.rate / over)


def share_of(ranks: int) -> np.float32:
    """What a sum of so many is multiplied by to be their mean."""
    return np.float32(1 / ranks)


def known_weights(job: Job, trails: Sequence[Sequence[Kept]]) -> dict[Name, Weights]:
    """All weights by name, those that all begin with among them."""
    return {0: Data(job).first} | {kept.name: kept.weights for trail in trails for kept in trail}


def first_flaw(job: Job, kept: Sequence[tuple[int, Kept]], known: Known) -> WeightMismatch | None:
    """Of updates, with the rank that made it each, the first that is not what it must be."""
    return next(filter(None, (_flaw(job, rank, one, known) for rank, one in kept)), None)


def _flaw(job: Job, rank: int, kept: Kept, known: Known) -> WeightMismatch | None:
    try:
        wanted, bound = kept.origin.off(job, kept.weights, known)
    except KeyError as missing:
        return WeightMismatch(rank, str(kept.name), 0, "", f"an update of weights {missing}, which nobody has", 0.0, 0)
    beyond = ~(np.abs(kept.weights - wanted) <= bound)  # so that NaN is beyond
    if not beyond.any():
        return None
    index = int(np.argmax(beyond))
    got, expected = float(kept.weights[index]), float(wanted[index])
    return WeightMismatch(
        rank, str(kept.name), index, f"{got:.8g}", f"{expected:.8g}", float(bound[index]), int(beyond.sum())
    )


def shared(trails: Sequence[Sequence[Kept]]) -> list[Kept]:
    """Of the weights that all ranks share, those of every update, in order."""
    common = [kept for trail in trails for kept in trail if isinstance(kept.name, int)]
    return sorted(common, key=lambda kept: kept.name)


def miscounted(job: Job, ranks: int, common: Sequence[Kept], behind: int) -> WeightMismatch | None:
    """What is wrong with the order of the weights that all share: a batch missing or twice, or one on weights too old.

    `behind` is how many steps of another rank may be lacking in the weights that a step was computed on.
    """
    last, seen, done = 0, [[0] * ranks], {0: 0}  # steps of every rank in the weights, and where those weights stand
    for kept in common:
        steps = list(seen[-1])
        for part in kept.origin.parts if isinstance(kept.origin, Stepped) else ():
            if part.step != steps[part.rank]:
                return _odd(kept, f"step {part.step + 1} of rank {part.rank} after {steps[part.rank]} steps of it")
            if part.read not in done or min(seen[done[part.read]]) < part.step - behind:
                return _odd(kept, f"step {part.step + 1} of rank {part.rank} on weights that are too old")
            steps[part.rank] += 1
        if isinstance(kept.origin, Stepped) and (kept.origin.before, sum(steps)) != (last, kept.name):
            return _odd(kept, f"an update of weights {last}")
        last, done[kept.name] = kept.name, len(seen)  # type: ignore[assignment,index]
        seen.append(steps)
    wanted = job.steps * ranks
    if last == wanted:
        return None
    return WeightMismatch(0, str(last), 0, "", f"{last} batches instead of {wanted}", 0.0, 0)


def _odd(kept: Kept, words: str) -> WeightMismatch:
    return WeightMismatch(0, str(kept.name), 0, "", words, 0.0, 0)
