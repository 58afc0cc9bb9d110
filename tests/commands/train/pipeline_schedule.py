"""Pipeline schedules: which stage computes which micro-batch when, by 1F1B, interleaved 1F1B and ZB-H1.

Each stage has a fixed order of tasks; a task begins once the stage is free and its inputs are there.  Communication is
not part of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
TASKS = (FORWARD, BACKWARD, WEIGHTS)

Task = tuple[str, int, int]  # kind, chunk, micro-batch


@dataclass(frozen=True)
class Pipeline:
    """What the timeline of a step's micro-batches follows from; seconds of one micro-batch in one stage."""

    stages: int
    chunks: int  # of a stage's layers
    micro_batches: int
    forward: float
    backward: float
    weights: float  # of `backward`: the part that nothing waits for, if the schedule moves it into the bubble, or 0


class Event(NamedTuple):
    """A task of a stage: when it begins, and how many seconds it takes."""

    stage: int
    chunk: int
    micro_batch: int
    kind: str  # one of TASKS
    start: float
    seconds: float

    @property
    def end(self) -> float:
        """Time at which the task is done."""
        return self.start + self.seconds


def events_of(pipeline: Pipeline) -> int:
    """Return the number of events of a pipeline's timeline."""
    return pipeline.stages * pipeline.chunks * pipeline.micro_batches * (3 if zero_bubble(pipeline) else 2)


def zero_bubble(pipeline: Pipeline) -> bool:
    """Return whether gradients of weights are moved into the bubble; interleaved stages do not do so."""
    return pipeline.weights > 0 and pipeline.chunks == 1


def schedule(pipeline: Pipeline) -> list[Event]:
    """Return all events, stage by stage, each stage's in time; interleaved stages take whole rounds of micro-batches.

    See `events_of` for how many events that are.
    """
    order = _interleaved if pipeline.chunks > 1 else _zero_bubble if zero_bubble(pipeline) else _one_by_one
    return _simulated(pipeline, [order(pipeline, stage) for stage in range(pipeline.stages)])


def makespan(events: Sequence[Event]) -> float:
    """Return the seconds until the last event is done."""
    return max(event.end for event in events)


def _one_by_one(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """Yield the tasks of 1F1B: forward until the last stage has work, then a forward and a backward in turn.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1.
    """
    first, count = pipeline.stages - 1 - stage, pipeline.micro_batches
    yield from ((FORWARD, 0, place) for place in range(min(first, count)))
    for place in range(count):
        if first + place < count:
            yield FORWARD, 0, first + place
        yield BACKWARD, 0, place


def _zero_bubble(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """Yield the tasks of ZB-H1: gradients of weights lag by as many micro-batches as there are stages before.

    So a stage keeps as many micro-batches as the first stage of 1F1B, and its lag fills the end.
    Source: Qi et al. 2023, arXiv:2401.10241, section 2.2.
    """
    for kind, chunk, place in _one_by_one(pipeline, stage):
        yield kind, chunk, place
        if kind == BACKWARD and place >= stage:
            yield WEIGHTS, 0, place - stage
    yield from ((WEIGHTS, 0, place) for place in range(max(0, pipeline.micro_batches - stage), pipeline.micro_batches))


def _interleaved(pipeline: Pipeline, stage: int) -> Iterator[Task]:
    """Yield the tasks in Megatron-LM's order: rounds of as many micro-batches as stages, chunk after chunk."""
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
    """Return chunks and micro-batches in the order of the forward pass, which is the same in every stage."""
    turns = range(0, micro_batches, stages)
    return [(chunk, turn + place) for turn in turns for chunk in range(chunks) for place in range(stages)]


def _simulated(pipeline: Pipeline, orders: Sequence[Iterator[Task]]) -> list[Event]:
    """Return the events of all stages: each is advanced as far as it can, until all are done."""
    stages, places = pipeline.stages, pipeline.stages * pipeline.chunks  # chunks of the model in its order
    count = pipeline.micro_batches
    apart = pipeline.weights if zero_bubble(pipeline) else 0.0
    takes = {
        FORWARD: pipeline.forward / pipeline.chunks,
        BACKWARD: (pipeline.backward - apart) / pipeline.chunks,
        WEIGHTS: apart,
    }
    # When each micro-batch has passed each chunk of each stage; infinite until that is known.
    forward, backward = ([[inf] * count for _ in range(places)] for _ in range(2))
    done = {FORWARD: forward, BACKWARD: backward, WEIGHTS: [[inf] * count] * places}
    needed = {FORWARD: [[0.0] * count, *forward[:-1]], BACKWARD: [*backward[1:], forward[-1]], WEIGHTS: backward}
    rows: list[list[Event]] = [[] for _ in orders]
    tasks = [next(order, None) for order in orders]
    waiting = list(range(stages))
    while waiting:
        before = sum(map(len, rows))
        for stage in waiting:
            task, row = tasks[stage], rows[stage]
            now = row[-1].end if row else 0.0
            while task:
                kind, chunk, one = task
                place = chunk * stages + stage
                start = max(now, needed[kind][place][one])
                if start == inf:
                    break
                done[kind][place][one] = now = start + takes[kind]
                row.append(Event(stage, chunk, one, kind, start, takes[kind]))
                task = next(orders[stage], None)
            tasks[stage] = task
        waiting = [stage for stage in reversed(waiting) if tasks[stage]]
        assert sum(map(len, rows)) > before, "stages that wait for each other"
    return [event for row in rows for event in row]
