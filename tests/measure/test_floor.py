"""The floor of a case: each way taken in every round, and the median of the fastest is stored with every row."""

from collections.abc import Callable
from itertools import count, cycle

import pytest

from collbench.cases import Sampling
from collbench.measure.floor import Floor
from collbench.measure.runner import measure
from collbench.measurement import Measurement
from tests.conftest import case
from tests.measure.test_runner import ToyPlatform, constant, ways


def platform(**seconds: Callable[[], float]) -> ToyPlatform:
    """One whose ways to move the fewest bytes take so long; one implementation."""
    return ToyPlatform({"mpi": constant(1e-3)} | seconds, floors=tuple(seconds))


def test_the_fastest_way_counts_and_of_it_the_median() -> None:
    """The first reading of each, in cold caches, is left out."""
    readings = cycle([9e-3, 3e-3, 1e-3, 2e-3])
    floor = Floor.of(case(), platform(slow=constant(5e-3), fast=lambda: next(readings)))
    assert [floor.sample() for _ in range(3)] == [8e-3, 6e-3, 7e-3]
    assert floor.seconds == 2e-3


def test_without_a_way_there_is_no_floor() -> None:
    """And no time is spent on it."""
    floor = Floor.of(case(), platform())
    assert floor.sample() == 0
    assert floor.seconds is None


def test_messages_in_flight_have_no_floor() -> None:
    """They carry the same bytes again and again, which caches may hold."""
    assert Floor.of(case("sendrecv"), platform(bare=constant(1e-3))).sample() == 1e-3
    assert Floor.of(case("bandwidth"), platform(bare=constant(1e-3))).sample() == 0


def test_rows_have_the_floor_measured_in_their_own_rounds() -> None:
    """One reading a round, all before the closing check."""
    readings = count(1)
    toy = platform(bare=lambda: next(readings) * 1e-3)
    (row,) = measure(case(), [ways(toy)[0]], toy, Sampling(iters=7))
    assert isinstance(row, Measurement)
    names = [name for name, _ in toy.log if name in ("bare", "mpi")]
    assert names.count("bare") == 7, "one that does not count, and one for each of the 6 samples before the last"
    assert row.floor == pytest.approx(4.5e-3)
    assert names[-1] == "mpi"
