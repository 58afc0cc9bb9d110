"""Text for people and back."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import units
from collbench.errors import UsageError


def test_sizes_are_binary_however_they_are_written() -> None:
    sizes = {"8": 8, "64K": 65536, "64k": 65536, "128KB": 131072, "2MiB": 2**21, "1.5G": 3 * 2**29, "1T": 2**40}
    assert {text: units.parse_size(text) for text in sizes} == sizes
    for text in ("", "K", "-8", "8X", "1e6", "8 8", "0x10"):
        with pytest.raises(UsageError, match="such as 8, 64K"):
            units.parse_size(text)


def test_an_end_of_an_interval_that_is_not_known_is_not_shown() -> None:
    for ends, text in (
        ((1.58, 1.66), " (1.58 .. 1.66)"),
        ((1.58, math.inf), " (at least 1.58)"),
        ((-math.inf, 1.66), " (at most 1.66)"),
        ((-math.inf, math.inf), ""),
        ((math.nan, math.nan), ""),
    ):
        assert units.format_interval(*ends) == text, ends
    for ends, text in (((1e-3, 2e-3), "1 ms .. 2 ms"), ((1e-3, 1.0001e-3), "1 ms"), ((1e-3, math.inf), "")):
        assert units.format_range(*ends, units.format_seconds) == text


def test_durations_are_seconds_however_they_are_written() -> None:
    durations = {"500ms": 0.5, "5": 5, "2m": 120, "2 min": 120, "1.5h": 5400, "30d": 2592e3, "20us": 2e-5}
    for text, seconds in durations.items():
        assert units.parse_duration(text, "--budget") == pytest.approx(seconds), text
    assert units.parse_duration(7.5, "--budget") == 7.5  # of the library
    for wrong in ("", "s", "0", "0d", "-1", "nan", "inf", "1e99", "5x", "5 s s", "5M"):
        with pytest.raises(UsageError, match=f"--budget '{wrong}' is no duration; write one such as 500ms, 5s"):
            units.parse_duration(wrong, "--budget")


@settings(max_examples=50, derandomize=True, deadline=None)
@given(
    st.one_of(st.integers(1, 1024), st.builds(lambda half, power: half << power, st.integers(2, 9), st.integers(9, 39)))
)
def test_a_formatted_size_reads_back(nbytes: int) -> None:
    assert units.parse_size(units.format_size(nbytes).replace(" ", "")) == nbytes
    assert [units.format_size(size) for size in (1023, 1024, 1.5 * 2**30)] == ["1023 B", "1 KiB", "1.5 GiB"]


def test_times_have_three_digits_and_a_unit_that_changes_before_a_fourth() -> None:
    times = {3.1e-7: "310 ns", 4.21e-6: "4.21 us", 1.5e-3: "1.5 ms", 2: "2 s", 9.999e-7: "1 us"}
    times |= {999.6: "1,000 s", 1790: "1,790 s", 87_654: "87,654 s", -3.97e-4: "-397 us"}
    assert {seconds: units.format_seconds(seconds) for seconds in times} == times


def test_rates_are_decimal_gigabytes() -> None:
    assert [units.format_rate(rate) for rate in (9.33e5, 1.234e9, 2.04e10)] == ["0.0009", "1.234", "20.4"]


def test_things_are_counted_and_listed() -> None:
    assert [units.counted(count, "node") for count in (0, 1, 2048)] == ["0 nodes", "1 node", "2,048 nodes"]
    assert [units.format_list(items) for items in ((), (1,), (1, 2, "x"))] == ["", "1", "1, 2 and x"]
