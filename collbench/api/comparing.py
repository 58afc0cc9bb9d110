"""Two runs side by side, as `collbench compare` has them."""

from collections.abc import Callable, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.compare import compare as compared
from collbench.analysis.matching import selection
from collbench.api.reading import RunOrPath, as_run
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.runfile.store import Run
from collbench.units import format_size

Chosen = Callable[[Case, str], bool]
"""Whether a case by an implementation is wanted."""


def compare(
    base: RunOrPath, new: RunOrPath, *, margin: float = 0.05, confidence: float = 0.95, only: str | None = None
) -> Comparison:
    """Hold `new` against `base`: for every case that both have a time for, the ratio NEW/BASE with an interval.

    `margin` is the share up to which a change does not matter; `confidence` that no row is called wrongly, all rows
    together; `only` chooses rows as `--only` does, "allreduce,ring-flags,1M..".  A row's `verdict` is slower, faster,
    same or inconclusive; `unmatched` has what one run lacks, or has no right time for.

    Errors: RunFileError for what is no run file, UsageError for an `only` that leaves nothing.

    >>> import collbench
    >>> folder = "results/cpu-ab-slowed-ring/"
    >>> comparison = collbench.compare(folder + "as-is", folder + "COLLBENCH_KERNELS=my-kernels")
    >>> [(row.implementation, row.verdict.value) for row in comparison.rows if row.case.nbytes == 2**15]
    [('mpi', 'same'), ('ring-flags', 'slower')]
    """
    runs = as_run(base), as_run(new)
    return compared(*runs, margin, confidence, chosen(only, runs))


def chosen(only: str | None, runs: Sequence[Run]) -> Chosen | None:
    """Which rows are wanted, None for all; UsageError where none of the runs has any of them."""
    if only is None:
        return None
    names = dict.fromkeys(result.implementation for run in runs for result in run.results)
    wanted: Chosen = selection(only, names)
    if not any(wanted(result.case, result.implementation) for run in runs for result in run.results):
        raise UsageError(f"--only {only} leaves nothing of these runs; they hold: {', '.join(held(runs))}")
    return wanted


def held(runs: Sequence[Run]) -> list[str]:
    """What runs have rows of, in words: collectives, implementations, and the range of sizes."""
    results = [result for run in runs for result in run.results]
    words = [result.case.collective.name for result in results] + [result.implementation for result in results]
    sizes = sorted(result.case.nbytes for result in results)
    return [*dict.fromkeys(words), *([f"{format_size(sizes[0])} to {format_size(sizes[-1])}"] if sizes else [])]
