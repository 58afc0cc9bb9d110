"""Laws of scaling find back what a curve was made of, and say which of them it was."""

import numpy as np
import pytest

from collbench.analysis.scaling.laws import LAWS, best, fits
from collbench.analysis.scaling.points import Curve, curves
from tests.analysis.scaling.test_points import row

RANKS = (2, 4, 8, 16, 32)
TRUTH = {"Amdahl": (0.05,), "Gustafson": (0.2,), "USL": (0.03, 0.002)}


def made_by(name: str, ranks: tuple[int, ...] = RANKS, noise: float = 0.0) -> Curve:
    """A weak curve that follows a law, with noise of so much that changes from round to round."""
    law = next(law for law in LAWS if law.name == name)
    wobble = [1 + noise * sign for sign in (-1, 1, -0.5, 0.5, 0.2, -0.2, 0.9, -0.9)]
    rows = [row(1, *[1.0] * 8)]
    for place, count in enumerate(ranks):
        share = float(law.efficiency(TRUTH[name], np.array([count]))[0])
        rows.append(row(count, *(factor / share for factor in wobble[place % 3 :] + wobble[: place % 3])))
    return curves(rows)[0]


@pytest.mark.parametrize("name", [law.name for law in LAWS])
def test_a_law_finds_its_parameters(name: str) -> None:
    """And leaves nothing."""
    fitted = {one.law.name: one for one in fits(made_by(name))}[name]
    assert [value.value for value in fitted.values] == pytest.approx(TRUTH[name], rel=1e-6)
    assert fitted.residual == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", [law.name for law in LAWS])
def test_the_law_that_a_curve_follows_leaves_the_least(name: str) -> None:
    """Of all of them; the universal one becomes Amdahl's without coherence."""
    nearest = best(fits(made_by(name)))
    assert nearest
    assert nearest.law.name == name or (nearest.law.name == "USL" and name == "Amdahl")


@pytest.mark.parametrize("name", [law.name for law in LAWS])
def test_noise_widens_the_interval_around_what_is_true(name: str) -> None:
    """From a fit to every round."""
    fitted = {one.law.name: one for one in fits(made_by(name, noise=0.02))}[name]
    for value, truth in zip(fitted.values, TRUTH[name], strict=True):
        assert value.low <= truth <= value.high
        assert value.high > value.low
    assert fitted.residual


def test_two_numbers_of_ranks_say_nothing_of_two_parameters() -> None:
    """And nothing is left that could tell one law from another."""
    fitted = fits(made_by("Amdahl", ranks=(2,)))
    assert [one.law.name for one in fitted] == ["Amdahl", "Gustafson"]
    assert best(fitted) is None
