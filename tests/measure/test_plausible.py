"""Times that a busy machine makes of right operations are no proof against them; of operations left out they are."""

import math
import random
from typing import Any

import pytest

from collbench.measure.plausible import left_out
from collbench.platforms.roles import Limits, Prepared

WAIT, SPREAD = 2e-3, 0.3
"""Seconds that ranks wait for a core in about every operation, and the standard deviation of their logarithm."""
LUCKY = 0.3e-3  # seconds of one sample in which they hardly waited


class Busy:
    """A machine on which a loop that leaves operations out takes only a share of the time."""

    limits = Limits(1e-9, 1e12, "made up")

    def __init__(self, seed: int, share: float, lucky: int = 0) -> None:
        self._share, self._lucky, self._calls = share, lucky, 0
        self._chance = random.Random(seed)
        self._own = Prepared(lambda launches: None)

    def singly(self, prepared: Prepared) -> Prepared:
        """A loop that makes them all."""
        return self._own

    def time(self, prepared: Prepared, launches: int) -> float:
        """Seconds of an operation."""
        wait = self._chance.lognormvariate(math.log(WAIT), SPREAD)
        if prepared is self._own:
            return wait
        self._calls += 1
        return LUCKY if self._calls == self._lucky else self._share * wait


def doubts(share: float, lucky: int = 0) -> list[Any]:
    """Of fifty such machines, those on which operations seem to be left out."""
    prepared = Prepared(lambda launches: None)
    found = (left_out(prepared, Busy(seed, share, lucky), 4) for seed in range(50))  # type: ignore[arg-type]
    return list(filter(None, found))


@pytest.mark.parametrize("lucky", [0, 7, 8, 9])
def test_one_sample_without_a_wait_proves_nothing(lucky: int) -> None:
    """It is the shortest of all, and none of those that were taken one by one comes near it."""
    assert doubts(1.0, lucky) == []


def test_operations_that_are_left_out_are_found_whatever_the_waits_are() -> None:
    """Two of three: in most rounds, though not in all."""
    found = doubts(1 / 3)
    assert len(found) >= 48
    assert all("some are left out" in str(doubt) for doubt in found)


class Shared(Busy):
    """A machine whose core is another's in the middle of every second sample, and whose loop leaves nothing out."""

    def __init__(self, cut_off: int) -> None:
        super().__init__(0, 1.0)
        self._samples = cut_off

    def time(self, prepared: Prepared, launches: int) -> float:
        """Seconds of an operation; more of them take longer."""
        self._samples += 1
        return 1e-6 + (WAIT if self._samples % 2 else 0.0)


@pytest.mark.parametrize("cut_off", [0, 1])
def test_waits_that_keep_in_step_with_the_samples_prove_nothing(cut_off: int) -> None:
    """Were the loop always the first of two, it would be the one that is never cut off."""
    prepared = Prepared(lambda launches: None)
    assert left_out(prepared, Shared(cut_off), 4) is None  # type: ignore[arg-type]
