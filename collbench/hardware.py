"""The constants of the model of costs: one record a kind of hardware.

They are for telling implementations apart, which ratios decide.  None knows the size of a cache: at messages of many
MiB a CPU is half as fast as told here, with every implementation alike.
"""

import math
from dataclasses import replace

from collbench.cost import Hardware, Wait

_CPU = Hardware(
    launch=0.0,  # part of the waits: operations follow each other inside one call into C
    waits={Wait.HOST: 3.70e-6, Wait.FLAG: 76.8e-9, Wait.PACKET: 77.1e-9, Wait.BARRIER: 57.7e-9},
    memory=36.6e9,
    packets=1.737e9,
)
"""Least squares of the relative errors over all hand-written rows of results/cpu-2-ranks, as tests/test_cost.py has it:
two cores of an AMD EPYC that share a cache."""

_TURN = 21.2
"""How much longer a wait takes where ranks share cores, and the awaited one must first get its turn: a hop of
`ring-flags` in results/cpu-4-ranks-yield against the one above."""

_HOPPER = Hardware(
    launch=3.9e-6,
    waits={Wait.HOST: 20e-6, Wait.EVENT: 6e-6, Wait.FLAG: 3.4e-6, Wait.PACKET: 0.6e-6, Wait.BARRIER: 1.95e-6},
    link=370e9,
    memory=4.3e12,
    packets=141e9,
    block=65 * 2**30,
)
"""Published figures for H100 and H200 with NVLink; not measured here.

A flag's and a packet's hop are the NVLink rows of NCCL's tuner (2.30, src/graph/tuning.cc: 3.4 us for Simple, 0.6 us
for LL), and so are the 141 GB/s of LL; 370 GB/s are the link rate that its topology search takes, of which 367 were
measured on 8 x H200.  NCCL's model of kernels with one hop (sym_kernels.cc) starts at 4.5 us for packets and 7.8 us for
two barriers: less the waits, that leaves the launch and the barrier.  The rate of a block is its 65 GiB/s.  4.3 TB/s
are what copies reach inside an H200.  A host's step (a copy and a wait) and an event's step are estimates.
"""


def cpus(crowded: bool) -> Hardware:
    """Ranks with a core each, or fewer."""
    return replace(_CPU, waits={wait: seconds * _TURN for wait, seconds in _CPU.waits.items()}) if crowded else _CPU


def gpus(ranks: int, devices: int) -> Hardware:
    """Ranks on so many GPUs: those that share one share its memory and its links; within one there are none."""
    here = math.ceil(ranks / devices)
    return replace(_HOPPER, link=_HOPPER.link / here if devices > 1 else math.inf, memory=_HOPPER.memory / here)
