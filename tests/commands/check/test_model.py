"""Verdicts against the model: any size beyond its limit is slow, and nothing is said where the machine is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import collbench
from collbench.analysis.diagnose import diagnose
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts
from collbench.cli.verdicts import junit
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from collbench.model.predict import curve as predicted
from collbench.results import Measurement
from collbench.runfile.schema import Header
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
    ("sizes", "slower", "word"),
    [
        (LARGE[-3:], {0: 1.6}, Word.SLOW),
        (LARGE, dict.fromkeys(range(7), 1.5), Word.SLOW),  # all together
        (SIZES, {30: 2.0}, Word.SLOW),
        (SIZES, {3: 3.0}, Word.SLOW),
        (SIZES, {3: 1.3, 17: 1.3}, Word.OK),  # above the usual, and not beyond the limit
        (SIZES, {}, Word.OK),
        (SIZES[:8], dict.fromkeys(range(8), 0.2), Word.FAST),
        (SIZES[:8], dict.fromkeys(range(8), 0.2) | {7: 4.0}, Word.SLOW),  # faster, but for one
    ],
)
def test_any_size_beyond_its_limit_is_slow_and_so_is_what_is_slow_together(
    sizes: Sequence[int], slower: Mapping[int, float], word: Word
) -> None:
    result = judged(rows(sizes, slower))
    assert result.word is word
    (curve,) = result.curves
    beyond = [size.row.case.nbytes for size in result.sizes if size.off > size.judgement.limit]
    assert [size.row.case.nbytes for size in result.sizes if size.word is Word.SLOW] == beyond
    assert curve.telling.row.case.nbytes in (beyond or sizes)
    suite = ElementTree.fromstring(junit([verdicts.suite(result)]))
    assert suite.get("failures") == str(len(beyond) + (word is Word.SLOW))
    assert suite.get("skipped") == "0"


def test_sizes_that_are_slow_by_themselves_have_no_reason_that_all_would_share() -> None:
    for places in ((5, 6), (0, 3)):
        found = diagnose(rows(LARGE, dict.fromkeys(places, 3.0)), H100, RunFacts({}))
        assert (found.word, found.reasons) == (Word.SLOW, ())
    assert diagnose(rows(LARGE, dict.fromkeys(range(7), 3.0)), H100, RunFacts({})).reasons


def test_of_several_curves_the_worst_that_was_judged_speaks_and_what_was_not_is_named() -> None:
    unknown = rows(LARGE, {6: 0.4})
    for slower, word in (({}, Word.OK), ({3: 2.0}, Word.SLOW)):
        other = rows(LARGE, slower, in_place=True)
        for curves in ((unknown, other), (other, unknown)):
            result = judged(*curves)
            assert result.word is word
            assert f"; {unknown[0].case.title}, nccl not judged" in result.line
    assert judged(unknown).word is Word.UNKNOWN


@pytest.mark.parametrize(("slow", "fast"), [(1.6, 0.06), (1.6, 0.01), (26.0, 0.5), (2.0, 1.0)])
def test_of_two_sizes_the_slow_one_speaks(slow: float, fast: float) -> None:
    for sizes in ((8, 8 << 30), (4096, 8 << 30)):
        result = judged(rows(sizes, {0: fast, 1: slow}))
        assert result.word is Word.SLOW, sizes
        assert "8 GiB" in result.curves[0].remark
        assert judged(rows(sizes, {0: fast})).word is (Word.OK if fast == 1 else Word.FAST)


def outcomes(result: CheckResult) -> set[str]:
    found = {size.word.value for size in result.sizes}
    found |= {each["word"] for curve in verdicts.document(result)["curves"] for each in curve["sizes"]}
    _, *tests = ElementTree.fromstring(junit([verdicts.suite(result)])).iter("testcase")
    return found | {test.find("skipped").get("message", "").partition(":")[0] for test in tests}


@pytest.mark.parametrize("share", [0.1, 1.0, 3.0])
def test_no_size_is_decided_where_the_machine_is_not_known(share: float) -> None:
    slower = dict.fromkeys(range(6), share) | {6: 0.4}
    result = judged(rows(LARGE, slower))
    assert result.word is Word.UNKNOWN
    assert outcomes(result) == {Word.UNKNOWN.value}


def test_of_ranks_on_an_unknown_number_of_nodes_no_size_is_decided() -> None:
    facts = RunFacts({}, unplaced="the list of ranks is trimmed")
    for slower in ({6: 30.0, 5: 30.0}, dict.fromkeys(range(7), 3.0)):
        found = diagnose(rows(LARGE, slower), H100, facts)
        assert (found.word, found.judged) == (Word.UNKNOWN, False), slower
