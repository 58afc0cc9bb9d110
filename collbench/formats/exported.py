"""What of a run goes into a file of another tool, sorted as such tools print it: a part for each of their tests."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from collbench.errors import UsageError
from collbench.results import Measurement, Observed, Prediction, Reported, Result
from collbench.runfile.header import ForeignTest, Header

MOST_LISTED = 2**17  # ranks of a test, which lists each of them
Exported = Measurement | Reported | Prediction


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, the header of their run, and why rows are left out."""

    header: Header
    results: tuple[Exported, ...]
    left_out: Counter[str]  # rows by the reason, filled by the writer of the format too


Places = tuple[Observed | None, ...]
"""A row of another tool's table: out of place and in place, of which one may be missing."""


@dataclass(frozen=True)
class Part:
    """One test: its rows in order, and what was noted of it if another tool ran it."""

    test: ForeignTest
    rows: tuple[Places, ...]

    @property
    def results(self) -> list[Observed]:
        """Every place of every row; all are of one collective, implementation and number of ranks."""
        return [place for row in self.rows for place in row if place]


def select(header: Header, results: Iterable[Result]) -> ExportSelection:
    """Return the results that have a time or are wrong, and count the others; UsageError if there are none."""
    left_out = Counter[str]()
    selected: list[Exported] = []
    for result in results:
        if isinstance(result, Exported):
            selected.append(result)
        else:
            left_out[f"{type(result).__name__.lower()} rows have no time"] += 1
    if not selected:
        raise UsageError("nothing to export: no row has a time")
    return ExportSelection(header, tuple(selected), left_out)


def parts(selection: ExportSelection) -> list[Part]:
    """Return the results as tests of another tool: of one collective, implementation and number of ranks each.

    Predictions are left out: such files hold what was measured.
    """
    tests = {str(number): test for number, test in enumerate(selection.header.imported.tests)}
    rows_of: dict[Hashable, dict[Hashable, list[Observed | None]]] = {}
    test_of: dict[Hashable, ForeignTest] = {}
    seen = Counter[Hashable]()
    for result in selection.results:
        case = result.case
        if isinstance(result, Prediction):
            selection.left_out["predictions are not measured"] += 1
            continue
        if case.ranks > MOST_LISTED:
            selection.left_out[f"its ranks, of which each has a line, are more than {MOST_LISTED}"] += 1
            continue
        printed = result.printed if isinstance(result, Reported) else {}
        number = str(printed.get("test"))
        key = (number, case.collective.name, case.ranks, result.implementation, result.platform)
        test_of[key] = tests.get(number, ForeignTest())
        # Both places of a case stand side by side; a repetition becomes another row.
        seen[key, case] += 1
        row = replace(case, in_place=False), str(printed.get("row", seen[key, case]))
        rows_of.setdefault(key, {}).setdefault(row, [None, None])[case.in_place] = result
    return [Part(test_of[key], tuple(map(tuple, rows.values()))) for key, rows in rows_of.items()]


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
