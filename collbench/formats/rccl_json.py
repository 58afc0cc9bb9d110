"""The JSON that rccl-tests writes with its reporter (-Z json -x FILE): an object a line, now in a list."""

import json
from collections.abc import Iterator

from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.imported import Hints, Machine, Test
from collbench.formats.nccl_tests.loose_json import proper
from collbench.formats.rccl_rows import ReporterRow, reporter_tests
from collbench.formats.source import HEAD, Source, clean

NAME = "rccl-json"
COLUMNS = {"name": "collective", "wrong": "#wrong"}
NEEDED = {"collective", "size", "type", "time"}


def recognises(source: Source) -> bool:
    """By the words that only it has."""
    head = source.text[:HEAD].lstrip()
    return head.startswith(("{", "[")) and '"inPlace"' in head and '"busBw"' in head


def read(source: Source, hints: Hints) -> list[Test]:
    """Its rows, a test for each number of ranks."""
    rows: list[ReporterRow] = []
    bad: list[str] = []
    for number, text in _objects(source):
        row = _row(text)
        if row is None or not row.keys() >= NEEDED:
            bad.append(f"line {number} is no whole row ({clean(text, 40)!r})")
        else:
            rows.append((number, text, row))
    if not rows:
        raise RunFileError(f"{source.name}: JSON of the reporter of rccl-tests without a row of results")
    whole = source.text.rstrip().endswith(("}", "]")) and not bad
    kind = Test(
        format=NAME,
        tool="rccl-tests",
        version="JSON lines",
        file=source.file,
        machine=Machine(1, ""),
        results=(),
        complete=whole,
        remarks=() if whole else (f"incomplete: torn, {len(rows)} rows",),
    )
    return reporter_tests(source, hints, rows, bad, kind)


def _objects(source: Source) -> Iterator[tuple[int, str]]:
    """Every object's text with the number of its line; objects hold no others, so each ends at the first brace."""
    for number, line in source.lines():
        at = line.find("{")
        while at >= 0:
            end = line.find("}", at)
            yield number, line[at : end + 1 if end >= 0 else len(line)]
            at = line.find("{", end) if end >= 0 else -1


def _row(text: str) -> dict[str, str] | None:
    """Words by the names of the CSV's columns; None if it is no such object."""
    try:
        value = json.loads(proper(text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    named = {COLUMNS.get(name, name.lower()): word for name, word in value.items()}
    return {name: str(word) for name, word in named.items() if isinstance(word, str | int | float)}


FORMAT = Format(NAME, "JSON of the reporter of rccl-tests", recognises, read, order=0)
