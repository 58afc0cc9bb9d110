"""What the ranks do with a case: measure its collective or its steps, train on it, or find out where its time goes."""

from collections.abc import Iterator, Mapping, Sequence

from collbench import algorithms, styles
from collbench.cases import Case, Sampling, Sweep
from collbench.measure.runner import Progress, measure
from collbench.measure.schooling import train
from collbench.measure.stepping import measure_steps
from collbench.measure.tracing import explain
from collbench.measurement import Result
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs


def needs(sweep: Sweep, platform: str) -> Needs:
    """What the implementations of a sweep want of memory; where there are jobs, the styles of training."""
    if jobs := list(filter(None, sweep.jobs)):
        return styles.needs(sweep.implementations, jobs, sweep.ranks, platform)
    return algorithms.needs(sweep.implementations, sweep.ranks, platform)


def carry_out(
    case: Case,
    names: Sequence[str],
    platform: Platform,
    sampling: Sampling,
    progress: Progress,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield a result of each implementation; CaseFailed when the platform must be opened anew."""
    if case.job:
        return train(case, names, platform, sampling, progress)
    chosen = [algorithms.implementations()[name] for name in names]
    if sampling.traced:
        return explain(case, chosen, platform, sampling, progress)
    way = measure_steps if case.step else measure
    return way(case, chosen, platform, sampling, progress, launches)
