"""Verdicts, means over sizes, regressions and remarks, with figures worked out by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.analysis.bootstrap import Estimate
from collbench.analysis.compare import Comparison, Row, Together, Verdict, by_curve, compare, judged, together, verdict
from collbench.analysis.matching import differences, unmatched
from collbench.results import Explanation, Failed, Measurement, Mismatch, Prediction, Reported, Result, Skipped
from collbench.runfile.header import Header
from collbench.runfile.store import Run
from collbench.stats import student
from tests.conftest import case, measurement

SIZES = tuple(8 * 4**step for step in range(13))
SAME, SLOWER, FASTER = Verdict.SAME, Verdict.SLOWER, Verdict.FASTER
INCONCLUSIVE, UNKNOWN = Verdict.INCONCLUSIVE, Verdict.UNKNOWN


def of(*results: Result, complete: bool = True, **header: Any) -> Run:
    return Run(Path("run.jsonl"), Header.from_json(header), results, complete)


def still(ratios: Mapping[tuple[str, int], float], started: str) -> Run:
    """Seven equal samples by implementation and size, so many times a microsecond."""
    rows = (measurement(name, (ratio * 1e-6,) * 7, nbytes=nbytes) for (name, nbytes), ratio in ratios.items())
    return of(*rows, started=started)


def against_one(ratios: Mapping[tuple[str, int], float]) -> Comparison:
    return compare(still(dict.fromkeys(ratios, 1.0), "2025"), still(ratios, "2026"))


def swings(log: float) -> dict[tuple[str, int], float]:
    """One curve whose sizes are faster and slower in turn."""
    return {("mpi", nbytes): math.exp(log * (-1) ** place) for place, nbytes in enumerate(SIZES)}


def test_a_verdict_needs_an_interval_on_one_side() -> None:
    """Within the margin is the same; else beyond 1 is a difference; else nothing is known."""
    for interval, said in (
        ((0.96, 1.04), SAME),
        ((1.01, 1.04), SAME),  # surely not 1, but nobody minds
        ((1 / 1.05, 1.05), SAME),
        ((1 / 1.06, 1.05), INCONCLUSIVE),
        ((1 / 1.05, 1.06), INCONCLUSIVE),
        ((0.951, 1.02), INCONCLUSIVE),  # 1 / 1.05 is 0.9524: as far as 1.05 on the other side
        ((1.0, 1.2), INCONCLUSIVE),
        ((0.8, 1.0), INCONCLUSIVE),
        ((1.01, 1.2), SLOWER),
        ((0.8, 0.99), FASTER),
        ((-math.inf, math.inf), INCONCLUSIVE),
        ((0.0, math.inf), INCONCLUSIVE),
    ):
        assert verdict(interval, 0.05) is said, interval
    one = measurement()
    assert judged(one, one, 0.0, (0.93, 1.08), 0.05).verdict is INCONCLUSIVE
    assert judged(one, one, 0.0, (0.93, 1.08), 0.1).verdict is SAME


def test_a_regression_is_slower_by_more_than_the_margin_and_hidden_where_that_cannot_be_excluded() -> None:
    base = measurement()
    for ratio, said, regression in (
        (1.2, SLOWER, True),
        (1.05, SLOWER, False),
        (1.02, SLOWER, False),
        (1.2, INCONCLUSIVE, False),
        (0.8, FASTER, False),
    ):
        row = Row(base, base, base.typical, base.typical, ratio, (0.7, 1.3), said)
        assert row.regression(0.05) is regression, (ratio, said)
        assert Together(case().kind, "mpi", 4, ratio, (0.7, 1.3), said).regression(0.05) is regression, (ratio, said)
    assert Together(case(), "mpi", 4, 1.04, (1.01, 1.07), SLOWER).regression(0.03)
    base = measurement()
    for ratio, interval, said, hidden in (
        (1.04, (0.9, 1.2), INCONCLUSIVE, True),
        (0.97, (0.9, 1.05), INCONCLUSIVE, False),
        (1.2, (1.1, 1.3), SLOWER, False),  # it is no secret
        (1.03, (1.01, 1.3), SLOWER, True),  # by less than the margin, perhaps
        (1.0, (math.nan, math.nan), UNKNOWN, True),
    ):
        assert Row(base, base, 1e-6, 1e-6, ratio, interval, said).hides(0.05) is hidden, (ratio, interval)
    assert Row(base, base, 1e-6, 1e-6, 0.97, (0.9, 1.04), INCONCLUSIVE).hides(0.03)


def test_a_curve_takes_four_sizes_and_those_that_are_alike_are_worth_fewer_looks() -> None:
    """Student's interval of the mean logarithm with as many looks as they are worth."""
    for name, logs, looks, quantile in (
        # Neighbours on opposite sides: every size is a look; t(0.975; 3) and, of thirteen, t(0.975; 12).
        ("opposite", [0.01, -0.01] * 2, 4.0, 3.182446),
        ("opposite, of thirteen", [0.1, -0.1] * 6 + [0.1], 13.0, 2.178813),
        # Pairs: r = 1/8 + 1/8, so 8 sizes are worth 8 x 0.75 / 1.25 looks; t(0.975; 5).
        ("in pairs", [0.01, 0.01, -0.01, -0.01] * 2, 4.8, 2.570582),
        # Two looks and two degrees of freedom: t(0.975; 2).
        ("two low and two high", [0.0, 0.0, 0.1, 0.1], 2.0, 4.302653),
        # A straight line: r = 105/168 + 1/8, worth 8/7, which counts as two; t(0.975; 4).
        ("a line", [0.01 * place for place in range(-7, 8, 2)], 2.0, 2.776445),
        # A long one: r is 0.9 at most, worth 100 x 0.1 / 1.9; t(0.975; 51).
        ("a long line", [0.0001 * place for place in range(100)], 100 / 19, 2.007584),
    ):
        count = len(logs)
        curve = [
            (measurement(nbytes=8 << place % 20), Estimate(log + 0.3, 0.1, 0.1, 5)) for place, log in enumerate(logs)
        ]
        whole = together(curve, 0.95, 0.05)
        centre, reach = sum(logs) / count, quantile * float(np.std(logs, ddof=1)) / math.sqrt(looks)
        low, high = math.exp(0.3 + centre - reach), math.exp(0.3 + centre + reach)
        assert whole.ratio == pytest.approx(math.exp(0.3 + centre)), name
        assert whole.interval == pytest.approx((low, high), rel=1e-6), name
        assert (whole.sizes, whole.case, whole.implementation) == (count, case().kind, "mpi"), name
        assert whole.verdict is (SLOWER if low > 1 else INCONCLUSIVE), name
    sure = together(
        [(measurement(nbytes=8 << place), Estimate(math.log(1.5), 0, 0, 5)) for place in range(4)], 0.95, 0.05
    )
    assert sure.interval == pytest.approx((1.5, 1.5))
    assert sure.verdict is SLOWER
    curve = [measurement(nbytes=size) for size in SIZES]
    assert [len(one) for one in by_curve([*curve, *(measurement("ring", nbytes=size) for size in SIZES[:3])])] == [13]
    assert by_curve(reversed(curve[:4])) == [curve[:4]]


def test_intervals_are_for_all_rows_and_curves_together_and_scatter_is_told_from_two_per_cent_on() -> None:
    """13 rows and a curve share a doubt of 5 %; each is as wide as the scatter of 11 sizes, 1.5 s^2 = 0.2^2."""
    found = against_one(swings(0.1))
    reach = student(1 - 0.05 / 14 / 2, 11) * 0.2 / math.sqrt(1.5)
    for row in found.rows:
        assert row.interval == pytest.approx((row.ratio * math.exp(-reach), row.ratio * math.exp(reach)), rel=1e-6)
    (whole,) = found.together  # 13 looks, as no size is like the one before
    error = 0.1 * math.sqrt(1 - 1 / 13**2) * math.sqrt(13 / 12) / math.sqrt(13)
    assert math.log(whole.interval[1] / whole.ratio) == pytest.approx(student(1 - 0.05 / 14 / 2, 12) * error)
    for scatter, told in ((0.0199, False), (0.0201, True)):
        remarks = against_one(swings(scatter * math.sqrt(1.5) / 2)).remarks
        words = ["ratios of neighbouring sizes scatter by 2% more than"] * told
        assert [remark[:52] for remark in remarks] == words, scatter


def test_regressions_are_rows_then_curves_slower_by_more_than_the_margin() -> None:
    found = against_one({("a", 8): 1.06, ("b", 8): 0.9, ("c", 8): 1.04, **{("d", nbytes): 1.1 for nbytes in SIZES[:4]}})
    assert [row.verdict for row in found.rows] == [SLOWER, FASTER, SAME, *[SLOWER] * 4]
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
    alone = against_one({("a", nbytes): 1.5 for nbytes in SIZES})
    assert not any("implementations are slower" in remark for remark in alone.remarks)


def test_halves_of_one_run_are_paired_by_two_rounds_or_more_that_hold_all_samples() -> None:
    for base, new, names, told in (
        ((4, 4), (4, 4), ("1", "1"), True),
        ((4, 4), (2, 6), ("1", "1"), True),
        ((8,), (8,), ("1", "1"), False),
        ((4, 4), (2, 2, 4), ("1", "1"), False),
        ((0, 8), (4, 4), ("1", "1"), False),
        ((4, 3), (4, 4), ("1", "1"), False),
        ((4, 4), (), ("1", "1"), False),
        ((4, 4), (4, 4), ("1", "2"), False),
        ((4, 4), (4, 4), ("1", ""), False),
        ((4, 4), (4, 4), ("", ""), False),
    ):
        halves = [
            of(
                *(Measurement(case(), each, "cpu", 1, (seconds,) * 8, rounds=rounds) for each in "ab"),
                interleaved={"id": name},
                started=str(seconds),
            )
            for seconds, rounds, name in ((1e-6, base, names[0]), (1.2e-6, new, names[1]))
        ]
        found = compare(*halves)
        place = (base, new, names)
        assert [row.verdict for row in found.rows] == [SLOWER] * 2, place
        assert [row.ratio for row in found.rows] == pytest.approx([1.2] * 2), place
        paired = [remark for remark in found.remarks if remark.startswith("halves of one interleaved run")]
        assert len(paired) == told, place
    few = {"interleaved": {"id": "1", "setting": ""}}
    assert not compare(of(measurement(seconds=(1.0,) * 2), **few), of(measurement(seconds=(2.0,) * 2), **few)).remarks


def test_a_run_and_itself_are_the_same_and_one_with_another_header_is_no_copy() -> None:
    one = of(measurement(seconds=(1e-6, 2e-6)), Reported(case(), "nccl", "gpu", 1e-5, "mean of 20"), started="2025")
    found = compare(one, replace(one, path=Path("copy.jsonl")))
    assert [(row.ratio, row.interval, row.verdict) for row in found.rows] == [(1.0, (1.0, 1.0), SAME)] * 2
    assert not found.hidden
    assert "one and the same" in found.remarks[0]
    seven = of(measurement(), started="2025")
    for other in (of(measurement(), started="2026"), of(measurement(seconds=(1.2e-6,) * 7), started="2025")):
        found = compare(seven, other)
        assert not found.remarks
        assert found.rows[0].ratio == pytest.approx(other.results[0].typical / 1e-6)  # type: ignore[union-attr]


def test_a_log_is_compared_by_its_own_statistic_and_concludes_nothing_without_samples() -> None:
    nothing = "has no samples, so nothing can be concluded"
    for statistics, ratio, words in (
        (("mean of 20", "mean"), 2.0, f"a log of means {nothing}"),
        (("median of 9", "median"), 2.0, f"a log of medians {nothing}"),
        (("slowest of 9", "max"), 2.0, f"a log of max {nothing}"),
        (
            ("median of 9", "mean"),
            2.0,
            f"a log of medians or means {nothing}; one time is a median, the other a ",
        ),
        ((None, "median"), 2.0, f"a log of medians {nothing}; compared with the median "),
        ((None, "mean"), 1.0, f"a log of means {nothing}; compared with the mean of "),
    ):
        base, new = (
            measurement(seconds=(1e-6,) * 9 + (11e-6,))
            if statistic is None
            else Reported(case(), "mpi", "cpu", seconds, statistic)
            for statistic, seconds in zip(statistics, (1e-6, 2e-6), strict=True)
        )
        found = compare(of(base), of(new))
        (row,) = found.rows
        assert row.ratio == pytest.approx(ratio), statistics
        assert row.remark.startswith(words), statistics
        assert row.verdict is UNKNOWN, statistics
        assert found.hidden == [row], statistics
        assert ("compared with" in row.remark) is (None in statistics), statistics
    one, other = (
        of(Reported(case(), "nccl", "gpu", time, "mean", samples=tuple(time * (1 + 0.001 * i) for i in range(40))))
        for time in (1e-5, 1.2e-5)
    )
    assert compare(one, other).rows[0].verdict is SLOWER


def test_too_few_samples_conclude_nothing_and_no_time_or_bytes_have_no_ratio() -> None:
    for count, words in ((1, "1 sample, 5 are needed"), (3, "3 samples, 5 are needed")):
        few, many = of(measurement(seconds=(1e-6,) * count)), of(measurement(seconds=(2e-6,) * 30))
        for pair, ratio in (((few, many), 2.0), ((many, few), 0.5)):
            (row,) = compare(*pair).rows
            assert (row.verdict, row.ratio) == (UNKNOWN, pytest.approx(ratio)), count
            assert row.remark.partition(":")[0] == words, count
    for one in (measurement(seconds=(0.0, *[1e-6] * 6)), measurement(nbytes=0)):
        assert not compare(of(one, started="2025"), of(one, started="2026")).rows


MISMATCH = Mismatch(0, 1, 0, "1", "2", 3)
ROWS: dict[str | None, tuple[Result, ...]] = {
    None: (),
    "right": (measurement(),),
    "wrong": (Measurement(case(), "mpi", "cpu", 1, (), MISMATCH),),
    "failed": (Failed(case(), "mpi", "cpu", "hung"),),
    "skipped": (Skipped(case(), "mpi", "cpu", "no compiler"),),
    "reported wrong": (Reported(case(), "mpi", "cpu", 1e-6, "mean", wrong_elements=4),),
    "untimed": (Measurement(case(), "mpi", "cpu", 1, ()),),
    "predicted": (Prediction(case(), "mpi", 1e-6, 1e-6, 1e-6),),
    "explained": (Explanation(case(), "mpi", "cpu", 1e-6, 1e-6, ()),),
}


def test_a_row_without_a_ratio_says_how_it_stands_in_either_run() -> None:
    for before, after, expected in (
        ("right", "wrong", ("right", "wrong", str(MISMATCH), True, False)),
        ("right", "failed", ("right", "failed", "hung", True, False)),
        ("right", "skipped", ("right", "skipped", "no compiler", False, True)),
        ("right", "reported wrong", ("right", "wrong", "", True, False)),
        ("right", None, ("right", "missing", "", False, False)),
        ("right", "untimed", ("right", "not timed", "", False, False)),
        (None, "right", ("missing", "right", "", False, False)),
        ("failed", "wrong", ("failed", "wrong", str(MISMATCH), False, False)),
        ("wrong", "skipped", ("wrong", "skipped", "no compiler", False, False)),
        ("failed", None, ("failed", "missing", "", False, False)),
        ("skipped", "skipped", None),
        ("skipped", None, None),
        (None, "skipped", None),
        ("right", "right", None),
        ("predicted", "explained", None),
    ):
        rows = unmatched(of(*ROWS[before], samples=1), of(*ROWS[after], samples=2))
        told = [(row.base, row.new, row.reason, row.regression, row.hides) for row in rows]
        assert told == ([expected] if expected else []), (before, after)
        found = compare(of(*ROWS[before], samples=1), of(*ROWS[after], samples=2))
        worse, hides = expected[3:] if expected else (False, False)
        assert (len(found.regressions), len(found.hidden)) == (worse, hides), (before, after)
    base = of(measurement("b"), measurement("a"), measurement("zero", nbytes=0), measurement("quick", (0.0, 0.0)))
    new = of(measurement("c"), measurement("zero", nbytes=0), measurement("quick", (0.0, 0.0)))
    assert [(row.implementation, row.base) for row in unmatched(base, new)] == [
        *(("b", "right"), ("a", "right"), ("zero", "not timed"), ("quick", "not timed"), ("c", "missing"))
    ]
    assert [row.implementation for row in unmatched(base, new, lambda case, name: name == "a")] == ["a"]


def test_a_row_that_is_missing_hides_a_regression_only_where_the_run_was_cut_off() -> None:
    both, one = of(measurement(), measurement("nccl")), of(measurement(seconds=(1.01e-6,) * 7))
    assert not compare(both, one).hidden
    assert [row.new for row in compare(both, one).unmatched] == ["missing"]
    assert len(compare(both, replace(one, complete=False)).hidden) == 1
    assert not compare(one, both).hidden
    (row,) = compare(of(measurement()), of(measurement(), measurement(seconds=(2e-6,) * 7))).rows
    assert row.ratio == pytest.approx(2.0)


def test_predictions_are_not_compared_and_that_is_said_of_the_run_that_holds_them() -> None:
    only, both = of(*ROWS["predicted"]), of(Prediction(case(nbytes=64), "mpi", 1e-6, 1e-6, 1e-6), measurement())
    found = compare(only, both)
    assert not found.rows
    assert [remark.partition(",")[0] for remark in found.remarks] == [
        "BASE holds nothing but predictions",
        "NEW holds predictions",
    ]
    assert "diagnose" in found.remarks[0]


def test_differences_of_headers_are_listed_by_their_place_and_move_no_terminals_cursor() -> None:
    parts = {"sampling": 1, "spin": 2, "ranks": 3, "in_place": 4, "cases": 5}
    header = {"collbench": "1", "environment": 1, "topology": 2, "sweep": parts}
    header |= {"interleaved": {"setting": "", "id": 1}}
    assert [(difference.name, difference.base, difference.new) for difference in differences(header, {})] == [
        ("collbench", "1", "-"),
        ("environment", "1", "-"),
        ("topology", "2", "-"),
        *((f"sweep.{name}", str(parts[name]), "-") for name in ("sampling", "spin", "ranks", "in_place")),
        ("interleaved.setting", "", "-"),
    ]
    values = ("x" * 60, "x" * 61, ["a"], Path("p"))
    shown = [difference.new for value in values for difference in differences({}, {"collbench": value})]
    assert shown == ["x" * 60, "x" * 57 + "...", '["a"]', '"p"']
    one = {"topology": {"name": "a", "host": {"shm_free": 1, "memory": 2}}, "started": "x"}
    other = {"topology": {"name": "b", "host": {"shm_free": 3, "memory": 2}}, "environment": {"variables": {"N": "1"}}}
    found = compare(of(measurement(), **one), of(measurement(), **other)).differences
    assert [tuple(row) for row in found] == [("environment.variables.N", "-", "1"), ("topology.name", "a", "b")]
    assert list(differences({"topology": {}}, {})) == list(differences({}, {})) == []
    assert [difference.name for difference in differences({}, {"topology": {"\x1b": 1}})] != ["topology.\x1b"]
    for part in ("environment", "topology", "sweep", "interleaved", "collbench"):
        for odd in (None, 3, "text", [1], {"host": "\x1b[2J"}, {"variables": [1, {"a": None}]}):
            found = compare(of(measurement(), **{part: odd}), of(measurement(), topology={"name": "x"}))
            for difference in found.differences:
                assert all(text.isprintable() for text in difference), (part, odd)


def test_rows_of_one_name_but_of_two_libraries_are_said_to_be() -> None:
    for base, new, remark in (
        ("MPICH 5.0.2", "Open MPI 5.0.11", "mpi calls MPICH 5.0.2 in BASE and Open MPI 5.0.11 in NEW"),
        ("", "MPICH 5.0.2", "BASE does not say which library mpi calls: before runs said so"),
        ("MPICH 5.0.2", "", "NEW does not say which library mpi calls"),
        ("MPICH 5.0.2", "MPICH 5.0.2", None),
    ):
        one, other = ([replace(measurement(nbytes=nbytes), library=name) for nbytes in (8, 64)] for name in (base, new))
        said = [line for line in compare(of(*one), of(*other)).remarks if "librar" in line]
        assert [line[: len(remark or "")] for line in said] == [remark] * bool(remark), (base, new)
