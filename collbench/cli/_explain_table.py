"""Where the time of an operation goes, as lines of a table."""

from collbench.results import PARTS, Explanation
from collbench.units import format_seconds

LEGEND = (
    "time: median of one operation; the parts are shares of one of median length, the mean over the ranks\n"
    "waited: for another rank's flag or packet, or for the host; moved: bytes, without arithmetic; added: and moved\n"
    "what was added; published: barriers, fences and flags; launch: outside of all that\n"
    "tracing: what keeping the log added to the time"
)
_ROW = "{name:<16} {time:>9} {launch:>8} {waited:>8} {moved:>8} {added:>8} {published:>9} {tracing:>8}  {note}"


def heading() -> str:
    """The names of the columns."""
    names = {name: name for name in ("time", *PARTS, "tracing")}
    return _ROW.format(name="", **names, note="").rstrip()


def row(result: Explanation) -> str:
    """One explanation; a library shows its time alone."""
    parts = dict.fromkeys((*PARTS, "tracing"), "")
    note = "; ".join(filter(None, [result.check if result.disturbed else "", str(result.note)]))
    if result.tracks:
        parts = {part: f"{result.share(part):.0%}" for part in PARTS} | {"tracing": f"{result.overhead:+.0%}"}
    else:
        note = "; ".join(filter(None, ["a library cannot be looked into", note]))
    return _ROW.format(name=result.implementation, time=format_seconds(result.seconds), note=note, **parts).rstrip()
