"""Explanations as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source: "Trace Event Format", Google, 2016: complete events (ph X) with times in microseconds, and names (ph M) for
processes and threads.  A rank of an implementation is shown as a process, a block as its thread.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collbench.errors import StorageError, writing
from collbench.results import Explanation, StepTimes
from collbench.results.steps import COMMUNICATED
from collbench.units import format_size

_Span = tuple[int, int, str, str, str, float, float]
"""Rank, thread with its name, name and category of what it does, first second, and how many it takes."""


def write(results: Sequence[Explanation | StepTimes], path: Path) -> None:
    """Write explanations or traced steps into one file; StorageError if it cannot be written."""
    events: list[dict[str, Any]] = []
    names: dict[tuple[str, int, int], str] = {}
    for number, result in enumerate(results):
        title, more, spans = _of_explanation(result) if isinstance(result, Explanation) else _of_step(result)
        for rank, thread, track, name, category, start, seconds in spans:
            process = 1000 * number + rank
            names["process", process, 0] = f"{result.implementation} {title} rank {rank} {more}".rstrip()
            names["thread", process, thread] = track
            times = {"ts": round(start * 1e6, 4), "dur": round(seconds * 1e6, 4)}
            events.append({"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread} | times)
    for (kind, process, thread), name in names.items():
        events.append({"ph": "M", "name": f"{kind}_name", "pid": process, "tid": thread, "args": {"name": name}})
    with writing(path, "--out", StorageError):
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n", encoding="utf-8")


def _of_explanation(explanation: Explanation) -> tuple[str, str, list[_Span]]:
    case, spans = explanation.case, []
    for track in explanation.tracks:
        for span in track.spans:
            block = f"block {track.block}"
            start = track.start + span.start
            spans.append((track.rank, track.block, block, span.phase, "collective", start, span.seconds))
    return f"{case.collective.name} {format_size(case.nbytes)}", explanation.altered, spans


def _of_step(result: StepTimes) -> tuple[str, str, list[_Span]]:
    case, spans = result.case, []
    assert case.step
    for rank, what, bucket, start, seconds in result.activities:
        spans.append((rank, int(what == COMMUNICATED), what, f"bucket {bucket}", what, start, seconds))
    return f"{case.step.schedule} {format_size(case.nbytes)}", "", spans
