"""Runs made safe to calculate with: a run file may come from anywhere, and hold whatever JSON can.

What cannot be a time, a size or a text is set aside with the reason; no other module of the report meets it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from collbench.results import Note, Observed, Result
from collbench.runfile.header import Header
from collbench.runfile.store import NAME, Run
from collbench.units import visible

_MOST_UNREAD = 100  # rows of a file that are no results, which are shown
_LONGEST = 300  # characters of a text
_TEXTS = ("reason", "statistic", "algorithm", "protocol", "system")  # fields of results, as well as the note


@dataclass(frozen=True)
class SafeRun:
    """A run whose header and texts can be shown, with its usable results; the others with what is wrong with them."""

    label: str  # tells it from the other runs of the report
    run: Run
    odd: tuple[Result, ...]  # results that were checked, and not timed
    every: tuple[Result, ...]  # usable and odd results, in the file's order

    @property
    def unread(self) -> tuple[str, ...]:
        """Line and reason of rows that were no results at all, as many as can be looked at."""
        return self.run.left_out[:_MOST_UNREAD]

    @property
    def machine(self) -> str:
        """Name of the machine in the header."""
        return self.run.header.topology.name or "unknown topology"


def safe_text(value: object, longest: int = _LONGEST) -> str:
    """Return any value as text of one line: cut where it is long, without characters that no text should hold."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # integers of more digits than Python writes; nests too deep
        return "(not shown)"
    text = visible(" ".join(text[: 2 * longest].split()))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def safe_runs(runs: Sequence[Run]) -> list[SafeRun]:
    """Return the runs of a report, in its order, each under a label of its own.

    A label is the name of the folder, or of a file that is called otherwise; numbered where two are alike.
    """
    paths = [run.path.resolve() for run in runs]
    names = [safe_text(path.parent.name if path.name == NAME else path.stem, 60) or "run" for path in paths]
    found = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        label = f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        every = tuple(_safe_result(result) for result in run.results)
        observed = [row for row in every if isinstance(row, Observed)]
        odd = tuple(row for row in observed if not row.wrong and not any(row.times))
        unusable = set(map(id, odd))
        usable = tuple(result for result in every if id(result) not in unusable)
        found.append(SafeRun(label, replace(run, header=_safe_header(run.header), results=usable), odd, every))
    return found


def _safe_result(result: Result) -> Result:
    note = result.note
    changed: dict[str, Any] = {"implementation": safe_text(result.implementation, 60) or "(no name)"}
    for field in fields(result):
        if field.name in _TEXTS:
            changed[field.name] = safe_text(getattr(result, field.name))
        elif field.name == "note":
            remarks = Note.of(safe_text("; ".join(note.remarks))).remarks
            spin, picked = safe_text(note.spin, 60), safe_text(note.picked, 60)
            changed["note"] = replace(note, spin=spin, picked=picked, remarks=remarks)
    return replace(result, **changed)


def _safe_header(header: Header) -> Header:
    environment = replace(
        header.environment,
        host=safe_text(header.environment.host),
        system=safe_text(header.environment.system),
        versions=_safe_table(header.environment.versions),
        variables=_safe_table(header.environment.variables),
    )
    topology = replace(header.topology, name=safe_text(header.topology.name, 200))
    return replace(header, environment=environment, topology=topology)


def _safe_table(table: Mapping[Any, Any]) -> dict[str, str]:
    return {safe_text(key, 80): safe_text(value) for key, value in table.items()}
