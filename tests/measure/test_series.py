"""What surrounds the steps of a series, on a platform that does nothing."""

import gc
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collbench.measure import series
from collbench.measure.closely import activities
from collbench.measure.series import take
from collbench.platforms.processes import Alone
from collbench.schedules import Moments, Parts, Recorder


def parts() -> Parts:
    """Of one rank that computes and communicates nothing."""
    nothing = SimpleNamespace(take_over=lambda rank: None)
    platform = SimpleNamespace(
        team=Alone(),
        queued=False,
        local=[0],
        moment=lambda rank: time.perf_counter(),
        synchronize=lambda: None,
        set_clocks=lambda: 0.0,
        stepping=nullcontext,
        refuse_given_up=lambda: None,
    )
    return Parts(cast(Any, None), cast(Any, platform), cast(Any, nothing), [])


def now(recorder: Recorder | None) -> Moments:
    """A step that takes no time."""
    if recorder:
        recorder.computed(0, 0, time.perf_counter(), time.perf_counter())
    return [time.perf_counter()], [lambda: time.perf_counter()]


def test_nothing_is_collected_while_a_series_runs_and_again_afterwards() -> None:
    """The collector looks through all that is kept of the steps, the longer the more there are."""
    seen = []

    def step(recorder: Recorder | None) -> Moments:
        seen.append(gc.isenabled())
        return now(recorder)

    assert gc.isenabled()
    take(parts(), step, range(3))
    assert seen == [False] * 3
    assert gc.isenabled()


def test_the_collector_is_back_after_a_step_that_fails() -> None:
    def fails(recorder: Recorder | None) -> Moments:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        take(parts(), fails, range(3))
    assert gc.isenabled()


def test_whoever_has_no_collector_gets_none() -> None:
    gc.disable()
    try:
        take(parts(), now, range(1))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_moments_are_numbers_or_told_later() -> None:
    """Both become seconds, in the order in which the steps were made."""
    took = take(parts(), now, range(5))
    ((begun, computed, done),) = took.taken
    assert took.origins == 0.0
    assert len(computed) == len(done) == 5
    assert begun <= computed[0]
    assert [*computed] == sorted(computed)


@pytest.mark.parametrize(("seconds", "steps"), [(1e-4, 7), (0.2, 7), (0.5, 4), (4.0, 1)])
def test_steps_that_take_long_are_looked_at_less_often(seconds: float, steps: int) -> None:
    """Nobody says a word meanwhile, and whoever hears none for long calls the ranks hung."""
    made = []

    def step(recorder: Recorder | None) -> Moments:
        made.append(recorder)
        return now(recorder)

    assert len(activities(step, parts().platform, seconds)) == 1
    assert len(made) == steps


@pytest.mark.parametrize(
    ("host", "device", "paced"),
    [(1.0, 5.0, False), (5.0, 1.0, True), (1.0, 1.5, False), (1.5, 1.0, True)],
    ids=["a fast host", "a slow host", "a little faster", "a little slower"],
)
def test_devices_that_wait_for_the_host_are_noticed(
    host: float, device: float, paced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It enqueues a step in so many seconds, and the device carries one out in so many, once it has it."""
    clock, through = [0.0], [0.0]
    monkeypatch.setattr(series.time, "perf_counter", lambda: clock[0])

    def step(recorder: Recorder | None) -> Moments:
        begun, clock[0] = max(clock[0], through[0]), clock[0] + host
        through[0] = max(begun, clock[0] - host) + device
        return [through[0]], [through[0]]

    wanted = parts()
    wanted.platform.queued = True  # type: ignore[misc]
    assert take(wanted, step, range(12)).paced is paced


def test_a_host_that_computes_itself_is_never_waited_for() -> None:
    assert not take(parts(), now, range(12)).paced
