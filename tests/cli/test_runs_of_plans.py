"""A run of nothing but plans, given to every command that reads runs: what it comes to, or why not in one line."""

from pathlib import Path

import pytest

from collbench.runs.file import NAME, Writer
from collbench.runs.header import Header
from tests.conftest import Command, carried_out
from tests.figures.made_up_plans import compared, grown, paid, ranked

FIGURES = {"layouts", "memory", "pipeline", "efficiency", "pareto", "interconnects"}
REFUSED = {
    "compare": (("{run}", "{other}"), "nothing to compare"),
    "diagnose": (("{run}",), "predictions only; give a run that was measured"),
    "fit": (("{run}",), "predictions only; give a run that was measured"),
    "export": (("{run}", "--to", "csv"), "no results with a time"),
    "runs": (("{folder}", "--baseline", "best", "{run}"), "nothing to find a baseline for"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs of such plans."""
    for name in ("plans", "others"):
        with Writer(tmp_path / name) as writer:
            writer.header(Header.from_json({"topology": {"name": "128 nodes of dgx-h100"}}))
            for row in (*ranked(), *grown(), *compared(), *paid()):
                writer.append(row)
            writer.end("2026-01-01T00:00:00+00:00", 0)
    return tmp_path


def test_plot_draws_every_figure_of_plans(here: Command, folder: Path) -> None:
    """Beside the run."""
    done = here("plot", str(folder / "plans"), "--format", "svg")
    assert done.returncode == 0, done.stderr
    assert {Path(line).stem for line in done.stdout.splitlines()} == FIGURES


def test_plot_can_choose_a_layout(here: Command, folder: Path) -> None:
    """By its name, with the blanks in it."""
    done = here("plot", str(folder / "plans"), "--format", "svg", "--impl", "tp8 dp8 mb1 zero3")
    assert {Path(line).stem for line in done.stdout.splitlines()} == {"layouts", "memory"}


def test_figures_are_the_same_bytes_again(environment: dict[str, str], folder: Path) -> None:
    """In another process, which orders sets in another way."""
    drawn = []
    for seed in ("1", "2"):
        done = carried_out(folder, environment | {"PYTHONHASHSEED": seed}, "plot", "plans", "-o", f"figures-{seed}")
        assert done.returncode == 0, done.stderr
        drawn.append({path.name: path.read_bytes() for path in (folder / f"figures-{seed}").iterdir()})
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == len(FIGURES)


@pytest.mark.parametrize("command", REFUSED)
def test_what_needs_a_measurement_says_so_in_one_line(here: Command, folder: Path, command: str) -> None:
    """A plan is none."""
    arguments, reason = REFUSED[command]
    words = {"{run}": str(folder / "plans" / NAME), "{other}": str(folder / "others"), "{folder}": str(folder)}
    done = here(command, *(words.get(word, word) for word in arguments))
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert reason in line


def test_runs_lists_it_as_predicted(here: Command, folder: Path) -> None:
    """With as many rows as it has."""
    done = here("runs", str(folder))
    lines = [line for line in done.stdout.splitlines() if "128 nodes of dgx-h100" in line]
    assert len(lines) == 2
    rows = len([*ranked(), *grown(), *compared(), *paid()])
    assert all("predicted" in line and f" {rows} " in line for line in lines)
