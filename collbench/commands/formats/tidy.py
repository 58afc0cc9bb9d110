"""Tidy CSV in seconds and bytes, a row for each case and implementation."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.foreign_machine import ForeignMachine, require_ranks
from collbench.commands.formats.foreign_row import UnfitRow, make_case
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut
from collbench.commands.formats.importing import Exported, ExportSelection, Format, wrong_elements
from collbench.commands.formats.source import CsvRow, ForeignFile, csv_rows
from collbench.commands.formats.words import clean, count, seconds_of, whole
from collbench.present.columns import csv_text
from collbench.properties import PROPERTIES
from collbench.results import Prediction, Reported
from collbench.results.facts import note_of
from collbench.runfile.schema import record

CASE = ("collective", "ranks", "nbytes", "dtype", "redop", "root", "in_place")
COLUMNS = (
    *("topology", "implementation", "platform", *CASE),
    *("kind", "seconds", "low", "high", "statistic", "samples", "wrong", "algbw", "busbw", "note"),
    *("algorithm", "protocol", "channels", *(name for name in PROPERTIES if name not in CASE)),
)
NEEDED = {"implementation", *CASE, "seconds"}


def recognises(source: ForeignFile) -> bool:
    """Whether the first line has the columns of tidy CSV."""
    return set(source.first.lower().split(",")) >= NEEDED


def write(selection: ExportSelection) -> str:
    """Write a row for each result with a time or an error, and for each prediction."""
    rows = []
    for result in selection.results:
        fields = _fields(result) | {"topology": clean(selection.header.topology.name)}
        rows.append({name: fields.get(name) for name in COLUMNS})
    return csv_text(COLUMNS, rows)


def _fields(result: Exported) -> dict[str, Any]:
    """Return the fields of a row by column; a result that another tool found wrong keeps its time and rates."""
    fields: dict[str, Any] = dict.fromkeys(("seconds", "wrong", "algbw", "busbw"))
    fields["kind"] = type(result).__name__.lower()
    if isinstance(result, Prediction):
        fields["statistic"] = "expected by a model"
    else:
        fields["statistic"] = result.statistic if isinstance(result, Reported) else "median of the slowest rank"
        fields["wrong"] = wrong_elements(result)
    if isinstance(result, Prediction) or min(result.times, default=0) > 0:
        fields["seconds"] = result.seconds if isinstance(result, Reported) else result.typical
        if result.case.collective.sized:
            fields |= {"algbw": f"{result.algbw:.6g}", "busbw": f"{result.busbw:.6g}"}
    facts = record(result) | fields
    return facts | {name: int(facts[name]) for name in facts.keys() & PROPERTIES}


def read(source: ForeignFile, hints: Hints) -> Iterator[ImportedTest]:
    """Read the rows, with a test for each topology, platform and number of ranks; optional columns may be missing."""
    table, bad = csv_rows(source, NEEDED)
    by_machine: dict[ForeignMachine, list[CsvRow]] = {}
    for line_number, words in table:
        why = f"line {line_number} has no number of ranks"
        ranks = require_ranks(source.name, whole(words["ranks"]) or hints.ranks, why)
        platform = clean(words.get("platform") or "gpu", 16)
        name = clean(words.get("topology") or f"{ranks} ranks")
        machine = ForeignMachine(ranks=ranks, name=name, platform=platform)
        by_machine.setdefault(machine, []).append((line_number, words))

    for machine, rows in by_machine.items():
        left_out, bad = LeftOut(bad), []
        results = []
        for line_number, words in rows:
            try:
                results.append(_result(line_number, words, machine))
            except UnfitRow as error:
                left_out.add(str(error), line_number)
        yield ImportedTest(tool="csv", version="1", machine=machine, results=tuple(results), left_out=left_out.reasons)


def _result(line_number: int, words: Mapping[str, str], machine: ForeignMachine) -> Reported | Prediction:
    collective = COLLECTIVES.get(words["collective"])
    if collective is None:
        raise UnfitRow("its collective is unknown")
    kinds = words["dtype"], words["redop"], whole(words["root"]) or 0
    case = make_case(collective, whole(words["nbytes"]), *kinds, machine.ranks, in_place=False)
    case = replace(case, **{name: _property(words.get(name, ""), each.usual) for name, each in PROPERTIES.items()})
    name, note = clean(words["implementation"], 40), note_of(clean(words.get("note", "")))
    seconds = seconds_of(words["seconds"], 1.0)
    if words.get("kind") == "prediction":
        low, high = seconds_of(words.get("low", ""), 1.0), seconds_of(words.get("high", ""), 1.0)
        if not seconds or not low or not high:
            raise UnfitRow("a prediction without a band")
        algorithm, protocol = (clean(words.get(field, ""), 16) for field in ("algorithm", "protocol"))
        return Prediction(case, name, seconds, low, high, algorithm, protocol, machine.platform, note=note)
    statistic = clean(words.get("statistic") or "not said")
    wrong = count(words.get("wrong", ""))
    if not seconds and not wrong:
        raise UnfitRow(f"its time is not valid ({clean(words['seconds'], 20)!r})")
    return Reported(case, name, machine.platform, seconds, statistic, wrong, printed={"row": line_number}, note=note)


def _property(word: str, usual: Any) -> Any:
    return word.lower() == "true" or bool(whole(word)) if isinstance(usual, bool) else whole(word) or usual


FORMAT = Format("csv", recognises, read, write, order=1)
