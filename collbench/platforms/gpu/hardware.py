"""What waits and bytes cost on GPUs, by published figures."""

import math
from dataclasses import replace

from collbench.platforms.cost import Hardware, Wait

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


def gpus(ranks: int, devices: int) -> Hardware:
    """Ranks on so many GPUs: those that share one share its memory and its links; within one there are none."""
    here = math.ceil(ranks / devices)
    return replace(_HOPPER, link=_HOPPER.link / here if devices > 1 else math.inf, memory=_HOPPER.memory / here)
