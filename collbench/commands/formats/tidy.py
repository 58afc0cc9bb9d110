"""Our tidy CSV: a row for each case and implementation, in seconds and bytes, for notebooks and spreadsheets."""

from collections.abc import Mapping
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.exported import Exported, ExportSelection, wrong_elements
from collbench.commands.formats.imported import (
    ForeignMachine,
    Hints,
    ImportedTest,
    LeftOut,
    UnfitRow,
    make_case,
    require_ranks,
)
from collbench.commands.formats.registry import Format
from collbench.commands.formats.source import CsvRow, ForeignFile, clean, count, csv_table, seconds_of, whole
from collbench.present.columns import csv_text
from collbench.results import Measurement, Prediction, Reported
from collbench.results.facts import note_of
from collbench.runfile.flat import record

NAME = "csv"
CASE = ("collective", "ranks", "nbytes", "dtype", "redop", "root", "in_place")
COLUMNS = (
    *("topology", "implementation", "platform", *CASE),
    *("kind", "seconds", "low", "high", "statistic", "samples", "wrong", "algbw", "busbw", "note"),
)
NEEDED = {"implementation", *CASE, "seconds"}


def recognises(source: ForeignFile) -> bool:
    """Whether the first line has the names of its columns."""
    return set(source.first.lower().split(",")) >= NEEDED


def write(selection: ExportSelection) -> str:
    """Write every result with a time or a wrong one, predictions too, a row each."""
    topology = clean(selection.header.topology.name)
    records = ({"topology": topology} | _fields(result) for result in selection.results)
    return csv_text(COLUMNS, ({name: record[name] for name in COLUMNS} for record in records))


def _fields(result: Exported) -> dict[str, Any]:
    """Return what stands in the columns; a time and rates also of a row that another tool found wrong."""
    timed = isinstance(result, Prediction) or min(result.times, default=0) > 0
    wrong = None if isinstance(result, Prediction) else wrong_elements(result)
    rated = timed and result.case.collective.sized
    return record(result) | {
        "in_place": int(result.case.in_place),
        "kind": type(result).__name__.lower(),
        "seconds": (result.seconds if isinstance(result, Reported) else result.typical) if timed else None,
        "statistic": _statistic(result),
        "wrong": wrong,
        "algbw": f"{result.algbw:.6g}" if rated else None,
        "busbw": f"{result.busbw:.6g}" if rated else None,
    }


def _statistic(result: Exported) -> str:
    if isinstance(result, Prediction):
        return "expected by a model"
    return "median of the slowest rank" if isinstance(result, Measurement) else result.statistic


def read(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read the rows, a test for each topology, platform and number of ranks; missing optional columns are empty."""
    table = csv_table(source, NEEDED)
    by_machine: dict[tuple[str, str, int], list[CsvRow]] = {}
    for line_number, words in table.rows:
        why = f"line {line_number} has no number of ranks"
        ranks = require_ranks(source.name, whole(words["ranks"]) or hints.ranks, why)
        platform = clean(words.get("platform") or "gpu", 16)
        name = clean(words.get("topology") or f"{ranks} ranks")
        by_machine.setdefault((name, platform, ranks), []).append((line_number, words))
    tests: list[ImportedTest] = []
    for (name, platform, ranks), rows in by_machine.items():
        left_out = LeftOut(() if tests else table.bad)
        results = []
        for line_number, words in rows:
            try:
                results.append(_result(line_number, words, platform, ranks))
            except UnfitRow as error:
                left_out.add(str(error), line_number)
        tests.append(
            ImportedTest(
                tool="csv",
                version="1",
                machine=ForeignMachine(ranks=ranks, name=name, platform=platform),
                results=tuple(results),
                left_out=left_out.reasons,
            )
        )
    return tests


def _result(line_number: int, words: Mapping[str, str], platform: str, ranks: int) -> Reported | Prediction:
    collective = COLLECTIVES.get(words["collective"])
    if collective is None:
        raise UnfitRow("its collective is not known")
    root, in_place = whole(words["root"]) or 0, words["in_place"].lower() in ("1", "true")
    case = make_case(collective, whole(words["nbytes"]), words["dtype"], words["redop"], root, ranks, in_place)
    name, note = clean(words["implementation"], 40), note_of(clean(words.get("note", "")))
    seconds = seconds_of(words["seconds"], 1.0)
    if words.get("kind") == "prediction":
        low, high = seconds_of(words.get("low", ""), 1.0), seconds_of(words.get("high", ""), 1.0)
        if not seconds or not low or not high:
            raise UnfitRow("a prediction without its band")
        return Prediction(case, name, seconds, low, high, note=note, platform=platform)
    statistic = clean(words.get("statistic") or "not said")
    wrong = count(words.get("wrong", ""))
    if not seconds and not wrong:
        raise UnfitRow(f"its time is none of an operation ({clean(words['seconds'], 20)!r})")
    return Reported(case, name, platform, seconds, statistic, wrong, printed={"row": line_number}, note=note)


FORMAT = Format(NAME, "tidy CSV of collbench", recognises, read, write, order=1)
