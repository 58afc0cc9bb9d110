"""The fit of many curves at once against SciPy's least squares of one after the other."""

import numpy as np
import pytest
from scipy.optimize import nnls

from collbench.analysis.fit import least_squares


@pytest.mark.parametrize("terms", [1, 3, 4])
@pytest.mark.parametrize("sizes", [4, 13])
def test_coefficients_are_those_of_non_negative_least_squares(terms: int, sizes: int) -> None:
    """Whichever of them are zero; terms that nearly cancel make those come back that were left out first."""
    random = np.random.default_rng((terms, sizes))
    columns = random.normal(size=(terms, sizes, 400)) + 2 * random.random((1, sizes, 1))
    columns *= np.array([1.0, 1e3, 1e6, 1e6])[:terms, None, None]
    target = random.normal(size=(sizes, 400)) + random.random(400)
    found = least_squares._nonnegative(columns, target)
    expected = np.array([nnls(columns[..., curve].T, target[:, curve])[0] for curve in range(400)]).T
    assert {tuple(curve) for curve in (expected > 0).T} == set(np.ndindex(*(2,) * terms))
    assert ((found > 0) == (expected > 0)).all()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_a_spoiled_size_counts_less_and_columns_of_all_curves_may_be_the_same() -> None:
    """Two curves on the same terms; of one, a size is ten times too slow."""
    sizes = np.array([8.0 * 4**step for step in range(13)])
    terms = np.stack([np.ones(13), sizes], axis=1)
    seconds = np.stack([terms @ [1e-5, 1e-10]] * 2)
    seconds[1, 6] *= 10
    found = least_squares.solve(terms[None], seconds)
    assert found == pytest.approx(np.array([[1e-5, 1e-10]] * 2), rel=1e-2)
    assert found[0] == pytest.approx([1e-5, 1e-10], rel=1e-9)
