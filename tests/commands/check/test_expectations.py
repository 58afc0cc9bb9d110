"""What a check expects: of a run, of floors, of a CPU's own latency."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.commands.check.expectations import CALIBRATED, expect_run, read_floors
from collbench.errors import UsageError
from collbench.results import Mismatch
from collbench.results.disturbed import Scheduling
from collbench.results.facts import Note
from tests.conftest import measurement

FLOORS = """
[[floor]]
collective = "all_reduce"
size = "1M"
value = 10
lower = -0.1
unit = "GB/s"
ranks = 2

[[floor]]
collective = "allreduce"
size = 8
value = 4
upper = 0.5
unit = "us"
"""


def test_a_row_is_expected_to_take_what_rounds_in_the_same_state_of_the_machine_took() -> None:
    near, far = 150e-9, 500e-9
    rows = [replace(measurement(seconds=(1e-6,)), barrier=near), replace(measurement(seconds=(3e-6,)), barrier=far)]
    run = expect_run("a run", rows)
    for barrier, seconds in ((near, 1e-6), (1.1 * near, 1e-6), (far, 3e-6)):
        expected = run.of(replace(measurement(), barrier=barrier))
        assert expected is not None
        assert expected.seconds == pytest.approx(seconds)
        assert expected.rounds == 1
    assert run.of(replace(measurement(), barrier=2 * near)) is None
    assert run.of(measurement(nbytes=4096)) is None
    assert run.of(measurement("two-shot")) is None


def test_wrong_and_disturbed_rows_are_no_measure() -> None:
    wrong = replace(measurement(), mismatch=Mismatch(0, 0, 0, "0.0", "1.0", 1))
    disturbed = replace(measurement(), scheduling=Scheduling(off_core=0.9))
    assert disturbed.disturbed
    for row in (wrong, disturbed):
        assert expect_run("a run", [row]).of(measurement()) is None


def test_each_round_of_an_interleaved_row_counts_by_itself() -> None:
    row = replace(measurement(seconds=(1e-6, 1e-6, 4e-6)), rounds=(2, 1))
    expected = expect_run("a run", [row]).of(row)
    assert expected
    assert (expected.rounds, expected.seconds) == (2, pytest.approx(2e-6))


def test_floors_are_the_worst_that_their_tolerances_allow(tmp_path: Path) -> None:
    file = tmp_path / "floors.toml"
    file.write_text(FLOORS)
    floors = read_floors(file)
    bandwidth, latency = floors.of(measurement(nbytes=2**20)), floors.of(measurement(nbytes=8))
    assert bandwidth
    assert latency
    assert bandwidth.seconds == pytest.approx(2**20 / 9e9)
    assert latency.seconds == pytest.approx(6e-6)
    assert floors.of(measurement(nbytes=2**20, ranks=4)) is None
    assert floors.of(measurement(nbytes=64)) is None


def test_a_wrong_file_of_floors_is_refused_by_the_place_of_the_error(tmp_path: Path) -> None:
    file = tmp_path / "floors.toml"
    wrong = {
        "no TOML": "[[floor",
        "no floor": "",
        "a collective that does not exist": FLOORS.replace("all_reduce", "allsort"),
        "a key that does not exist": FLOORS.replace("ranks = 2", "rank = 2"),
        "a unit that does not exist": FLOORS.replace("GB/s", "Gb/s"),
        "a size that is none": FLOORS.replace('"1M"', '"large"'),
        "a value of nothing": FLOORS.replace("value = 10", "value = 0"),
        "a tolerance of the wrong sign": FLOORS.replace("-0.1", "0.1"),
    }
    for what, text in wrong.items():
        file.write_text(text)
        with pytest.raises(UsageError, match=r"floors\.toml"):
            pytest.fail(f"{what}: {read_floors(file)}")


def test_a_cpu_is_measured_by_its_own_barrier_and_copies() -> None:
    row = replace(measurement("two-shot"), barrier=130e-9)
    slow, large = replace(row, barrier=390e-9), replace(measurement("two-shot", nbytes=2**27), barrier=130e-9)
    near, far = CALIBRATED.of(row), CALIBRATED.of(slow)
    assert near
    assert far
    assert 2 < far.seconds / near.seconds < 3.1
    assert CALIBRATED.of(large) is None
    copied = CALIBRATED.of(replace(large, floor=0.02))
    assert copied
    assert copied.seconds == pytest.approx(0.02, rel=0.3)
    auto = replace(row, implementation="auto", note=Note(picked="two-shot"))
    assert CALIBRATED.of(auto) == near
    for unknown in (measurement("two-shot"), replace(row, implementation="mpi")):
        assert CALIBRATED.of(unknown) is None
