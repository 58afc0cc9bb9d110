"""What results say of themselves."""

import math

from collbench.measurement import Prediction, Reported, observed, timed
from tests.conftest import case, measurement


def reported(**fields: object) -> Reported:
    return Reported(case(), "nccl", "gpu", **({"seconds": 4e-6, "statistic": "mean"} | fields))  # type: ignore[arg-type]


def test_what_another_tool_reported_has_a_time_unless_it_found_it_wrong() -> None:
    """Not checked is not wrong; a row that was found wrong, or has no time, is no result."""
    good = [reported(), reported(wrong_elements=0), measurement(), Prediction(case(), "nccl", 1e-6, 1e-6, 1e-6)]
    bad = [reported(wrong_elements=3), reported(seconds=0.0), measurement(seconds=())]
    assert list(timed([*good, *bad])) == good
    assert list(observed([*good, *bad])) == good[:3]


def test_a_figure_without_samples_has_no_interval() -> None:
    """One printed mean says nothing of its spread; the samples, where there are some, do."""
    alone, many = reported(), reported(samples=(1e-6,) * 4 + (3e-6,) * 5)
    assert alone.typical == 4e-6
    assert all(map(math.isnan, alone.band))
    assert many.typical == 3e-6
    assert many.band == (1e-6, 3e-6)
