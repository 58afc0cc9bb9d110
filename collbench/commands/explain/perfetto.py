"""Explanations as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.

Source: "Trace Event Format", Google, 2016: complete events (ph X) with times in microseconds, and names (ph M) for
processes and threads.  A rank of an implementation is shown as a process, a block as its thread.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collbench.errors import StorageError, writing
from collbench.results import Explanation
from collbench.units import format_size


def write(explanations: Sequence[Explanation], path: Path) -> None:
    """Write explanations into one file; StorageError if it cannot be written."""
    events: list[dict[str, Any]] = []
    for number, explanation in enumerate(explanations):
        events += _events_of(explanation, 1000 * number)
    with writing(path, "--out", StorageError):
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n", encoding="utf-8")


def _events_of(explanation: Explanation, first_process: int) -> Iterator[dict[str, Any]]:
    case = explanation.case
    operation = f"{explanation.implementation} {case.collective.name} {format_size(case.nbytes)}"
    for rank in sorted({track.rank for track in explanation.tracks}):
        yield _named("process", first_process + rank, 0, f"{operation} rank {rank} {explanation.altered}".rstrip())
    for track in explanation.tracks:
        process = first_process + track.rank
        yield _named("thread", process, track.block, f"block {track.block}")
        for span in track.spans:
            yield _complete(span.phase, "collective", (process, track.block), track.start + span.start, span.seconds)


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{kind}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _complete(name: str, category: str, track: tuple[int, int], start: float, seconds: float) -> dict[str, Any]:
    """Return a complete event; `track` is its process and its thread, times are in seconds."""
    process, thread = track
    times = {"ts": round(start * 1e6, 4), "dur": round(seconds * 1e6, 4)}
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread} | times
