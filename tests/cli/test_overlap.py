"""`collbench overlap` as a user meets it: real ranks, buckets, a timeline and a trace."""

import json
from pathlib import Path

import pytest

from collbench.analysis.overlap import overlaps
from collbench.measurement import Failed, Skipped
from collbench.runs.file import read
from collbench.schedules import overlapping
from collbench.step_times import COMMUNICATED, COMPUTED, StepPrediction, StepTimes
from tests.conftest import Command, drawn_again
from tests.measure.test_stepping import DIES, SITE

QUICK = ("--compute", "4MFLOP", "--matrix", "64", "--gradients", "64K", "--budget", "0.2")


def test_every_schedule_is_held_against_one_part_after_the_other(here: Command, tmp_path: Path) -> None:
    """With intervals, a verdict, pictures, and a trace with a track for either part of every rank."""
    done = here("overlap", "--on", "cpu", "--ranks", "2", *QUICK, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    found = overlaps(read(tmp_path / "out").results)
    assert {one.step.schedule for one in found if one.row.implementation == "mpi"} == set(overlapping("cpu"))
    assert {one.step.bucket for one in found} == {4096, 16384, 65536}
    assert all(one.gain.known for one in found)
    for name in ("mpi", "auto"):
        for stem in ("buckets", "overlap"):
            assert (tmp_path / "out" / f"{stem}-{name}.png").stat().st_size > 5000
    drawn_again(here, tmp_path / "out")
    assert done.stdout.count("is fastest") == 2
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    accepted(events)
    threads = {(row["pid"], row["args"]["name"]) for row in events if row["name"] == "thread_name"}
    processes = {row["pid"] for row in events if row["name"] == "process_name"}
    assert threads == {(process, track) for process in processes for track in (COMPUTED, COMMUNICATED)}


def accepted(events: list[dict[str, object]]) -> None:
    """As the "Trace Event Format" wants it: complete events and names, numbers that are none below 0."""
    for row in events:
        assert row["ph"] in ("M", "X")
        assert isinstance(row["pid"], int)
        assert isinstance(row["tid"], int)
        assert isinstance(row["name"], str)
        if row["ph"] == "X":
            assert isinstance(row["ts"], int | float)
            assert isinstance(row["dur"], int | float)
            assert row["ts"] >= 0
            assert row["dur"] >= 0


def test_a_described_system_is_predicted(here: Command, tmp_path: Path) -> None:
    """Smaller buckets hide more, where latency is small."""
    done = here("overlap", "--on", "dgx-h100", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    found = overlaps(read(tmp_path / "out").results)
    assert all(isinstance(one.row, StepPrediction) for one in found)
    hidden = [one.hidden.value for one in sorted(found, key=lambda one: one.step.bucket)]
    assert hidden == sorted(hidden, reverse=True)
    assert "overlap helps" in done.stdout


def test_a_rank_that_is_killed_costs_a_row(here: Command, tmp_path: Path) -> None:
    """All others are there, and the status says that something failed."""
    (tmp_path / "sitecustomize.py").write_text(SITE.format(fault=DIES.strip()))
    root = Path(__file__).parents[2]
    variables = {"PYTHONPATH": f"{tmp_path}:{root}", "DIED": str(tmp_path / "died")}
    done = here("overlap", "--on", "cpu", *QUICK, "--impl", "mpi", "--out", "out", **variables)
    assert done.returncode == 1
    rows = read(tmp_path / "out").results
    failed = [row for row in rows if isinstance(row, Failed)]
    assert len(failed) == 1
    assert "signal 9" in failed[0].reason
    assert all(isinstance(row, StepTimes | Skipped) for row in rows if row is not failed[0])
    assert len(rows) == 3 + 3 * len(overlapping("cpu"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--ranks", "0"], "at least 1"),
        (["--ranks", "1"], "at least 2"),
        (["--buckets", "128M"], "more than the 8 MiB"),
        (["--buckets", "1"], "too many"),
        (["--buckets", "big"], "size"),
        (["--slow-rank", "5"], "choose from 0 to 1"),
        (["--ctas", "4"], "--ctas 4 limits NCCL, which is not measured here; leave it out"),
        (["--on", "dgx-h100", "--ctas", "4"], "--ctas 4 limits NCCL, which is not measured here; leave it out"),
        (["--compute", "0ms"], "such as 10ms"),
        (["--on", "dgx-h100", "--compute", "1GFLOP"], "give a time"),
        (["--on", "dgx-h100", "--noise", "-1"], "no spread"),
        (["--on", "dgx-h100", "--slow-rank", "1"], "leave it out"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_choices(
    here: Command, tmp_path: Path, words: list[str], reason: str
) -> None:
    """And exit status 2; nothing is written."""
    on = [] if "--on" in words else ["--on", "cpu"]
    done = here("overlap", *on, *words, "--out", "out")
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
