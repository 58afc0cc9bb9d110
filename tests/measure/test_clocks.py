"""One clock of many: made-up clocks whose truth is known, and real ranks of which one has another clock."""

from collections.abc import Iterator

import numpy as np
import pytest

from collbench.measure.clocks import Clock, Clocks, Reading, Trip
from collbench.platforms.processes import Alone

AHEAD, DRIFT = 3e-3, 50e-6
SPAN = 10.0  # seconds between the readings


def theirs(moment: float) -> float:
    """What the other clock says then."""
    return moment + AHEAD + DRIFT * moment


def trips(start: float, generator: np.random.Generator, clumsy: float = 1.0) -> Iterator[Trip]:
    """Ways there and back that take from 1 us on, there `clumsy` times as long as back, and some far longer."""
    for number in range(100):
        asked = start + 1e-4 * number
        there, back = 1e-6 + generator.exponential(20e-6, 2)
        arrived = asked + clumsy * there
        yield Trip(asked, theirs(arrived), arrived + back)


def readings(clumsy: float = 1.0, seed: int = 1) -> tuple[Reading, Reading]:
    """Before and after."""
    generator = np.random.default_rng(seed)
    return Reading.of(trips(0.0, generator, clumsy)), Reading.of(trips(SPAN, generator, clumsy))


@pytest.mark.parametrize("clumsy", [0.1, 1.0, 10.0])
def test_a_reading_is_off_by_no_more_than_it_says(clumsy: float) -> None:
    """However unequal the ways are; and that is half of the shortest round trip."""
    for seed in range(20):
        for reading in readings(clumsy, seed):
            assert abs(reading.ahead - (theirs(reading.at) - reading.at)) <= reading.error
    trip = Trip(1.0, 5.0, 1.5)
    assert Reading.of([Trip(0.0, 9.0, 2.0), trip]) == Reading(1.25, 3.75, 0.25)


@pytest.mark.parametrize("clumsy", [0.1, 1.0, 10.0])
def test_moments_come_onto_the_reference_with_the_drift_taken_out(clumsy: float) -> None:
    """Between the readings they are as exact as those."""
    clock = Clock(readings(clumsy))
    true = np.linspace(0.0, SPAN, 50)
    np.testing.assert_allclose(clock.on_reference([theirs(moment) for moment in true]), true, rtol=0, atol=clock.error)
    assert not clock.same
    assert clock.drift == pytest.approx(DRIFT, abs=2 * clock.error / SPAN)
    assert clock.error < 30e-6


def test_without_a_second_reading_there_is_no_drift() -> None:
    """The offset alone is taken off."""
    clock = Clock(readings()[:1])
    assert clock.drift == 0.0
    assert abs(clock.on_reference([theirs(0.0)])[0]) <= 2 * clock.error


def test_a_clock_that_is_the_same_is_left_alone() -> None:
    """An offset within its error is the error's, not the clock's; beyond it, it is the clock's."""
    same = Clock((Reading(0.0, 0.9e-6, 1e-6), Reading(9.0, -0.9e-6, 1e-6)))
    assert same.same
    assert same.on_reference([0.1, 0.7]) == (0.1, 0.7)
    assert not Clock((Reading(0.0, 0.9e-6, 1e-6), Reading(9.0, 1.1e-6, 1e-6))).same


def test_ranks_of_one_process_have_its_clock() -> None:
    """Nobody is asked; devices' clocks add what they are off."""
    clocks = Clocks(Alone())
    clocks.read()
    clocks.origins = 2e-6
    series = clocks.series([(5.0, [6.0], [8.0]), (5.5, [7.0], [8.0])])
    assert (series.begun, series.computed, series.done) == ((0.0, 0.5), ((1.0,), (2.0,)), ((3.0,), (3.0,)))
    assert clocks.error == 4e-6


def test_the_two_clocks_that_are_known_worst_decide() -> None:
    """Moments of these two may be off against each other by both errors."""
    clocks = Clocks(Alone())
    clocks._readings.append((Reading(0, 0, 0), Reading(0, 5.0, 1e-6), Reading(0, 7.0, 3e-6)))
    assert clocks.error == pytest.approx(4e-6)
    series = clocks.series([(1.0, [2.0], [3.0]), (6.0, [7.5], [8.0]), (8.5, [9.0], [10.0])])
    assert series.begun == (0.0, 0.0, 0.5)
    assert series.computed == ((1.0,), (1.5,), (1.0,))
