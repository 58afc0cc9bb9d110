"""A lesson's texts, as data: the page and docs/lesson.md are two forms of the same `Content`.

Texts are Markdown, in which every number is filled in already.  Times are seconds, sizes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HERE, PUBLISHED, MODEL = "measured here", "published", "model"
"""Where a number comes from."""
_ALTERED = 1.5  # times as long with its log, from which on an operation is another one than without


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
        """The seconds that steps and bytes do not explain: launches, fences, waits, copies below the best bandwidth."""
        return max(0.0, self.seconds - self.steps * self.latency - self.moved / self.bandwidth)


@dataclass(frozen=True)
class Code:
    """Lines of a kernel or of a module, as they stand in its file."""

    file: str  # "kernels/ring.cu"
    first: int  # number of the first line in the file
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """A rank's action in a stretch of a traced operation."""

    rank: int
    phase: str  # waited, moved, added, published
    start: float  # seconds since the operation began
    seconds: float
    words: str  # "waits for rank 1: its chunk 0 is to arrive"; as much as the kernel's protocol says
    sources: tuple[int, ...] = ()  # ranks that data or flags come from; of a wait, those that are waited for
    targets: tuple[int, ...] = ()  # ranks that data or flags go to
    chunk: int | None = None  # that is moved or added
    lines: tuple[int, ...] = ()  # of the code shown, counted from 0, that run meanwhile


@dataclass(frozen=True)
class Trace:
    """One real operation, moment by moment."""

    implementation: str
    nbytes: int
    ranks: int
    seconds: float  # that an operation usually takes
    traced: float  # that operations with their log take, one after the other
    events: tuple[Event, ...]

    @property
    def lasts(self) -> float:
        """The seconds from the first event to the end of the last one."""
        return max((event.start + event.seconds for event in self.events), default=self.traced)

    @property
    def altered(self) -> str:
        """The log's effect on the operation, where that is much; else nothing."""
        longer = self.traced / self.seconds
        words = f"With the log they take {longer:.1f} times as long: what happens is as it was, its times are not."
        return words if longer > _ALTERED else ""


Part = Mapping[str, Any]
"""An entry of the lesson's TOML files whose texts are said, with what was measured, computed or cut out beside them.

Every guess has `name`, `ask`, `choices`, `answer` (the index of the right choice), `because`, `source` and `command`;
a screen has also `number`, `number_says`, `code`, `before`, `unchanged`, `formulas` and `trace`.
"""
Litmus = Mapping[str, Any]
"""A small program, and an execution of it that the PTX memory model allows, as in breaks.json."""


@dataclass(frozen=True)
class LessonMachine:
    """A machine, as the model has it, or as it was measured."""

    name: str  # "DGX H100, replayed from a graph"
    source: str
    ranks: int
    latency: float  # seconds of a step
    bandwidth: float  # bytes/s of a link
    library: str
    curves: Mapping[str, Mapping[int, float]]  # seconds by implementation and size; the library's by its name
    run: str = ""  # that was measured there
    shares: Mapping[str, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)  # by implementation and size


@dataclass(frozen=True)
class Content:
    """A whole lesson."""

    title: str
    intro: str
    machine: str  # what was measured
    measured: LessonMachine  # ranks, library and curves of what was measured
    places: tuple[LessonMachine, ...]  # other machines, by the model or measured there
    questions: tuple[Part, ...]  # which wins where
    screens: tuple[Part, ...]  # rungs of the ladder: what changes, what that costs or saves
    losing: tuple[Part, ...]  # reasons
    winning: tuple[Part, ...]
    breaks: tuple[Part, ...]  # changes that break a kernel, and who noticed
    chapters: tuple[Part, ...]  # about training steps
    sources: tuple[tuple[str, str], ...] = ()  # of published numbers: name and where they stand
    constants_of: str = "here"  # where latency and bandwidth were measured: "here", or "on" another machine
    figures: Mapping[str, str] | None = None  # plots by name: the addresses of their pictures
    formula: str = ""  # the text before the numbers that can be dragged
    here: str = ""  # what to keep in mind of numbers that were measured here
    training: str = ""  # the text before the chapters
    caution: str = ""  # why numbers that were measured here may be off
