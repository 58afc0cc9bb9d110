"""The verdict on a scaling, and what would help: computed from the step's parts."""

from dataclasses import replace

import pytest

from collbench.analysis.rounds import Estimate
from collbench.analysis.scaling.advice import REMEDIES, Parts, apart, remedies
from collbench.analysis.scaling.points import curves
from collbench.analysis.scaling.verdict import HEALTHY, INCONCLUSIVE, POOR, judged, lines
from collbench.step_times import StepPrediction
from collbench.steps import STRONG, WEAK, Step
from tests.analysis.scaling.test_points import in_mode, row
from tests.conftest import case


@pytest.mark.parametrize(
    ("estimate", "word"),
    [
        (Estimate(0.8, 0.76, 0.84), HEALTHY),
        (Estimate(0.6, 0.5, 0.7), POOR),
        (Estimate(0.8, 0.7, 0.9), INCONCLUSIVE),
        (Estimate(0.9, float("-inf"), float("inf")), INCONCLUSIVE),
    ],
)
def test_the_whole_interval_decides(estimate: Estimate, word: str) -> None:
    """No verdict without one."""
    assert judged(estimate, 0.75) == word


def predicted(computing: float, waiting: float, exposed: float) -> list[StepPrediction]:
    """One rank alone that computes for a second, and four."""
    alone = StepPrediction(case(ranks=1, step=Step(0, 0, seconds=1.0)), "nccl", (1.0, 0, 0), 1.0, 1.0)
    total = computing + waiting + exposed
    step = Step(0, 0, seconds=1.0)
    return [alone, StepPrediction(case(ranks=4, step=step), "nccl", (computing, waiting, exposed), total, total)]


def test_a_healthy_scaling_is_one_sentence_and_its_laws() -> None:
    """With what communication takes."""
    (curve,) = curves(predicted(1.0, 0.05, 0.2))
    said = lines(curve)
    assert said[0].startswith("nccl, weak: 4 ranks give 3.2x (3.2 .. 3.2): 80%, healthy (healthy is 75% and more)")
    assert "communication is 16% of the step, waiting 4%" in said[0]
    assert not any("would help" in line for line in said)


def test_a_poor_one_says_what_would_help_most_and_to_what() -> None:
    """Overlap can hide all of a communication that is shorter than the computing."""
    (curve,) = curves(predicted(1.0, 0.0, 1.0))
    assert lines(curve)[0].count("50%, poor")
    assert "overlap: at most 100%" in lines(curve)[-1]
    (slow,) = curves(predicted(1.0, 1.0, 0.1))
    assert lines(slow)[-1].startswith("what would help most: no rank later than another: at most 91%")


def test_products_that_cannot_be_shared_are_said() -> None:
    """Where ranks make notably more than their share; 12 of 25 are near enough."""

    def said(alone: int, each: int, mode: str) -> str:
        rows = [row(1, *[2.0] * 8, products=alone), row(2, *[1.5] * 8, products=each)]
        (curve,) = curves([in_mode(one, mode) for one in rows])
        return lines(curve)[0]

    assert said(1, 1, STRONG).endswith("products cannot be shared evenly: a rank makes 1, its share is 0.5")
    assert "shared" not in said(25, 12, STRONG)
    assert "shared" not in said(1, 1, WEAK)


def test_ranks_that_are_slower_than_one_follow_no_law() -> None:
    """It says so instead of a serial share above 1."""
    (curve,) = curves([row(1, *[1.0] * 8), row(2, *[3.0] * 8)])
    assert any("less a second than one" in line for line in lines(curve))


@pytest.mark.parametrize("remedy", [*REMEDIES, apart("cpu")], ids=lambda remedy: remedy.words)
def test_no_remedy_promises_more_than_all_of_the_ranks(remedy: object) -> None:
    """Nor less than there was, where there is something to cure."""
    own = Parts(alone=1.0, computing=1.3, waiting=0.4, exposed=0.9)
    before = own.efficiency(own.computing, own.waiting, own.exposed)
    assert before < remedy.efficiency(own) <= 1  # type: ignore[attr-defined]


def test_what_would_not_help_is_not_named() -> None:
    """Where nobody waits, no rank is late."""
    (curve,) = curves(predicted(1.0, 0.0, 1.0))
    assert "no rank later than another" not in [remedy.words for remedy, _ in remedies(curve, curve.last)]


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("cpu", "cores and memory of their own for all ranks"),
        ("gpu", "a GPU for every rank, none slowed down by power or heat"),
        ("elsewhere", "as much for every rank as one alone has"),
    ],
)
def test_ranks_that_compute_more_slowly_beside_others_are_advised_for_where_they_live(
    platform: str, words: str
) -> None:
    """A rank on a GPU has no cores."""
    alone, four = (replace(one, platform=platform) for one in (row(1, *[1.0] * 8), row(4, *[4.0] * 8)))
    (curve,) = curves([alone, four])
    assert words in [remedy.words for remedy, _ in remedies(curve, curve.last)]
    assert not {remedy.words for remedy in REMEDIES} & {words}
