"""Pipeline schedules: which stage computes which micro-batch when, by 1F1B, interleaved 1F1B and ZB-H1.

Each stage has a fixed order of tasks; a task begins once the stage is free and its inputs are there.  Communication is
not part of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import NamedTuple

from collbench.planned import Pipeline

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
KINDS = (FORWARD, BACKWARD, WEIGHTS)
MOST = 2**20  # events of a timeline

Task = tuple[str, int, int]  # kind, chunk, micro-batch


class Event(NamedTuple):
    """A task of a stage: when it begins, and how long it takes."""

    stage: int
    chunk: int
    micro_batch: int
    kind: str  # one of KINDS
    start: float
    seconds: float

    @property
    def end(self) -> float:
        """When it is done."""
        return self.start + self.seconds


def events_of(pipeline: Pipeline) -> int:
    """How many events its timeline has."""
    return pipeline.stages * pipeline.chunks * pipeline.micro_batches * (3 if zero_bubble(pipeline) else 2)


def zero_bubble(pipeline: Pipeline) -> bool:
    """Whether gradients of weights are moved into the bubble; interleaved stages do not."""
    return pipeline.weights > 0 and pipeline.chunks == 1


def shortened(pipeline: Pipeline, micro_batches: int) -> Pipeline:
    """The same with at most so many micro-batches, at least twice as many as stages, and in whole rounds of them.

    What is left out repeats: a longer one begins and ends alike.
    """
    stages = pipeline.stages
    rounds = max(2, micro_batches // stages) * stages
    return replace(pipeline, micro_batches=min(pipeline.micro_batches, rounds))


def schedule(pipeline: Pipeline) -> list[Event]:
    """All events, stage by stage, each stage's in time; ValueError for a pipeline that cannot be run."""
    if events_of(pipeline) > MOST:
        raise ValueError(f"a timeline of more than {MOST:,} events")
    if pipeline.chunks > 1 and pipeline.micro_batches % pipeline.stages:
        raise ValueError("interleaved stages take whole rounds of micro-batches")
    order = _interleaved if pipeline.chunks > 1 else _zero_bubble if zero_bubble(pipeline) else _one_by_one
    return _simulated(pipeline, [order(pipeline, stage) for stage in range(pipeline.stages)])


def makespan(events: Sequence[Event]) -> float:
    """Seconds until the last one is done."""
    return max(event.end for event in events)


def _one_by_one(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """1F1B: forward until the last stage has work, then one forward, one backward (Narayanan et al. 2021, 2.2.1)."""
    first, count = pipeline.stages - 1 - stage, pipeline.micro_batches
    yield from ((FORWARD, 0, place) for place in range(min(first, count)))
    for place in range(count):
        if first + place < count:
            yield FORWARD, 0, first + place
        yield BACKWARD, 0, place


def _zero_bubble(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """ZB-H1 (Qi et al. 2023, section 2.2): gradients of weights lag behind by as many micro-batches as stages before.

    So a stage keeps as many micro-batches as the first of 1F1B, and its lag fills the end.
    """
    for kind, chunk, place in _one_by_one(pipeline, stage):
        yield kind, chunk, place
        if kind == BACKWARD and place >= stage:
            yield WEIGHTS, 0, place - stage
    yield from ((WEIGHTS, 0, place) for place in range(max(0, pipeline.micro_batches - stage), pipeline.micro_batches))


def _interleaved(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """The order of Megatron-LM: rounds of as many micro-batches as stages through one chunk after the other."""
    stages, chunks = pipeline.stages, pipeline.chunks
    dealt = _dealt(stages, chunks, pipeline.micro_batches)
    first = min(len(dealt), 2 * (stages - 1 - stage) + (chunks - 1) * stages)
    for chunk, one in dealt[:first]:
        yield FORWARD, chunk, one
    for number, (chunk, one) in enumerate(dealt):
        if first + number < len(dealt):
            yield FORWARD, *dealt[first + number]
        yield BACKWARD, chunks - 1 - chunk, one


@lru_cache(maxsize=1)
def _dealt(stages: int, chunks: int, micro_batches: int) -> list[tuple[int, int]]:
    """Chunks and micro-batches in the order of forward, which is that of every stage."""
    turns = range(0, micro_batches, stages)
    return [(chunk, turn + place) for turn in turns for chunk in range(chunks) for place in range(stages)]


def _simulated(pipeline: Pipeline, orders: Sequence[Iterator[Task]]) -> list[Event]:
    """Every stage as far as it comes, to and fro, as micro-batches go."""
    done = _Done(pipeline)
    rows: list[list[Event]] = [[] for _ in orders]
    tasks = [next(order, None) for order in orders]
    waiting = list(range(pipeline.stages))
    while waiting:
        before = sum(map(len, rows))
        for stage in waiting:
            tasks[stage] = done.advance(stage, tasks[stage], orders[stage], rows[stage])
        waiting = [stage for stage in reversed(waiting) if tasks[stage]]
        assert sum(map(len, rows)) > before, "stages that wait for each other"
    return [event for row in rows for event in row]


class _Done:
    """When each micro-batch has been through each chunk of each stage; infinite until it is known."""

    def __init__(self, pipeline: Pipeline) -> None:
        places = pipeline.stages * pipeline.chunks  # chunks of the model in its order
        self._stages, count = pipeline.stages, pipeline.micro_batches
        forward, backward = ([[inf] * count for _ in range(places)] for _ in range(2))
        self._done = {FORWARD: forward, BACKWARD: backward, WEIGHTS: [[inf] * count] * places}
        self._needed = {
            FORWARD: [[0.0] * count, *forward[:-1]],
            BACKWARD: [*backward[1:], forward[-1]],
            WEIGHTS: backward,
        }
        apart = pipeline.weights if zero_bubble(pipeline) else 0.0
        self._seconds = {
            FORWARD: pipeline.forward / pipeline.chunks,
            BACKWARD: (pipeline.backward - apart) / pipeline.chunks,
            WEIGHTS: apart,
        }

    def advance(self, stage: int, task: Task | None, order: Iterator[Task], row: list[Event]) -> Task | None:
        """Let a stage do this and what comes next, until something it needs is not there yet: that task."""
        now = row[-1].end if row else 0.0
        while task:
            kind, chunk, one = task
            place = chunk * self._stages + stage
            start = self._needed[kind][place][one]
            if start == inf:
                return task
            if start < now:
                start = now
            seconds = self._seconds[kind]
            self._done[kind][place][one] = now = start + seconds
            row.append(Event(stage, chunk, one, kind, start, seconds))
            task = next(order, None)
        return None
