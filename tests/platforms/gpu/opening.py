"""Opens the GPU platform on a machine that is made up (tools/stand_in)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collbench.algorithms import needs
from collbench.platforms import open_platform
from collbench.platforms.gpu import cuda, nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.processes import Alone
from tools.stand_in.cases import sweep
from tools.stand_in.cuda import Machine

Open = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set by a platform stays set, and nothing that the user has set matters."""
    of_cuda = "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"
    for name in (*nccl.sharing(1, 1), *nccl.CAPTURED, *of_cuda, cuda.NCCL_LIBRARY):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    machines, platforms = [], []

    def open_on(machine: Machine, **changes: Any) -> Any:
        machines.append(machine)
        monkeypatch.setattr(gpu, "load_cupy", machine.cupy)
        wanted = sweep(**changes)
        needed = needs(wanted.implementations, wanted.ranks, "gpu")
        platforms.append(open_platform(wanted, needed, "gpu", Alone()))
        return platforms[-1]

    yield open_on
    for platform in platforms:
        platform.close()
    for machine in machines:
        machine.stop()
