"""How many products make a step of so many seconds or operations."""

import pytest

from collbench.cases import Sampling
from collbench.errors import PlatformError
from collbench.measure import calibrated_together
from collbench.measure.calibrated_together import LEAST, calibrated, products_for
from collbench.measure.calibration import Work
from collbench.measurement import Failed
from collbench.steps import Step, flops_of
from tests.conftest import case
from tests.test_cases import sweep

SECONDS = {32: 5e-6, 64: 10e-6, 128: 80e-6, 256: 600e-6}


@pytest.mark.parametrize(
    ("seconds", "products", "size"), [(1e-3, 100, 64), (2e-3, 25, 128), (20e-3, 33, 256), (20e-6, 4, 32), (1e-6, 1, 32)]
)
def test_matrices_are_as_large_as_leaves_room_for_enough(seconds: float, products: int, size: int) -> None:
    """So that a rank which is to compute a fifth more can; a step of less has the smallest, and one at least."""
    step = products_for(Work(seconds=seconds), SECONDS)
    assert (step.products, step.size) == (products, size)


def test_operations_need_no_measuring() -> None:
    """They are counted."""
    step = products_for(Work(flops=200e6), {})
    assert step.products >= LEAST
    assert flops_of(step.products, step.size) == pytest.approx(200e6, rel=0.03)


def test_ranks_that_cannot_be_measured_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""

    class Broken:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> "Broken":
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self) -> list[Failed]:
            return [Failed(case(step=Step(4, 32)), "mpi", "cpu", "it broke")]

    monkeypatch.setattr(calibrated_together, "Session", Broken)
    with pytest.raises(PlatformError, match=r"^how long a matrix product takes could not be measured: it broke$"):
        calibrated(Work(seconds=1e-3), "cpu", sweep(1024), None)


def test_real_ranks_take_about_as_long_as_was_asked_for() -> None:
    """Within a factor of three, whatever else runs here; the larger the matrix, the longer."""
    from dataclasses import replace

    wanted = replace(sweep(1024), implementations=("mpi",), sampling=Sampling())
    seconds = calibrated_together.seconds_of_products(Work(seconds=5e-3), "cpu", wanted, None)
    assert seconds[32] < seconds[128]
    step = products_for(Work(seconds=5e-3), seconds)
    assert seconds[step.size] * step.products == pytest.approx(5e-3, rel=0.05)
