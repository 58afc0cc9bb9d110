"""Timelines of pipelines: as long as their papers say, in an order that can be, and with as much in flight as fits."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.train.memory import in_flight
from tests.commands.train.pipeline_schedule import (
    BACKWARD,
    FORWARD,
    TASKS,
    WEIGHTS,
    Pipeline,
    events_of,
    makespan,
    schedule,
)

SECONDS = st.integers(1, 8).map(lambda eighths: eighths / 8)  # whole numbers of them add up exactly


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    stages, chunks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    micro_batches = draw(st.integers(1, 14)) if chunks == 1 else stages * draw(st.integers(1, 4))
    forward, inputs = draw(SECONDS), draw(SECONDS)
    weights = draw(st.one_of(st.just(0.0), SECONDS))
    return Pipeline(stages, chunks, micro_batches, forward * chunks, (inputs + weights) * chunks, weights * chunks)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(pipelines())
def test_every_stage_does_each_task_once_and_keeps_what_memory_is_reckoned_for(pipeline: Pipeline) -> None:
    """Forward, backward, and apart from it the weights' part in ZB-H1."""
    stages, chunks, count = pipeline.stages, pipeline.chunks, pipeline.micro_batches
    kinds = TASKS if pipeline.weights and chunks == 1 else TASKS[:2]
    rows = defaultdict(list)
    for event in sorted(schedule(pipeline), key=lambda event: event.start):
        rows[event.stage].append(event)
    assert sum(map(len, rows.values())) == events_of(pipeline)
    most = 0
    for row in rows.values():
        tasks = sorted((event.chunk, event.micro_batch, event.kind) for event in row)
        assert tasks == sorted(product(range(chunks), range(count), kinds))
        assert all(before.end <= after.start for before, after in pairwise(row))
        assert sum(event.seconds for event in row) == count * (pipeline.forward + pipeline.backward)
        kept = 0
        for event in row:
            kept += (event.kind == FORWARD) - (event.kind == (WEIGHTS if WEIGHTS in kinds else BACKWARD))
            most = max(most, kept)
    assert most / chunks == pytest.approx(min(float(in_flight(count, stages, chunks)), count))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pipelines())
def test_a_micro_batch_goes_through_all_chunks_of_all_stages_and_back(pipeline: Pipeline) -> None:
    """Chunk by chunk; backward after the last forward, gradients of weights after their backward."""
    stages, places = pipeline.stages, range(pipeline.stages * pipeline.chunks)
    when = {(event.kind, event.chunk * stages + event.stage, event.micro_batch): event for event in schedule(pipeline)}
    for one in range(pipeline.micro_batches):
        way = [when[FORWARD, place, one] for place in places]
        way += [when[BACKWARD, place, one] for place in reversed(places)]
        assert all(before.end <= after.start for before, after in pairwise(way))
        for place in places:
            weights = when.get((WEIGHTS, place, one))
            assert not weights or weights.start >= when[BACKWARD, place, one].end


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pipelines())
def test_1f1b_and_interleaved_take_what_their_paper_says(pipeline: Pipeline) -> None:
    """Narayanan et al. 2021: a bubble of (p - 1) / v micro-batches; and no schedule takes longer than 1F1B."""
    plain = replace(pipeline, weights=0.0)
    length = pipeline.micro_batches + (pipeline.stages - 1) / pipeline.chunks
    each_takes = pipeline.forward + pipeline.backward
    whole = schedule(pipeline)
    assert makespan(schedule(plain)) == pytest.approx(length * each_takes)
    assert makespan(whole) <= makespan(schedule(replace(plain, chunks=1))) + 1e-9


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(0, 20), SECONDS, SECONDS, SECONDS)
def test_zb_h1_takes_what_its_paper_says(stages: int, more: int, forward: float, inputs: float, weights: float) -> None:
    """Qi et al. 2023, table 1, where weights take no longer than the rest; and never longer than 1F1B."""
    count = stages + more
    length = makespan(schedule(Pipeline(stages, 1, count, forward, inputs + weights, weights)))
    work, bubble = count * (forward + inputs + weights), (stages - 1) * (forward + inputs - weights)
    if weights <= min(forward, inputs):
        assert length == pytest.approx(work + bubble)
    assert length <= work + (stages - 1) * (forward + inputs + weights)
