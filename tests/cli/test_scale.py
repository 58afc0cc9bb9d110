"""`collbench scale` as a user meets it: real ranks in turn, a predicted curve, and wrong words."""

from pathlib import Path

import pytest

from collbench.analysis.scaling.points import curves
from collbench.runs.file import read
from collbench.step_times import StepPrediction, StepTimes
from tests.conftest import Command, drawn_again

QUICK = ("--compute", "4MFLOP", "--matrix", "64", "--gradients", "16K", "--budget", "0.05")


def test_two_ranks_are_held_against_one(here: Command, tmp_path: Path) -> None:
    """Weak and strong: rows with intervals, a verdict for every curve, a plot, and all of it in the run file."""
    done = here("scale", "--on", "cpu", "--ranks", "1,2", "--mode", "both", *QUICK, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    run = read(tmp_path / "out")
    assert run.complete
    assert all(isinstance(result, StepTimes) and result.right for result in run.results)
    found = curves(run.results)
    assert [(curve.points[-1].row.implementation, curve.mode) for curve in found] == [
        ("mpi", "weak"),
        ("auto", "weak"),
        ("mpi", "strong"),
        ("auto", "strong"),
    ]
    for curve in found:
        assert curve.last.efficiency.known
        assert f"{curve.name}, {curve.mode}: 2 ranks give" in done.stdout
    assert (tmp_path / "out" / "scaling.png").stat().st_size > 5000
    assert drawn_again(here, tmp_path / "out") == ["scaling.png"]
    alone, both = (row.case.step for row in (found[2].base.row, found[2].last.row))
    assert alone
    assert both
    assert (alone.products, both.products) == (8, 4)


def test_a_step_too_small_to_be_shared_is_still_called_strong(here: Command, tmp_path: Path) -> None:
    """Its one product is made by either of two ranks; the run file says which scaling that is, and plot knows it."""
    words = ("--compute", "500KFLOP", "--matrix", "64", "--gradients", "1K", "--budget", "0.05", "--impl", "auto")
    done = here("scale", "--on", "cpu", "--ranks", "1,2", "--mode", "strong", *words, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (curve,) = curves(read(tmp_path / "out").results)
    assert curve.mode == "strong"
    assert [point.row.case.step.products for point in curve.points if point.row.case.step] == [1, 1]
    assert "auto, strong: 2 ranks give" in done.stdout
    assert "weak" not in done.stdout


def test_a_described_system_is_predicted(here: Command, tmp_path: Path) -> None:
    """From one GPU on; every row is marked."""
    done = here("scale", "--on", "dgx-h100", "--ranks", "8..4096", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(tmp_path / "out").results
    assert [row.case.ranks for row in rows] == [1, *(8 * 2**doubling for doubling in range(10))]
    assert all(isinstance(row, StepPrediction) for row in rows)
    assert done.stdout.count("predicted") >= len(rows)
    assert "nccl, weak: 4,096 ranks give" in done.stdout
    assert "nothing was measured" in done.stderr
    efficiencies = [point.efficiency.value for point in curves(rows)[0].points]
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_a_poor_scaling_names_what_would_help(here: Command) -> None:
    """A step that is nearly all communication."""
    done = here("scale", "--on", "dgx-h100", "--ranks", "8,64", "--compute", "1ms", "--gradients", "8G")
    assert done.returncode == 0
    assert "poor" in done.stdout
    assert "what would help most: a batch 4 times" in done.stdout or "accumulation of 4" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--ranks", "0,1"], "goes beyond 1"),
        (["--ranks", "2"], "such as 1,2"),
        (["--ranks", "8..1"], "goes down"),
        (["--ranks", "some"], "names no numbers"),
        (["--compute", "10"], "such as 10ms"),
        (["--compute", "-1ms"], "such as 10ms"),
        (["--gradients", "much"], "size"),
        (["--matrix", "0"], "no number of rows"),
        (["--slow-rank", "2"], "choose from 0 to 1"),
        (["--slow-rank", "1:0"], "from 1 to"),
        (["--threshold", "0"], "no efficiency"),
        (["--impl", "fastest"], "choose from"),
        (["--on", "nowhere"], "choose from"),
        (["--on", "dgx-h100", "--ranks", "8,12"], "fills no whole nodes"),
        (["--on", "dgx-h100", "--compute", "1GFLOP"], "give a time"),
        (["--on", "dgx-h100", "--slow-rank", "1"], "leave it out"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_choices(
    here: Command, tmp_path: Path, words: list[str], reason: str
) -> None:
    """And exit status 2; nothing is written."""
    on = [] if "--on" in words else ["--on", "cpu"]
    done = here("scale", *on, *words, "--out", "out")
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
