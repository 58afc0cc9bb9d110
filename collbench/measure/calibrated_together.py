"""How many matrix products make a step of so many seconds or operations: measured by all ranks of a run at once.

So a step lasts as long as was asked for on these ranks, also under an outside launcher; calibration.py has one rank
alone, whose number of products stays the same on any number of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from collbench.algorithms import is_library
from collbench.cases import Sampling, Step, Sweep, flops_of
from collbench.errors import PlatformError
from collbench.measure.calibration import Work
from collbench.measure.session import Session
from collbench.results import Failed, Series, StepTimes
from collbench.stats import percentile

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
"""Rows of the matrices that are tried; the library that multiplies does best with powers of two."""

LEAST = (
    20  # products of a step, if it is long enough: that many times as much in one rank then comes out to a twentieth
)
_SAMPLES, _SERIES, _PRODUCTS = 5, 0.01, 4  # of a size, with series of so many seconds and steps of so many products


def products_for(work: Work, seconds: Mapping[int, float]) -> Step:
    """The step, of matrices as large as leaves LEAST products; `seconds` of a product by size, where flops are 0."""
    costs = {size: flops_of(1, size) for size in SIZES} if work.flops else seconds
    wanted = work.flops or work.seconds
    fitting = [size for size, cost in costs.items() if LEAST * cost <= wanted]
    size = max(fitting, default=min(costs))
    return Step(max(1, round(wanted / costs[size])), size)


def calibrated(work: Work, platform: str, sweep: Sweep, launched: tuple[int, int] | None) -> Step:
    """*Collective* under a launcher: that work as a step of these ranks; PlatformError if no size could be measured."""
    return products_for(work, {} if work.flops else seconds_of_products(work, platform, sweep, launched))


def seconds_of_products(work: Work, platform: str, sweep: Sweep, launched: tuple[int, int] | None) -> dict[int, float]:
    """Of one product by size, up to sizes of which a step has no room for LEAST."""
    names = sorted(sweep.implementations, key=is_library)[-1:]
    wanted = replace(
        sweep,
        sizes=sweep.sizes[:1],
        implementations=tuple(names),
        sampling=Sampling(iters=_SAMPLES, region=_SERIES, timeout=sweep.sampling.timeout),
        steps=tuple(Step(_PRODUCTS, size) for size in SIZES),
    )
    seconds: dict[int, float] = {}
    failed: list[str] = []
    with Session(platform, wanted, launched, None) as session:
        for result in session.run():
            step = result.case.step
            assert step
            if isinstance(result, StepTimes) and result.right:
                seconds[step.size] = _of_a_product(result, step)
                if LEAST * seconds[step.size] > work.seconds:
                    break
            failed += [result.reason] if isinstance(result, Failed) else [result.wrong]
    if not seconds:
        raise PlatformError(f"how long a matrix product takes could not be measured: {_last(failed)}")
    return seconds


def _of_a_product(result: StepTimes, step: Step) -> float:
    """In the series that was disturbed least: the mean over ranks of what a quarter of their steps do not exceed."""
    ranks = range(result.case.ranks)
    return min(fmean(_undisturbed(series, rank) for rank in ranks) for series in result.series) / step.products


def _undisturbed(series: Series, rank: int) -> float:
    moments = zip(series.begins(rank), series.computed[rank], strict=True)
    return percentile([computed - begun for begun, computed in moments], 25)


def _last(reasons: Sequence[str]) -> str:
    return next(filter(None, reversed(reasons)), "no implementation carried a step out")
