"""Explanations as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source: "Trace Event Format", Google, 2016: complete events (ph X) with times in microseconds, and names (ph M) for
processes and threads.  A rank of an implementation is shown as a process, a block as its thread.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collbench.errors import StorageError
from collbench.results import COMMUNICATED, COMPUTED, Explanation, StepTimes, Track
from collbench.units import format_size


def write(explanations: Sequence[Explanation], path: Path) -> None:
    """Write all tracks into one file; StorageError if it cannot be written."""
    _write([event for number, one in enumerate(explanations) for event in _events(one, 1000 * number)], path)


def write_steps(results: Sequence[StepTimes], path: Path) -> None:
    """The same of steps that were looked at closely: a rank is a process, with a track for what it does."""
    _write([event for number, result in enumerate(results) for event in _step_events(result, 1000 * number)], path)


def _write(events: Sequence[dict[str, Any]], path: Path) -> None:
    try:
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; choose another --out") from None


def _events(explanation: Explanation, first: int) -> Iterator[dict[str, Any]]:
    case = explanation.case
    what = f"{explanation.implementation} {case.collective.name} {format_size(case.nbytes)}"
    for rank in sorted({track.rank for track in explanation.tracks}):
        yield _name("process", first + rank, 0, f"{what} rank {rank}")
    for track in explanation.tracks:
        yield _name("thread", first + track.rank, track.block, f"block {track.block}")
        yield from _spans(track, first + track.rank)


def _step_events(result: StepTimes, first: int) -> Iterator[dict[str, Any]]:
    case, threads = result.case, {COMPUTED: 0, COMMUNICATED: 1}
    assert case.step
    what = f"{result.implementation} {case.step.schedule} {format_size(case.nbytes)}"
    for rank in sorted({activity.rank for activity in result.activities}):
        yield _name("process", first + rank, 0, f"{what} rank {rank}")
        for name, thread in threads.items():
            yield _name("thread", first + rank, thread, name)
    for activity in result.activities:
        yield {
            "ph": "X",
            "name": f"bucket {activity.bucket}",
            "cat": activity.what,
            "pid": first + activity.rank,
            "tid": threads[activity.what],
            "ts": round(activity.start * 1e6, 4),
            "dur": round(activity.seconds * 1e6, 4),
        }


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{kind}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _spans(track: Track, process: int) -> Iterator[dict[str, Any]]:
    for span in track.spans:
        yield {
            "ph": "X",
            "name": span.phase,
            "cat": "collective",
            "pid": process,
            "tid": track.block,
            "ts": round((track.start + span.start) * 1e6, 4),
            "dur": round(span.seconds * 1e6, 4),
        }
