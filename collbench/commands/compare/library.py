"""`collbench.compare`: two runs, and how they compare."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Annotated

from collbench.analysis.compare import compare as compare_runs
from collbench.analysis.comparison import Comparison
from collbench.analysis.crossover import format_span
from collbench.analysis.matching import Selection, selection
from collbench.errors import UsageError
from collbench.requests.declared import SHARE, Opt, Request, takes
from collbench.requests.runs import RunOrPath, as_run
from collbench.requests.words import Share
from collbench.runfile.store import Run
from collbench.units import format_list, parse_share


@dataclass(frozen=True)
class CompareRequest(Request):
    """Two runs, and how to compare them."""

    base: Annotated[RunOrPath, Opt("", "The run to compare with.")]
    new: Annotated[RunOrPath, Opt("", "The run to judge.")]
    _: KW_ONLY
    margin: Annotated[
        Share | None,
        Opt(
            "--margin",
            "Changes up to this share do not count.",
            "5%, of logs more if they scatter",
            unit=SHARE,
        ),
    ] = None
    confidence: Annotated[Share, Opt("--confidence", "Probability that no row is called wrongly.", unit=SHARE)] = "95%"
    assume: Annotated[
        Share | None,
        Opt("--assume", "How much each time of a log without samples varies.", "as neighbouring sizes do", unit=SHARE),
    ] = None
    only: Annotated[
        str | None, Opt("--only", "Rows to compare, such as allreduce,ring-flags,1M..", metavar="WORD[,WORD]")
    ] = None


@takes(CompareRequest)
def compare(request: CompareRequest) -> Comparison:
    """Compare two runs case by case.

    Returns:
        For every case with a time in both runs a row: the ratio of times NEW/BASE with an interval, and a `word` (SLOW,
        FAST, OK or UNKNOWN).  `unmatched` has what one of the runs lacks, `judgement` what is said of it all.

    Raises:
        RunFileError: One of them is no run file.
        UsageError: `only` leaves nothing.

    >>> import collbench
    >>> folder = "results/cpu-ab-slowed-ring/"
    >>> comparison = collbench.compare(folder + "as-is", folder + "COLLBENCH_KERNELS=my-kernels")
    >>> [(row.implementation, row.word.value) for row in comparison.rows if row.case.nbytes == 2**15]
    [('mpi', 'OK'), ('ring-flags', 'SLOW')]

    """
    margin = None if request.margin is None else parse_share(request.margin, "--margin")
    shares = margin, parse_share(request.confidence, "--confidence")
    assumed = None if request.assume is None else parse_share(request.assume, "--assume")
    runs = as_run(request.base), as_run(request.new)
    return compare_runs(*runs, *shares, selected(request.only, runs), assumed)


def selected(only: str | None, runs: Sequence[Run]) -> Selection | None:
    """Return which rows `--only` selects, None for all; UsageError where the runs have none of them."""
    if only is None:
        return None
    results = list(chain.from_iterable(run.cases for run in runs))
    chosen = selection(only, dict.fromkeys(result.implementation for result in results))
    if not any(chosen(result.case, result.implementation) for result in results):
        raise UsageError(f"--only {only} leaves nothing of these runs; they hold: {', '.join(contents(runs))}")
    return chosen


def contents(runs: Sequence[Run]) -> list[str]:
    """Return what runs have rows of, in words: collectives, implementations, misalignment, numbers of ranks, sizes."""
    results = list(chain.from_iterable(run.cases for run in runs))
    if not results:
        return []
    names = [result.case.collective.name for result in results] + [result.implementation for result in results]
    names += [f"unalign {result.case.unalign}" for result in results if result.case.unalign]
    sizes = [result.case.nbytes for result in results]
    ranks = format_list(sorted({result.case.ranks for result in results}))
    return [*dict.fromkeys(names), f"{ranks} ranks", format_span(min(sizes), max(sizes))]
