"""Comparing runs of samples without noise: intervals, verdicts and remarks as the rules say, to the digit."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.analysis.compare.compare import Comparison, compare
from collbench.analysis.compare.verdicts import Verdict
from collbench.measurement import Measurement, Prediction, Reported
from collbench.runs.file import Run
from collbench.runs.header import Header
from collbench.stats import student
from tests.conftest import case, measurement

SIZES = tuple(8 * 4**step for step in range(13))


def still(ratios: Mapping[tuple[str, int], float], **header: Any) -> Run:
    """Seven equal samples by implementation and size, so many times a microsecond."""
    rows = [measurement(name, (ratio * 1e-6,) * 7, nbytes=nbytes) for (name, nbytes), ratio in ratios.items()]
    return Run(Path("run.jsonl"), Header.from_json({"started": "2026"} | header), tuple(rows), True)


def against_one(ratios: Mapping[tuple[str, int], float]) -> Comparison:
    return compare(still(dict.fromkeys(ratios, 1.0), started="2025"), still(ratios))


def swings(log: float) -> dict[tuple[str, int], float]:
    """One curve whose sizes are faster and slower in turn."""
    return {("mpi", nbytes): math.exp(log * (-1) ** place) for place, nbytes in enumerate(SIZES)}


def test_intervals_are_for_all_rows_and_curves_together() -> None:
    """13 rows and a curve share a doubt of 5 %; each is as wide as the scatter of 11 sizes, 1.5 s^2 = 0.2^2."""
    found = against_one(swings(0.1))
    reach = student(1 - 0.05 / 14 / 2, 11) * 0.2 / math.sqrt(1.5)
    for row in found.rows:
        assert row.interval == pytest.approx((row.ratio * math.exp(-reach), row.ratio * math.exp(reach)), rel=1e-6)
    (whole,) = found.together  # 13 looks, as no size is like the one before
    error = 0.1 * math.sqrt(1 - 1 / 13**2) * math.sqrt(13 / 12) / math.sqrt(13)
    assert math.log(whole.interval[1] / whole.ratio) == pytest.approx(student(1 - 0.05 / 14 / 2, 12) * error)


@pytest.mark.parametrize(("scatter", "told"), [(0.0199, False), (0.0201, True)])
def test_scatter_between_runs_is_told_from_two_per_cent_on(scatter: float, told: bool) -> None:
    """In per cent of a ratio."""
    remarks = against_one(swings(scatter * math.sqrt(1.5) / 2)).remarks
    assert [remark[:52] for remark in remarks] == ["ratios of neighbouring sizes scatter by 2% more than"] * told


def test_a_regression_is_slower_by_more_than_the_margin() -> None:
    """What is faster, and what is slower by less, is none; curves come after rows."""
    found = against_one({("a", 8): 1.06, ("b", 8): 0.9, ("c", 8): 1.04, **{("d", nbytes): 1.1 for nbytes in SIZES[:4]}})
    verdicts = ["slower", "faster", "same", *["slower"] * 4]
    assert [row.verdict.value for row in found.rows] == verdicts
    assert found.regressions == [found.rows[0], *found.rows[3:], *found.together]
    assert len(found.together) == 1
    assert found.hidden == []


def test_what_moved_together_may_be_the_machine() -> None:
    """At least four rows of five, all one way, and no implementation 1.3 times as far as another."""
    for ratios, told in (
        ([1.1] * 8 + [1.0] * 2, "nearly all rows of all 10 implementations are slower (typically 1.10x)"),
        ([0.9] * 9 + [1.0], "nearly all rows of all 10 implementations are faster (typically 0.90x)"),
        ([1.1] * 9 + [1.4], "nearly all rows of all 10 implementations are slower (typically 1.10x)"),
        ([1.1] * 9 + [1.44], ""),
        ([1.1] * 7 + [1.0] * 3, ""),
        ([1.1] * 9 + [0.9], ""),
        ([1.1], ""),
        ([1.0] * 3, ""),
    ):
        found = against_one({(f"i{place}", 8): ratio for place, ratio in enumerate(ratios)})
        assert [remark.partition(": ")[0] for remark in found.remarks] == [told] * bool(told), ratios


@pytest.mark.parametrize(
    ("base", "new", "told"),
    [
        ((4, 4), (4, 4), True),
        ((4, 4), (2, 6), True),
        ((8,), (8,), False),
        ((4, 4), (2, 2, 4), False),
        ((0, 8), (4, 4), False),
        ((4, 3), (4, 4), False),
    ],
)
def test_halves_are_paired_by_two_rounds_or_more_that_hold_all_samples(
    base: tuple[int, ...], new: tuple[int, ...], told: bool
) -> None:
    """As many in both; else they are two runs."""
    halves = [
        Run(
            Path("run.jsonl"),
            Header.from_json({"interleaved": {"id": "one"}}),
            tuple(Measurement(case(), name, "cpu", 1, (seconds,) * 8, rounds=rounds) for name in "ab"),
            True,
        )
        for seconds, rounds in ((1e-6, base), (1.2e-6, new))
    ]
    found = compare(*halves)
    assert [row.verdict for row in found.rows] == [Verdict.SLOWER] * 2
    assert [remark.partition(":")[0] for remark in found.remarks] == ["halves of one interleaved run"] * told


def test_a_run_of_the_same_rows_with_another_header_is_no_copy() -> None:
    """Nor are other rows under the same header."""
    one = still({("mpi", 8): 1.0}, started="2025")
    for other in (still({("mpi", 8): 1.0}), still({("mpi", 8): 1.2}, started="2025")):
        found = compare(one, other)
        assert not found.remarks
        assert found.rows[0].ratio == pytest.approx(other.results[0].typical / 1e-6)  # type: ignore[union-attr]
        assert [(difference.name, difference.base, difference.new) for difference in found.differences] == []


@pytest.mark.parametrize(
    ("statistics", "ratio", "words"),
    [
        (("mean of 20", "mean"), 2.0, "a log of means has no samples, so nothing can be concluded"),
        (("median of 9", "median"), 2.0, "a log of medians has no samples, so nothing can be concluded"),
        (("slowest of 9", "max"), 2.0, "a log of max has no samples, so nothing can be concluded"),
        (
            ("median of 9", "mean"),
            2.0,
            "a log of medians or means has no samples, so nothing can be concluded; one time is a median, the other a ",
        ),
        (
            (None, "median"),
            2.0,
            "a log of medians has no samples, so nothing can be concluded; compared with the median ",
        ),
        ((None, "mean"), 1.0, "a log of means has no samples, so nothing can be concluded; compared with the mean of "),
    ],
)
def test_a_log_is_compared_by_its_own_statistic(statistics: tuple[str | None, str], ratio: float, words: str) -> None:
    """The samples of the other run are brought to the same; two figures of different kinds are said to be that."""
    base, new = (
        measurement(seconds=(1e-6,) * 9 + (11e-6,))
        if statistic is None
        else Reported(case(), "mpi", "cpu", seconds, statistic)
        for statistic, seconds in zip(statistics, (1e-6, 2e-6), strict=True)
    )
    (row,) = compare(*(Run(Path("r"), Header(), (result,), True) for result in (base, new))).rows
    assert row.ratio == pytest.approx(ratio)
    assert row.remark.startswith(words)
    assert row.verdict is Verdict.UNKNOWN


def test_predictions_are_told_of_the_run_that_holds_them() -> None:
    """And whether it holds anything else."""
    prediction = Prediction(case(nbytes=64), "mpi", 1e-6, 1e-6, 1e-6)
    only = Run(Path("r"), Header(), (prediction,), True)
    both = Run(Path("r"), Header(), (prediction, measurement()), True)
    assert [remark.partition(",")[0] for remark in compare(only, both).remarks] == [
        "BASE holds nothing but predictions",
        "NEW holds predictions",
    ]


def of(*rows: Measurement, **header: Any) -> Run:
    return Run(Path("run.jsonl"), Header.from_json(header), rows, True)


@pytest.mark.parametrize(("count", "words"), [(1, "1 sample, 5 are needed"), (3, "3 samples, 5 are needed")])
def test_too_few_samples_say_how_many_there_are(count: int, words: str) -> None:
    """Of the run with fewer."""
    (row,) = compare(of(measurement(), started="2025"), of(measurement(seconds=(1e-6,) * count), started="2026")).rows
    assert (row.verdict, row.remark.partition(":")[0]) == (Verdict.UNKNOWN, words)


def test_halves_without_samples_enough_are_not_called_paired() -> None:
    """Nothing is paired there."""
    half = {"interleaved": {"id": "1", "setting": ""}}
    one, new = of(measurement(seconds=(1e-6,) * 2), started="1", **half), of(measurement(seconds=(2e-6,) * 2), **half)
    assert not compare(one, new).remarks


def test_a_ratio_needs_bytes_and_times() -> None:
    """A sample of no time at all, which a coarse clock gives, and an operation on nothing have none."""
    for row in (measurement(seconds=(0.0, *[1e-6] * 6)), measurement(nbytes=0)):
        assert not compare(of(row, started="2025"), of(row, started="2026")).rows


def test_two_implementations_that_moved_alike_may_be_the_machine_and_one_may_not() -> None:
    """By the same factor at every size."""
    alone = against_one({("a", nbytes): 1.5 for nbytes in SIZES})
    both = against_one({(name, nbytes): 1.5 for name in "ab" for nbytes in SIZES})
    assert not any("implementations are slower" in remark for remark in alone.remarks)
    assert any("all 2 implementations are slower (typically 1.50x)" in remark for remark in both.remarks)


def test_halves_of_two_interleaved_runs_are_no_pair() -> None:
    """However alike their rounds: what happened between the runs does not cancel."""
    row = replace(measurement(seconds=(1e-6,) * 12), rounds=(6, 6))
    for names in (("1", "2"), ("1", ""), ("", "")):
        one, new = (of(row, started=str(at), interleaved={"id": name}) for at, name in enumerate(names))
        assert not any("rounds are paired" in remark for remark in compare(one, new).remarks), names
    one, new = (of(row, started=str(at), interleaved={"id": "1"}) for at in range(2))
    assert any("rounds are paired" in remark for remark in compare(one, new).remarks)


def test_a_copy_is_equal_without_doubt() -> None:
    """The same rows under the same header."""
    run = of(measurement(), started="2026")
    (row,) = compare(run, run).rows
    assert (row.ratio, row.interval, row.verdict) == (1.0, (1.0, 1.0), Verdict.SAME)


def test_two_logs_of_means_are_told_from_a_log_and_samples() -> None:
    """Nothing is made of the samples of another run where there are none."""
    log = Reported(case(), "mpi", "gpu", 1e-6, "mean of 20 operations")
    for other, told in ((log, False), (replace(log, samples=(1e-6,) * 7), True)):
        one, new = (Run(Path("r"), Header.from_json({"started": str(row)}), (row,), True) for row in (log, other))
        (row,) = compare(one, replace(new, header=Header.from_json({"started": "later"}))).rows
        assert ("; compared with the mean of the other run's samples" in row.remark) is told
