"""What the steps of a described system have in common: its part, the wait for the slowest GPU, and contention.

The waits are those of independent, normally distributed computing times: of n ranks the slowest is expected
PHI^-1((n - 3/8) / (n + 1/4)) standard deviations above the mean (G. Blom, 1958).
"""

from math import ceil
from statistics import NormalDist

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
