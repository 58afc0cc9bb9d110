"""What plans come to: who is fastest, how far a run scales, and what is worth its money; said as predicted."""

from dataclasses import replace

import pytest

from collbench.commands.train import section
from collbench.commands.train.communication import PARTS as STEP_PARTS
from collbench.commands.train.formulas import PARTS as MEMORY_PARTS
from collbench.commands.train.rows import PART_WORDS, PlannedStep, words
from tests.commands.train.made_up_plans import compared, grown, paid, plan, ranked
from tests.conftest import measurement


def test_every_part_of_the_planner_has_words_and_plans_are_told_by_their_purpose() -> None:
    assert set(PART_WORDS) <= {*STEP_PARTS, *MEMORY_PARTS}
    assert all(words(part).replace(" ", "").isalpha() for part in (*STEP_PARTS, *MEMORY_PARTS))
    assert set(section.UNHIDDEN) <= set(STEP_PARTS)
    assert words("data_parallel") == "data parallelism"
    assert words("optimiser_states") == "optimiser states"
    assert words("some_new_part") == "some new part"
    rows = [*paid(), measurement(), *ranked()]
    assert section.planned(rows, "layout") == ranked()
    assert not section.planned(rows, "scale")


def test_a_scaling_is_held_against_the_fewest_gpus() -> None:
    rows = [row for row in grown() if isinstance(row, PlannedStep)]
    curve = section.scaled([*reversed(rows)])
    assert curve
    assert [row.gpus for row in curve.rows] == [8 * 2**power for power in range(1, 12)]
    assert [curve.efficiency(row) for row in curve.rows] == pytest.approx([0.96**power for power in range(11)])
    last = curve.rows[-1]
    assert section.rate(last) == pytest.approx(last.tokens / last.gpus / last.typical)
    assert section.scaled([plan("scale", gpus=8)]) is None


def test_the_front_has_what_nothing_beats_in_both_and_communication_is_what_nothing_hides() -> None:
    rows = [row for row in paid() if isinstance(row, PlannedStep)]
    best = section.front([*rows, *rows])
    assert [row.gpus for row in best] == [512, 256, 128, 64]
    assert {row.system for row in best} == {"dgx-h100"}
    worse = replace(best[1], price=10.0)
    assert section.front([worse, *best]) == best
    parts = {"computing": 1.0, "bubble": 3.0, **dict.fromkeys(section.UNHIDDEN, 0.2)}
    assert section.communication(plan("layout", parts=parts)) == pytest.approx(1 / 5)


def test_what_a_run_takes_and_costs_has_the_digits_that_its_band_leaves() -> None:
    run = plan("cost", gpus=512, price=2.5, total=1e11, currency="EUR")
    for low, high, duration, cost in (
        (9.0, 12.0, "11 days (9.9 .. 13)", "340 k EUR (310 k .. 410 k)"),
        (9.9, 10.1, "11 days (10.9 .. 11.1)", "339 k EUR (336 k .. 342 k)"),
        (1.0, 25.0, "10 days (1 .. 30)", "300 k EUR (30 k .. 800 k)"),
    ):
        one = replace(run, low=low, high=high)
        assert (section.duration_text(one), section.cost_text(one)) == (duration, cost)
    assert section.cost_text(replace(run, currency="")) == "340 k (310 k .. 410 k)"
    assert section.duration_text(replace(run, total=1e13)) == "1,100 days (990 .. 1,300)"


def test_verdicts_say_what_stands_in_the_plans() -> None:
    told = section.verdicts([*ranked(), *grown(), *compared(), *paid()])
    assert all(line.startswith("predicted: ") for line in told)
    whole = "\n".join(told)
    assert "tp8 dp8 mb1 zero3, 10 s a step (9 s .. 12 s), 40% MFU, 44 of 80 GiB" in whole
    assert "1 of the 3 others shown may be as fast" in whole
    assert "on dgx-h100, 16,384 GPUs keep 66% of the tokens/s per GPU of 16 with the same batch" in whole
    assert "likely fastest: gb200-nvl72, 6 s" in whole
    assert not section.verdicts([measurement()])
    assert not section.verdicts([plan("cost")])
