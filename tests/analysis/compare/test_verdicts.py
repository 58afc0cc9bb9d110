"""Verdicts, means over sizes, regressions and remarks, with figures worked out by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.analysis.bootstrap import LogRatio
from collbench.analysis.compare import compare, judged, judgement_of, mean_ratio
from collbench.analysis.comparison import UNSURE, Comparison, Pair, Row
from collbench.analysis.headers import differences
from collbench.analysis.judgement import Judgement, Word
from collbench.analysis.matching import unmatched
from collbench.results import Explanation, Failed, Measurement, Mismatch, Prediction, Reported, Result, Skipped
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.stats import Estimate, student
from tests.conftest import case, measurement

SIZES = tuple(8 * 4**step for step in range(13))
OK, SLOW, FAST, UNKNOWN = Word.OK, Word.SLOW, Word.FAST, Word.UNKNOWN
BLANK = Judgement("a row", "base", UNKNOWN, limit=1.05)


def of(*results: Result, complete: bool = True, **header: Any) -> Run:
    return Run(Path("run.jsonl"), Header.from_json(header), results, complete)


def still(ratios: Mapping[tuple[str, int], float], started: str) -> Run:
    """Seven equal samples by implementation and size, so many times a microsecond."""
    rows = (measurement(name, (ratio * 1e-6,) * 7, nbytes=nbytes) for (name, nbytes), ratio in ratios.items())
    return of(*rows, started=started)


def against_one(ratios: Mapping[tuple[str, int], float]) -> Comparison:
    return compare(still(dict.fromkeys(ratios, 1.0), "2025"), still(ratios, "2026"))


def swings(log: float) -> dict[tuple[str, int], float]:
    return {("mpi", nbytes): math.exp(log * (-1) ** place) for place, nbytes in enumerate(SIZES)}


def test_a_word_needs_an_interval_on_one_side() -> None:
    for ratio, low, high, word, reason in (
        (1.0, 0.96, 1.04, OK, ""),
        (1.02, 1.01, 1.04, OK, ""),  # surely not 1, but nobody minds
        (1.0, 1 / 1.05, 1.05, OK, ""),
        (1.0, 1 / 1.06, 1.05, UNKNOWN, "may be faster"),
        (1.0, 1 / 1.05, 1.06, UNKNOWN, "may be slower"),
        (0.98, 0.951, 1.02, UNKNOWN, "may be faster"),  # 1 / 1.05 is 0.9524: as far as 1.05 on the other side
        (1.1, 1.0, 1.2, UNKNOWN, "may be slower"),
        (0.9, 0.8, 1.0, UNKNOWN, "may be faster"),
        (1.1, 1.01, 1.2, SLOW, ""),
        (1.05, 1.01, 1.09, UNKNOWN, "may be slower"),  # slower, but perhaps by less than the margin
        (0.9, 0.8, 0.99, FAST, ""),
        (1.0, 0.0, math.inf, UNKNOWN, "may be slower"),
    ):
        said = judgement_of(Estimate(ratio, low, high), Estimate(ratio, low, high), BLANK, 0.05)
        assert (said.word, said.reason.removeprefix(UNSURE)) == (word, reason), (ratio, low, high)
        assert (said.what, said.against, said.limit) == ("a row", "base", 1.05)
    pair = Pair(measurement(), measurement())
    for margin, word, low, high in (
        (0.05, UNKNOWN, 0.9, 1.1),
        (0.08, OK, 0.93, 1.07),
        (0.08, UNKNOWN, 0.93, 1.09),
        (0.08, OK, 0.94, 1.04),
    ):
        row = judged(pair, Estimate(1.0, 0.9, 1.1), Estimate(1.0, low, high), BLANK, margin)
        assert (row.word, row.hides(margin)) == (word, word is not OK), (margin, low, high)
    slow = judged(pair, Estimate(1.1, 1.01, 1.19), Estimate(1.1, 1.05, 1.15), BLANK, 0.2)
    assert slow.word is SLOW, "a margin that logs need does not hide what is sure"


def test_a_row_hides_a_regression_where_that_cannot_be_excluded() -> None:
    base = measurement()
    for interval, word, most, hidden in (
        ((1.04, 0.9, 1.2), UNKNOWN, math.inf, True),
        ((0.97, 0.9, 1.05), UNKNOWN, math.inf, False),
        ((0.97, 0.9, 1.2), UNKNOWN, 1.02, False),
        ((1.2, 1.1, 1.3), SLOW, math.inf, False),  # it is no secret
        ((1.0, math.nan, math.nan), UNKNOWN, math.inf, True),
        ((1.2, math.nan, math.nan), UNKNOWN, 1.02, True),
    ):
        judgement = replace(BLANK, word=word, ratio=Estimate(*interval))
        row = Row(base, base, 1e-6, 1e-6, judgement, Estimate(1.0, 0.0, most))
        assert row.hides(0.05) is hidden, (interval, word, most)


def test_a_mean_over_four_sizes_or_more_is_as_sure_as_its_rows_whatever_their_ratios() -> None:
    reach = student(0.975, 5) * 0.1
    for name, logs, shared, expected in (
        ("equal", [0.3] * 4, 0.0, reach * math.sqrt(1.3 / 4)),
        ("of thirteen", [0.3] * 13, 0.0, reach * math.sqrt(1.3 / 13)),
        ("larger at some sizes", [0.0, 0.0, 1.0, 2.3], 0.0, reach * math.sqrt(1.3 / 4)),
        ("all of it shared", [0.3] * 4, 0.1, reach),
        ("half of its square shared", [0.3] * 4, 0.1 * math.sqrt(0.5), reach * math.sqrt(0.5 + 0.5 * 1.3 / 4)),
    ):
        ratio = mean_ratio([LogRatio(log, 0.1, 0.1, 5, shared=shared) for log in logs], 0.95)
        centre = sum(logs) / len(logs)
        ends = (math.exp(centre + end) for end in (0, -expected, expected))
        assert ratio == pytest.approx(tuple(ends)), name
    errors = [0.001] * 3 + [1.0]  # one that says nothing
    widest = math.log(mean_ratio([LogRatio(0.1, error, error, 5) for error in errors], 0.95).high) - 0.1
    assert widest == pytest.approx(student(0.975, 5) * sum(errors) / 4, rel=1e-3)
    assert mean_ratio([LogRatio(math.log(1.5), 0, 0, 5)] * 4, 0.95).interval == pytest.approx((1.5, 1.5))


def test_all_sizes_together_never_contradict_rows_that_agree() -> None:
    for ratios, told in (
        ([1.2, 1.3, 1.5, 2.0, 3.0, 4.5], SLOW),
        ([1.06, 1.06, 1.1, 1.3, 2.0, 4.0], SLOW),
        ([0.9, 0.8, 0.6, 0.4, 0.2, 0.1], FAST),
        ([1.0] * 6, OK),
        ([1.06] * 6, SLOW),
    ):
        found = against_one({("mpi", 8 << place): ratio for place, ratio in enumerate(ratios)})
        (whole,) = found.together
        assert (whole.word, whole.sizes) == (told, len(ratios)), ratios
        assert {row.word for row in found.rows} & {SLOW, FAST} <= {told}, ratios
    for sign in (1, -1):
        interval = mean_ratio([LogRatio(sign * log, 0.004, 0.004, 9) for log in (0.02, 0.9, 0.3, 3.4)], 0.95).interval
        assert (min(interval) > 1) is (sign == 1) is not (max(interval) < 1)


def test_intervals_are_for_all_rows_and_curves_together_and_scatter_is_told_from_two_per_cent_on() -> None:
    found = against_one(swings(0.1))
    reach = student(1 - 0.05 / 14 / 2, 11) * 0.2 / math.sqrt(1.5)
    for row in found.rows:
        assert row.interval == pytest.approx((row.ratio * math.exp(-reach), row.ratio * math.exp(reach)), rel=1e-6)
        alone = student(0.95, 11) * 0.2 / math.sqrt(1.5)
        assert row.alone.high == pytest.approx(row.ratio * math.exp(alone), rel=1e-6), "one side, and this row alone"
    (whole,) = found.together
    assert math.log(whole.interval[1] / whole.ratio) == pytest.approx(reach * math.sqrt(1.3 / 13))
    for scatter, told in ((0.0199, False), (0.0201, True)):
        remarks = against_one(swings(scatter * math.sqrt(1.5) / 2)).remarks
        words = ["ratios of neighbouring sizes scatter by 2% more than"] * told
        assert [remark[:52] for remark in remarks] == words, scatter


def test_regressions_are_rows_then_curves_slower_by_more_than_the_margin() -> None:
    found = against_one({("a", 8): 1.06, ("b", 8): 0.9, ("c", 8): 1.04, **{("d", nbytes): 1.1 for nbytes in SIZES[:4]}})
    assert [row.word for row in found.rows] == [SLOW, FAST, OK, *[SLOW] * 4]
    assert found.regressions == [found.rows[0], *found.rows[3:], *found.together]
    assert len(found.together) == 1
    assert found.hidden == []


def test_what_moved_together_may_be_the_machine() -> None:
    for ratios, told in (
        ([1.1] * 8 + [1.0] * 2, "nearly all rows of all 10 implementations are SLOW (typically 1.10x)"),
        ([0.9] * 9 + [1.0], "nearly all rows of all 10 implementations are FAST (typically 0.90x)"),
        ([1.1] * 9 + [1.4], "nearly all rows of all 10 implementations are SLOW (typically 1.10x)"),
        ([1.1] * 9 + [1.44], ""),
        ([1.1] * 7 + [1.0] * 3, ""),
        ([1.1] * 9 + [0.9], ""),
        ([1.1], ""),
        ([1.0] * 3, ""),
    ):
        found = against_one({(f"i{place}", 8): ratio for place, ratio in enumerate(ratios)})
        assert [remark.partition(": ")[0] for remark in found.remarks] == [told] * bool(told), ratios
    alone = against_one({("a", nbytes): 1.5 for nbytes in SIZES})
    assert not any("implementations are SLOW" in remark for remark in alone.remarks)


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
        assert [row.word for row in found.rows] == [SLOW] * 2, place
        assert [row.ratio for row in found.rows] == pytest.approx([1.2] * 2), place
        paired = [remark for remark in found.remarks if remark.startswith("both were measured in turn")]
        assert len(paired) == told, place
    few = {"interleaved": {"id": "1", "setting": ""}}
    found = compare(of(measurement(seconds=(1.0,) * 2), **few), of(measurement(seconds=(2.0,) * 2), **few))
    assert not any("in turn" in remark for remark in found.remarks)


def test_a_run_and_itself_are_the_same_and_one_with_another_header_is_no_copy() -> None:
    one = of(measurement(seconds=(1e-6, 2e-6)), Reported(case(), "nccl", "gpu", 1e-5, "mean of 20"), started="2025")
    found = compare(one, replace(one, path=Path("copy.jsonl")))
    assert [(row.ratio, row.interval, row.word) for row in found.rows] == [(1.0, (1.0, 1.0), OK)] * 2
    assert not found.hidden
    assert repr(found) == "Comparison(run.jsonl -> copy.jsonl: 2 OK)"
    assert "one run" in found.remarks[0]
    seven = of(measurement(), started="2025")
    for other in (of(measurement(), started="2026"), of(measurement(seconds=(1.2e-6,) * 7), started="2025")):
        found = compare(seven, other)
        assert not found.remarks
        assert found.rows[0].ratio == pytest.approx(other.results[0].typical / 1e-6)  # type: ignore[union-attr]


def log(*seconds: float, statistic: str = "mean of 20", header: Mapping[str, Any] | None = None) -> Run:
    rows = (
        Reported(case(nbytes=8 << place), "mpi", "cpu", time, statistic, printed={"time": f"{time:.4g}"})
        for place, time in enumerate(seconds)
    )
    return of(*rows, **header or {})


def test_a_log_is_compared_by_its_own_statistic_and_with_no_other() -> None:
    for statistics, ratio, known in (
        (("mean of 20", "mean"), 2.0, True),
        (("median of 9", "median"), 2.0, True),
        (("slowest of 9", "max"), 2.0, True),
        (("median of 9", "mean"), 2.0, False),
        ((None, "median"), 2.0, True),
        ((None, "mean"), 1.0, True),
    ):
        base, new = (
            measurement(seconds=(1e-6,) * 9 + (11e-6,))
            if statistic is None
            else Reported(case(), "mpi", "cpu", seconds, statistic)
            for statistic, seconds in zip(statistics, (1e-6, 2e-6), strict=True)
        )
        found = compare(of(base), of(new), confidence=0.99)
        (row,) = found.rows
        assert row.ratio == pytest.approx(ratio), statistics
        assert (row.word, row.estimate.known, found.hidden) == (UNKNOWN, known, [row]), statistics
        assert len(found.remarks) == 1, statistics
        assert ("a mean and a median" in found.remarks[0]) is not known, statistics
    one, other = (
        of(Reported(case(), "nccl", "gpu", time, "mean", samples=tuple(time * (1 + 0.001 * i) for i in range(40))))
        for time in (1e-5, 1.2e-5)
    )
    assert compare(one, other).rows[0].word is SLOW
    few = of(measurement(seconds=(1e-6,) * 3, nbytes=8))
    assert compare(log(1e-6), few).rows[0].word is UNKNOWN, "three samples are no mean of a log"


def test_logs_that_are_slower_everywhere_are_and_two_sizes_have_the_scatter_of_published_repeats() -> None:
    still_more = compare(log(*[1e-5] * 13), log(*[1.3e-5] * 13))
    assert {row.word for row in (*still_more.rows, *still_more.together)} == {SLOW}
    two = compare(log(1e-5, 1e-5), log(1.1e-5, 1.1e-5))
    assert "too few sizes" in two.remarks[0]
    assert two.rows[0].interval[1] == pytest.approx(1.1 * math.exp(0.013 * student(1 - 0.05 / 2 / 2, 1)))


def test_a_log_imported_twice_is_one_run() -> None:
    header = {"imported": {"file": "a.log"}}
    four = log(1e-6, 2e-6, 3e-6, 4e-6), log(1e-6, 2e-6, 3e-6, 4e-6, header=header)
    assert {(row.word, row.interval) for row in compare(*four).rows} == {(OK, (1.0, 1.0))}
    assert not compare(*four).hidden
    assert compare(log(1e-6), log(1e-6, header=header)).hidden, "one figure may come twice by chance"


@pytest.mark.full
def test_equal_logs_are_called_different_one_time_in_twenty_and_a_slowed_one_is_found() -> None:
    generator = np.random.default_rng(29)
    called, found = 0, 0
    for number in range(200):
        tails = generator.standard_t(3, (3, 12)) / math.sqrt(3) if number % 2 else generator.normal(size=(3, 12))
        base, new, slow = (log(*row) for row in 1e-5 * np.exp(0.02 * tails) * [[1.0], [1.0], [1.1]])
        equal = compare(base, new)
        called += any(row.word in (SLOW, FAST) for row in (*equal.rows, *equal.together))
        found += bool(compare(base, slow).regressions)
    assert called <= 10
    assert found >= 180


def test_too_few_samples_conclude_nothing_and_no_time_or_bytes_have_no_ratio() -> None:
    for count in (1, 3):
        few, many = of(measurement(seconds=(1e-6,) * count)), of(measurement(seconds=(2e-6,) * 30))
        for pair, ratio in (((few, many), 2.0), ((many, few), 0.5)):
            found = compare(*pair)
            (row,) = found.rows
            assert (row.word, row.ratio) == (UNKNOWN, pytest.approx(ratio)), count
            assert "fewer than 5 samples" in row.judgement.reason, count
            assert len(found.remarks) == 1, count
    for one in (measurement(seconds=(0.0, *[1e-6] * 6)), measurement(nbytes=0)):
        assert not compare(of(one, started="2025"), of(one, started="2026")).rows


MISMATCH = Mismatch(0, 1, 0, "1", "2", 3)
ROWS: dict[str | None, tuple[Result, ...]] = {
    None: (),
    "right": (measurement(),),
    "wrong": (Measurement(case(), "mpi", "cpu", 1, (), mismatch=MISMATCH),),
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
        ("failed", "wrong", ("failed", "wrong", str(MISMATCH), True, False)),
        ("wrong", "wrong", ("wrong", "wrong", str(MISMATCH), True, False)),
        (None, "wrong", ("missing", "wrong", str(MISMATCH), True, False)),
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
    assert row.ratio == pytest.approx(1.5)  # rounds of one case, of which none is chosen


def test_predictions_are_not_compared_and_that_is_said_of_the_run_that_holds_them() -> None:
    only, both = of(*ROWS["predicted"]), of(Prediction(case(nbytes=64), "mpi", 1e-6, 1e-6, 1e-6), measurement())
    found = compare(only, both)
    assert not found.rows
    assert [remark.partition(",")[0] for remark in found.remarks] == [
        "BASE holds only predictions",
        "NEW holds predictions",
    ]
    assert "are not judged" in found.remarks[0]


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
    caches = [[{"name": "L1d", "nbytes": 2**15}, {"name": "L3", "nbytes": nbytes}] for nbytes in (2**24, 2**25)]
    (found,) = differences(*({"topology": {"host": {"caches": each}}} for each in caches))
    assert found == ("topology.host.caches.1.nbytes", "16777216", "33554432")  # and not the beginnings of both lists
    one = {"topology": {"name": "a", "host": {"shm_free": 1, "memory": 2}}, "started": "x"}
    other = {"topology": {"name": "b", "host": {"shm_free": 3, "memory": 2}}, "environment": {"variables": {"N": "1"}}}
    found = compare(of(measurement(), **one), of(measurement(), **other)).differences
    assert [tuple(row) for row in found] == [("environment.variables.N", "-", "1"), ("topology.name", "a", "b")]
    assert list(differences({"topology": {}}, {})) == list(differences({}, {})) == []
    assert [difference.name for difference in differences({}, {"topology": {"\x1b": 1}})] != ["topology.\x1b"]
    for part in ("environment", "topology", "sweep", "interleaved", "collbench"):
        for odd in (None, 3, "text", [1], {"host": "\x1b[2J"}, {"variables": [1, {"a": None}]}):
            for difference in differences({part: odd}, {"topology": {"name": "x"}}):
                assert all(text.isprintable() for text in difference), (part, odd)


def test_rows_of_one_name_but_of_two_libraries_are_said_to_be() -> None:
    for base, new, remark in (
        ("MPICH 5.0.2", "Open MPI 5.0.11", "mpi calls MPICH 5.0.2 in BASE and Open MPI 5.0.11 in NEW"),
        ("", "MPICH 5.0.2", "BASE does not name the library of mpi: an old version measured it"),
        ("MPICH 5.0.2", "", "NEW does not name the library of mpi"),
        ("MPICH 5.0.2", "MPICH 5.0.2", None),
    ):
        one, other = ([replace(measurement(nbytes=nbytes), library=name) for nbytes in (8, 64)] for name in (base, new))
        said = [line for line in compare(of(*one), of(*other)).remarks if "librar" in line]
        assert [line[: len(remark or "")] for line in said] == [remark] * bool(remark), (base, new)
