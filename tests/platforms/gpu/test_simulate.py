"""NCCL's own estimate: how its function is found, what it is asked, and what becomes of the answer."""

from pathlib import Path
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.cases import Case, Sampling
from collbench.measure.sampling import measure
from collbench.platforms.layout import Region
from collbench.results import Measurement
from tests.platforms.gpu.opening import Open
from tools.stand_in.cases import a_case, prepare
from tools.stand_in.cuda import Machine
from tools.stand_in.simulate import Simulation, build_extension

NCCL = implementations()["nccl"]
WHOLE = {"allreduce", "broadcast", "allgather", "reducescatter", "reduce"}  # what NCCL itself calls collectives


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_extension(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def opened(opened: Open) -> Open:
    def open_on(simulation: Simulation, ranks: int = 2) -> Any:
        return opened(Machine(2, simulation=simulation), ranks=ranks, implementations=("nccl",))

    return open_on


def estimated(platform: Any, case: Case | None = None) -> float | None:
    (result,) = measure(case or a_case(nbytes=960), [NCCL], platform, Sampling(iters=3, region=0.0))
    assert isinstance(result, Measurement), result
    assert (result.mismatch, len(result.seconds)) == (None, 3)
    return result.estimate


def test_every_collective_that_nccl_has_is_simulated_and_no_send_or_receive(extension: Path, opened: Open) -> None:
    for name in NCCL.collectives:
        simulation = Simulation(extension, expects=35.5)
        estimate = estimated(opened(simulation, ranks=3), a_case(name, 960, 3))
        asked = [group for group in simulation.groups if group]
        assert estimate == (pytest.approx(35.5e-6) if name in WHOLE else None), name
        assert (name in WHOLE) == (name in NCCL.estimates), name
        assert [len(group) for group in asked] == [3] * (name in WHOLE), "each rank's call, once a case"
        assert not any({"send", "recv"} & {*group} for group in asked), name


def test_simulating_carries_nothing_out_and_leaves_no_group_open(extension: Path, opened: Open) -> None:
    platform, case = opened(Simulation(extension)), a_case(nbytes=960)
    prepare(NCCL, case, platform)
    platform.checker.fill(case, 1)

    def call(rank: int) -> None:
        send, receive = (platform.memory.address(region, rank) for region in (Region.SEND, Region.RECEIVE))
        platform.comm.ranks[rank].allReduce(send, receive, 240, 7, 0, platform.comm.stream(rank))

    def refused() -> None:
        raise platform._cuda.nccl.NcclError(5)

    assert platform.comm.estimate([lambda: call(0), lambda: call(1)]) == pytest.approx(12.5e-6)
    assert platform.checker.check(case, 1) is not None
    assert platform.comm.estimate([refused]) is None
    assert estimated(platform) == pytest.approx(12.5e-6)
