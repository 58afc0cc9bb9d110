"""The table of OSU's non-blocking tests: a step overall, its computing and its collective alone, and the overlap."""

from collections.abc import Iterator, Sequence

from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, Case
from collbench.formats.osu_tests import NAMES, OsuKind
from collbench.results import Result, StepTimes, Untimed

COLUMNS = ("Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")
PARTS = 4  # steps of a size: its parts alone, one after the other, and overlapped


def opening(kind: OsuKind, case: Case) -> Iterator[str]:
    """The lines above the rows."""
    yield f"# OSU MPI Non-blocking {kind.title} Test v7.4"
    yield "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait"
    yield f"# Datatype: {NAMES.get(case.dtype.name, case.dtype.name.upper())}."
    yield f"{'# Size':<10}" + "".join(f"{name:>18}" for name in COLUMNS)


def row(kind: OsuKind, results: Sequence[Result]) -> str:
    """A size, or as a comment why it has no row."""
    size = results[0].case.nbytes // kind.messages(results[0].case.ranks)
    for result in results:
        reason = result.reason if isinstance(result, Untimed) else result.wrong if isinstance(result, StepTimes) else ""
        if reason:
            return f"# {size} B: {reason}"
    overall, compute, pure = _seconds(results)
    figures = (overall * 1e6, compute * 1e6, pure * 1e6, overlap(overall, compute, pure))
    return f"{size:<10}" + "".join(f"{figure:>18.2f}" for figure in figures)


def overlap(overall: float, compute: float, pure: float) -> float:
    """Per cent of the collective that computing hides, as OSU reckons it (its README); of noise no more than all."""
    return min(100.0, max(0.0, 100 * (1 - (overall - compute) / pure)))


def _seconds(results: Sequence[Result]) -> tuple[float, float, float]:
    steps = {result.case.step.schedule: result for result in results if result.case.step}
    (overlapped,) = (name for name in steps if name not in (COMPUTE, COMMUNICATE, SEQUENTIAL))
    overall, compute, pure = (_mean(steps[name]) for name in (overlapped, COMPUTE, COMMUNICATE))
    return overall, compute, pure


def _mean(result: Result) -> float:
    """Of the series, weighed alike."""
    assert isinstance(result, StepTimes)
    return sum(result.seconds) / len(result.seconds)
