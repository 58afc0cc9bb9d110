"""The updates of the weights that all ranks share, and the check of every update after a run.

An update subtracts what one or several steps of its ranks change, from shared weights that they read; divided by the
number of all ranks.  So gradients of plain SGD and the own steps of local SGD are checked alike: they are computed anew
in float64, and the weights must be the same within TOLERANCE.  Weights of every update are stored, so an error does not
grow from update to update.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Job
from collbench.measure.strategies.network import batch, gradient
from collbench.results.facts import WeightMismatch

TOLERANCE = 1e-4
"""How far weights may be from those computed anew, over the largest change of the update: float32 stays far below."""

ROUNDING = 2.0**-22
"""The same over the largest weight, for each step: float32 rounds a weight by a quarter of that at most."""

Weights = NDArray[np.float32]


class Update(NamedTuple):
    """A change of the shared weights; a version is the number of batches that went into them, of all ranks."""

    version: int
    moment: float  # seconds on its machine's clock; of training, once its turn is over
    weights: Weights  # after it
    ranks: Sequence[int]  # whose steps it is made of
    first: int  # of the steps that each of them made, one after the other
    steps: int
    read: int  # the version that these steps began with

    @property
    def before(self) -> int:
        """The version that it changed."""
        return self.version - self.steps * len(self.ranks)


def check_update(job: Job, ranks: int, update: Update, versions: Mapping[int, Weights]) -> WeightMismatch | None:
    """Return what is wrong with an update, computed anew from the weights of the versions that it names."""
    if update.read not in versions:
        return _odd(update, f"a gradient of weights {update.read}, which nobody has")
    change = np.zeros(job.weights)
    for rank in update.ranks:
        change += _change(job, rank, update, versions[update.read]) / ranks
    expected = versions[update.before] - change
    bound = TOLERANCE * float(np.abs(change).max()) + ROUNDING * (1 + update.steps) * float(np.abs(expected).max())
    wrong = ~(np.abs(update.weights - expected) <= bound)  # so that NaN is wrong
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    found_text, expected_text = f"{float(update.weights[index]):.8g}", f"{float(expected[index]):.8g}"
    maker = update.ranks[0]
    return WeightMismatch(maker, str(update.version), index, found_text, expected_text, bound, int(wrong.sum()))


def _change(job: Job, rank: int, update: Update, weights: Weights) -> NDArray[np.float64]:
    """Return what the steps of a rank subtract from the weights, in float64."""
    own, result = weights.astype(np.float64), np.empty(job.weights)
    for step in range(update.first, update.first + update.steps):
        inputs, targets = batch(job, rank, step)
        gradient(job, own, inputs.astype(np.float64), targets.astype(np.float64), result)
        own -= job.rate * result
    change: NDArray[np.float64] = weights - own
    return change


def check_order(job: Job, ranks: int, updates: Sequence[Update], lag: int) -> WeightMismatch | None:
    """Return what is wrong with the order of all updates: a batch missing or twice, or computed on weights too old.

    Args:
        job: The training job.
        ranks: How many ranks train.
        updates: All updates of the shared weights, in order.
        lag: How many steps of another rank may be missing in the weights that a step was computed on.

    """
    made = [0] * ranks  # steps of every rank in the weights
    least_made = {0: 0}  # by version: the fewest steps of a rank in it
    version = 0
    for update in updates:
        first = update.first
        for rank in update.ranks:
            if first != made[rank]:
                return _odd(update, f"step {first + 1} of rank {rank} after {made[rank]} steps of it")
            if update.read not in least_made or least_made[update.read] < first - lag:
                return _odd(update, f"step {first + 1} of rank {rank} on weights that are too old")
            made[rank] += update.steps
        if update.version != sum(made):
            return _odd(update, f"an update of weights {version}")
        version = update.version
        least_made[version] = min(made)
    if version != job.steps * ranks:
        return WeightMismatch(0, str(version), 0, "", f"{version} batches instead of {job.steps * ranks}", 0.0, 0)
    return None


def check_copies(updates: Sequence[Update], copies: Sequence[Sequence[bytes]]) -> WeightMismatch | None:
    """Return the first update after which a rank holds other weights than rank 0; *copies* are digests by rank.

    A strategy whose ranks share one copy of the weights has no digests.
    """
    for rank, digests in enumerate(copies):
        if len(digests) != len(copies[0]):
            words = f"{len(digests)} updates instead of {len(copies[0])}"
            return WeightMismatch(rank, str(len(digests)), 0, "", words, 0.0, 0)
        for update, digest, expected in zip(updates, digests, copies[0], strict=False):
            if digest != expected:
                return WeightMismatch(rank, str(update.version), 0, "", "other weights than rank 0 has", 0.0, 0)
    return None


def _odd(update: Update, words: str) -> WeightMismatch:
    return WeightMismatch(0, str(update.version), 0, "", words, 0.0, 0)
