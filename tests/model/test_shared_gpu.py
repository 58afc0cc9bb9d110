"""Costs of ranks that share one GPU, against the committed run of an H100."""

import numpy as np
import pytest

from collbench.platforms.cost import COSTS, gpus
from tools.model.shared_gpu import RANKS, ROWS, choices, factors, fitted

SHARED = gpus(RANKS, 1)


def test_the_costs_of_a_shared_gpu_are_those_that_fit_best() -> None:
    for name, value in fitted().items():
        assert (COSTS["any"] | COSTS["shared"]["sm90"])[name] == pytest.approx(value, rel=0.01), name


def test_half_of_the_times_are_predicted_within_a_tenth_and_rings_in_a_kernel_within_an_eighth_at_all_sizes() -> None:
    assert np.median(factors(ROWS, SHARED)) < 1.1
    for row in (row for row in ROWS if row.implementation != "ring-host"):
        most = 1.125 if row.implementation in ("ring-flags", "ring-pipelined", "ring-ll") else 1.4
        assert factors([row], SHARED).max() < most, (row.implementation, row.case.nbytes)


def test_auto_picks_what_is_fastest_within_a_sixteenth_at_every_size() -> None:
    found = list(choices(SHARED))
    assert len(found) == 13
    for choice in found:
        assert choice.regret < 1 + 1 / 16, choice
