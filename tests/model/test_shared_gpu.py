"""Costs of ranks that share one GPU, against the committed runs of an H100."""

import numpy as np
import pytest

from collbench.platforms.cost import COSTS, gpus
from tools.model.shared_gpu import RUNS, choices, factors, fitted, measured

SHARED = gpus(4, 1)
LOW_LATENCY = 128 * 2**10  # bytes up to which waits decide what every implementation takes


def test_the_costs_of_a_shared_gpu_are_those_that_fit_best() -> None:
    units = {"block": 1.0, "packets": 1e9}
    for name, value in fitted(measured()).items():
        assert COSTS["shared"]["sm90"][name] == pytest.approx(value * units.get(name, 1e-6), rel=0.1), name


def test_half_of_the_times_are_predicted_within_a_tenth_and_small_messages_all_within_a_third() -> None:
    """But for waits of the host, which depend on its other work.  Caches are not in the model of large messages."""
    rows = measured()
    assert np.median(factors(rows, SHARED)) < 1.1
    small = [row for row in rows if row.case.nbytes <= LOW_LATENCY and row.implementation != "ring-host"]
    assert factors(small, SHARED).max() < 1.33


def test_auto_picks_what_is_fastest_within_a_sixteenth_at_every_size() -> None:
    found = list(choices(SHARED))
    assert {choice.run for choice in found} == set(RUNS)
    for choice in found:
        assert choice.regret < 1 + 1 / 16, choice
