"""What the spans of a traced operation mean, by the protocol of its kernel (assets/protocols.toml)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collbench.commands.lesson import table
from collbench.commands.lesson.content import Event, Trace
from collbench.results import Explanation
from collbench.results.collectives import WAITED, Span, Track
from collbench.units import format_list

_TIMES = {"once": 0, "ranks - 1": 1, "ranks - 2": 2}  # what is taken off the number of ranks
MOST_RANKS = 4  # whose rows fit a drawing

PROTOCOLS = table("protocols")
"""The stages of each protocol, and under `rungs` the protocol of each implementation."""
Meaning = tuple[Span, Mapping[str, Any], int]
"""A span, the part of a protocol that it is, and how often that part happened before."""


def trace(explanation: Explanation, lit: Mapping[str, tuple[int, ...]]) -> Trace | None:
    """Return the operation moment by moment, with the lines of code that run; None without tracks, or of many ranks."""
    case, tracks = explanation.case, {track.rank: track for track in reversed(explanation.tracks)}  # the first block's
    if not tracks or case.ranks > MOST_RANKS:
        return None
    events: list[Event] = []
    for rank in sorted(tracks):
        events += _events(explanation.implementation, tracks[rank], case.ranks, lit)
    seconds, traced = explanation.seconds, explanation.traced
    return Trace(explanation.implementation, case.nbytes, case.ranks, seconds, traced, tuple(events))


def _events(name: str, track: Track, ranks: int, lit: Mapping[str, tuple[int, ...]]) -> Iterator[Event]:
    rank, protocol = track.rank, PROTOCOLS["rungs"].get(name)
    named: dict[str, tuple[int, ...]] = {"next": ((rank + 1) % ranks,), "previous": ((rank - 1) % ranks,)}
    named["others"] = tuple(other for other in range(ranks) if other != rank)
    words = {who: format_list(others) for who, others in named.items()}
    for span, part, before in meanings(track.spans, PROTOCOLS[protocol] if protocol else (), rank, ranks):
        chunk = chunk_of(part, before, rank, ranks)
        sources, targets = (_joined(named, part.get(way, ())) for way in ("from", "to"))
        says, lines = part["says"].format(**words, chunk=chunk), lit.get(span.phase, ())
        yield Event(rank, span.phase, track.start + span.start, span.seconds, says, sources, targets, chunk, lines)


def chunk_of(part: Mapping[str, Any], before: int, rank: int, ranks: int) -> int | None:
    """Return the chunk that a part of a protocol is about, where that happened so often before."""
    return (rank + part["chunk"] - before) % ranks if "chunk" in part else None


def _joined(named: Mapping[str, tuple[int, ...]], words: Sequence[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(rank for word in words for rank in named[word]))


def meanings(spans: Sequence[Span], stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> list[Meaning]:
    """Return each span with what it is in a protocol; in one that it does not fit, with its phase alone."""
    found = _fitted(list(spans), stages, rank, ranks)
    if len(found) == len(spans):
        return found
    return [(span, {"says": PROTOCOLS["unknown"][span.phase]}, 0) for span in spans]


def _fitted(left: list[Span], stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> list[Meaning]:
    """Return the spans that follow the stages, from the first on."""
    found: list[Meaning] = []
    for part, spins, before in _expected(stages, rank, ranks):
        if not left or left[0].phase != part["phase"]:
            break
        found.append((left.pop(0), part, before))

        # A rank that finds no data waits in between, as often as that happens.
        while spins and len(left) > 1 and left[0].phase == WAITED and left[1].phase == part["phase"]:
            found += [(left.pop(0), spins, before), (left.pop(0), part, before)]
    return found


def _expected(stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> Iterator[tuple[Any, Any, int]]:
    """Yield the parts that a rank carries out in order, each with the wait that may interrupt it."""
    for stage in stages:
        off = _TIMES[stage.get("times", "once")]
        if stage.get("only", "") == ("others" if rank == 0 else "first"):
            continue
        for before in range(ranks - off if off else 1):
            for part in stage["parts"]:
                yield part, stage.get("spins"), before
