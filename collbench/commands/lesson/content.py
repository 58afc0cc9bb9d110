"""What a lesson says, as data: page, slides and docs/lesson.md are three forms of the same `Content`.

Texts are Markdown, in which every number is filled in already.  Times are seconds, sizes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.runfile.store import Run

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
    """What a rank did in a stretch of a traced operation."""

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
        """What the log did to the operation, where that is much; else nothing."""
        longer = self.traced / self.seconds
        words = f"With the log they take {longer:.1f} times as long: what happens is as it was, its times are not."
        return words if longer > _ALTERED else ""


@dataclass(frozen=True)
class Question:
    """A guess to make before the answer is shown."""

    name: str  # unique on the page, [a-z0-9-]
    ask: str
    choices: tuple[str, ...]
    answer: int  # index of the right choice
    because: str  # shown after the guess
    source: str  # HERE, PUBLISHED or MODEL, with what: "model: DGX H100"
    command: str = ""  # that shows the number


@dataclass(frozen=True)
class Screen:
    """A rung of the ladder: what changes, what that costs or saves."""

    name: str  # of the implementation, which is the anchor too
    title: str
    idea: str
    number: str  # the figure to remember, "27x"
    number_says: str  # what that is: "as long as ring-flags at 8 B"
    command: str  # that shows it
    code: tuple[Code, ...]  # excerpts; lines of events count on from one to the next
    question: Question
    after: str  # shown after the guess
    formulas: tuple[Formula, ...] = ()  # at a small and at a large size; none where it was not measured
    trace: Trace | None = None  # none where it was not measured, such as rungs of GPUs only
    before: tuple[Code, ...] = ()  # lines of the rung before that the code takes the place of

    @property
    def unchanged(self) -> frozenset[str]:
        """Lines without indentation that stand in the code before and now."""
        before, now = ({line.strip() for part in parts for line in part.lines} for parts in (self.before, self.code))
        return frozenset(before & now)


Reason = Mapping[str, str]
"""Why hand-written synchronisation loses, or when it wins: name, title, text, number and source, as in lesson.toml."""
Litmus = Mapping[str, Any]
"""A small program, and an execution of it that the PTX memory model allows, as in breaks.json."""


@dataclass(frozen=True)
class Experiment:
    """A change of a kernel, with the implementation and ranks to try it with."""

    name: str
    title: str
    text: str
    change: str  # in a sentence
    file: str  # in kernels/
    old: str
    new: str
    rung: str
    ranks: int
    because: str
    noticed: str = ""  # said besides, if the check noticed
    missed: str = ""  # if it did not
    detected: str = ""  # if the race detector noticed
    stall: int = 0  # where a thread pauses for long, under the race detector


@dataclass(frozen=True)
class Break:
    """A change that breaks a kernel, and who noticed."""

    experiment: Experiment
    checker: str  # what the check of a sweep said, here
    races: str  # what the race detector said, here
    question: Question
    model: str  # what the memory model says
    litmus: Litmus


@dataclass(frozen=True)
class Chapter:
    """A chapter of the lesson about training steps: a guess and its answer."""

    name: str
    title: str
    idea: str
    question: Question
    after: str


@dataclass(frozen=True)
class Place:
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
    measured: Place  # ranks, library and curves of what was measured
    places: tuple[Place, ...]  # other machines, by the model or measured there
    questions: tuple[Question, ...]  # which wins where
    screens: tuple[Screen, ...]
    losing: tuple[Reason, ...]
    winning: tuple[Reason, ...]
    breaks: tuple[Break, ...]
    chapters: tuple[Chapter, ...]
    runs: tuple[Run, ...] = ()  # that the curves are of
    sources: tuple[tuple[str, str], ...] = ()  # of published numbers: name and where they stand
    constants_of: str = "here"  # where latency and bandwidth were measured: "here", or "on" another machine
    figures: Mapping[str, str] | None = None  # SVG by name, of plots
    formula: str = ""  # the text before the numbers that can be dragged
    here: str = ""  # what to keep in mind of numbers that were measured here
    training: str = ""  # the text before the chapters
    caution: str = ""  # why numbers that were measured here may be off
