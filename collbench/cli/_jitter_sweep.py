"""From the options of `collbench jitter` to a sweep of one case, with the step that its ranks compute."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collbench.algorithms import implementations
from collbench.api.patience import RANKS, said_if_long
from collbench.api.wanted import make_sweep
from collbench.cases import Sampling, Step, Sweep
from collbench.cli._step_options import parse_slow, parse_work
from collbench.errors import UsageError
from collbench.measure.calibration import Work, calibrated
from collbench.measure.stepping import LONGEST

STEPS = 4000  # of which the percentile 99.9 has an interval
MOST_MOMENTS = 500_000  # of ranks and steps of a row, which is one line of the run file
_SERIES = 16  # of each implementation, which take turns


def make_step_sweep(options: Mapping[str, Any], launched: tuple[int, int] | None) -> tuple[str, Sweep]:
    """Platform and sweep; the ranks are started once before, to find out how long a product takes."""
    work = parse_work(options["compute"])
    sizes = {"minbytes": options["gradients"], "maxbytes": options["gradients"]}
    named = {"impl": options["impl"] or "library,auto"}
    platform, sweep = make_sweep({**options, **sizes, **named}, launched)
    _refuse(sweep, options["steps"])
    slow = parse_slow(options["slow"], sweep.ranks)
    if not options["impl"]:  # a library once, not by every way to call it
        sweep = replace(
            sweep, implementations=tuple(n for n in sweep.implementations if not implementations()[n].calls)
        )
    with said_if_long(RANKS):
        step = replace(calibrated(work, platform, sweep, launched), slow=slow)
    sampling = _sampling(sweep, step, work, options["steps"])
    return platform, replace(sweep, steps=(step,), sampling=sampling)


def _refuse(sweep: Sweep, steps: int | None) -> None:
    """What nothing can be learned from."""
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nobody to be late for; give at least 2")
    most = MOST_MOMENTS // sweep.ranks
    if steps is not None and not _SERIES <= steps <= most:
        raise UsageError(f"--steps {steps} is not possible with {sweep.ranks} ranks; choose from {_SERIES} to {most}")


def _sampling(sweep: Sweep, step: Step, work: Work, wanted: int | None) -> Sampling:
    """So many steps in a few long series, none so long that the ranks seem to hang."""
    steps = wanted or min(STEPS, MOST_MOMENTS // sweep.ranks)
    slowest = max([1.0, *(factor for _, factor in step.slow)])
    most = int(LONGEST / (work.seconds * slowest)) if work.seconds else steps
    each = max(1, min(math.ceil(steps / _SERIES), most))
    return replace(sweep.sampling, steps=each, iters=math.ceil(steps / each))
