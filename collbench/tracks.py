"""What each rank does in an operation, moment by moment, and the phases that its time goes to."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

WAITED, MOVED, ADDED, PUBLISHED = "waited", "moved", "added", "published"
PHASES = (WAITED, MOVED, ADDED, PUBLISHED)
"""What a rank does in an operation: wait for another; move bytes; add, and move what is added; let others see it."""
LAUNCH = "launch"
PARTS = (LAUNCH, *PHASES)
"""Everything that an operation's time can go to."""


@dataclass(frozen=True)
class Span:
    """Part of a track: a phase, when it began after the track did, and how long it took; both in seconds."""

    phase: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Track:
    """What one block of a rank did in one operation (a host-driven rank has one block)."""

    rank: int
    block: int
    start: float  # seconds, by a clock that all ranks share
    seconds: float
    spent: Mapping[str, float]  # seconds by phase
    spans: tuple[Span, ...]  # in order
    lost: int = 0  # spans that found no room in the log; `spent` has them


def mean_spent(tracks: Iterable[Track], phase: str) -> float:
    """Seconds in a phase, the mean over the ranks' longest tracks: a result is waited for as long as they last."""
    longest = {track.rank: track for track in sorted(tracks, key=lambda track: track.seconds)}
    return fmean(track.spent[phase] for track in longest.values()) if longest else math.nan
