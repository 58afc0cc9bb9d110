"""What the reporter of rccl-tests writes (-x FILE): CSV (-Z csv), and JSON (-Z json) as an object a line or a list.

CSV comes with MPI and without, older and newer; objects have the same columns under other names.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.imported import (
    ForeignRow,
    Hints,
    ImportedTest,
    LeftOut,
    Machine,
    make_test,
    require_ranks,
    row_of,
)
from collbench.formats.nccl_tests_json import proper_json
from collbench.formats.source import HEAD, CsvRow, CsvTable, Source, clean, csv_table, whole
from collbench.results import by_key

NAME = "rccl"
NEEDED = {"collective", "size", "type", "time"}
CSV_NAMES = {"name": "collective", "wrong": "#wrong"}  # of the names in JSON
OBJECT = re.compile(r"\{[^}]*\}?")  # they hold no others; a torn one reaches to the end of the line
STATISTIC = "mean of some operations, mean over ranks, unless -a said otherwise"


def recognises(source: Source) -> bool:
    """Whether it has the columns of the CSV, or the names of the JSON."""
    return _is_json(source) or set(source.first.lower().replace(" ", "").split(",")) >= NEEDED


def _is_json(source: Source) -> bool:
    head = source.text[:HEAD].lstrip()
    return head.startswith(("{", "[")) and '"inPlace"' in head and '"busBw"' in head


def read(source: Source, hints: Hints) -> list[ImportedTest]:
    """Read the rows, a test for each number of ranks."""
    if _is_json(source):
        table = _json_table(source)
        torn = bool(table.bad) or not source.text.rstrip().endswith(("}", "]"))
    else:
        table = _without_cut_rows(csv_table(_with_nodes(source), NEEDED))
        torn = source.torn
    why = "it does not tell the number of ranks"
    by_ranks = by_key(table.rows, lambda row: require_ranks(source.name, _ranks(row[1]) or hints.ranks, why))
    tests: list[ImportedTest] = []
    for ranks, rows in by_ranks.items():
        left_out = LeftOut(() if tests else table.bad)
        nodes = whole(rows[0][1].get("nodes", ""))
        name = f"{ranks} x AMD GPU" + (f" on {nodes} nodes" if nodes and nodes > 1 else "")
        machine = Machine(ranks, name, nodes=nodes)
        test = make_test(
            source.name,
            _rows(rows),
            machine,
            left_out,
            implementation="rccl",
            statistic=STATISTIC,
            tool="rccl-tests",
            version="JSON lines" if _is_json(source) else "CSV",
            complete=not torn,
            remarks=(f"incomplete: torn after row {len(table.rows)}",) if torn else (),
        )
        tests.append(test)
    return tests


def _with_nodes(source: Source) -> Source:
    """Return the file with every column named: older versions with MPI leave `nodes` out of the header alone."""
    if "ranks" not in source.first.lower() or "nodes" in source.first.lower():
        return source
    return Source(source.name, re.sub("collective", "collective,nodes", source.text, count=1, flags=re.IGNORECASE))


def _without_cut_rows(table: CsvTable) -> CsvTable:
    """Return the table with those rows among the bad ones that end before their last word, which is never empty."""
    rows = [row for row in table.rows if row[1].get("#wrong") != ""]
    cut = [f"line {line_number} ends in a comma" for line_number, words in table.rows if words.get("#wrong") == ""]
    return CsvTable(rows, table.bad + cut)


def _json_table(source: Source) -> CsvTable:
    """Read the JSON as rows of the CSV."""
    table = CsvTable()
    for line_number, line in source.lines():
        for text in OBJECT.findall(line):
            row = _row(text)
            if row.keys() >= NEEDED:
                table.rows.append((line_number, row))
            else:
                table.bad.append(f"line {line_number} is no whole row ({clean(text, 40)!r})")
    if not table.rows:
        raise RunFileError(f"{source.name}: JSON of the reporter of rccl-tests without a row of results")
    return table


def _row(text: str) -> Mapping[str, str]:
    """Return the words of an object by the names of the CSV's columns; none of a torn one."""
    try:
        value = json.loads(proper_json(text))
    except (ValueError, RecursionError):
        return {}
    words = {CSV_NAMES.get(name, name.lower()): word for name, word in value.items()}
    return {name: str(word) for name, word in words.items() if isinstance(word, str | int | float)}


def _ranks(row: Mapping[str, str]) -> int | None:
    gpus, ranks = whole(row.get("gpus", "")), whole(row.get("ranks", ""))
    if ranks:
        ranks *= whole(row.get("gpusperrank", "")) or 1
    return gpus or ranks or None


def _rows(rows: Sequence[CsvRow]) -> Iterator[ForeignRow]:
    for at, (_, words) in enumerate(rows):
        in_place = words.get("inplace", "0").lower() in ("1", "true")
        yield row_of(words, number=at, collective=words["collective"], in_place=in_place)


FORMAT = Format(NAME, "CSV and JSON of the reporter of rccl-tests", recognises, read, order=0)
