"""Our own tidy CSV: a row for each case and implementation, in seconds and bytes, for notebooks and spreadsheets."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.formats import Format
from collbench.formats.csv_rows import CsvRow, table
from collbench.formats.exported import Exported, ExportSelection, wrong_elements
from collbench.formats.imported import Hints, Machine, Rows, Test, UnfitRow, make_case, said_ranks
from collbench.formats.source import LASTING, SHORTEST, Source, clean, count, exact, number
from collbench.host.sanitize import cell
from collbench.results import Measurement, Prediction, Reported
from collbench.runfile.earlier import note_of
from collbench.runfile.header import ForeignTest

NAME = "csv"
CASE = ("collective", "ranks", "nbytes", "dtype", "redop", "root", "in_place")
COLUMNS = (
    *("topology", "implementation", "platform", *CASE),
    *("kind", "seconds", "low", "high", "statistic", "samples", "wrong", "algbw", "busbw", "note"),
)
NEEDED = {"implementation", *CASE, "seconds"}


def recognises(source: Source) -> bool:
    """By the names of its columns."""
    return set(source.first.lower().split(",")) >= NEEDED


def write(selection: ExportSelection) -> str:
    """Every result with a time or a wrong one, predictions too, a row each."""
    text, name = io.StringIO(), clean(selection.header.topology.name)
    rows = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    rows.writeheader()
    tests = selection.header.imported.tests
    for result in selection.results:
        own = _line(result, tests)
        if own:
            text.write(_spread(own) + "\n")
        else:
            rows.writerow({field: cell(word) for field, word in (_fields(result) | {"topology": name}).items()})
    return text.getvalue()


def _spread(line: str) -> str:
    """A row as it was, unless a spreadsheet would reckon with its words."""
    words = next(csv.reader([line]), [])
    safe = [cell(word) for word in words]
    if safe == words:
        return line
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(safe)
    return text.getvalue()


def _line(result: Exported, tests: Sequence[ForeignTest]) -> str:
    """The row that such a file had, if its columns are these; else nothing."""
    printed = result.printed if isinstance(result, Reported) else {}
    test = printed.get("test")
    of = tests[test] if isinstance(test, int) and 0 <= test < len(tests) else ForeignTest()
    alike = of.format == NAME and of.layout.get("header") == ",".join(COLUMNS)
    return str(printed.get("line", "")) if alike else ""


def _fields(result: Exported) -> dict[str, Any]:
    case = result.case
    timed = isinstance(result, Prediction) or min(result.times, default=0) > 0
    low, high = result.band if timed else (float("nan"), float("nan"))
    elements = None if isinstance(result, Prediction) else wrong_elements(result)
    return {
        "implementation": result.implementation,
        "platform": result.platform,
        "collective": case.collective.name,
        "ranks": case.ranks,
        "nbytes": case.nbytes,
        "dtype": case.dtype.name,
        "redop": case.redop.name,
        "root": case.root,
        "in_place": int(case.in_place),
        "kind": type(result).__name__.lower(),
        "seconds": repr(result.seconds if isinstance(result, Reported) else result.typical) if timed else "",
        "low": repr(low) if low == low else "",
        "high": repr(high) if high == high else "",
        "statistic": _statistic(result),
        "samples": "" if isinstance(result, Prediction) else len(result.times),
        "wrong": "" if elements is None else elements,
        "algbw": f"{result.algbw:.6g}" if timed and case.collective.sized else "",
        "busbw": f"{result.busbw:.6g}" if timed and case.collective.sized else "",
        "note": str(result.note),
    }


def _statistic(result: Exported) -> str:
    if isinstance(result, Prediction):
        return "expected by a model"
    return "median of the slowest rank" if isinstance(result, Measurement) else result.statistic


def read(source: Source, hints: Hints) -> list[Test]:
    """Its rows, a test for each topology, platform and number of ranks; missing optional columns are as empty."""
    whole = table(source, NEEDED, lambda names, words: names)
    tests: dict[tuple[str, str, int], list[CsvRow]] = {}
    for row in whole.rows:
        words = row[2]
        ranks = said_ranks(hints, exact(words["ranks"]), source.name, f"line {row[0]} has no number of ranks")
        platform = clean(words.get("platform") or "gpu", 16)
        tests.setdefault((clean(words.get("topology") or f"{ranks} ranks"), platform, ranks), []).append(row)
    made: list[Test] = []
    for (name, platform, ranks), rows in tests.items():
        kept = Rows()
        for reason in whole.bad if not made else ():
            kept.leave(reason)
        for at, row in enumerate(rows):
            kept.add(_result(at, row, platform, ranks))
        made.append(
            Test(
                format=NAME,
                tool="csv",
                version="1",
                file=source.file,
                machine=Machine(ranks, name, platform),
                results=tuple(kept.results),
                layout={"header": whole.header},
                left_out=kept.left_out,
            )
        )
    return made


def _result(at: int, row: CsvRow, platform: str, ranks: int) -> Iterator[Reported | Prediction]:
    _, line, words = row
    collective, nbytes, root = COLLECTIVES.get(words["collective"]), exact(words["nbytes"]), exact(words["root"])
    if collective is None or nbytes is None:
        raise UnfitRow("its collective or size is not known")
    place = words["in_place"].lower() in ("1", "true")
    case = make_case(collective, nbytes, words["dtype"], words["redop"], root or 0, ranks, place)
    name, note = clean(words["implementation"], 40), note_of(clean(words.get("note", "")))
    seconds, low, high = (_time(words.get(name, "")) for name in ("seconds", "low", "high"))
    if words.get("kind") == "prediction":
        if not seconds or not low or not high:
            raise UnfitRow("a prediction without its band")
        yield Prediction(case, name, seconds, low, high, note=note, platform=platform)
        return
    said = clean(words.get("statistic") or "not said")
    printed = {"row": at, "line": line}
    yield Reported(case, name, platform, seconds, said, count(words.get("wrong", "")), printed=printed, note=note)


def _time(word: str) -> float:
    value = number(word)
    return value if value is not None and SHORTEST <= value <= LASTING else 0.0


FORMAT = Format(NAME, "tidy CSV of collbench", recognises, read, write, mixed=True, order=1)
