"""The CSV that the reporter of rccl-tests writes (-Z csv -x FILE), with MPI and without, older and newer."""

import re
from collections.abc import Iterator, Mapping, Sequence

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
from collbench.formats.source import CsvRow, CsvTable, Source, csv_table, whole
from collbench.results import by_key

NAME = "rccl"
NEEDED = {"collective", "size", "type", "time"}
STATISTIC = "mean of some operations, mean over ranks, unless -a said otherwise"


def recognises(source: Source) -> bool:
    """Whether the first line names its columns."""
    return set(source.first.lower().replace(" ", "").split(",")) >= NEEDED


def read(source: Source, hints: Hints) -> list[ImportedTest]:
    """Read the rows, a test for each number of ranks."""
    table, torn = _without_cut_rows(csv_table(_with_nodes(source), NEEDED)), source.torn
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
            version="CSV",
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


def _ranks(row: Mapping[str, str]) -> int | None:
    gpus, ranks = whole(row.get("gpus", "")), whole(row.get("ranks", ""))
    if ranks:
        ranks *= whole(row.get("gpusperrank", "")) or 1
    return gpus or ranks or None


def _rows(rows: Sequence[CsvRow]) -> Iterator[ForeignRow]:
    for at, (_, words) in enumerate(rows):
        in_place = words.get("inplace", "0").lower() in ("1", "true")
        yield row_of(words, number=at, collective=words["collective"], in_place=in_place)


FORMAT = Format(NAME, "CSV of the reporter of rccl-tests, -Z csv", recognises, read, order=0)
