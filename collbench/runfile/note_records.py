"""The facts of a note as fields of a run file's row."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collbench.note import Note, Sharing


def note_fields(note: Note) -> dict[str, Any]:
    """The facts of a note, those that there are."""
    facts = asdict(note) | {"remarks": list(note.remarks)}
    return {name: value for name, value in facts.items() if value}


def to_note(fields: Mapping[str, Any]) -> Note:
    """The note of a row."""
    shared = fields.get("shared")
    return Note(
        shared=Sharing(int(shared["ranks"]), int(shared["gpus"]), bool(shared["processes"])) if shared else None,
        oversubscribed=bool(fields.get("oversubscribed")),
        spin=str(fields.get("spin", "")),
        picked=str(fields.get("picked", "")),
        remarks=tuple(str(remark) for remark in fields.get("remarks", ())),
        bound=bool(fields.get("bound")),
        paced=bool(fields.get("paced")),
    )
