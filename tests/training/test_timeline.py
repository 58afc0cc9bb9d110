"""Timelines of pipelines: as long as their papers say, in an order that can be, and with as much in flight as fits."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.planned import Pipeline
from collbench.training.footprint import in_flight
from collbench.training.timeline import (
    BACKWARD,
    FORWARD,
    KINDS,
    WEIGHTS,
    Event,
    events_of,
    makespan,
    schedule,
    shortened,
)

SECONDS = st.integers(1, 8).map(lambda eighths: eighths / 8)  # whole numbers of them add up exactly


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Of every schedule, small."""
    stages, chunks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    micro_batches = draw(st.integers(1, 14)) if chunks == 1 else stages * draw(st.integers(1, 4))
    forward, inputs = draw(SECONDS), draw(SECONDS)
    weights = draw(st.one_of(st.just(0.0), SECONDS))
    return Pipeline(stages, chunks, micro_batches, forward * chunks, (inputs + weights) * chunks, weights * chunks)


def by_stage(events: list[Event]) -> dict[int, list[Event]]:
    """In time."""
    rows = defaultdict(list)
    for event in events:
        rows[event.stage].append(event)
    return {stage: sorted(row, key=lambda event: event.start) for stage, row in rows.items()}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pipelines())
def test_every_task_is_done_once_by_its_stage_and_no_two_at_once(pipeline: Pipeline) -> None:
    """Forward, backward, and apart from it the weights' part in ZB-H1."""
    events = schedule(pipeline)
    kinds = KINDS if pipeline.weights and pipeline.chunks == 1 else KINDS[:2]
    tasks = {(event.stage, event.chunk, event.micro_batch, event.kind) for event in events}
    assert tasks == {
        (stage, chunk, one, kind)
        for stage in range(pipeline.stages)
        for chunk in range(pipeline.chunks)
        for one in range(pipeline.micro_batches)
        for kind in kinds
    }
    assert len(events) == len(tasks) == events_of(pipeline)
    for row in by_stage(events).values():
        assert all(before.end <= after.start for before, after in pairwise(row))
        assert sum(event.seconds for event in row) == pipeline.micro_batches * (pipeline.forward + pipeline.backward)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pipelines())
def test_a_micro_batch_goes_through_all_chunks_of_all_stages_and_back(pipeline: Pipeline) -> None:
    """Chunk by chunk; backward after the last forward, gradients of weights after their backward."""
    when = {
        (event.kind, event.chunk * pipeline.stages + event.stage, event.micro_batch): event
        for event in schedule(pipeline)
    }
    last = pipeline.stages * pipeline.chunks - 1
    for one in range(pipeline.micro_batches):
        way = [when[FORWARD, place, one] for place in range(last + 1)]
        way += [when[BACKWARD, place, one] for place in range(last, -1, -1)]
        assert all(before.end <= after.start for before, after in pairwise(way))
        for place in range(last + 1):
            weights = when.get((WEIGHTS, place, one))
            assert not weights or weights.start >= when[BACKWARD, place, one].end


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pipelines())
def test_1f1b_and_interleaved_take_what_their_paper_says(pipeline: Pipeline) -> None:
    """Narayanan et al. 2021: a bubble of (p - 1) / v micro-batches; and no schedule takes longer than 1F1B."""
    plain = replace(pipeline, weights=0.0)
    length = pipeline.micro_batches + (pipeline.stages - 1) / pipeline.chunks
    assert makespan(schedule(plain)) == pytest.approx(length * (pipeline.forward + pipeline.backward))
    assert makespan(schedule(pipeline)) <= makespan(schedule(replace(plain, chunks=1))) + 1e-9


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(0, 20), SECONDS, SECONDS, SECONDS)
def test_zb_h1_takes_what_its_paper_says(stages: int, more: int, forward: float, inputs: float, weights: float) -> None:
    """Qi et al. 2023, table 1, where weights take no longer than the rest; and never longer than 1F1B."""
    count = stages + more
    length = makespan(schedule(Pipeline(stages, 1, count, forward, inputs + weights, weights)))
    work, bubble = count * (forward + inputs + weights), (stages - 1) * (forward + inputs - weights)
    if weights <= min(forward, inputs):
        assert length == pytest.approx(work + bubble)
    assert length <= work + (stages - 1) * (forward + inputs + weights)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pipelines())
def test_as_many_micro_batches_are_in_flight_as_the_memory_is_reckoned_for(pipeline: Pipeline) -> None:
    events = schedule(pipeline)
    kinds = {event.kind for event in events}
    leaving = WEIGHTS if WEIGHTS in kinds else BACKWARD
    most = 0
    for row in by_stage(events).values():
        kept = 0
        for event in row:
            kept += (event.kind == FORWARD) - (event.kind == leaving)
            most = max(most, kept)
    reckoned = float(in_flight(pipeline.micro_batches, pipeline.stages, pipeline.chunks))
    assert most / pipeline.chunks == pytest.approx(min(reckoned, pipeline.micro_batches))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pipelines(), st.integers(1, 40))
def test_a_shortened_timeline_begins_and_ends_alike(pipeline: Pipeline, count: int) -> None:
    """So what is left out of a picture repeats."""
    short = shortened(pipeline, count)
    assert short.micro_batches <= max(count, 2 * pipeline.stages)
    whole, part = makespan(schedule(pipeline)), makespan(schedule(short))
    each_takes = pipeline.forward + pipeline.backward
    assert whole - part == pytest.approx((pipeline.micro_batches - short.micro_batches) * each_takes)
    start = {event[:4]: event.start for event in schedule(pipeline) if event.start < pipeline.forward * 2}
    same = {event[:4]: event.start for event in schedule(short) if event.start < pipeline.forward * 2}
    assert start == same or short.micro_batches < pipeline.micro_batches < 2 * pipeline.stages


def test_what_cannot_be_run_is_refused() -> None:
    """Too many events, and half a round."""
    with pytest.raises(ValueError, match="more than"):
        schedule(Pipeline(2**20, 1, 2, 1.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="whole rounds"):
        schedule(Pipeline(4, 2, 6, 1.0, 1.0, 0.0))
