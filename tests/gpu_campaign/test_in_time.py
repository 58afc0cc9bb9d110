"""Runs of the programs of tests/gpu that have no time left: ended early, read, and told as far as they came."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.errors import CaseFailed
from tests.conftest import ROOT, measurement
from tests.gpu import bounded, measure, processes, said, sweeps
from tests.gpu_campaign.made_up import MadeUp

RUN = ROOT / "results" / "cpu-2-ranks-epyc" / "run.jsonl"
SLOW = [sys.executable, "-m", "tests.gpu_campaign.slow"]  # writes three rows of that run, and never comes to its end
ROWS = 3


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds are left, and interrupting may take one more."""
    monkeypatch.setenv(bounded.DEADLINE, str(time.monotonic() + 2))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sweeps, "COURTESY", 1.0)


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("manner", ["polite", "deaf"])
def test_a_run_without_time_is_ended_and_its_rows_are_read(manner: str, tmp_path: Path) -> None:
    """Once it was asked to end, and could write so; also one that does not listen."""
    start = time.monotonic()
    found = sweeps.run(("sweep", manner), tmp_path, 2, start=SLOW)
    assert time.monotonic() - start < 30  # of 600
    assert (len(found.results), found.complete) == (ROWS, manner == "polite")
    assert sweeps.cut(found) == [f"the run was ended after {ROWS} of {len(RUN.read_text().splitlines()) - 2} rows"]
    assert sweeps.cut(found)[0] in sweeps.defects(found, 2)


@pytest.mark.usefixtures("_short")
def test_a_run_that_came_to_nothing_is_said_to_have_run_out_of_time(tmp_path: Path) -> None:
    with pytest.raises(CaseFailed, match="collbench sweep ran out of time, and left no run file"):
        sweeps.run(("sweep", "empty"), tmp_path, 2, start=SLOW)


def test_a_run_that_ends_by_itself_is_whole(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(RUN.read_bytes())
    assert sweeps.cut(sweeps.read(tmp_path)) == []


@pytest.mark.usefixtures("_short")
def test_processes_without_time_tell_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the others that nothing is known, which is no failure of theirs."""
    monkeypatch.setattr(processes, "launcher", lambda count: ([*SLOW, "polite"], {}))
    found, defects = processes.outcomes(2, {}, tmp_path)
    assert defects[0].startswith(f"the run was ended after {ROWS} of ")
    assert (found["ring-host"], found["nvls"]) == ("ok, 1 cases", "not come to")


def test_a_program_knows_a_little_before_it_is_ended(tmp_path: Path) -> None:
    shown: list[str] = []
    start = time.monotonic()
    bounded.run(["sh", "-c", f"echo ${bounded.DEADLINE}"], tmp_path / "log", 50, os.environ, shown.append)
    assert 40 < float("".join(shown)) - start < 48


def test_processes_that_find_no_mpi_are_not_possible(tmp_path: Path) -> None:
    """A library that mpi4py cannot load is no fault of what would be tested."""
    status, output = MadeUp(tmp_path).run(
        "processes", "--ranks", "2", "--out", str(tmp_path / "run"), MPI4PY_LIBMPI=str(tmp_path / "libmpi.so.12")
    )
    assert status == said.SKIPPED, output
    assert "mpiexec starts no 2 processes that find each other by mpi4py: " in said.why_skipped(output)


def test_a_wire_that_loses_something_is_never_called_first() -> None:
    """The fastest is of those whose results are exact."""
    rows = [measurement("narrow-half", (1e-6,) * 7), measurement("two-shot", (2e-6,) * 7)]
    (line,) = measure.best(SimpleNamespace(results=rows))  # type: ignore[arg-type]
    assert "two-shot is first, 2.00 us" in line
