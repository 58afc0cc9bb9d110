"""The verdict of a curve from those of its sizes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from collbench.analysis.judgement import Word
from collbench.analysis.sequential import SequentialTest
from collbench.commands.check.expectations import expect_run, read_floors
from collbench.commands.check.judge import judge_rounds
from collbench.results import Measurement
from tests.conftest import measurement

SIZES = [8 * 8**power for power in range(7)]


def rounds(*ratios: float, nbytes: int) -> list[Measurement]:
    """Rounds of a size, each so many times as long as a microsecond."""
    return [measurement(seconds=(ratio * 1e-6,), nbytes=nbytes) for ratio in ratios]


def verdict(odd: Sequence[float]) -> tuple[Word, Word]:
    """That of a curve whose other sizes are as expected, and of the odd size."""
    steady = (0.99, 1.0, 1.01) * 4
    known = [row for nbytes in SIZES for row in rounds(*steady, nbytes=nbytes)]
    rows = [row for nbytes in SIZES[:-1] for row in rounds(*steady, nbytes=nbytes)]
    rows += rounds(*odd, nbytes=SIZES[-1])
    (curve,) = judge_rounds(rows, expect_run("a run", known), SequentialTest(slower=0.2))
    return curve.status, curve.sizes[-1].word


def test_a_size_that_is_not_known_well_is_no_matter_unless_it_seems_slow() -> None:
    assert verdict((0.99, 1.0, 1.01)) == (Word.OK, Word.OK)
    assert verdict((0.8, 1.05, 1.4)) == (Word.OK, Word.UNKNOWN)
    assert verdict((1.0, 1.25, 1.6)) == (Word.UNKNOWN, Word.UNKNOWN)
    assert verdict((1.29, 1.3, 1.31)) == (Word.SLOW, Word.SLOW)


def test_a_size_that_was_measured_once_warns_and_many_fail() -> None:
    assert verdict((1.6,)) == (Word.WARN, Word.SLOW)
    known = [row for nbytes in SIZES for row in rounds(1.0, nbytes=nbytes)]
    rows = [row for nbytes in SIZES for row in rounds(1.6, nbytes=nbytes)]
    (curve,) = judge_rounds(rows, expect_run("a run", known), SequentialTest(slower=0.2))
    assert curve.status is Word.SLOW


@pytest.mark.parametrize(
    ("share", "status", "decision"),
    [
        ((0.999,), Word.OK, Word.OK),
        ((1.001,), Word.UNKNOWN, Word.UNKNOWN),
        ((1.3,), Word.WARN, Word.SLOW),
        ((0.9, 0.9, 0.9), Word.OK, Word.OK),
        ((1.1, 1.1, 1.1), Word.SLOW, Word.SLOW),
    ],
)
def test_a_floor_is_told_as_it_was_written_and_a_single_figure_that_meets_it_passes(
    tmp_path: Path, share: Sequence[float], status: Word, decision: Word
) -> None:
    """Of several rounds it must be sure."""
    floors, sizes = tmp_path / "floors.toml", (2**20, 2**30)
    floors.write_text('[[floor]]\ncollective="allreduce"\nsize="1G"\nvalue=380\nlower=-0.05\nunit="GB/s"')
    rows = [
        row for each in share for row in rounds(1.0, nbytes=sizes[0]) + rounds(2**30 / 361e3 * each, nbytes=sizes[1])
    ]
    (curve,) = judge_rounds(rows, read_floors(floors), SequentialTest())
    assert curve.sizes[-1].word is decision
    assert curve.status is (Word.SLOW if status is Word.WARN else status)
    assert "of 361.0 GB/s expected" in curve.sizes[-1].figure
    assert curve.resolution == pytest.approx(1.02)
