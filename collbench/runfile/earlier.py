"""Lines of run files of format 1 and 2 as lines of today's.

History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
2  what was the text `note` of a row are fields; a header leaves out what is empty or not known
3  a row has objects `note` and `mismatch`, where it had their fields among its own; `check` is gone
"""

from typing import Any

from collbench.results import Note
from collbench.results.facts import note_of
from collbench.runfile.schema import KINDS

_NOTE = frozenset(Note.__struct_fields__)
_CHECK = frozenset(("check", "mismatch", "flaw", "note"))
_CHECKED = ("measurement", "steps", "training")


def upgraded(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of an earlier format as one of today's; ValueError where it is none of an earlier one either."""
    kind = line.get("kind")
    if kind == "header":
        return _header(line)
    if not isinstance(kind, str) or kind not in KINDS:
        return line
    row = {name: value for name, value in line.items() if name not in _NOTE | _CHECK}
    facts = {name: line[name] for name in line.keys() & _NOTE}
    if isinstance(line.get("note"), str):
        facts |= note_of(line["note"]).to_json()
    if facts:
        row["note"] = facts
    if kind in _CHECKED:
        row["mismatch"] = _mismatch(line)

    # Zero is what a clock too coarse for it gave.
    for name in ("floor", "barrier"):
        row[name] = row.get(name) or None
    if kind == "reported":
        row["wrong_elements"] = row.pop("wrong", None)
    return row


def _mismatch(line: dict[str, Any]) -> dict[str, Any] | None:
    """Return the check failure of a line: `flaw` was all of it, and `mismatch` what every reader knew."""
    if line.get("check") not in ("ok", "wrong"):
        raise ValueError("field 'check' is neither 'ok' nor 'wrong'")
    if line["check"] == "ok":
        return None

    # Format 2 has all of a failure in `flaw`; format 1 has the wrong element in `mismatch`.
    brief, whole = line.get("mismatch"), line.get("flaw") or {}
    if not isinstance(brief, dict) or not isinstance(whole, dict):
        raise ValueError("field 'mismatch' or 'flaw' is missing, or no object")
    return whole if whole.get("kind", "mismatch") != "mismatch" else {"kind": "mismatch", **brief, **whole}


def _header(line: dict[str, Any]) -> dict[str, Any]:
    """Return a header: versions were numbers for some tools, and two fields have other names now."""
    header = {name: value for name, value in line.items() if value is not None}
    versions = _at(header, "environment", "versions")
    versions.update({name: str(version) for name, version in versions.items()})
    sweep = _at(header, "sweep")
    sweep["requested"] = sweep.pop("asked", None) or {}
    tiers = _at(header, "topology", "system").get("tiers")
    for tier in tiers if isinstance(tiers, list) else ():
        if isinstance(tier, dict):
            tier["qps"] = tier.pop("flows", 1)
    return header


def _at(fields: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the object at a path; another one, which nobody keeps, where there is none."""
    for name in path:
        part = fields.get(name)
        fields = part if isinstance(part, dict) else {}
    return fields
