"""Lines of earlier formats as today's: in format 1, the note of a row was a text, of which the facts are read here."""

import re
from typing import Any

import msgspec

from collbench.results import Note
from collbench.results.facts import Sharing

_SHARED = re.compile(r"(\d{1,9}) (ranks|processes) share (\d{1,9}) GPUs?")
_CORES = re.compile(r"(oversubscribed)?(?:, )?(?:--spin (\w+))?")


def upgraded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a line of format 1 as a line of format 2."""
    if not isinstance(fields.get("note"), str):
        return fields
    facts = msgspec.to_builtins(note_of(fields["note"]))
    others = {name: value for name, value in fields.items() if name != "note"}
    return others | {name: value for name, value in facts.items() if value}


def note_of(text: str) -> Note:
    """Return the note with this text; a part in which no fact is recognised becomes a remark."""
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
