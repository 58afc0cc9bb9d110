"""Writes tables of the OSU Micro-Benchmarks."""

from collections.abc import Iterator

from collbench.cases import Case
from collbench.formats.exported import (
    ExportLine,
    ExportSelection,
    Part,
    mean_seconds,
    other_figures,
    parts,
    signature,
    texts,
)
from collbench.formats.osu_tests import MEASURED, NAMES, TIMES, OsuKind
from collbench.results import Observed

NAME = "osu"


def write(selection: ExportSelection) -> str:
    """A table for each collective, type and number of ranks; times are means, in microseconds."""
    lines: list[str] = []
    for part in parts(selection):
        lines += _own(part) if part.test.format == NAME else _made(part, selection)
    return "\n".join(lines) + "\n"


def _own(part: Part) -> Iterator[str]:
    yield ""
    yield from texts(part.test.layout.get("before"))
    yield from (str(line.printed.get("line", "")) for line in part.lines)


def _made(part: Part, selection: ExportSelection) -> Iterator[str]:
    """Nothing for a collective without such a test; such rows are left out."""
    groups: dict[tuple[str, str, int], list[Observed]] = {}
    for line in part.lines:
        result = _held(line, selection)
        if result:
            case = result.case
            groups.setdefault((case.dtype.name, case.redop.name, case.root), []).append(result)
    for results in groups.values():
        yield from _table(MEASURED[results[0].case.collective.name], results)


def _held(line: ExportLine, selection: ExportSelection) -> Observed | None:
    """What such a table can hold of a row: out of place, summed, from the first root, with a time."""
    if line.inside:
        selection.leave("OSU has no results in place")
    result = line.out
    if result is None:
        return None
    case, kind = result.case, MEASURED.get(result.case.collective.name)
    reasons = {
        f"OSU has no {case.collective.name}": kind is None,
        "OSU has no other operation than sum": case.collective.reduces and case.redop.name != "sum",
        "OSU has no other root than 0": case.root != 0,
        "no time": mean_seconds(result) <= 0,
        "not as many bytes for each rank": kind is not None and case.nbytes % kind.messages(case.ranks) != 0,
    }
    for reason, holds in reasons.items():
        if holds:
            selection.leave(reason)
            return None
    return result


def _table(kind: OsuKind, results: list[Observed]) -> Iterator[str]:
    first, spread = results[0], all(len(result.times) > 1 for result in results)
    yield ""
    yield signature(first)
    yield from other_figures(results)
    yield from opening(kind, first.implementation == "nccl", first.case, spread)
    for result in results:
        yield row(kind, result, spread)


def opening(kind: OsuKind, nccl: bool, case: Case, spread: bool) -> Iterator[str]:
    """The lines above the rows; a spread has the fastest and the slowest sample beside the mean."""
    yield f"# OSU {'NCCL-CUDA' if nccl else 'MPI'} {kind.title} Test v7.4"
    if line := kind.preamble(case.ranks):
        yield line
    yield f"# Datatype: {NAMES.get(case.dtype.name, case.dtype.name.upper())}."
    columns = TIMES if spread and kind.timed else kind.columns
    first = f"{'# Size':<10}{columns[0]:>20}" if kind.measured.sized else f"# {columns[0]}"
    yield first + "".join(f"{name:>20}" for name in columns[1:])


def row(kind: OsuKind, result: Observed, spread: bool) -> str:
    """A row of such a table: the mean, since that is what OSU prints."""
    figures = kind.figures(result, mean_seconds(result))
    if spread and kind.timed:
        figures += [f"{seconds * 1e6:.2f}" for seconds in (min(result.times), max(result.times))]
    size = result.case.nbytes // kind.messages(result.case.ranks)
    first = f"{size:<10d}{figures[0]:>20}" if kind.measured.sized else f"{figures[0]:>17}"
    return first + "".join(f"{figure:>20}" for figure in figures[1:])
