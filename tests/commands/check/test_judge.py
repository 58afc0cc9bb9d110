"""The verdict of a curve from those of its sizes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from collbench.analysis.judgement import Word
from collbench.analysis.sequential import SequentialTest
from collbench.commands.check.expectations import expect_run, read_floors
from collbench.commands.check.judge import ONCE, ONCE_SMALL, CheckedCurve, judge_rounds
from collbench.model.predict import SMALL
from collbench.results import Measurement
from tests.conftest import measurement

SIZES = [8 * 8**power for power in range(7)]


def rounds(*ratios: float, nbytes: int) -> list[Measurement]:
    """Rounds of a size, each so many times as long as a microsecond."""
    return [measurement(seconds=(ratio * 1e-6,), nbytes=nbytes) for ratio in ratios]


STEADY, NOISY = (0.99, 1.0, 1.01) * 4, (0.8, 1.05, 1.4)


def judged(
    odd: Mapping[int, Sequence[float]], usual: Sequence[float] = STEADY, nodes: int = 1, first: bool = False
) -> CheckedCurve:
    """A curve whose other sizes are as usual, and those at these places not, held against a steady run."""
    known = [row for nbytes in SIZES for row in rounds(*STEADY, nbytes=nbytes)]
    rows = [row for at, nbytes in enumerate(SIZES) for row in rounds(*odd.get(at, usual), nbytes=nbytes)]
    expectation = expect_run("a run", known)._replace(first=first)
    (curve,) = judge_rounds(rows, expectation, SequentialTest(slower=0.2), nodes)
    return curve


def test_a_size_that_is_not_known_well_is_no_matter_unless_it_seems_slow_or_hides_too_much() -> None:
    for at in (0, len(SIZES) - 1):
        for odd, word, of_size in (
            ((0.99, 1.0, 1.01), Word.OK, Word.OK),
            (NOISY, Word.OK if at == 0 else Word.UNKNOWN, Word.UNKNOWN),
            ((1.0, 1.25, 1.6), Word.UNKNOWN, Word.UNKNOWN),
            ((1.29, 1.3, 1.31), Word.SLOW, Word.SLOW),
        ):
            curve = judged({at: odd})
            assert (curve.word, curve.sizes[at].word) == (word, of_size), (at, odd)


def test_a_single_size_beyond_its_limit_makes_its_curve_slow_wherever_it_is() -> None:
    for at in range(len(SIZES)):
        for odd in ((1.6,), (2.0,), (3.0,), (1.29, 1.3, 1.31)):
            for usual in (STEADY, (1.0,)):
                curve = judged({at: odd}, usual)
                assert [size.word for size in curve.sizes].count(Word.SLOW) == 1
                assert (curve.word, curve.telling.row.case.nbytes) == (Word.SLOW, SIZES[at]), (at, odd, usual)
        small = SIZES[at] < SMALL
        for once, word in ((ONCE * 1.1, Word.OK if small else Word.SLOW), (ONCE_SMALL * 1.1, Word.SLOW)):
            assert judged({at: (once,)}, (1.0,), nodes=2).word is word, (at, once)


def test_all_sizes_together_are_slow_or_fast_though_none_is_so_alone() -> None:
    for times, word in ((1.0, Word.OK), (1.4, Word.SLOW), (0.7, Word.FAST)):
        curve = judged({}, (times,))
        assert {size.word for size in curve.sizes} == {Word.OK}
        assert curve.word is word, times


def test_what_would_notice_too_little_is_unknown_but_at_the_first_check_of_a_machine() -> None:
    for first, word in ((False, Word.UNKNOWN), (True, Word.OK)):
        curve = judged({len(SIZES) - 1: NOISY}, first=first)
        assert (curve.word, curve.blind, curve.sight.enough) == (word, not first, False)
        assert (str(curve.sight) in curve.remark) is not first


@pytest.mark.parametrize(
    ("share", "word"),
    [
        ((0.2,), Word.OK),  # which may become five times as slow
        ((0.999,), Word.OK),
        ((1.001,), Word.UNKNOWN),
        ((1.3,), Word.SLOW),
        ((0.9, 0.9, 0.9), Word.OK),
        ((1.1, 1.1, 1.1), Word.SLOW),
    ],
)
def test_a_floor_is_told_as_it_was_written_and_a_single_figure_that_meets_it_passes(
    tmp_path: Path, share: Sequence[float], word: Word
) -> None:
    floors, sizes = tmp_path / "floors.toml", (2**20, 2**30)
    floors.write_text('[[floor]]\ncollective="allreduce"\nsize="1G"\nvalue=380\nlower=-0.05\nunit="GB/s"')
    rows = [
        row for each in share for row in rounds(1.0, nbytes=sizes[0]) + rounds(2**30 / 361e3 * each, nbytes=sizes[1])
    ]
    (curve,) = judge_rounds(rows, read_floors(floors), SequentialTest())
    assert curve.word is curve.sizes[-1].word is word
    assert curve.sight.enough is (share != (0.2,))
    assert "of 361.0 GB/s expected" in curve.sizes[-1].figure
