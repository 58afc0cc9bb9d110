"""Whether a curve is slower or faster than healthy machines of its kind: its times against how far the model is off.

The model's errors at neighbouring sizes go together (model/doubt.py), so a stretch of sizes is judged as a whole: the
mean of the logarithms of measured over expected times, sizes that the model knows better counting more, in standard
deviations of that mean between machines that no fit has seen.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from collbench.model.bands import regime
from collbench.model.doubt import Doubt, settled
from collbench.model.equation import Floats

FEWEST = 3  # sizes that a verdict needs, and a stretch
SLOW, FAST = 2.8, 3.5
"""Standard deviations from which on it is.

So that of healthy machines which neither fit nor spreads have seen hardly more than one in twenty is called slow,
though stretches are four and errors have longer tails than a normal distribution (counts: docs/analysis.md).  Nothing
is broken where a machine is faster, so that takes more.
"""


class Health(Enum):
    """Of one curve."""

    AS_EXPECTED = "as expected"
    SLOW = "slow"
    FASTER = "faster than modelled"
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """With its reason in words, and what could have been seen."""

    health: Health
    remark: str
    limit: float  # times slower than others of its kind that a curve must be to be called slow, where least is needed


class Stretch(NamedTuple):
    """Sizes that are judged together: the logarithm of their times over healthy ones, and its standard deviation."""

    where: str
    off: float
    spread: float


def judge(sizes: Sequence[int], logs: Floats, doubt: Doubt) -> Verdict:
    """Of logarithms of measured over expected times, by ascending size in bytes."""
    stretches = list(_stretches(sizes, settled(logs) - doubt.mean, doubt.covariance))
    limit = float(np.exp(SLOW * min(stretch.spread for stretch in stretches)))
    slowest = max(stretches, key=lambda stretch: stretch.off / stretch.spread)
    fastest = min(stretches, key=lambda stretch: stretch.off / stretch.spread)
    if slowest.off > SLOW * slowest.spread:
        return Verdict(Health.SLOW, _in_words(slowest, np.exp(SLOW * slowest.spread), "at most"), limit)
    if fastest.off < -FAST * fastest.spread:
        return Verdict(Health.FASTER, _in_words(fastest, np.exp(-FAST * fastest.spread), "at least"), limit)
    return Verdict(Health.AS_EXPECTED, "", limit)


def _in_words(stretch: Stretch, bound: float, most: str) -> str:
    usual = f"machines of this kind that are right take {most} {bound:.2f} times it"
    return f"{np.exp(stretch.off):.2f} times the time of its kind{stretch.where}; {usual}"


def _stretches(sizes: Sequence[int], off: Floats, covariance: Floats) -> Iterator[Stretch]:
    """All sizes, and those of latency, of neither, and of bandwidth by themselves."""
    kinds = np.array([regime(size) for size in sizes])
    names = ("below 64 KiB", "from 64 KiB to 64 MiB", "above 64 MiB")
    parts = [("", np.ones(len(sizes), bool)), *((f" {name}", kinds == kind) for kind, name in enumerate(names))]
    for where, chosen in parts:
        if chosen.sum() >= FEWEST:
            inside = covariance[np.ix_(chosen, chosen)]
            weights = 1 / np.diag(inside)
            weights /= weights.sum()
            yield Stretch(where, float(weights @ off[chosen]), float(np.sqrt(weights @ inside @ weights)))
