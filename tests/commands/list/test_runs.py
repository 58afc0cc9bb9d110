"""`collbench list runs`, and what every command makes of runs that were cut off or hold plans alone."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collbench.runfile.store import NAME, read
from tests.commands.conftest import write_run
from tests.commands.train.made_up_plans import compared, grown, paid, ranked
from tests.conftest import ROOT, Command, measurement

DAYS = {"old": "2026-03-01", "middle": "2026-03-02", "new": "2026-03-03"}


def write(folder: Path, started: str, topology: str = "2 sockets", micros: float = 1) -> Path:
    header: dict[str, Any] = {
        "environment": {"host": "node1"},
        "topology": {"name": topology, "platform": "cpu"},
        "sweep": {"collectives": ["allreduce"], "implementations": ["mpi"]},
    }
    return write_run(folder, measurement(seconds=(micros * 1e-6,) * 7), started=started, **header)


@pytest.fixture
def runs(here: Command) -> Command:
    return partial(here, "list", "runs")


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three runs where a sweep leaves them; the middle one is the fastest."""
    for name, day in DAYS.items():
        write(tmp_path / "results" / "runs" / name, day, micros=1 if name == "middle" else 2)
    return tmp_path / "results" / "runs"


@pytest.mark.usefixtures("made_up_ranks")
def test_a_sweep_is_listed_and_the_last_to_compare_with(here: Command, runs: Command) -> None:
    for _ in range(2):
        done = here("sweep", "--on", "cpu", "--impl", "mpi", "-e", "64", "-n", "3", "--starts", "1", "--no-plot")
        assert done.returncode == 0, done.stderr
    listed = runs("-v")
    assert (listed.returncode, listed.stderr) == (0, "")
    heading, *rows = listed.stdout.splitlines()
    assert (heading.split()[0], heading.split()[-1]) == ("started", "path")
    newest, oldest = (row.split()[-1] for row in rows)
    assert f"BASE  {oldest}/{NAME}" in here("compare", "--against", "last", newest).stdout
    fields, _ = json.loads(runs("--json").stdout)
    assert (fields["path"], fields["complete"]) == (f"{newest}/{NAME}", True)
    assert (fields["collectives"], fields["implementations"]) == (["allreduce"], ["mpi"])


@pytest.mark.usefixtures("three")
def test_the_newest_is_the_first_and_a_run_may_be_the_folder(runs: Command) -> None:
    for words, names in (((), ["new", "middle", "old"]), (("results/runs/old",), ["old"])):
        done = runs(*words)
        assert done.returncode == 0, done.stderr
        assert [row.split()[-1] for row in done.stdout.splitlines()[1:]] == names


@pytest.mark.usefixtures("three")
def test_no_runs_are_no_error_and_say_what_to_do(here: Command, runs: Command, tmp_path: Path) -> None:
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    done = runs()
    assert (done.returncode, done.stdout) == (0, "")
    assert "no runs in results/runs yet: `collbench sweep" in done.stderr
    assert json.loads(runs("--json").stdout) == []


@pytest.mark.usefixtures("three")
def test_wrong_words_are_one_line_and_exit_status_2(runs: Command) -> None:
    for words, message in {
        "nowhere": "there is no folder nowhere",
        f"results/runs/new/{NAME}": "give the folder",
    }.items():
        done = runs(*words.split())
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), words
        assert message in done.stderr, words


WHOLE = ROOT / "results" / "cpu-2-ranks" / NAME
ROWS = 60
WORDS = f"cut off after {ROWS} rows"


def stopped(folder: Path, end: str = "") -> Path:
    """A run whose process was killed: its header and so many rows, and perhaps an end."""
    folder.mkdir()
    lines = WHOLE.read_text().splitlines(keepends=True)
    (folder / NAME).write_text("".join(lines[: 1 + ROWS]) + end)
    return folder


def test_a_command_that_reads_a_run_that_was_cut_off_says_so(here: Command, tmp_path: Path) -> None:
    stopped(tmp_path / "partial")
    for words in ("fit {run} --json", "compare {run} {whole}"):
        for run, said in (("partial", True), (str(WHOLE), False)):
            done = here(*words.format(run=run, whole=WHOLE).split())
            assert done.returncode == 0, done.stderr
            assert (WORDS in done.stdout + done.stderr) == said, (words, run)
            assert "--json" not in words or WORDS not in done.stdout
    done = here("plot", "partial", "--view", "latency", "--format", "svg", "--style", "paper")
    assert WORDS in done.stderr
    assert WORDS in (tmp_path / "partial" / "latency.svg").read_text()
    assert here("plot", str(WHOLE), "partial", "--view", "latency", "--format", "svg", "-o", "both").returncode == 0
    drawn = (tmp_path / "both" / "latency.svg").read_text()
    assert f"partial: {WORDS}" in drawn
    assert drawn.count("cut off") == 1


def test_only_a_signal_cuts_a_run_off(runs: Command, tmp_path: Path) -> None:
    for status, words in ((0, ""), (1, ""), (130, WORDS), (143, WORDS)):
        end = f'{{"kind": "end", "finished": "", "status": {status}}}\n'
        assert read(stopped(tmp_path / f"run-{status}", end)).cut_off == words, status
    stopped(tmp_path / "partial")
    assert runs(".").stdout.count("cut off") == 3


REFUSED = {
    "compare {run} others": "nothing to compare",
    "predict --fit {run}": "predictions only; give a run that was measured",
    "export {run} --to csv": "no results with a time",
    "compare --against last {run}": "nothing to compare",
    "plot {run}": "of the kind planned",
}


def test_a_run_of_nothing_but_plans_is_listed_or_refused(here: Command, runs: Command, tmp_path: Path) -> None:
    rows = (*ranked(), *grown(), *compared(), *paid())
    for name in ("plans", "others"):
        write_run(tmp_path / name, *rows, topology={"name": "128 nodes of dgx-h100", "model": True})
    for words, reason in REFUSED.items():
        done = here(*words.format(run=f"plans/{NAME}").split())
        assert done.returncode == 2, words
        (line,) = [line for line in done.stderr.splitlines() if "error" in line]
        assert reason in line, words
    lines = [line for line in runs(".").stdout.splitlines() if "128 nodes of dgx-h100" in line]
    assert len(lines) == 2
    assert all("predicted" in line for line in lines)
