"""Logs without samples: what is scatter and what is a change, by the ratios of neighbouring sizes alone."""

import importlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from collbench.analysis.bootstrap import PUBLISHED, of_means, outliers
from collbench.analysis.compare import compare
from collbench.analysis.comparison import UNSURE, Comparison
from collbench.analysis.judgement import Word
from collbench.results import Reported
from collbench.runfile.schema import Header, ImportedPart, TopologyPart
from collbench.runfile.store import Run, read
from tests.conftest import case

DATA = Path(__file__).with_name("data")
CALM = tuple(1 + 0.003 * (-1) ** (place * place // 2) for place in range(24))
CHANGED = (Word.SLOW, Word.FAST)


def machine(gpu: str, ratios: Sequence[float]) -> Run:
    """A log of one kind of GPU: each size out of place, and in place 1 % slower."""
    rows = []
    for place, ratio in enumerate(ratios):
        for in_place, more in ((False, 1.0), (True, 1.01)):
            at = case(nbytes=8 << place, in_place=in_place)
            rows.append(Reported(at, "nccl", "gpu", 1e-5 * ratio * more, "mean of 20"))
    header = Header(topology=TopologyPart(name=f"8 x {gpu}", platform="gpu", ranks=8))
    return Run(Path("log.jsonl"), header, tuple(rows), True)


def test_how_two_machines_differ_from_size_to_size_is_no_scatter() -> None:
    apart = [4 * 0.8**place for place in range(14)]  # four times slower at 8 B, and faster at the largest
    for gpu, known in (("NVIDIA A100", True), ("NVIDIA H100", False)):
        found = compare(machine("NVIDIA H100", [1.0] * 14), machine(gpu, apart))
        assert all((row.interval[1] < 1.2 * row.ratio) is known for row in found.rows), gpu
        assert any("in-place against out-of-place" in remark for remark in found.remarks) is known


def log(ratios: Sequence[float], rounds: Mapping[int, Sequence[float]] | None = None) -> Run:
    """A mean of each size, so many times 10 us; of some sizes several rounds."""
    rows = [
        Reported(case(nbytes=8 << place), "nccl", "gpu", 1e-5 * ratio, "mean of 20")
        for place, times in enumerate(ratios)
        for ratio in (rounds or {}).get(place, [times])
    ]
    return Run(Path("log.jsonl"), Header(), tuple(rows), True)


def against_calm(ratios: Sequence[float]) -> Comparison:
    return compare(log(CALM[: len(ratios)]), log(ratios))


def but(count: int, changed: Mapping[int, float]) -> list[float]:
    return [changed.get(place, 1.0) for place in range(count)]


def test_what_stands_out_is_changed_and_named_and_the_rest_is_the_same() -> None:
    for count, changed in (
        (14, {6: 10.0}),
        (14, {6: 1.6}),
        (14, {6: 0.1}),  # faster
        (14, {0: 10.0}),  # with neighbours on one side
        (14, {13: 3.0}),
        (14, {3: 10.0, 9: 4.0}),
        (14, {4: 10.0, 5: 10.0}),
        (14, {4: 5.0, 6: 5.0}),
        (14, {4: 5.0, 9: 0.2}),
        (14, {12: 3.0, 13: 3.0}),
        (7, {4: 10.0}),
        (4, {1: 10.0}),
        (3, {0: 10.0}),
        (3, {1: 10.0}),
        (3, {2: 2.0}),
    ):
        found = against_calm(but(count, changed))
        words = {place: row.word for place, row in enumerate(found.rows)}
        slower = {place: Word.SLOW if ratio > 1 else Word.FAST for place, ratio in changed.items()}
        assert words == dict.fromkeys(range(count), Word.OK) | slower, changed
        (named,) = [remark for remark in found.remarks if "stands out" in remark]
        assert named.count("nccl at ") == len(changed), changed
        assert found.judgement.word is (Word.SLOW if max(changed.values()) > 1 else Word.OK), changed


def test_a_step_is_a_change_from_that_size_on() -> None:
    for count in (4, 5, 6, 7, 14):
        for first in range(1, count):
            found = against_calm(but(count, dict.fromkeys(range(first, count), 2.0)))
            expected = [Word.OK] * first + [Word.SLOW] * (count - first)
            assert [row.word for row in found.rows] == expected, (count, first)
            assert len(found.together) == 1 or (count == 4 and first != 2), "three sizes have no line"
            for whole in found.together:
                # A size that stands out is a change by itself, and none of the others'.
                told = Word.SLOW if whole.sizes == count else expected[count // 2]
                assert whole.word is told, (count, first)


def test_of_one_or_two_sizes_only_a_large_change_is_told() -> None:
    for ratios, expected in (
        ([1.0], [Word.UNKNOWN]),
        ([10.0], [Word.SLOW]),
        ([1.0, 1.0], [Word.UNKNOWN] * 2),
        ([1.0, 10.0], [Word.UNKNOWN, Word.SLOW]),
        ([1.1, 1.2], [Word.UNKNOWN] * 2),
    ):
        assert [row.word for row in against_calm(ratios).rows] == expected, ratios


def test_noise_is_no_change_whatever_its_pattern() -> None:
    tails = np.exp(0.05 * np.random.default_rng(5).standard_t(3, 24))
    for name, ratios in (
        ("to and fro", [1.04, 0.96] * 7),
        ("far to and fro", [1.5, 0.7] * 7),
        ("to and fro, of four", [1.5, 0.7] * 2),
        ("long tails", tails.tolist()),
        ("one size in three", [1.0, 1.2, 1.0] * 5),
        ("every other size", [1.0, 4.0] * 4),
    ):
        found = against_calm(ratios)
        assert not any(row.word in CHANGED for row in found.rows), name
        assert not any("stands out" in remark for remark in found.remarks), name
        for row in found.rows:
            assert row.judgement.reason.startswith(UNSURE) is (row.word is Word.UNKNOWN and row.estimate.known), name
            assert not row.interval[1] > 1000 * row.interval[0], name


def test_an_interval_of_more_than_three_decades_is_none_and_the_row_says_why() -> None:
    for ratios in ([1.0, 300.0] * 3, [1.0, 300.0] * 4, [1.0, 10.0, 1.0, 10.0, 1.0, 10.0, 1.0]):
        found = against_calm(ratios)
        unknown = [row for row in found.rows if not row.estimate.known]
        assert unknown, ratios
        assert all(math.isnan(end) for row in unknown for end in row.interval), ratios
        assert all("1000 to 1" in row.judgement.reason for row in unknown), ratios
        assert any(remark.startswith(f"unknown rows ({len(unknown)})") for remark in found.remarks), ratios
        assert found.judgement.word is Word.UNKNOWN, ratios


def test_rounds_of_a_case_widen_its_interval_alone() -> None:
    for rounds, word in (
        ([0.6, 2.4], Word.UNKNOWN),
        ([2.0, 2.0], Word.SLOW),
        ([1.0, 1.0], Word.OK),
    ):
        for sides in ((None, {5: rounds}), ({5: [1 / each for each in rounds]}, None)):
            base, new = (log(CALM[:14], one) for one in sides)
            found = compare(base, new)
            assert len(found.rows) == 14
            told = found.rows[5].word
            assert told is word, (rounds, sides)
            others = {row.word for place, row in enumerate(found.rows) if place != 5}
            assert others == {Word.OK} or word is Word.UNKNOWN, (rounds, sides)


def test_a_bad_round_of_one_size_says_nothing_of_the_others() -> None:
    shaken = [1.0, 1.006, 0.995, 1.003, 0.998, 1.001]
    for count, slower, bad, place in ((1, 1.0, 33.0, 3), (2, 1.0, 33.0, 3), (3, 1.3, 10.0, 0), (6, 1.3, 10.0, 13)):
        calm = dict.fromkeys(range(14), shaken[:count])
        rough = {size: [slower * each for each in rounds] for size, rounds in calm.items()}
        rough[place] = [*rough[place][: max(1, count - 1)], bad * slower]
        for rounds, word in (((calm, rough), Word.SLOW), ((rough, calm), Word.FAST)):
            found = compare(*(log([1.0] * 14, each) for each in rounds))
            told = [row.word for row in found.rows]
            assert told.pop(place) is Word.UNKNOWN, (count, place)
            assert set(told) == {Word.OK if slower == 1 else word}, (count, place)
            assert [(whole.word, whole.sizes) for whole in found.together] == [(told[0], 13)], (count, place)
            assert any("the spread of rounds" in remark for remark in found.remarks)


def test_rounds_that_scatter_alike_at_all_sizes_widen_all_intervals() -> None:
    generator = np.random.default_rng(7)
    wide = []
    for _ in range(20):
        base, new = ({size: np.exp(0.03 * generator.normal(size=2)).tolist() for size in range(14)} for _ in range(2))
        found = compare(log([1.0] * 14, base), log([1.0] * 14, new))
        assert not any(row.word in CHANGED for row in found.rows)
        middle = sorted(row.interval[1] for row in found.rows)[7]
        wide += [row.interval[1] > 1.5 * middle for row in found.rows]
    assert sum(wide) < 0.05 * len(wide)


def test_rounds_that_are_thousands_of_times_apart_end_in_no_error() -> None:
    for times in (4.0, 1e4, 1e9):
        rounds = {place: [1.0, times] for place in range(24)}
        found = compare(log(CALM, rounds), log(CALM))
        assert {row.word for row in found.rows} == {Word.UNKNOWN}, times
        assert {whole.word for whole in found.together} <= {Word.UNKNOWN}, times


def test_scatter_is_that_of_medians_and_neighbours_and_of_published_repeats() -> None:
    swing = [(8 << place, 0.02 * (-1) ** place) for place in range(13)]
    errors = of_means([swing])
    expected = math.sqrt((7 * (0.04 / 0.945) ** 2 + PUBLISHED.deviation**2) / 8)
    assert errors.at(8 << 6) == pytest.approx((expected, 8), rel=1e-3)
    assert outliers(swing) == set()
    assert of_means([swing, swing]) == errors, "a size of two curves counts once"
    rough = [(nbytes, log if place < 5 else 0.0) for place, (nbytes, log) in enumerate(swing)]
    found = of_means([rough])
    assert found.near[8 << 12][0] < 0.006 < found.everywhere[0]


def imported(name: str, folder: Path) -> Run:
    command = importlib.import_module("collbench.commands.formats.import").command
    result = CliRunner().invoke(command, [str(DATA / f"{name}.log"), "-o", str(folder / name)])
    assert result.exit_code == 0, result.output
    return read(folder / name)


@pytest.mark.parametrize(
    ("base", "new", "nbytes", "times", "margin"),
    [("one_size_base", "one_size_10x", 2 << 30, 10, 0.05), ("one_size_of_24_base", "one_size_of_24", 8 << 20, 12, 0.3)],
)
def test_one_size_of_a_log_that_is_many_times_slower_is_found_and_nothing_else(
    base: str, new: str, nbytes: int, times: float, margin: float, tmp_path: Path
) -> None:
    found = compare(imported(base, tmp_path), imported(new, tmp_path), margin)
    for row in found.rows:
        expected = Word.SLOW if row.case.nbytes == nbytes else Word.OK
        assert row.word is expected or (margin == 0.3 and row.word is Word.UNKNOWN), row
        assert (row.ratio > times - 0.5) is (row.word is Word.SLOW), row
    assert sum(row.word is Word.OK for row in found.rows) >= 0.8 * len(found.rows)
    assert sum("stands out" in remark for remark in found.remarks) == 1
    assert found.judgement.word is Word.SLOW


def test_the_line_of_all_sizes_needs_four_that_do_not_stand_out_however_noise_is_known() -> None:
    for count, sizes in ((4, []), (5, [4]), (7, [6]), (14, [13])):
        ratios = but(count, {1: 10.0})
        sampled = [
            replace(run, results=tuple(replace(row, samples=(row.seconds,) * 9) for row in run.results))
            for run in (log([1.0] * count), log(ratios))
        ]
        for found in (against_calm(ratios), compare(*sampled)):
            assert [row.word for row in found.rows].count(Word.SLOW) == 1, count
            assert [(whole.sizes, whole.every) for whole in found.together] == [(size, count) for size in sizes]
            assert {whole.word for whole in found.together} <= {Word.OK, Word.UNKNOWN}, count
            assert found.judgement.reason.startswith("1 row slower by more than "), count
            assert sum("stands out" in remark for remark in found.remarks) == 1, count


def test_a_log_that_was_cut_off_or_has_lines_that_were_not_read_hides_a_regression() -> None:
    base, new = log(CALM[:14]), log(CALM[:9])
    assert compare(base, new).judgement.word is Word.OK
    for lost, words in (
        (replace(new, header=Header(imported=ImportedPart(complete=False))), "was cut off"),
        (replace(new, header=Header(imported=ImportedPart(left_out=("1 row: torn",)))), "could not be read"),
        (replace(new, left_out=("12: no JSON",)), "could not be read"),
        (replace(new, status=130), "was cut off"),
    ):
        found = compare(base, lost)
        assert found.judgement.word is Word.UNKNOWN, words
        assert words in found.judgement.reason
        assert "whole" in found.judgement.reason
        assert not re.search("--(margin|budget)", found.judgement.reason), words
    whole = replace(log(CALM[:14]), header=Header(imported=ImportedPart(left_out=("1 row: of another test",))))
    assert compare(base, whole).judgement.word is Word.OK, "nothing of BASE is missing"


def test_the_margin_that_the_gate_advises_is_one_that_passes_and_no_other_is_advised() -> None:
    noise = np.random.default_rng(11)
    for deviation in (0.015, 0.02, 0.03):
        base, new = (log(np.exp(deviation * noise.normal(size=14)).tolist()) for _ in range(2))
        words = compare(base, new, 0.05).judgement.reason
        (percent,) = re.findall(r"--margin (\d+)%", words)
        assert compare(base, new, int(percent) / 100).judgement.word is Word.OK, words
        assert compare(base, new, (int(percent) - 1) / 100).judgement.word is Word.UNKNOWN, words
    rough = log([1.0] * 14, {3: [1.0, 33.0]})
    words = compare(log([1.0] * 14), rough).judgement.reason
    assert "measure again" in words
    assert "--margin" not in words
