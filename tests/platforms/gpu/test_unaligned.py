"""Buffers misaligned by some elements, on GPUs that are made up: kernels are real, and take packs of 16 bytes."""

import numpy as np

from collbench.platforms.checking import POISON
from collbench.platforms.layout import GUARD, UNTOUCHED, Region, buffers
from tests.platforms.gpu.opening import Open
from tools.stand_in.cases import ALL, ON_GPU, a_case, flaw, sweep
from tools.stand_in.cuda import Machine


def test_every_implementation_is_right_where_buffers_start_late(opened: Open) -> None:
    platform = opened(Machine(2), ranks=3, implementations=ALL, unalign=3)
    for way in ON_GPU:
        for case in sweep(ranks=3, sizes=(1000,), unalign=3).cases():
            if case.collective.name in way.collectives:
                assert flaw(way, case, platform) is None, f"{way.name} {case.title}"
                assert platform.checker.overrun(case) is None, f"{way.name} {case.title}"


def test_what_is_written_before_a_late_buffer_is_found(opened: Open) -> None:
    platform = opened(Machine(1), ranks=2, unalign=2)
    case = a_case(unalign=2)
    send, receive = buffers(platform.memory, case, 1)
    home = platform.memory.address(Region.RECEIVE, 1)
    assert (send - platform.memory.address(Region.SEND, 1), receive - home) == (8, 8)
    platform.checker.fill(case, seed=1)
    assert platform.launcher.fetch(1, receive - GUARD, GUARD).tobytes() == UNTOUCHED
    assert np.all(platform.launcher.fetch(1, receive, case.nbytes) == POISON)
    platform.launcher.copy(1, home + 4, send, 4)
    found = platform.checker.overrun(case)
    assert (found.rank, found.buffer, found.offset) == (1, "receive buffer", -1)
    assert np.all(platform.launcher.fetch(1, home, 4) == UNTOUCHED[0])
