"""The queue that launches wait in: one thread launches the graphs of all ranks, so none of them may fill it."""

import numpy as np
import pytest

from collbench.cases import Sampling
from collbench.datatypes import DATATYPES
from collbench.platforms.gpu import timing
from collbench.platforms.layout import buffers
from tests.platforms.gpu.opening import Open
from tools.kernels.buffers import received
from tools.stand_in.cases import a_case, prepare
from tools.stand_in.clocks import Counted
from tools.stand_in.cuda import Machine

OPERATION = 5e-6  # seconds


def test_an_operation_takes_as_long_however_many_are_in_a_sample(opened: Open) -> None:
    machine = Machine(1, nccl_seconds=OPERATION)
    platform = opened(machine)
    prepared = prepare("nccl", a_case(nbytes=8), platform)
    machine.clock = Counted()
    for launches in (1, 3, 64, 128, 200, 256, 1000):
        assert platform.clock.time(prepared, launches) == pytest.approx(OPERATION), launches


def test_a_sample_of_several_replays_has_as_many_operations(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LAUNCH_QUEUE", 16)
    case = a_case(in_place=True, dtype=DATATYPES["uint32"])
    # A graph of each rank, one of all, one kernel's, and none where the host drives it.
    graphs = {"nccl": 3 * 2, "ring-events": 3, "two-shot": 1, "ring-flags": 1, "ring-host": 0}
    for graph in (True, False):
        machine = Machine(1)
        platform = opened(machine, in_place=True, sampling=Sampling(graph=graph))
        for name, replays in graphs.items():
            prepared = prepare(name, case, platform)
            platform.checker.fill(case, 1)
            machine.replays = 0
            platform.clock.time(prepared, 5)
            assert machine.replays == (replays if graph else 0), name
            for rank in (0, 1):
                address = buffers(platform.memory, case, rank)[1]
                got = platform.launcher.fetch(rank, address, case.nbytes).view(np.uint32)
                assert np.array_equal(got, received(case, rank, 1)[0][1] * np.uint32(2**4)), name
