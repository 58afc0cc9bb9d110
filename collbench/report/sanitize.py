"""Runs made safe to reckon with: a run file may come from anywhere, and hold whatever JSON can.

What cannot be a time, a size or a text is set aside with the reason; nothing behind this module meets it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from collbench.results import Note, Observed, Result
from collbench.runfile.header import Header
from collbench.runfile.store import NAME, Run
from collbench.units import visible

SHOWN = 100  # rows that are none
_TEXTS = ("reason", "statistic", "algorithm", "protocol", "system")  # of results, beside the note
LONGEST = 300  # characters of a text that are shown


@dataclass(frozen=True)
class Sound:
    """A run with a header that can be shown, its usable results, and the others with what is wrong with them."""

    label: str  # tells it from the other runs of the report
    run: Run
    odd: tuple[tuple[Result, str], ...]  # a time of zero, a size that no memory has: reason
    every: tuple[Result, ...]  # both, in the file's order

    @property
    def unread(self) -> tuple[str, ...]:
        """Line and reason of rows that were no results at all, as many as can be looked at."""
        return self.run.left_out[:SHOWN]

    @property
    def machine(self) -> str:
        """What the header calls it."""
        return self.run.header.topology.name or "unknown topology"


def plain(value: object, longest: int = LONGEST) -> str:
    """Text of any value on one line: cut where it is long, without what no text should hold."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # integers of more digits than Python writes; nests too deep
        return "(not shown)"
    text = visible(" ".join(text[: 2 * longest].split()))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def sound(runs: Sequence[Run]) -> list[Sound]:
    """The runs of a report, in its order, each under a label of its own."""
    labels = _labels(runs)
    return [_sound(run, label) for run, label in zip(runs, labels, strict=True)]


def _labels(runs: Sequence[Run]) -> list[str]:
    """The name of the folder, or of a file that is called otherwise; numbered where two are alike."""
    paths = [run.path.resolve() for run in runs]
    names = [plain(path.parent.name if path.name == NAME else path.stem, 60) or "run" for path in paths]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [f"{name} ({count})" if names.count(name) > 1 else name for name, count in zip(names, counts, strict=True)]


def _sound(run: Run, label: str) -> Sound:
    every = tuple(_shown(result) for result in run.results)
    odd = [(result, reason) for result in every if (reason := _unusable(result))]
    left = {id(result) for result, _ in odd}
    kept = tuple(result for result in every if id(result) not in left)
    return Sound(label, replace(run, header=_header(run.header), results=kept), tuple(odd), every)


def _unusable(result: Result) -> str:
    """Return why a result has no numbers to show; empty where it has, and where nobody expects any."""
    if not isinstance(result, Observed) or result.wrong or any(result.times):
        return ""
    return "it was checked, and not timed"


def _shown(result: Result) -> Result:
    """Return the result with texts that can be shown."""
    changed: dict[str, Any] = {"implementation": plain(result.implementation, 60) or "(no name)"}
    for field in fields(result):
        if field.name in _TEXTS:
            changed[field.name] = plain(getattr(result, field.name))
        elif field.name == "note":
            changed["note"] = _note(result.note)
    return replace(result, **changed)


def _note(note: Note) -> Note:
    remarks = Note.of(plain("; ".join(note.remarks)))
    return replace(note, spin=plain(note.spin, 60), picked=plain(note.picked, 60), remarks=()) | remarks


def _header(header: Header) -> Header:
    """With texts that can be shown."""
    said = header.environment
    versions, variables = (
        {plain(key, 80): plain(text) for key, text in part.items()} for part in (said.versions, said.variables)
    )
    environment = replace(
        said, host=plain(said.host), system=plain(said.system), versions=versions, variables=variables
    )
    return replace(
        header, environment=environment, topology=replace(header.topology, name=plain(header.topology.name, 200))
    )
