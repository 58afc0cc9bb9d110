"""Series of steps: what surrounds them, the clocks of their moments, and how many products make one."""

import gc
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collbench.commands.step import calibration
from collbench.commands.step import measured as steps
from collbench.commands.step.calibration import calibrated, products_for
from collbench.commands.step.measured import take_series
from collbench.commands.step.rows import Series, StepTimes
from collbench.commands.step.schedules import Moments, Parts
from collbench.commands.step.work import Step
from collbench.errors import PlatformError
from collbench.measure.clocks import Clock, Clocks, Reading, Trip
from collbench.platforms.processes import Alone
from collbench.results import Result
from collbench.results.collectives import Failed
from tests.conftest import case
from tests.test_cases import sweep


def parts() -> Parts:
    nothing = SimpleNamespace(take_over=lambda rank: None)
    platform = SimpleNamespace(
        team=Alone(),
        local=[0],
        launcher=SimpleNamespace(synchronize=lambda: None),
        clock=SimpleNamespace(moment=lambda rank: time.perf_counter(), set_clocks=lambda: 0.0),
        compute=SimpleNamespace(queued=False, stepping=nullcontext, refuse_given_up=lambda: None),
        note=SimpleNamespace(oversubscribed=False),
    )
    return Parts(cast(Any, None), cast(Any, platform), cast(Any, nothing), [])


def now() -> Moments:
    return [time.perf_counter()], [lambda: time.perf_counter()]


def test_no_garbage_is_collected_while_a_series_runs() -> None:
    seen = []

    def step() -> Moments:
        seen.append(gc.isenabled())
        return now()

    assert gc.isenabled()
    take_series(parts(), step, range(3))
    assert seen == [False] * 3
    assert gc.isenabled()


def test_devices_that_wait_for_the_host_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = parts()
    wanted.platform.compute.queued = True  # type: ignore[misc]
    clock, through = [0.0], [0.0]
    monkeypatch.setattr(steps.time, "perf_counter", lambda: clock[0])
    for host, device, paced in ((1.0, 5.0, False), (5.0, 1.0, True), (1.0, 1.5, False), (1.5, 1.0, True)):
        clock[0] = through[0] = 0.0

        def step(host: float = host, device: float = device) -> Moments:
            begun, clock[0] = max(clock[0], through[0]), clock[0] + host
            through[0] = max(begun, clock[0] - host) + device
            return [through[0]], [through[0]]

        assert take_series(wanted, step, range(12)).paced is paced, (host, device)


AHEAD, DRIFT = 3e-3, 50e-6
SPAN = 10.0  # seconds between the readings


def theirs(moment: float) -> float:
    return moment + AHEAD + DRIFT * moment


def trips(start: float, generator: np.random.Generator, clumsy: float = 1.0) -> Iterator[Trip]:
    """Ways there and back that take from 1 us on, there `clumsy` times as long as back, and some far longer."""
    for number in range(100):
        asked = start + 1e-4 * number
        there, back = 1e-6 + generator.exponential(20e-6, 2)
        arrived = asked + clumsy * there
        yield Trip(asked, theirs(arrived), arrived + back)


def readings(clumsy: float = 1.0, seed: int = 1) -> tuple[Reading, Reading]:
    generator = np.random.default_rng(seed)
    return Reading.of(trips(0.0, generator, clumsy)), Reading.of(trips(SPAN, generator, clumsy))


def test_a_reading_is_off_by_no_more_than_half_the_shortest_round_trip() -> None:
    for clumsy in (0.1, 1.0, 10.0):
        for seed in range(20):
            for reading in readings(clumsy, seed):
                assert abs(reading.ahead - (theirs(reading.at) - reading.at)) <= reading.error, (clumsy, seed)
    assert Reading.of([Trip(0.0, 9.0, 2.0), Trip(1.0, 5.0, 1.5)]) == Reading(1.25, 3.75, 0.25)


def test_moments_come_onto_the_reference_with_the_drift_taken_out() -> None:
    for clumsy in (0.1, 1.0, 10.0):
        clock = Clock(readings(clumsy))
        true = np.linspace(0.0, SPAN, 50)
        told = clock.on_reference([theirs(moment) for moment in true])
        np.testing.assert_allclose(told, true, rtol=0, atol=clock.error)
        assert not clock.same
        assert clock.drift == pytest.approx(DRIFT, abs=2 * clock.error / SPAN)
        assert clock.error < 30e-6
    alone = Clock(readings()[:1])  # one reading tells no drift: the offset alone is taken off
    assert alone.drift == 0.0
    assert abs(alone.on_reference([theirs(0.0)])[0]) <= 2 * alone.error


def test_a_clock_that_is_the_same_within_the_errors_is_left_alone() -> None:
    same = Clock((Reading(0.0, 0.9e-6, 1e-6), Reading(9.0, -0.9e-6, 1e-6)))
    assert same.same
    assert same.on_reference([0.1, 0.7]) == (0.1, 0.7)
    assert not Clock((Reading(0.0, 0.9e-6, 1e-6), Reading(9.0, 1.1e-6, 1e-6))).same


def test_ranks_of_one_process_have_its_clock_and_the_two_known_worst_decide_the_error() -> None:
    clocks = Clocks(Alone())
    clocks.read()
    clocks.origins = 2e-6
    series = Series(*clocks.moments([(5.0, [6.0], [8.0]), (5.5, [7.0], [8.0])]))
    assert (series.begun, series.computed, series.done) == ((0.0, 0.5), ((1.0,), (2.0,)), ((3.0,), (3.0,)))
    assert clocks.error == 4e-6
    clocks = Clocks(Alone())
    clocks._readings.append((Reading(0, 0, 0), Reading(0, 5.0, 1e-6), Reading(0, 7.0, 3e-6)))
    assert clocks.error == pytest.approx(4e-6)
    series = Series(*clocks.moments([(1.0, [2.0], [3.0]), (6.0, [7.5], [8.0]), (8.5, [9.0], [10.0])]))
    assert series.begun == (0.0, 0.0, 0.5)
    assert series.computed == ((1.0,), (1.5,), (1.0,))


def test_matrices_are_as_large_as_leaves_room_for_enough_products() -> None:
    seconds_of = {32: 5e-6, 64: 10e-6, 128: 80e-6, 256: 600e-6}
    wanted = {1e-3: (100, 64), 2e-3: (25, 128), 20e-3: (33, 256), 20e-6: (4, 32), 1e-6: (1, 32)}
    for seconds, products in wanted.items():
        step = products_for(seconds, seconds_of)
        assert (step.products, step.size) == products, seconds


def trials(*results: Result) -> Any:
    return lambda *_: nullcontext(SimpleNamespace(run=lambda: iter(results)))


def test_one_rank_alone_is_tried_with_matrices_of_which_few_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    for size, cost in {512: 10e-6, 1024: 12e-6, 2048: 40e-6}.items():
        series = Series((0.0,), ((4 * cost,),), ((4 * cost,),))
        tried.append(StepTimes(case(work=Step(4, size), ranks=1), "mpi", "cpu", (series,)))
    monkeypatch.setattr(calibration, "Session", trials(*tried))
    assert calibrated(150e-6, "cpu", replace(sweep(1024), ranks=1)).size == 2048


def test_ranks_that_cannot_be_measured_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "Session", trials(Failed(case(work=Step(4, 32)), "mpi", "cpu", "it broke")))
    with pytest.raises(PlatformError, match=r"^the time of a matrix product could not be measured: it broke$"):
        calibrated(1e-3, "cpu", sweep(1024), None)
