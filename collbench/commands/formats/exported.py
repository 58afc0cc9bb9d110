"""What of a run goes into a file of another tool."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from collbench.errors import UsageError
from collbench.results import Measurement, Observed, Prediction, Reported, Result
from collbench.runfile.header import Header

Exported = Measurement | Reported | Prediction


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, the header of their run, and why rows are left out."""

    header: Header
    results: tuple[Exported, ...]
    left_out: Counter[str]  # rows by the reason, filled by the writer of the format too


def select(header: Header, results: Iterable[Result], name: object) -> ExportSelection:
    """Return the results of the run of that name that have a time or are wrong; UsageError if there are none."""
    left_out = Counter[str]()
    selected: list[Exported] = []
    for result in results:
        if isinstance(result, Exported):
            selected.append(result)
        else:
            left_out[f"{type(result).__name__.lower()} rows have no time"] += 1
    if not selected:
        raise UsageError(f"nothing to export: {name} has no results with a time")
    return ExportSelection(header, tuple(selected), left_out)


def mean_seconds(result: Observed) -> float:
    """Return the mean, which is what these tools print; 0 where there is no time."""
    if isinstance(result, Reported):
        return result.seconds
    return fmean(result.times) if result.times else 0.0


def rates(result: Observed) -> tuple[float, float]:
    """Return algorithm and bus bandwidth in GB/s by the mean time, which must not be 0."""
    algbw = result.case.nbytes / mean_seconds(result) / 1e9
    return algbw, algbw * result.case.collective.bus_factor(result.case.ranks)


def wrong_elements(result: Observed) -> int | None:
    """Return how many elements are wrong; None if nobody looked."""
    if isinstance(result, Measurement):
        return result.mismatch.wrong if result.mismatch else 0
    return result.wrong_elements if isinstance(result, Reported) else None
