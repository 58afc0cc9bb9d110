"""Calibration: the number of matrix products in a step of given length.

A sweep on one rank has the machine to itself: its step serves any number of ranks, and the times show what neighbours
cost.  In a sweep on several ranks all compute at once, and a step lasts as long as requested on these ranks.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import sub
from statistics import fmean

from collbench.algorithms import is_library
from collbench.cases import Sampling, Sweep
from collbench.commands.step.rows import Series, StepTimes
from collbench.commands.step.work import COMPUTE, SEQUENTIAL, Step, step_of
from collbench.errors import PlatformError
from collbench.measure.session import Session
from collbench.platforms import find_platform
from collbench.results.collectives import Failed
from collbench.stats import percentile

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
"""Rows of the trial matrices; BLAS libraries are fastest at powers of two."""

# Minimum products of a step: a rank's factor of work is then exact to a twentieth.
LEAST = 20
FEW = 3  # the minimum for one rank alone: larger matrices are closer to a training step's

_SAMPLES, _SERIES, _PRODUCTS = 5, 0.01, 4  # samples of a size, seconds of a series, products of a step


def products_for(computing: float, seconds: Mapping[int, float], least: int = LEAST) -> Step:
    """Return the step of `computing` seconds with the largest matrices that leave `least` products."""
    fitting = [size for size, each in seconds.items() if least * each <= computing]
    size = max(fitting, default=min(seconds))
    return Step(max(1, round(computing / seconds[size])), size)


def calibrated(computing: float, platform: str, sweep: Sweep, launched: tuple[int, int] | None = None) -> Step:
    """*Collective* under a launcher: return the step that takes `computing` seconds on the sweep's ranks.

    For one rank alone the platform sets the largest matrix.  PlatformError if no size could be measured.
    """
    several = sweep.ranks > 1
    sizes = SIZES if several else tuple(find_platform(platform).matrix // part for part in (8, 4, 2, 1))
    least = LEAST if several else FEW
    names = sorted(sweep.implementations, key=is_library)
    schedule = SEQUENTIAL if several else COMPUTE
    trials = replace(
        sweep,
        sizes=sweep.sizes[:1],
        implementations=tuple(names[-1:] if several else names[:1]),  # one rank alone communicates nothing
        sampling=Sampling(iters=_SAMPLES, region=_SERIES, timeout=sweep.sampling.timeout),
        works=tuple(Step(_PRODUCTS, size, schedule) for size in sizes),
    )
    seconds: dict[int, float] = {}
    reason = "no implementation completed a step"
    with Session(platform, trials, launched, None) as session:
        for result in session.run():
            step = step_of(result.case)
            # Sizes ascend: once a step has no room for enough products of a size, larger ones need no trial.
            if isinstance(result, StepTimes) and result.right:
                seconds[step.size] = min(map(_typical_computing, result.series)) / step.products
                if least * seconds[step.size] > computing:
                    break
            reason = (result.reason if isinstance(result, Failed) else result.wrong) or reason
    if not seconds:
        raise PlatformError(f"the time of a matrix product could not be measured: {reason}")
    return products_for(computing, seconds, least)


def _typical_computing(series: Series) -> float:
    """Return the lower quartile of a rank's computing time per step, averaged over ranks, in seconds."""
    of_ranks = (map(sub, computed, series.begins(rank)) for rank, computed in enumerate(series.computed))
    return fmean(percentile(list(seconds), 25) for seconds in of_ranks)
