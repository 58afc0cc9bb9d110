"""What of a run goes into a file of another tool, sorted as such tools print it: a part for each of their tests."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeGuard

from collbench import __version__
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.results import Measurement, Observed, Prediction, Reported, Result
from collbench.runfile.header import ForeignTest, Header
from collbench.runfile.store import Run

Leave = Callable[[str], None]
"""Told the reason for every result that a format cannot hold."""
MOST_LISTED = 2**17  # ranks of all tests of a file, which list each of them
Exported = Measurement | Reported | Prediction


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, and the header of their run."""

    header: Header
    results: tuple[Exported, ...]
    leave: Leave


@dataclass(frozen=True)
class ExportLine:
    """A row of another tool's table: out of place and in place, of which one may be missing."""

    out: Observed | None = None
    inside: Observed | None = None

    @property
    def places(self) -> tuple[Observed | None, Observed | None]:
        """Both."""
        return self.out, self.inside

    @property
    def any(self) -> Observed:
        """The first that is there."""
        result = self.out or self.inside
        assert result
        return result

    @property
    def case(self) -> Case:
        """That of the row."""
        return self.any.case

    @property
    def printed(self) -> Mapping[str, Any]:
        """The row's own words, if it is a foreign one."""
        return self.any.printed if isinstance(self.any, Reported) else {}


@dataclass(frozen=True)
class Part:
    """One test: its rows in order, and what was noted of it if another tool ran it."""

    test: ForeignTest
    lines: tuple[ExportLine, ...]

    @property
    def iterations(self) -> int:
        """What each time is the mean of: as the other tool said, or the fewest samples."""
        said = self.test.sweep.get("iters")
        fewest = min(len(place.times) for line in self.lines for place in line.places if place)
        return said if isinstance(said, int) else fewest


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: run files may come from anywhere."""
    return value if isinstance(value, Mapping) else {}


def texts(value: object) -> list[str]:
    """The value if it is a list of lines, else none."""
    return [line for line in value if isinstance(line, str)] if isinstance(value, list) else []


def select(run: Run, implementation: str | None, mixed: bool, leave: Leave) -> ExportSelection:
    """The results of a run that can be written; UsageError if there is none, or an implementation must be named."""
    timed = [result for result in run.results if _writable(result, lambda reason: None)]
    names = list(dict.fromkeys(result.implementation for result in timed))
    if implementation is not None and implementation not in names:
        choices = ", ".join(names) or "none"
        raise UsageError(f"--impl {implementation}: no such results in {run.path}; choose from: {choices}")
    if implementation is None and len(names) > 1 and not mixed:
        raise UsageError(f"{run.path} has several implementations; choose one with --impl: {', '.join(names)}")
    if not timed:
        raise UsageError(f"nothing to export: {run.path} has no results with a time")
    wanted = (result for result in run.results if implementation in (None, result.implementation))
    return ExportSelection(run.header, tuple(result for result in wanted if _writable(result, leave)), leave)


def _writable(result: Result, leave: Leave) -> TypeGuard[Exported]:
    if isinstance(result, Measurement | Reported | Prediction):
        return True
    leave(f"{type(result).__name__.lower()} rows have no time")
    return False


def parts(selection: ExportSelection) -> list[Part]:
    """The results as tests of another tool: of one collective, implementation and number of ranks each.

    Rows of foreign tests come as those had them.  Predictions are left out: such files hold what was measured.
    """
    tests = selection.header.imported.tests
    lines: dict[object, dict[object, ExportLine]] = {}
    noted: dict[object, ForeignTest] = {}
    seen, room = Counter[object](), MOST_LISTED
    for result in selection.results:
        if isinstance(result, Prediction):
            selection.leave("predictions are not measured")
            continue
        key, row, test = _place(result, tests)
        needed = 0 if key in lines else result.case.ranks
        if needed > room:
            selection.leave(f"its ranks, of which each has a line, are more than {MOST_LISTED} with those before")
            continue
        room -= needed
        noted[key] = test
        _put(lines.setdefault(key, {}), row, result, seen)
    return [Part(noted[key], tuple(rows.values())) for key, rows in lines.items()]


def _place(result: Observed, tests: Sequence[ForeignTest]) -> tuple[object, object, ForeignTest]:
    """Which test and row a result belongs to."""
    case = result.case
    own = case.collective.name, case.ranks, result.implementation, result.platform
    printed = mapping(result.printed) if isinstance(result, Reported) else {}
    test, row = printed.get("test"), printed.get("row")
    if isinstance(test, int) and isinstance(row, int) and 0 <= test < len(tests):
        return (test, *own), row, tests[test]
    return own, replace(case, in_place=False), ForeignTest()


def _put(lines: dict[object, ExportLine], row: object, result: Observed, seen: Counter[object]) -> None:
    """Beside the other place of its row; a repetition becomes a row of its own."""
    name = "inside" if result.case.in_place else "out"
    counted = id(lines), row, name
    again = seen[counted]
    seen[counted] += 1
    lines[row, again] = replace(lines.get((row, again), ExportLine()), **{name: result})


def mean_seconds(result: Observed) -> float:
    """What these tools print: the mean; 0 where there is no time."""
    if isinstance(result, Reported):
        return result.seconds
    return fmean(result.times) if result.times else 0.0


def rates(result: Observed) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s by that mean, as these tools print it; the mean must not be 0."""
    algbw = result.case.nbytes / mean_seconds(result) / 1e9
    return algbw, algbw * result.case.collective.bus_factor(result.case.ranks)


def wrong_elements(result: Observed) -> int | None:
    """Wrong elements; None if nobody looked."""
    if isinstance(result, Measurement):
        return result.mismatch.wrong if result.mismatch else 0
    return result.wrong_elements if isinstance(result, Reported) else None


def other_figures(results: Iterable[Observed]) -> list[str]:
    """The comment that says which times are no means, though these tables have only those; an import heeds it."""
    kinds = dict.fromkeys(result.figure for result in results if isinstance(result, Reported) and not result.samples)
    others = [kind for kind in kinds if kind != "mean"]
    return [f"# collbench {__version__}: times are of the kind {' or '.join(others)}"] if others else []


def signature(result: Observed) -> str:
    """The comment that says whose results follow, since such tables have no word for it; an import heeds it."""
    return signed(result.implementation, result.platform, result.case.ranks)


def signed(implementation: str, platform: str, ranks: int) -> str:
    """The same of these."""
    return f"# collbench {__version__}: {implementation} on {platform}, {ranks} rank{'s' if ranks > 1 else ''}"
