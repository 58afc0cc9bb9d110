"""The CSV of rccl-tests (-Z csv -x FILE), old and new, with and without MPI."""

import re
from collections.abc import Iterator, Mapping, Sequence

from collbench.commands.formats.foreign_machine import ForeignMachine, on_nodes, require_ranks
from collbench.commands.formats.foreign_row import ForeignRow, row_of
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut, make_test
from collbench.commands.formats.importing import Format
from collbench.commands.formats.source import CsvRow, ForeignFile, csv_rows
from collbench.commands.formats.words import whole
from collbench.results import by_key

NEEDED = {"collective", "size", "type", "time"}
STATISTIC = "mean of some operations, mean over ranks, unless -a said otherwise"


def recognises(source: ForeignFile) -> bool:
    """Whether the first line has the columns of rccl-tests."""
    return set(source.first.lower().replace(" ", "").split(",")) >= NEEDED


def read(source: ForeignFile, hints: Hints) -> Iterator[ImportedTest]:
    """Read the rows, with a test for each number of ranks."""
    table, bad = csv_rows(source, NEEDED, ended=True, header=_with_nodes)
    incomplete = (f"incomplete: cut after row {len(table)}",)
    why = "it does not tell the number of ranks"
    by_ranks = by_key(table, lambda row: require_ranks(source.name, _ranks(row[1]) or hints.ranks, why))
    for ranks, rows in by_ranks.items():
        left_out, bad = LeftOut(bad), []
        nodes = whole(rows[0][1].get("nodes", "")) or 0
        yield make_test(
            source.name,
            _rows(rows),
            ForeignMachine(ranks=ranks, name=f"{ranks} x AMD GPU{on_nodes(nodes)}", nodes=nodes),
            left_out,
            implementation="rccl",
            statistic=STATISTIC,
            tool="rccl-tests",
            version="CSV",
            complete=not source.torn,
            remarks=incomplete if source.torn else (),
        )


def _with_nodes(header: str) -> str:
    """Return the header with all columns: older versions with MPI omit `nodes` in the header only."""
    if "ranks" not in header.lower() or "nodes" in header.lower():
        return header
    return re.sub("collective", "collective,nodes", header, count=1, flags=re.IGNORECASE)


def _ranks(row: Mapping[str, str]) -> int | None:
    gpus, ranks = whole(row.get("gpus", "")), whole(row.get("ranks", ""))
    if ranks:
        ranks *= whole(row.get("gpusperrank", "")) or 1
    return gpus or ranks or None


def _rows(rows: Sequence[CsvRow]) -> Iterator[ForeignRow]:
    for at, (_, words) in enumerate(rows):
        yield row_of(words, number=at, in_place=words.get("inplace", "").lower() in ("1", "true"))


FORMAT = Format("rccl", recognises, read, order=0)
