"""Moments of ranks on devices, on the clock of their process: how far they may be off, and clocks that go otherwise."""

import time
from typing import Any

import pytest

from tests.platforms.gpu import fake_cuda
from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.opening import Open


def seen(platform: Any, rank: int) -> tuple[float, float]:
    """How far a moment is outside of the time in which it was noted: before it, and behind it; 0 within."""
    before = time.perf_counter()
    moment = platform.moment(rank)
    platform.synchronize()
    after = time.perf_counter()
    return max(0.0, before - moment()), max(0.0, moment() - after)


def test_moments_are_off_by_no_more_than_is_said(opened: Open) -> None:
    """On every device, one after the other."""
    platform = opened(Machine(2), ranks=2)
    error = platform.set_clocks()
    assert 0 < error < 0.05
    for rank in (0, 1):
        assert max(seen(platform, rank)) <= error


def test_a_clock_that_runs_away_is_caught_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every series: what a device's clock gains is not handed on."""
    platform = opened(Machine(1), ranks=2)
    error = platform.set_clocks()
    elapsed = fake_cuda.get_elapsed_time
    monkeypatch.setattr(platform._stopwatch._cuda.cupy.cuda, "get_elapsed_time", lambda *two: 2 * elapsed(*two))
    time.sleep(0.3)
    assert seen(platform, 1)[1] > 0.2
    error = platform.set_clocks()
    assert seen(platform, 1)[1] < error + 0.1


def test_what_a_clock_gains_during_a_series_is_taken_off_its_moments(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held against the host's before and after; in the middle it has gained half of that."""
    platform = opened(Machine(1), ranks=2)
    elapsed = fake_cuda.get_elapsed_time
    monkeypatch.setattr(
        platform._stopwatch.clocks._cuda.cupy.cuda, "get_elapsed_time", lambda *two: 1.2 * elapsed(*two)
    )
    error = platform.set_clocks()
    noted = []
    for _ in range(3):
        time.sleep(0.2)
        before = time.perf_counter()
        noted.append((before, platform.moment(1)))
        platform.synchronize()
        noted[-1] += (time.perf_counter(),)
    assert noted[-1][1]() - noted[-1][2] > 0.05, "as long as nobody knows what it gains"
    error = max(error, platform.set_clocks())
    for before, moment, after in noted:
        assert before - 1.2 * error - 1e-4 <= moment() <= after + 1.2 * error + 1e-4
