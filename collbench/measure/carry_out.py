"""What the ranks do with a case: measure its collective, measure its steps, or find out where its time goes."""

from collections.abc import Iterator, Mapping, Sequence

from collbench.cases import Case, Sampling
from collbench.implementations import Implementation
from collbench.measure.runner import Progress, measure
from collbench.measure.stepping import measure_steps
from collbench.measure.tracing import explain
from collbench.measurement import Result
from collbench.platforms.roles import Platform


def carry_out(
    case: Case,
    chosen: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    progress: Progress,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield a result of each implementation; CaseFailed when the platform must be opened anew."""
    if sampling.traced:
        return explain(case, chosen, platform, sampling, progress)
    way = measure_steps if case.step else measure
    return way(case, chosen, platform, sampling, progress, launches)
