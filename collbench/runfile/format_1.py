"""Run files of format 1: a row's note was one text, of which the facts are read here."""

import re
from typing import Any

from collbench.note import Note, Sharing
from collbench.runfile.note_records import note_fields

_SHARED = re.compile(r"(\d{1,9}) (ranks|processes) share (\d{1,9}) GPUs?")
_CORES = re.compile(r"(oversubscribed)?(?:, )?(?:--spin (\w+))?")


def upgraded(fields: dict[str, Any]) -> dict[str, Any]:
    """A line of format 1 as one of format 2."""
    if not isinstance(fields.get("note"), str):
        return fields
    return {name: value for name, value in fields.items() if name != "note"} | note_fields(note_of(fields["note"]))


def note_of(text: str) -> Note:
    """The note whose text this is; what no fact is recognised in stays a remark."""
    note = Note()
    for part in filter(None, text.split("; ")):
        note |= _fact(part)
    return note


def _fact(part: str) -> Note:
    if shared := _SHARED.fullmatch(part):
        return Note(shared=Sharing(int(shared[1]), int(shared[3]), shared[2] == "processes"))
    if cores := _CORES.fullmatch(part):
        return Note(oversubscribed=bool(cores[1]), spin=cores[2] or "")
    if part.startswith("picked "):
        return Note(picked=part.removeprefix("picked "))
    return Note.of(part)
