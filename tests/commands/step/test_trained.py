"""Which strategy is first: from made-up runs, with an interval, or inconclusive."""

import math
import re
from dataclasses import replace

import pytest

from collbench.commands.step.figure import losses
from collbench.commands.step.rows import LossPoint, Trained
from collbench.commands.step.section import STRATEGIES
from collbench.commands.step.trained import Effort, geometric_mean, ranking, round_up, verdict
from collbench.commands.step.work import SgdJob, job_of
from collbench.results.facts import WeightMismatch
from tests.conftest import case

NOISE = (1.0, 1.05, 0.97, 1.02)


def run(style: str, seed: int, step: float, progress: float = 1.0, floor: float = 0.1) -> Trained:
    """A run whose loss halves with every 10 / progress steps down to a floor, and whose steps take so many seconds."""
    points = [LossPoint(2 * n, n * step, max(floor, 4 * 0.5 ** (n * progress / 10))) for n in range(0, 101, 2)]
    job = SgdJob(seed=seed, steps=100, slow=((1, 4.0),))
    return Trained(case(work=job), style, "cpu", tuple(points), 100 * step, (100, 100), (0.4, 0.8))


def runs(
    style: str, step: float, progress: float = 1.0, noise: tuple[float, ...] = NOISE, floor: float = 0.1
) -> list[Trained]:
    return [run(style, seed, step * factor, progress, floor) for seed, factor in enumerate(noise, 1)]


def racing_to(target: float, results: list[Trained]) -> list[Trained]:
    return [replace(one, case=case(work=replace(job_of(one.case), target=target))) for one in results]


def told(*results: Trained, target: float = 0.0) -> tuple[list[str], list[str]]:
    rows = racing_to(target, [*results])
    _, *table = STRATEGIES.conclusion(rows)
    return verdict(ranking(rows)), table


def test_the_first_in_time_may_be_behind_in_steps() -> None:
    lines, table = told(*runs("ring", 4e-3), *runs("asynchronous", 2e-3, 0.8))
    assert lines[0].startswith("in time: asynchronous reaches loss 0.11 first; ring, the next, needs 1.6")
    assert lines[1].startswith("in steps: ring reaches loss 0.11 first; asynchronous, the next, needs 1.2")
    assert table[1].startswith("asynchronous")
    assert re.search(r" 1\.60x \(.*\) +0\.80x \(.*\)", table[2]), "more time and fewer steps than the first"


def test_what_noise_or_one_seed_may_have_made_is_inconclusive() -> None:
    lines, _ = told(*runs("ring", 2e-3), *runs("asynchronous", 1.9e-3, noise=(0.7, 1.5, 0.8, 1.3)))
    assert lines[0].startswith("in time: inconclusive: to loss 0.11, ")
    lines, table = told(*runs("ring", 2e-3, noise=(1.0, 1.0)), *runs("asynchronous", 2e-3, noise=(0.2, 4.0)))
    assert "(very uncertain)" in lines[0]
    assert "(very uncertain)" in "".join(table)
    lines, table = told(run("ring", 1, 9e-3), run("asynchronous", 1, 1e-3))
    assert "inconclusive" in lines[0]
    assert "one seed: no interval" in lines[0]
    assert ".." not in "".join(table[:2])


def test_of_those_that_make_the_same_steps_none_is_first_and_who_is_surely_later_is_named() -> None:
    lines, _ = told(*runs("ring", 2e-3), *runs("library", 4e-3), *runs("local-sgd", 3e-3, 0.9))
    assert "ring may be as fast (ring: 1.00x (1.00 .. 1.00)); surely later: local-sgd, 1.11x" in lines[1]


def test_pairs_of_the_same_seed_are_compared() -> None:
    noise = (1.0, 3.0, 0.3, 8.0)
    lines, _ = told(*runs("ring", 2e-3, noise=noise), *runs("asynchronous", 1e-3, noise=noise))
    assert "asynchronous reaches loss 0.11 first; ring, the next, needs 2.00x (2.00 .. 2.00)" in lines[0]


def test_a_strategy_that_learns_nothing_does_not_set_the_target_and_is_named() -> None:
    bad = [replace(run("library", 1, 1e-3), points=(), mismatch=WeightMismatch(0, "2", 0, "1", "2", 0.1, 1))]
    lines, table = told(*runs("ring", 2e-3), *runs("asynchronous", 1e-3, floor=3.0), *bad)
    assert lines == ["asynchronous does not reach loss 0.11 with 4 of 4 seeds"]
    assert not any(line.startswith("library") for line in table)
    assert ranking([run("ring", 1, 1e-3, floor=3.0)]) is None
    assert ranking([]) is None
    found = ranking(racing_to(1.5, runs("ring", 2e-3, noise=(1.0,))))
    assert found
    (entry,) = found.entries
    assert Effort.STEPS.of(entry.runs[1], entry.goals[1]) == pytest.approx(14.3, abs=0.5)
    assert Effort.SECONDS.of(entry.runs[1], entry.goals[1]) == pytest.approx(2e-3 * 14.2, rel=0.03)


def test_an_estimate_is_a_geometric_mean_with_student_s_interval_and_targets_have_two_digits() -> None:
    told = geometric_mean([1.0, 4.0])
    assert told.value == pytest.approx(2)
    off = 12.706 * math.log(4) / math.sqrt(2) / math.sqrt(2)
    assert told.high == pytest.approx(2 * math.exp(off), rel=1e-3)
    assert told.low * told.high == pytest.approx(4)
    assert not geometric_mean([3.0]).known
    assert [round_up(value) for value in (0.1101, 0.12, 3.41e-5, 99.1)] == [0.12, 0.12, 3.5e-5, 100.0]


def test_the_picture_has_both_axes_a_target_and_a_row_for_every_strategy() -> None:
    found = ranking([*runs("ring", 2e-3), *runs("asynchronous", 1e-3, floor=3.0)])
    assert found
    figure = losses(found)
    time, steps = figure.axes
    assert (time.get_xlabel(), time.get_yscale()) == ("wall time", "log")
    assert [line.get_ydata()[0] for line in time.lines if line.get_linestyle() == ":"] == [0.11]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ring", "asynchronous"]
    ((reached,),) = (line.get_xdata() for line in time.lines if line.get_marker() == "o")
    assert reached == pytest.approx(found.entries[0].mean(Effort.SECONDS).value)
    assert max(steps.lines[0].get_xdata()) == 100


def test_runs_that_cannot_be_reckoned_with_end_no_verdict() -> None:
    apart = [run(style, seed, 1e-3) for style, seeds in (("ring", (1, 2)), ("local-sgd", (3, 4))) for seed in seeds]
    assert told(*apart)[0][0].startswith("in time: ring reaches loss")
    far = [run("ring", 1, 1e-300), run("ring", 2, 1e300), *runs("asynchronous", 1e-3)]
    assert len(told(*far)[1]) == 3
    idle = replace(run("ring", 1, 1e-3), steps=(0, 0))
    free = replace(run("ring", 1, 1e-3), points=(LossPoint(0, 0.0, 4.0), LossPoint(2, 0.1, 0.0)))
    assert ranking([idle, free]) is None
