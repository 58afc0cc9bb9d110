"""A run that stops before its end is called so by every command that reads it."""

from pathlib import Path

import pytest

from collbench.runs.cut_off import cut_off
from collbench.runs.file import NAME, read
from tests.conftest import ROOT, Command

WHOLE = ROOT / "results" / "cpu-2-ranks" / NAME
ROWS = 60
WORDS = f"cut off after {ROWS} rows"


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """The folder of a run whose process was killed."""
    return stopped(tmp_path / "partial")


def stopped(folder: Path, end: str = "") -> Path:
    """Its header and so many rows, and perhaps an end."""
    folder.mkdir()
    lines = WHOLE.read_text().splitlines(keepends=True)
    (folder / NAME).write_text("".join(lines[: 1 + ROWS]) + end)
    return folder


@pytest.mark.parametrize(
    "words", ["plot partial", "fit partial", "fit partial --json", "diagnose partial", "compare partial whole"]
)
def test_a_command_that_reads_it_says_so(words: str, partial: Path, here: Command) -> None:
    """And of a whole run says nothing of the kind; JSON stays JSON."""
    command = words.replace("whole", str(WHOLE))
    done = here(*command.split())
    assert done.returncode == 0, done.stderr
    assert WORDS in done.stdout + done.stderr
    assert "--json" not in words or WORDS not in done.stdout
    whole = here(*command.replace("partial", str(WHOLE)).split(), *(("-o", "here") if "plot" in words else ()))
    assert "cut off" not in whole.stdout + whole.stderr


def test_a_figure_says_so_below_its_title(partial: Path, here: Command) -> None:
    """In every style, also where there is no title; one of several runs by its name."""
    for style in ("screen", "paper"):
        assert here("plot", "partial", "--format", "svg", "--style", style).returncode == 0
        assert WORDS in (partial / "bandwidth.svg").read_text()
    assert here("plot", str(WHOLE), "partial", "--format", "svg", "-o", "both").returncode == 0
    drawn = (partial.parent / "both" / "bandwidth.svg").read_text()
    assert f"partial: {WORDS}" in drawn
    assert drawn.count("cut off") == 1


def test_the_list_of_runs_says_so(partial: Path, here: Command) -> None:
    """Also of one that was interrupted, whose end is written with the signal."""
    stopped(partial.parent / "interrupted", '{"kind": "end", "finished": "", "status": 130}\n')
    assert here("runs", ".").stdout.count("cut off") == 2


@pytest.mark.parametrize(("status", "words"), [(0, ""), (1, ""), (130, WORDS), (143, WORDS)])
def test_only_a_signal_cuts_a_run_off(status: int, words: str, tmp_path: Path) -> None:
    """One that ended with wrong rows is whole."""
    end = f'{{"kind": "end", "finished": "", "status": {status}}}\n'
    assert cut_off(read(stopped(tmp_path / "run", end))) == words
