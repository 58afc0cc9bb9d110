"""What results say of themselves."""

import math
from dataclasses import replace

import pytest

from collbench.results import PARTS, Explanation, Failed, Prediction, Reported, observed, timed
from collbench.results.collectives import ADDED, LAUNCH, MOVED, PHASES, PUBLISHED, WAITED, Track
from tests.conftest import case, measurement


def reported(**fields: object) -> Reported:
    return Reported(case(), "nccl", "gpu", **({"seconds": 4e-6, "statistic": "mean"} | fields))  # type: ignore[arg-type]


def test_what_another_tool_reported_has_a_time_unless_it_found_it_wrong() -> None:
    good = [reported(), reported(wrong_elements=0), measurement(), Prediction(case(), "nccl", 1e-6, 1e-6, 1e-6)]
    bad = [reported(wrong_elements=3), reported(seconds=0.0), measurement(seconds=())]
    assert list(timed([*good, *bad])) == good
    assert list(observed([*good, *bad])) == good[:3]


def test_a_figure_without_samples_has_no_interval() -> None:
    alone, many = reported(), reported(samples=(1e-6,) * 4 + (3e-6,) * 5)
    assert alone.typical == 4e-6
    assert all(map(math.isnan, alone.band))
    assert many.typical == 3e-6
    assert many.band == (1e-6, 3e-6)


def explanation(*seconds: float, traced: float = 4e-6) -> Explanation:
    """A track of rank 0 with these seconds for each of the phases in order; none without any."""
    spent = dict(zip(PHASES, seconds, strict=False))
    tracks = (Track(0, 0, 0.0, sum(seconds), spent, ()),) if seconds else ()
    return Explanation(case(), "ring-flags", "cpu", 4e-6, traced, tracks)


def test_shares_of_an_operation_are_of_its_whole_time() -> None:
    result = explanation(1e-6, 1e-6, 0.0, 1e-6)
    shares = {LAUNCH: 0.25, WAITED: 0.25, MOVED: 0.25, ADDED: 0, PUBLISHED: 0.25}
    assert {part: result.share(part) for part in PARTS} == pytest.approx(shares)
    assert all(math.isnan(explanation().share(part)) for part in PARTS)
    unseen = explanation(0.0, 0.0, 0.0, 0.0, traced=0.0)  # where the clock is too coarse to see any pass
    assert {unseen.share(part) for part in PARTS} == {0.0}


def test_a_row_is_shown_with_the_library_that_it_calls() -> None:
    assert replace(measurement(), library="MPICH 5.0.2").label == "mpi: MPICH 5.0.2"
    assert replace(measurement("mpi@intel"), library="Intel MPI 7").label == "mpi: Intel MPI 7"
    assert measurement("mpi@intel").label == "mpi@intel"
    assert measurement("ring-flags").label == "ring-flags"
    assert replace(measurement("nccl"), library="NCCL 2.30.4").label == "nccl: 2.30.4"
    assert Failed(case(), "mpi@intel", "cpu", "died").label == "mpi@intel"
