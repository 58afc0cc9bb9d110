"""`collbench step` as a user meets it: real ranks in step, and predicted ones."""

import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from collbench.commands.step.overlap import overlaps
from collbench.commands.step.rows import StepPrediction, StepTimes, Trained
from collbench.commands.step.scaling import curves
from collbench.commands.step.schedules import overlapping
from collbench.commands.step.stragglers import Finding, StepArrays, straggler_test
from collbench.commands.step.work import job_of, step_of
from collbench.runfile.store import Run, read
from tests.commands.conftest import RIGHT
from tests.commands.step.made_up_steps import ranks_that_are
from tests.conftest import Command, drawn_again, mpiexec

SMALL = ("--compute", "100us", "--budget", "0.05", "--out", "out")
STEPS = ("--compute", "300us", "--steps", "1600", "--budget", "10", "--out", "out")
WAITING = ("step", "scale", "--on", "cpu", "--ranks", "2", *STEPS)


def carried_out(here: Command, folder: Path, *words: str, **variables: str) -> tuple[str, Run]:
    done = here(*words, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, read(folder / "out")


def test_one_and_two_ranks_compute_and_those_that_share_work_have_half_of_it(here: Command, tmp_path: Path) -> None:
    words = "step scale --on cpu --ranks 1,2 --mode both --impl auto --gradients 16K"
    _, run = carried_out(here, tmp_path, *words.split(), *SMALL)
    assert run.complete
    assert all(isinstance(result, StepTimes) and result.right for result in run.results)
    products = {(result.case.ranks, step_of(result.case).products) for result in run.results}
    alone = next(count for ranks, count in products if ranks == 1)
    assert products == {(1, alone), (2, alone), (2, max(1, round(alone / 2)))}


def test_a_scaling_of_a_described_system_is_predicted(here: Command, tmp_path: Path) -> None:
    done = here("step", "scale", "--on", "dgx-h100", "--ranks", "8..4096", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert drawn_again(here, tmp_path / "out") == ["scaling.png"]
    rows = read(tmp_path / "out").results
    assert [row.case.ranks for row in rows] == [1, *(8 * 2**doubling for doubling in range(10))]
    assert all(isinstance(row, StepPrediction) for row in rows)
    assert done.stdout.count("predicted") >= len(rows)
    answer = done.stdout.splitlines()[2]
    assert answer.startswith("answer: without overlap, nccl, weak: 4,096 ranks give ")
    assert "`collbench step overlap` shows what overlap hides" in answer
    assert done.stdout.count(" ranks give ") == 1
    assert "weak:" not in done.stdout.replace(answer, ""), "nothing is advised where scaling is healthy"
    efficiencies = [point.efficiency.value for point in curves(rows)[0].points]
    # Where NCCL chooses anew more ranks may be a little faster.
    assert efficiencies == pytest.approx(sorted(efficiencies, reverse=True), rel=0.01)


def test_a_range_of_ranks_has_whole_racks_of_a_described_system(here: Command, tmp_path: Path) -> None:
    done = here("step", "scale", "--on", "gb200-nvl72", "--ranks", "32..576", "--out", "out")
    assert [row.case.ranks for row in read(tmp_path / "out").results] == [1, 32, 64, 144, 288, 576]
    assert "whole racks: 144 instead of 128, 288 instead of 256, 576 instead of 512" in done.stderr


@pytest.mark.full
@pytest.mark.timeout(600)
def test_every_schedule_is_held_against_one_part_after_the_other(here: Command, tmp_path: Path) -> None:
    words = ("--impl", "mpi", "--gradients", "16K", "--buckets", "16K", *SMALL)
    _, run = carried_out(here, tmp_path, "step", "overlap", "--on", "cpu", "--ranks", "2", *words)
    rows = [result for result in timed(run) if step_of(result.case).schedule in overlapping("cpu")]
    assert {(one.implementation, step_of(one.case).schedule, step_of(one.case).bucket) for one in rows} == {
        ("mpi", name, 16384) for name in overlapping("cpu")
    }
    assert all(result.right for result in rows)


def test_an_overlap_of_a_described_system_is_predicted(here: Command, tmp_path: Path) -> None:
    said, run = carried_out(here, tmp_path, "step", "overlap", "--on", "dgx-h100", "--out", "out")
    found = overlaps(run.results)
    assert all(isinstance(one.row, StepPrediction) for one in found)
    hidden = [one.hidden.value for one in sorted(found, key=lambda one: step_of(one.row.case).bucket)]
    assert hidden == sorted(hidden, reverse=True)
    (answer,) = (line for line in said.splitlines() if line.startswith("answer: "))
    assert "overlap helps" in answer


def timed(run: Run) -> list[StepTimes]:
    return [result for result in run.results if isinstance(result, StepTimes)]


def test_every_rank_s_steps_are_timed_on_one_clock(here: Command, tmp_path: Path) -> None:
    _, run = carried_out(here, tmp_path, *WAITING, "--impl", "auto", "--steps", "64")
    (row,) = timed(run)
    assert row.right
    assert 0 < sum(series.steps for series in row.series) <= 64
    assert row.clock > 0
    computing = StepArrays.of(row.series).computing
    mean = fmean(computing.mean(axis=0))
    assert mean < fmean(computing.max(axis=0)) < 2 * mean


@pytest.mark.machine
def test_a_rank_that_computes_twice_as_much_is_named(here: Command, tmp_path: Path) -> None:
    words = ("--impl", "auto", "--compute", "1ms", "--slow-rank", "1")
    said, run = carried_out(here, tmp_path, *WAITING, *words)
    (line,) = (line for line in said.splitlines() if "rank 1 is late: last in" in line)
    assert "the others wait for it" in line
    assert "rank 0 is late" not in line
    rows = [StepArrays.of(result.series) for result in timed(run)]
    assert ranks_that_are(Finding.LATE, straggler_test(rows)) == [1]
    (row,) = timed(run)
    assert step_of(row.case).slow == ((1, 2.0),)
    assert 0 < row.clock < 0.05


COMPARED = ("ring", "local-sgd")
STYLES = ("step", "strategies", "--ranks", "2", "--steps", "10", "--out", "out")


def test_strategies_are_compared_over_seeds(here: Command, tmp_path: Path) -> None:
    said, run = carried_out(
        here, tmp_path, *STYLES, "--strategy", ",".join(COMPARED), "--seeds", "2", "--slow-rank", "1:2"
    )
    results = run.results
    assert {(result.implementation, job_of(result.case).seed) for result in results} == {
        (name, seed) for name in COMPARED for seed in (1, 2)
    }
    assert all(isinstance(result, Trained) and result.right for result in results)
    assert [result.implementation for result in results[:2]] != [result.implementation for result in results[2:]]
    assert "rank 1 2 times as slow" in said
    for name in COMPARED:
        assert len(re.findall(rf"^ +[12]  {name} .* {RIGHT}", said, re.MULTILINE)) == 2


def test_processes_of_a_launcher_train_and_tell_who_is_late(environment: dict[str, str], tmp_path: Path) -> None:
    for name, words in (
        ("strategies", ("--seeds", "1", "--steps", "8", "--strategy", "library,ring")),
        ("scale", ("--compute", "300us", "--steps", "64", "--impl", "auto")),
        ("stragglers", ("--compute", "300us", "--steps", "64", "--impl", "auto")),
    ):
        program = [sys.executable, "-m", "collbench", "step", name, *words, "--out", name]
        done = subprocess.run(
            [mpiexec(), "-n", "2", *program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert all(result.right for result in read(tmp_path / name).cases), name
        assert done.stderr.count("0.3.0") == (name == "stragglers"), "an earlier name names the new one once"
