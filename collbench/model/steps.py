"""Seconds of a step on a described system: computing, waiting for the slowest GPU, and what the model says of the rest.

The waits are those of independent, normally distributed computing times: of n ranks the slowest is expected
PHI^-1((n - 3/8) / (n + 1/4)) standard deviations above the mean (G. Blom, 1958).
"""

from dataclasses import replace
from math import ceil
from statistics import NormalDist

from collbench.cases import Case
from collbench.errors import UsageError
from collbench.model.network.on_network import network_curve
from collbench.step_times import StepPrediction
from collbench.topology.system import System

NOISE = 0.0022
"""Standard deviation of computing times over their mean, from node to node of a healthy cluster of nine nodes."""


def on_ranks(system: System, ranks: int) -> System:
    """As much of the system, or as many of its nodes, as so many ranks need; UsageError if they fill no whole nodes."""
    if ranks <= system.gpus:
        return system.of(1).part(ranks) if system.nodes > 1 else system.part(ranks)
    if ranks % system.gpus:
        below = ranks // system.gpus * system.gpus
        raise UsageError(
            f"--ranks {ranks} fills no whole nodes of {system.name}, which have {system.gpus} GPUs; "
            f"give {below} or {below + system.gpus}"
        )
    return system.of(ceil(ranks / system.gpus))


def slowest(ranks: int, noise: float) -> float:
    """By how much the slowest of so many ranks is expected to compute longer than the mean, over the mean."""
    return noise * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def step_time(system: System, case: Case, implementation: str, noise: float = NOISE) -> StepPrediction:
    """A step on that many ranks of the system; Unsupported as `network_curve`.

    What lies behind each other adds up: all of the computing, then all of the collective.
    """
    assert case.step
    computing = case.step.seconds
    if case.ranks == 1:
        return StepPrediction(case, implementation, (computing, 0.0, 0.0), computing, computing)
    alone = network_curve(on_ranks(system, case.ranks), [replace(case, step=None)], implementation)[0]
    waiting = computing * slowest(case.ranks, noise)
    return StepPrediction(
        case,
        implementation,
        (computing, waiting, alone.seconds),
        low=computing + waiting + alone.low,
        high=computing + waiting + alone.high,
        algorithm=alone.algorithm,
        protocol=alone.protocol,
        note=alone.note,
    )
