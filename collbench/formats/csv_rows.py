"""A CSV file as rows by the names of its columns."""

import csv
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from collbench.errors import RunFileError
from collbench.formats.source import Source, clean

CsvRow = tuple[int, str, Mapping[str, str]]  # number, text and words of a line


@dataclass
class CsvTable:
    """The whole rows of a file, its header as it stands there, and why other lines are no rows."""

    header: str = ""
    rows: list[CsvRow] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def table(source: Source, needed: Collection[str], names_for: Callable[[list[str], list[str]], list[str]]) -> CsvTable:
    """A file's rows; `names_for(names, words)` may mend the header for a row.  RunFileError if a column is missing."""
    rows = CsvTable()
    names: list[str] = []
    for number, line in source.lines():
        if not line.strip():
            continue
        words = _words(line)
        if not names:
            names, rows.header = [word.strip().lower() for word in words], line
            missing = sorted(set(needed) - set(names))
            if missing:
                raise RunFileError(f"{source.name}:{number}: no column {', '.join(missing)}")
            continue
        columns = names_for(names, words)
        if len(words) != len(columns):
            rows.bad.append(f"line {number} has {len(words)} columns, not {len(columns)} ({clean(line, 40)!r})")
            continue
        rows.rows.append((number, line, dict(zip(columns, map(str.strip, words), strict=True))))
    if not rows.rows:
        raise RunFileError(f"{source.name}: no row with results")
    return rows


def _words(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
