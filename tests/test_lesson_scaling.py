"""The second lesson: its titles mean one thing, and what it claims in words holds in its runs."""

import re
import shutil
from pathlib import Path

import pytest

from collbench.analysis.jitter.accusation import Finding, verdict
from collbench.analysis.jitter.lateness import witnesses
from collbench.analysis.overlap import overlaps
from collbench.analysis.race import Entry, Estimate
from collbench.analysis.scaling.points import curves
from collbench.runs.file import read
from tests.conftest import ROOT
from tools import lesson
from tools.lesson_scaling import RESULTS, VALUES, raced, value, wires

TEXT = lesson.LESSONS[1].read_text(encoding="utf-8")


def test_every_kind_of_number_is_used() -> None:
    """Or it would be code that nobody reads."""
    titles = [title for _, _, title in lesson.NUMBER.findall(TEXT)]
    for pattern, _ in VALUES:
        assert any(re.fullmatch(pattern, title) for title in titles), pattern


@pytest.mark.parametrize(
    ("run", "title"),
    [
        ("cpu-4-ranks-scale", "weak speed-up of mpi at 3 ranks"),
        ("cpu-4-ranks-scale", "weak speed-up of nobody at 2 ranks"),
        ("cpu-2-ranks-overlap", "gain of mpi by stream"),
        ("cpu-2-ranks-overlap", "gain of mpi by sequential"),
        ("cpu-2-ranks-overlap", "bound of nobody"),
        ("cpu-2-ranks-jitter", "late of rank 1 by nobody"),
        ("cpu-2-ranks-styles", "seconds of ring / nobody"),
        ("cpu-2-ranks-narrow", "bias of mpi"),
        ("dgx-h100-narrow", "bias of narrow-int8"),
    ],
)
def test_a_number_that_no_run_has_is_an_error(run: str, title: str) -> None:
    """A prediction has no errors of wires, for one."""
    with pytest.raises(KeyError):
        value(RESULTS / run, title)


def test_a_title_of_a_single_collective_is_left_to_the_first_lesson() -> None:
    assert value(RESULTS / "cpu-2-ranks-narrow", "mpi / auto at 4 KiB") is None


def test_a_number_that_is_no_longer_true_is_noticed(tmp_path: Path) -> None:
    """A run with another point changes the text, and one without it is an error."""
    shutil.copytree(RESULTS, tmp_path / "results")
    run = tmp_path / "results" / "dgx-h100-scale" / "run.jsonl"
    text = run.read_text()
    run.write_text(text.replace('"ranks": 16,', '"ranks": 8,').replace('"ranks": 8,', '"ranks": 16,', 1))
    with pytest.raises(KeyError, match="at 8 ranks"):
        lesson.rewritten(TEXT, tmp_path)


def test_four_ranks_on_two_cores_compute_no_more_than_two() -> None:
    for curve in curves(read(RESULTS / "cpu-4-ranks-scale").results):
        two, four = curve.more
        assert (two.ranks, four.ranks) == (2, 4)
        assert curve.speedup(four).high <= 2
        assert curve.speedup(four).low > 0.5  # ranks that wait give the core away: else a hundredth
        assert curve.speedup(four).low <= curve.speedup(two).high


def test_overlap_is_sure_of_nothing_on_two_cores() -> None:
    found = overlaps(read(RESULTS / "cpu-2-ranks-overlap").results)
    assert found
    assert all(one.gain.low <= 1 <= one.gain.high for one in found)


def test_no_narrow_wire_pays_against_the_best_exact_rung_here() -> None:
    found = wires(RESULTS / "cpu-2-ranks-narrow")
    assert len(found) == 5
    assert all(one.pays_from(one.exact) is None for one in found)


def test_only_the_slow_rank_is_accused() -> None:
    said = {}
    for run in ("cpu-2-ranks-jitter", "cpu-2-ranks-jitter-slow"):
        said[run] = verdict([steps for _, steps in witnesses(read(RESULTS / run).results)])
    assert said["cpu-2-ranks-jitter-slow"].ranks(Finding.LATE) == [1]
    assert said["cpu-2-ranks-jitter"].finding is Finding.UNCLEAR


def ratio(run: str, part: str, above: str, below: str) -> Estimate:
    """Of two styles, over seeds."""
    race = raced(RESULTS / run)
    entries = {entry.name: entry for entry in race.arrived}
    found = race.ratio(entries[above], entries[below], Entry.seconds if part == "seconds" else Entry.steps)
    assert found
    return found


def test_the_asynchronous_style_is_ahead_in_time_and_behind_in_steps_only_if_a_rank_is_slow() -> None:
    assert ratio("cpu-2-ranks-styles", "seconds", "asynchronous", "ring").high < 1
    assert ratio("cpu-2-ranks-styles", "steps", "asynchronous", "ring").low > 1
    assert not ratio("cpu-2-ranks-styles-even", "seconds", "asynchronous", "ring").high < 1
    for run in ("cpu-2-ranks-styles", "cpu-2-ranks-styles-even"):
        assert ratio(run, "seconds", "local-sgd", "ring").high < 1


def test_the_two_runs_of_styles_race_to_the_same_loss() -> None:
    assert raced(RESULTS / "cpu-2-ranks-styles").target == raced(RESULTS / "cpu-2-ranks-styles-even").target == 0.28


def test_all_pictures_are_of_committed_runs() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(\.\./([^)]+)\)", TEXT)
    assert len(pictures) == 6
    assert all((ROOT / picture).is_file() for picture in pictures)
