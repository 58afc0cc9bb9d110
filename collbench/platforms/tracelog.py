"""Logs of traced kernels (kernels/trace.cuh), read from the ranks' windows."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from collbench.datatypes import Array
from collbench.results.collectives import ADDED, MOVED, PUBLISHED, WAITED, Span, Track

TRACED = "-DTRACED"  # the compiler's option for kernels that keep a log
FIFO = "trace"  # name of the logs' place in a window, among the FIFOs of implementations

_WORKED = "worked"
_PHASES = (WAITED, MOVED, ADDED, PUBLISHED, _WORKED)  # enum class Phase
_STAMPS = 2048
_BLOCKS = 64  # MAX_BLOCKS of kernels/world.cuh

LOG = np.dtype(
    {
        "names": ["nanoseconds", "ticks", "spent", "stamps", "stamp"],
        "formats": [
            (np.uint64, 2),
            (np.uint64, 2),
            (np.uint64, len(_PHASES)),
            np.uint64,
            (np.dtype([("ticks", np.uint64), ("phase", np.uint64)]), _STAMPS),
        ],
        "itemsize": -(-(8 * (2 + 2 + len(_PHASES) + 1) + 16 * _STAMPS) // 128) * 128,
    }
)
"""`struct Log` of kernels/trace.cuh."""

NBYTES = _BLOCKS * LOG.itemsize  # of a window

Logs = Mapping[int, Any]
"""By rank, the logs of its blocks: arrays of shape (blocks,), dtype LOG."""


def tracks(logs: Logs) -> list[Track]:
    """Return a track for each block that did something, with times in seconds by the clock that these ranks share.

    Ranks of several GPUs share no clock.
    """
    used = []
    for rank, blocks in logs.items():
        used += [(rank, block, log) for block, log in enumerate(blocks) if log["stamps"]]

    # One rate from all logs together: the common clock is too coarse for one call (a microsecond before Hopper).
    ticks = sum(_lasted(log["ticks"]) for _, _, log in used)
    nanoseconds = sum(_lasted(log["nanoseconds"]) for _, _, log in used)
    rate = 1e-9 * nanoseconds / ticks if ticks else 0.0
    return [_track(rank, block, log, rate) for rank, block, log in used]


def _track(rank: int, block: int, log: Any, rate: float) -> Track:
    phases = WAITED, MOVED, ADDED, PUBLISHED
    return Track(
        rank=rank,
        block=block,
        start=1e-9 * float(log["nanoseconds"][0]),
        seconds=rate * _lasted(log["ticks"]),
        spent={phase: rate * float(log["spent"][_PHASES.index(phase)]) for phase in phases},
        spans=tuple(_spans(log, rate)),
        lost=max(0, int(log["stamps"]) - _STAMPS),
    )


def _lasted(pair: Array) -> int:
    return int(pair[1]) - int(pair[0])


def _spans(log: Any, rate: float) -> Iterator[Span]:
    stamps = log["stamp"][: int(log["stamps"])]
    names = [_PHASES[int(phase)] for phase in stamps["phase"]]

    # Backwards: work whose kind the kernel did not log is of the kind of the next stamp of work.
    following = MOVED
    for index in reversed(range(len(names))):
        if names[index] == _WORKED:
            names[index] = following
        elif names[index] in (MOVED, ADDED):
            following = names[index]
    before, origin = int(log["ticks"][0]), int(log["ticks"][0])
    for name, now in zip(names, map(int, stamps["ticks"]), strict=True):
        yield Span(name, rate * (before - origin), rate * (now - before))
        before = now
