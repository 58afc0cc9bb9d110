"""Whether the ranks of a row had their cores, as it stands in a run file."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collbench.runfile.fields import duration, whole
from collbench.scheduling import Scheduling


def scheduling_fields(scheduling: Scheduling | None) -> dict[str, Any]:
    """Return the field `scheduling` of a row; no field where nobody looked."""
    return {"scheduling": asdict(scheduling)} if scheduling else {}


def to_scheduling(fields: Mapping[str, Any]) -> Scheduling | None:
    """Return the scheduling of a row; KeyError, TypeError or ValueError if the field is malformed."""
    found = fields.get("scheduling")
    if not found:
        return None
    cores = tuple(tuple(int(core) for core in own) for own in found["cores"])
    return Scheduling(duration(found, "off_core"), whole(found, "repeated"), whole(found, "switches"), cores)
