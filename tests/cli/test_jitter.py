"""`collbench jitter` as a user meets it: real ranks, of which one may be slow, have another clock, or be killed."""

import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from collbench.analysis.jitter.accusation import Finding, verdict
from collbench.analysis.jitter.lateness import Steps
from collbench.analysis.jitter.maximum import expected_maximum
from collbench.measure.start import mpiexec
from collbench.measurement import Failed, Result
from collbench.runs.file import read
from collbench.step_times import StepTimes
from tests.conftest import ROOT, Command, carried_out, drawn_again, of_a_user

QUICK = (
    "jitter",
    "--on",
    "cpu",
    "--ranks",
    "2",
    "--compute",
    "300us",
    "--steps",
    "1600",
    "--budget",
    "10",
    "--out",
    "out",
)
AUTO = (*QUICK, "--impl", "auto")


def timed(results: list[Result] | tuple[Result, ...]) -> list[StepTimes]:
    return [result for result in results if isinstance(result, StepTimes)]


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a run is of which rank 1 computes twice as much, and what it printed."""
    folder = tmp_path_factory.mktemp("slowed")
    done = carried_out(folder, of_a_user(), *AUTO, "--compute", "1ms", "--slow-rank", "1", "--format", "svg")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out", done.stdout


def test_a_rank_that_computes_twice_as_much_is_named(slowed: tuple[Path, str]) -> None:
    """With how often it was last, by how much, and what that costs; rank 0 is not.  Less is tried on made-up noise."""
    (line,) = (line for line in slowed[1].splitlines() if "rank 1 is late: last in" in line)
    assert "the others wait for it for" in line
    assert "rank 0 is late" not in line
    found = verdict([Steps.of(result.series) for result in timed(read(slowed[0]).results)])
    assert found.ranks(Finding.LATE) == [1]


def test_all_that_was_measured_is_kept(slowed: tuple[Path, str]) -> None:
    """All steps, who was slow on purpose, how exact the clock is; and the picture lies beside it."""
    (row,) = timed(read(slowed[0]).results)
    assert row.case.step
    assert row.case.step.slow == ((1, 2.0),)
    assert 0 < sum(series.steps for series in row.series) <= 1600
    assert 0 < row.clock < 0.05
    assert (slowed[0] / "lateness-allreduce-float-65536B-auto.svg").stat().st_size > 5000


def test_a_clock_that_goes_otherwise_makes_nobody_late(here: Command, tmp_path: Path) -> None:
    """Rank 1's is seconds ahead and gains: uncorrected, it would be late by seconds; corrected, it computes as long."""
    clock = "import os, time\nnow = time.perf_counter\n"
    clock += "if os.environ.get('PMI_RANK') == '1':\n    time.perf_counter = lambda: 3.0 + 1.00005 * now()\n"
    (tmp_path / "sitecustomize.py").write_text(clock)
    done = here(*AUTO, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = timed(read(tmp_path / "out").results)
    steps = Steps.of(row.series)
    lateness = [abs(float(np.median(steps.late[1, own]))) for own in steps.slices]
    assert min(lateness) < 0.5 * steps.typical, "a clock is off in every series, another program disturbs some of them"
    for series in row.series:  # nobody leaves a step before the last rank has computed it
        left = np.array(series.done).min(axis=0) - np.array(series.last_computed)
        assert left.min() > -2 * row.clock


def test_what_the_slowest_of_two_takes_stands_beside_what_single_ranks_foretell(here: Command, tmp_path: Path) -> None:
    """The larger of what each computed in a step, predicted as if it were drawn for each rank by itself.

    What disturbs both at once, as other programs on these cores do, makes it less than that, and what disturbs them in
    turn more; but whatever they do, the slowest of two takes no less than the mean and no more than both together.
    """
    done = here(*AUTO)
    assert done.returncode == 0, done.stdout + done.stderr
    assert drawn_again(here, tmp_path / "out") == ["lateness-allreduce-float-65536B-auto.png"]
    (row,) = timed(read(tmp_path / "out").results)
    steps = Steps.of(row.series)
    one, mean = expected_maximum(steps.computing, 2), fmean(steps.computing.mean(axis=0))
    for slowest in (one.value, fmean(steps.computing.max(axis=0))):
        assert mean < slowest < 2 * mean
    told = re.search(r"^ +2 +(\S+) (\w+) +\(.+ \.\. .+\) +measured (\S+) (\w+)$", done.stdout, re.MULTILINE)
    assert told, done.stdout
    scale = {"us": 1e-6, "ms": 1e-3}
    assert float(told[1]) * scale[told[2]] == pytest.approx(one.value + row.exposed(), rel=0.01)
    assert float(told[3]) * scale[told[4]] == pytest.approx(float(steps.seconds.mean()), rel=0.01)


def test_a_rank_that_is_killed_costs_its_row(here: Command, tmp_path: Path) -> None:
    """Of the library and the rung that should be fastest, the other is measured by fresh ranks, and judged."""
    killed = tmp_path / "killed"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, pathlib, signal
if os.environ.get("PMI_RANK") == "1":
    from collbench.measure import stepping
    sample = stepping._sample
    def die(contestants, sampling, progress):
        if sampling.steps and not pathlib.Path({str(killed)!r}).exists():
            pathlib.Path({str(killed)!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        sample(contestants, sampling, progress)
    stepping._sample = die
""")
    done = here(*QUICK, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 1
    results = read(tmp_path / "out").results
    (lost,) = (result for result in results if isinstance(result, Failed))
    (kept,) = timed(results)
    assert "signal 9" in lost.reason
    assert {lost.implementation, kept.implementation} == {"mpi", "auto"}
    assert "FAILED: a rank was ended by signal 9" in done.stdout
    assert any(word in done.stdout for word in ("nobody is late", "inconclusive", "is late"))


def test_under_a_launcher_its_processes_are_the_ranks(tmp_path: Path, environment: dict[str, str]) -> None:
    """One table, one run file, one verdict."""
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "collbench", *AUTO, "--slow-rank", "0:3"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rank 0 is late: last in") == 1
    assert len(timed(read(tmp_path / "out").results)) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--slow-rank", "2"), "--slow-rank 2 is no rank of 2; choose from 0 to 1"),
        (("--slow-rank", "-1"), "--slow-rank -1 is no rank of 2"),
        (("--slow-rank", "1:0"), "--slow-rank 1:0 is slow by no factor"),
        (("--slow-rank", "1:-2"), "is slow by no factor"),
        (("--slow-rank", "1:nan"), "is slow by no factor"),
        (("--slow-rank", "1:fast"), "is slow by no factor"),
        (("--ranks", "0"), "--ranks 0 is too few"),
        (("--ranks", "1"), "--ranks 1 has nobody to be late for"),
        (("--compute", "0ms"), "--compute 0ms is no amount of computing; give one above 0 with a unit"),
        (("--compute", "much"), "is no amount of computing"),
        (("--compute", "1h"), "is no amount of computing"),
        (("--compute", "1e9s"), "is no amount of computing"),
        (("--steps", "0"), "--steps 0 is not possible"),
        (("--steps", "900000"), "choose from 16 to 250000"),
        (("--impl", "nonsense"), "unknown implementation"),
        (("--on", "moon"), "unknown --on"),
        (("-b", "lots"), "'lots' is not a size"),
        (("--budget", "0"), "--budget 0.0 is no time"),
        (("--spin", "slow"), "unknown --spin"),
    ],
)
def test_wrong_words_are_one_line(here: Command, tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    """With the choices, and nothing started or left behind."""
    done = here("jitter", "--on", "cpu", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
