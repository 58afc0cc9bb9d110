"""Pictures of a failing call as lines of text: ranks over time, or the inputs in each rank's result.

A picture shows only what the run's data or the judge's own delays say.
"""

from collections.abc import Collection, Sequence
from typing import Any

_CELLS = {"missing": "missing", "untouched": "missing", "twice": "twice", "stale": "old", "ahead": "next"}
"""An input in a cell, by the explanation of a wrong result."""
_LEGEND = {"-": "not needed", "old": "of an earlier call", "next": "of the next call", "?": "not known"}


def hang(ended: Sequence[int], waits: Sequence[str]) -> tuple[str, ...]:
    """Return the picture of a call that does not end: by rank, the calls that it ended, and for whom it waits."""
    lanes = []
    for rank, (calls, whom) in enumerate(zip(ended, waits, strict=True)):
        lane, text = "[====?......" if whom else "[====", f"waits for {whom or 'a barrier, or for nothing'}"
        if calls > min(ended):
            lane, text = "[====]", "has ended the call"
        lanes.append(f"rank {rank}  {lane:12}  {text}")
    looks = "   ? looks for a number that does not come" if any(waits) else ""
    return (*lanes, f"time -->  [ ] the call{looks}")


_LANES = {  # of a kernel, and of a caller, by stage
    "together": ("|[====x======]|", "|......x......|"),
    "late": ("[====x=======]|", "....x[=======]|"),
    "early": ("|[=======x====]", "|[====]..x....."),
    "again": ("[====x========]", "==]..x..[======"),
}


def race(stage: str, sides: Sequence[tuple[int, str, str]]) -> tuple[str, ...]:
    """Return the picture of unordered accesses: the rank of the caller, or -1 for a kernel; the verb; the access."""
    lanes, called = [], any(rank >= 0 for rank, _, _ in sides)  # a rank's own caller and kernel follow each other
    for number, (rank, verb, does) in enumerate(sides):
        other = "another rank" if called else "another thread" if number else "a thread"
        name = f"rank {rank}" if rank >= 0 else other
        lanes.append(f"{name:15}{_LANES[stage][rank >= 0].replace('x', verb[0]):16} {verb[0]}: {does}")
    return (*lanes, "time -->  [ ] a call   | all ranks meet   nothing orders the two accesses")


def inputs(call: int, ended: Sequence[int], due: Collection[int], found: Sequence[Any]) -> tuple[str, ...]:
    """Return which ranks' inputs each result has in a call, counted from 0; nothing if that is not known.

    `ended` are the calls that each rank ended, `due` the ranks whose inputs a result should have, and `found` the first
    wrong result of each rank: in calls before it the rank is right.
    """
    if not any(result["call"] == call and result["why"] in _CELLS for result in found):
        return ()
    right = dict.fromkeys(range(len(ended)), "-") | dict.fromkeys(due, "ok")
    table = [dict(right) if calls > call else dict.fromkeys(right, "?") for calls in ended]
    for result in found:
        cells, why = table[result["rank"]], result["why"]
        if result["call"] < call or (result["call"] == call and why not in _CELLS):
            cells |= dict.fromkeys(cells, "?")
        elif result["call"] == call:
            unwritten = {*due} - ({result["rank"]} if result["in_place"] else set())
            cells |= dict.fromkeys(unwritten if why == "untouched" else result["ranks"], _CELLS[why])
            cells |= {extra: "twice" if extra in due else "instead" for extra in result["extra"]}
    lines = [f"{f'in call {call + 1}':10}" + "".join(f"{f'input {rank}':>10}" for rank in right)]
    for rank, cells in enumerate(table):
        lines.append(f"{f'rank {rank} has':10}" + "".join(f"{cell:>10}" for cell in cells.values()))
    legend = [f"{mark}: {text}" for mark, text in _LEGEND.items() if any(mark in cells.values() for cells in table)]
    return (*lines, "   ".join(legend)) if legend else tuple(lines)
