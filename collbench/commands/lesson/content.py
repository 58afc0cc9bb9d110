"""Data of a lesson, from which its page and docs/lesson.md are made.

Texts are Markdown with all numbers filled in.  Times are in seconds, sizes in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HERE, PUBLISHED, MODEL = "measured here", "published", "model"
"""Sources of numbers."""
_ALTERED = 1.5  # the log alters an operation if the time with it is longer by this factor


@dataclass(frozen=True)
class Formula:
    """The terms of `steps x latency + bytes / bandwidth + rest` for one implementation at one size."""

    nbytes: int  # of the message
    steps: float  # messages one after the other
    moved: float  # bytes through the busiest link
    latency: float  # seconds of a step, of the machine
    bandwidth: float  # bytes/s, of the machine
    seconds: float  # measured

    @property
    def rest(self) -> float:
        """Seconds not explained by steps and bytes: launches, fences, waits, copies below the best bandwidth."""
        return max(0.0, self.seconds - self.steps * self.latency - self.moved / self.bandwidth)


@dataclass(frozen=True)
class Code:
    """Lines of a source file."""

    file: str  # "kernels/ring.cu"
    first: int  # number of the first line in the file
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """An action of a rank in a traced operation."""

    rank: int
    phase: str  # waited, moved, added, published
    start: float  # seconds since the operation began
    seconds: float
    words: str  # "waits for rank 1: its chunk 0 is to arrive", from the kernel's protocol
    sources: tuple[int, ...] = ()  # ranks that data or flags come from; of a wait, the awaited ranks
    targets: tuple[int, ...] = ()  # ranks that data or flags go to
    chunk: int | None = None  # moved or added chunk
    lines: tuple[int, ...] = ()  # lines of the shown code that run, counted from 0


@dataclass(frozen=True)
class Trace:
    """A traced operation as a list of events."""

    implementation: str
    nbytes: int
    ranks: int
    seconds: float  # of an operation without the log
    traced: float  # of an operation with the log, back to back
    events: tuple[Event, ...]

    @property
    def lasts(self) -> float:
        """Seconds from the first event to the end of the last."""
        return max((event.start + event.seconds for event in self.events), default=self.traced)

    @property
    def altered(self) -> str:
        """A warning if the log slows the operation much; else empty."""
        longer = self.traced / self.seconds
        warning = f"With the log they take {longer:.1f} times as long: the events are the same, their times are not."
        return warning if longer > _ALTERED else ""


Part = Mapping[str, Any]
"""An entry of the lesson's TOML files, with texts rendered and measurements, formulas and code added.

Every guess has `name`, `ask`, `choices`, `answer` (the index of the right choice), `because`, `source` and `command`;
perhaps `right`, the answer in words;
a screen has also `number`, `number_says`, `code`, `before`, `unchanged`, `formulas` and `trace`.
"""
Litmus = Mapping[str, Any]
"""A litmus test of breaks.json: a small program, and an execution that the PTX memory model allows."""


@dataclass(frozen=True)
class LessonMachine:
    """A modelled or measured machine."""

    name: str  # "DGX H100, replayed from a graph"
    source: str
    ranks: int
    latency: float  # seconds of a step
    bandwidth: float  # bytes/s of a link
    library: str
    curves: Mapping[str, Mapping[int, float]]  # seconds by implementation and size; the library's by its name
    run: str = ""  # that was measured there
    date: str = ""  # of the run
    shares: Mapping[str, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)  # by implementation and size


@dataclass(frozen=True)
class Content:
    """A whole lesson."""

    title: str
    intro: str
    machine: str  # the measured one
    measured: LessonMachine
    places: tuple[LessonMachine, ...]  # other machines, modelled or measured
    questions: tuple[Part, ...]  # which wins where
    screens: tuple[Part, ...]  # rungs of the ladder
    losing: tuple[Part, ...]  # reasons
    winning: tuple[Part, ...]
    breaks: tuple[Part, ...]  # changes that break a kernel, with outcomes
    chapters: tuple[Part, ...]  # about training steps
    sources: tuple[tuple[str, str], ...] = ()  # names and sources of published numbers
    constants_of: str = "here"  # machine of latency and bandwidth: "here", or "on ..."
    figures: Mapping[str, str] | None = None  # addresses of plots by name
    formula: str = ""  # the text before the draggable numbers
    here: str = ""  # the text on the measured numbers
    sheet: str = ""  # the cheat sheet
    training: str = ""  # the text before the chapters
    caution: str = ""  # a warning of disturbed or missing rows
