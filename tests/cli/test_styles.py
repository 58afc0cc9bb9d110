"""`collbench styles` as a user meets it: real ranks, a table, a verdict, a picture; wrong words are one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.race import race
from collbench.cli import styles as styles_command
from collbench.cli._styles_options import make_styles
from collbench.cli._sweep_options import DEFAULTS
from collbench.errors import UsageError
from collbench.platforms import platforms
from collbench.runs.file import read
from collbench.styles import styles
from collbench.trained import Trained
from tests.conftest import Command, drawn_again

OPTIONS = DEFAULTS | styles_command.command.make_context("styles", []).params
QUICK = ("--on", "cpu", "--ranks", "2", "--steps", "10")


def test_every_style_is_raced_over_seeds_and_drawn(here: Command, tmp_path: Path) -> None:
    """A row for each run, a line for each style, a verdict with intervals, a picture that can be drawn again."""
    done = here("styles", *QUICK, "--seeds", "2", "--slow-rank", "1:2", "--out", "out", "--format", "svg")
    assert done.returncode == 0, done.stdout + done.stderr
    results = read(tmp_path / "out").results
    assert {(result.implementation, result.case.job.seed) for result in results if result.case.job} == {
        (name, seed) for name in styles() for seed in (1, 2)
    }
    assert all(isinstance(result, Trained) and result.right for result in results)
    assert [result.implementation for result in results[:6]] != [result.implementation for result in results[6:]]
    assert "rank 1 2 times as slow" in done.stdout
    assert re.search(r"^in time: .*loss 0\.\d+", done.stdout, re.MULTILINE)
    assert re.search(r"^in steps: .*loss 0\.\d+", done.stdout, re.MULTILINE)
    for name in styles():
        assert len(re.findall(rf"^ +[12]  {name} .* ok", done.stdout, re.MULTILINE)) == 2
        assert re.search(rf"^{name} +\d.*(\.\.|hardly known)", done.stdout, re.MULTILINE)
    picture = (tmp_path / "out" / "losses.svg").read_bytes()
    again = here("plot", "out", "-o", "again", "--format", "svg")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again" / "losses.svg").read_bytes() == picture


def test_other_commands_read_its_runs(here: Command, tmp_path: Path) -> None:
    """A report has its rows, the list has the run; nothing breaks where there is nothing to compare."""
    assert here("styles", *QUICK, "--style", "ring", "--seeds", "1", "--out", "out").returncode == 0
    assert here("report", "out", "-o", "report.html").returncode == 0
    assert "training to loss" in (tmp_path / "report.html").read_text()
    assert "out" in here("runs", ".").stdout
    for words in (("compare", "out", "out"), ("export", "out", "--to", "csv"), ("diagnose", "out"), ("fit", "out")):
        done = here(*words)
        assert "Traceback" not in done.stderr
        assert "not foreseen" not in done.stderr
        assert done.returncode in (0, 2, 4), done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--ranks", "0"), "--ranks 0 is too few"),
        (("--style", "tree"), "unknown style 'tree'; choose from: all, library, ring"),
        (("--style", "ring,ring"), "names one twice"),
        (("--slow-rank", "2"), "--slow-rank 2 is none of the 2 ranks; choose from 0 to 1"),
        (("--slow-rank", "-1"), "is no rank; give R or R:FACTOR"),
        (("--slow-rank", "1:0.5"), "1 to 1000 times as slow"),
        (("--slow-rank", "1:nan"), "is no rank"),
        (("--slow-rank", "1", "--slow-rank", "1:2"), "given twice"),
        (("--staleness", "-1"), "give 0, which is synchronous, to 10000"),
        (("--every", "0"), "--every 0 is out of range; give a number from 1"),
        (("--group", "0"), "--group 0 is out of range"),
        (("--seeds", "0"), "--seeds 0 is out of range"),
        (("--steps", "100000"), "--steps 100000 is out of range"),
        (("--steps", "10000", "--ranks", "100"), "all weights are kept to be checked"),
        (("--rate", "0"), "--rate 0.0 is not possible; give a number above 0"),
        (("--target", "nan"), "--target nan is not possible"),
        (("--timeout", "0"), "is no time"),
        (("--on", "moon"), "unknown --on 'moon'"),
        (("--spin", "slow"), "unknown --spin"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(
    here: Command, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    """What is wrong, the choices and the fix; nothing is written."""
    done = here("styles", "--on", "cpu", "--ranks", "2", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_unreachable_target_is_said(here: Command, tmp_path: Path) -> None:
    """Of every style; there is nothing to compare.  The run file knows it."""
    done = here("styles", *QUICK, "--style", "ring,asynchronous", "--seeds", "2", "--target", "1e-9", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert drawn_again(here, tmp_path / "out") == ["losses.png"]  # with that target
    assert race(read(tmp_path / "out").results).target == 1e-9  # type: ignore[union-attr]
    assert "ring does not reach loss 1e-09 with 2 of 2 seeds" in done.stdout
    assert "in time:" not in done.stdout


@pytest.mark.parametrize(("rank", "told"), [(0, 1), (1, 0)])
def test_auto_passes_by_gpus_with_a_word(
    rank: int, told: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether they work or not: no driver is waited for.  One rank says it; without GPUs, or with --on, nobody does."""

    def asked() -> str:
        raise AssertionError("the driver was asked")

    gpu = replace(platforms()["gpu"], installed=lambda: True, obstacle=asked)
    monkeypatch.setitem(platforms(), "gpu", gpu)
    assert make_styles(OPTIONS, (rank, 2))[0] == "cpu"
    assert capsys.readouterr().err.count("computed by NumPy, so this is the cpu, and no gpu is used\n") == told
    assert make_styles(OPTIONS | {"on": "cpu"}, (rank, 2))[0] == "cpu"
    monkeypatch.setitem(platforms(), "gpu", replace(gpu, installed=lambda: False))
    assert make_styles(OPTIONS, (rank, 2))[0] == "cpu"
    assert capsys.readouterr().err == ""


def test_gpus_that_are_asked_for_are_refused_with_the_fix() -> None:
    """A run whose every row is skipped is none."""
    with pytest.raises(UsageError, match=r"^--on gpu: the job is computed by NumPy, on cpu alone; use --on cpu$"):
        make_styles(OPTIONS | {"on": "gpu"}, None)
