"""What of a run goes into a file of another tool, sorted as such tools print it: a part for each of their tests."""

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import fmean

from collbench.errors import UsageError
from collbench.results import Measurement, Observed, Prediction, Reported
from collbench.runfile.header import ForeignTest, Header
from collbench.runfile.store import Run

MOST_LISTED = 2**17  # ranks of a test, which lists each of them
Exported = Measurement | Reported | Prediction


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, the header of their run, and why rows are left out."""

    header: Header
    results: tuple[Exported, ...]
    left_out: Counter[str] = field(default_factory=Counter)  # rows by the reason, filled by the writer of the format


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

    @property
    def iterations(self) -> int:
        """What each time is the mean of: as the other tool said, or the fewest samples."""
        said = self.test.sweep.get("iters")
        return said if isinstance(said, int) else min(len(result.times) for result in self.results)


def select(run: Run, implementation: str | None, mixed: bool) -> ExportSelection:
    """Choose the results of one or all implementations; `mixed` says whether the format can hold several.

    Raises:
        UsageError: There are no such results, or an implementation must be named.

    """
    timed = [result for result in run.results if isinstance(result, Exported)]
    names = list(dict.fromkeys(result.implementation for result in timed))
    if implementation is not None and implementation not in names:
        choices = ", ".join(names) or "none"
        raise UsageError(f"--impl {implementation}: no such results in {run.path}; choose from: {choices}")
    if implementation is None and len(names) > 1 and not mixed:
        raise UsageError(f"{run.path} has several implementations; choose one with --impl: {', '.join(names)}")
    if not timed:
        raise UsageError(f"nothing to export: {run.path} has no results with a time")
    requested = [result for result in run.results if implementation in (None, result.implementation)]
    selection = ExportSelection(run.header, tuple(result for result in requested if isinstance(result, Exported)))
    for result in requested:
        if not isinstance(result, Exported):
            selection.left_out[f"{type(result).__name__.lower()} rows have no time"] += 1
    return selection


def parts(selection: ExportSelection) -> list[Part]:
    """Return the results as tests of another tool: of one collective, implementation and number of ranks each.

    Rows of foreign tests come as those tests had them.  Predictions are left out: such files hold what was measured.
    """
    tests = selection.header.imported.tests
    lines: dict[object, dict[object, list[Observed | None]]] = {}
    test_of: dict[object, ForeignTest] = {}
    seen = Counter[object]()
    for result in selection.results:
        if isinstance(result, Prediction):
            selection.left_out["predictions are not measured"] += 1
            continue
        case = result.case
        if case.ranks > MOST_LISTED:
            selection.left_out[f"its ranks, of which each has a line, are more than {MOST_LISTED}"] += 1
            continue
        test = ForeignTest()
        row: object = replace(case, in_place=False)
        key: tuple[object, ...] = (case.collective.name, case.ranks, result.implementation, result.platform)
        printed = result.printed if isinstance(result, Reported) else {}
        test_number, row_number = printed.get("test"), printed.get("row")
        if isinstance(test_number, int) and isinstance(row_number, int) and 0 <= test_number < len(tests):
            key, row, test = (test_number, *key), row_number, tests[test_number]
        test_of[key] = test
        # Both places of a row stand side by side; a repetition becomes another row.
        repetition = seen[key, row, case.in_place]
        seen[key, row, case.in_place] += 1
        places = lines.setdefault(key, {}).setdefault((row, repetition), [None, None])
        places[case.in_place] = result
    return [Part(test_of[key], tuple(map(tuple, rows.values()))) for key, rows in lines.items()]


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
