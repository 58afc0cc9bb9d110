"""Verdicts against the model: how many sizes may be slow, and what is said where the machine is not known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import collbench
from collbench.analysis.diagnose import diagnose
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from collbench.model.predict import curve as predicted
from collbench.results import Measurement
from collbench.runfile.header import Header
from collbench.runfile.store import Run
from collbench.topology.files import load
from tests.conftest import case, measurement

H100 = load("dgx-h100")
SIZES = [8 << power for power in range(31)]
LARGE = SIZES[-7:]


def rows(sizes: Sequence[int], slower: Mapping[int, float], in_place: bool = False) -> list[Measurement]:
    """Rows of eight H100 as expected, but for the sizes at these places that take so many times as long."""
    made = []
    for place, expected in enumerate(predicted(H100, [case(nbytes=nbytes, ranks=8) for nbytes in sizes])):
        seconds = expected.seconds * slower.get(place, 1.0)
        row = measurement("nccl", (seconds,), nbytes=expected.case.nbytes, ranks=8)
        made.append(replace(row, case=replace(row.case, in_place=in_place)))
    return made


def judged(*curves: Sequence[Measurement]) -> CheckResult:
    """The verdict on a run of these curves against the model of eight H100."""
    every = tuple(row for curve in curves for row in curve)
    result = collbench.check(run=Run(Path("run"), Header(), every, True), on="dgx-h100")
    assert result
    return result


@pytest.mark.parametrize(
    ("sizes", "slower", "status"),
    [
        (LARGE[-3:], {2: 26.0}, Word.SLOW),
        (LARGE[-3:], {0: 1.5}, Word.SLOW),
        (LARGE[-4:], {3: 26.0}, Word.SLOW),
        (LARGE[-5:], {4: 3.0}, Word.WARN),
        (SIZES, dict.fromkeys(range(0, 31, 4), 4.0), Word.SLOW),  # 8 of 31, none beside another
        (SIZES, dict.fromkeys(range(0, 31, 3), 1.9), Word.SLOW),
        (SIZES, {30: 26.0}, Word.SLOW),
        (SIZES, {3: 13.4}, Word.SLOW),
        (LARGE, dict.fromkeys(range(7), 1.15) | {2: 20.0}, Word.SLOW),
        (SIZES, {3: 2.0, 17: 2.0}, Word.WARN),
        (SIZES, {}, Word.OK),
        (SIZES[:8], dict.fromkeys(range(8), 0.2) | {7: 4.0}, Word.WARN),  # faster, but for one
        (SIZES[:8], dict.fromkeys(range(8), 0.2) | {2: 9.0, 7: 9.0}, Word.SLOW),
    ],
)
def test_a_quarter_of_the_sizes_far_above_their_bands_or_one_farther_than_any_healthy_one_is_slow(
    sizes: Sequence[int], slower: Mapping[int, float], status: Word
) -> None:
    assert judged(rows(sizes, slower)).word is status


def test_a_slow_size_fails_in_junit_where_the_check_does_and_is_skipped_else() -> None:
    for slower, failures in (({30: 26.0}, 2), ({3: 2.0, 17: 2.0}, 0)):
        suite = ElementTree.fromstring(verdicts.junit(judged(rows(SIZES, slower))))
        assert suite.get("failures") == str(failures)
        assert suite.get("skipped") == str(0 if failures else 2)


def test_sizes_that_are_slow_by_themselves_have_no_reason_that_all_would_share() -> None:
    for places in ((5, 6), (0, 3)):
        found = diagnose(rows(LARGE, dict.fromkeys(places, 3.0)), H100, RunFacts({}))
        assert (found.speed, found.reasons) == (Word.SLOW, ())
    assert diagnose(rows(LARGE, dict.fromkeys(range(7), 3.0)), H100, RunFacts({})).reasons


def test_a_faster_curve_names_its_slow_sizes_too() -> None:
    (curve,) = judged(rows(SIZES[:8], dict.fromkeys(range(8), 0.2) | {7: 9.0})).curves
    assert "faster than modelled but for 1 of 8 sizes: 1 KiB" in curve.remark


def test_one_size_more_that_is_slow_makes_no_verdict_better() -> None:
    """Sizes just above their bands alone are UNKNOWN; each is then made slow in turn."""
    above = dict.fromkeys((0, 1, 5, 6), 1.15)
    assert judged(rows(LARGE, above)).word is Word.UNKNOWN
    for place in range(7):
        result = judged(rows(LARGE, above | {place: 3.0}))
        assert result.word in (Word.UNKNOWN, Word.SLOW), place
        assert "as expected but for" not in result.curves[0].remark


def test_of_several_curves_one_that_is_not_known_hides_behind_no_warning() -> None:
    unknown = rows(LARGE, dict.fromkeys((0, 1, 5, 6), 1.15))
    warned, fine, slow = (rows(LARGE, slower, in_place=True) for slower in ({3: 2.0}, {}, dict.fromkeys(range(7), 2.0)))
    assert judged(unknown, warned).word is Word.UNKNOWN
    assert judged(warned, unknown).word is Word.UNKNOWN
    assert judged(unknown, fine).word is Word.UNKNOWN
    assert judged(unknown, slow).word is Word.SLOW


@pytest.mark.parametrize(("slow", "fast"), [(1.6, 0.06), (1.6, 0.01), (26.0, 0.5), (2.0, 1.0)])
def test_of_two_sizes_the_slow_one_speaks(slow: float, fast: float) -> None:
    for sizes in ((8, 8 << 30), (4096, 8 << 30)):
        result = judged(rows(sizes, {0: fast, 1: slow}))
        assert result.word is Word.SLOW, sizes
        assert "8 GiB" in result.curves[0].remark
        assert judged(rows(sizes, {0: fast})).word is (Word.OK if fast == 1 else Word.WARN)


def outcomes(result: CheckResult) -> set[str]:
    """What each output says of the sizes."""
    found = {size.word.value for size in result.sizes}
    found |= {each["verdict"] for curve in verdicts.document(result)["curves"] for each in curve["sizes"]}
    _, *tests = ElementTree.fromstring(verdicts.junit(result)).iter("testcase")
    return found | {test.find("skipped").get("message", "").rpartition(", ")[2] for test in tests}


@pytest.mark.parametrize("share", [0.1, 1.0, 3.0])
def test_no_size_is_decided_where_the_machine_is_not_known(share: float) -> None:
    """More bytes than a link carries, at one size or at all, refute the machine."""
    slower = dict.fromkeys(range(6), share) | {6: 0.4}
    result = judged(rows(LARGE, slower))
    assert result.word is Word.UNKNOWN
    assert outcomes(result) == {Word.UNKNOWN.value}


def test_of_ranks_on_an_unknown_number_of_nodes_no_size_is_decided() -> None:
    facts = RunFacts({}, unplaced="the list of ranks is trimmed")
    for slower in ({6: 30.0, 5: 30.0}, dict.fromkeys(range(7), 3.0)):
        found = diagnose(rows(LARGE, slower), H100, facts)
        assert (found.speed, found.limit) == (Word.UNKNOWN, 0.0), slower
