"""Seconds of a step on a described system: computing, waiting for the slowest GPU, and communication by the model.

The waits are those of independent, normally distributed computing times: of n ranks the slowest is expected
PHI^-1((n - 3/8) / (n + 1/4)) standard deviations above the mean (G. Blom, 1958).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from statistics import NormalDist

from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, Case
from collbench.model.predict import network_curve
from collbench.results import StepPrediction
from collbench.topology.system import System

NOISE = 0.0022
"""Standard deviation of computing times over their mean, from node to node of a healthy cluster of nine nodes."""

CONTENTION = 0.075
"""How much longer computing takes while a GPU communicates: Calculon's `processor_usage` lies between 0.02 and 0.15."""


def on_ranks(system: System, ranks: int) -> System:
    """Return as much of the system, or as many of its nodes, as so many ranks need; UsageError for parts of nodes."""
    return system.of(ceil(ranks / system.gpus)).part(ranks)


def slowest(ranks: int, noise: float) -> float:
    """Return by how much the slowest of so many ranks is expected to compute longer than the mean, over the mean."""
    return noise * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def step_time(system: System, case: Case, implementation: str, noise: float = NOISE) -> StepPrediction:
    """Return a step on as many ranks of the system, by the schedule of the case's step.

    Parts that follow each other add up.  Where buckets overlap, a bucket goes out once it is computed and the bucket
    before has arrived, and computing meanwhile takes CONTENTION longer.  Unsupported where the model does not know the
    collective.
    """
    assert case.step
    schedule, computing = case.step.schedule, case.step.seconds
    if case.ranks == 1 or schedule == COMPUTE:
        return StepPrediction(case, implementation, (computing, 0.0, 0.0), computing, computing)
    alone = [replace(part, step=None) for _, part in case.buckets()]
    buckets = network_curve(on_ranks(system, case.ranks), alone, implementation)
    waiting = 0.0 if schedule == COMMUNICATE else computing * slowest(case.ranks, noise)
    expected = _parts(schedule, computing, [bucket.seconds for bucket in buckets])
    return StepPrediction(
        case,
        implementation,
        (expected[0], waiting, expected[1]),
        low=sum(_parts(schedule, computing, [bucket.low for bucket in buckets])) + waiting,
        high=sum(_parts(schedule, computing, [bucket.high for bucket in buckets])) + waiting,
        algorithm=buckets[0].algorithm,
        protocol=buckets[0].protocol,
        note=buckets[0].note,
    )


def _parts(schedule: str, computing: float, buckets: Sequence[float]) -> tuple[float, float]:
    """Return the seconds of computing, and of communicating after that; *buckets* are the seconds of each alone."""
    if schedule == COMMUNICATE:
        return 0.0, sum(buckets)
    if schedule == SEQUENTIAL:
        return computing, sum(buckets)
    # Only what is communicated while there is something to compute slows it: all buckets but the last, at most.
    slowed = computing + CONTENTION * min(computing, sum(buckets[:-1]))
    end = 0.0
    for place, seconds in enumerate(buckets, 1):
        end = max(end, slowed * place / len(buckets)) + seconds
    return slowed, end - slowed
