"""Tracks of explanations as they stand in a run file, and on the wire between supervisor and workers."""

from dataclasses import asdict
from typing import Any

from collbench.runfile.fields import duration, whole
from collbench.tracks import PHASES, Span, Track


def track_fields(track: Track) -> dict[str, Any]:
    """Times in seconds, to a tenth of a nanosecond: the clocks are no finer, and a file of digits is no use."""
    spans = [[span.phase, round(span.start, 10), round(span.seconds, 10)] for span in track.spans]
    return asdict(track) | {"spans": spans}


def to_track(fields: dict[str, Any]) -> Track:
    """A track of a line; KeyError, TypeError or ValueError if it is none."""
    return Track(
        rank=whole(fields, "rank"),
        block=whole(fields, "block"),
        start=float(fields["start"]),
        seconds=duration(fields, "seconds"),
        spent={phase: float(fields["spent"][phase]) for phase in PHASES},
        spans=tuple(Span(str(phase), float(start), float(length)) for phase, start, length in fields["spans"]),
        lost=int(fields.get("lost", 0)),
    )
