"""What tests of the GPU platform open, on a machine that they make up (fake_cuda.py), and what they run there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collbench.cases import Case, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.implementations import Implementation, implementations, needs
from collbench.platforms import open_platform
from collbench.platforms.gpu import cuda, nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.processes import Alone
from tests.platforms.gpu.fake_cuda import Machine

ON_GPU = [  # on any GPU; test_multicast.py has those for which there must be a switch
    implementation
    for implementation in implementations().values()
    if "gpu" in implementation.platforms and not implementation.multicast
]
LADDER = [implementation for implementation in ON_GPU if not implementation.library]
ONE_PROCESS = ("ring-events", *(name for name, way in implementations().items() if way.multicast))
AMONG_PROCESSES = [way for way in ON_GPU if way.name not in ONE_PROCESS]
ALL, EXACT = tuple(way.name for way in ON_GPU), tuple(way.name for way in ON_GPU if not way.wire)
SIZES = (4, 1000, 70000)

Open = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set by a platform stays set, and nothing that the user has set matters."""
    names = [*nccl.sharing(1, 1), "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", cuda.NCCL_LIBRARY]
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open the platform on a machine for a sweep."""
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


def sweep(**changes: Any) -> Sweep:
    fields = {
        "collectives": tuple(COLLECTIVES.values()),
        "sizes": SIZES,
        "dtypes": (DATATYPES["float"],),
        "redops": (REDUCTIONS["sum"],),
        "ranks": 2,
        "implementations": EXACT,  # those with a wire need a tenth of a second more for their memory, each
    }
    return Sweep(**fields | changes)  # type: ignore[arg-type]


def a_case(collective: str = "allreduce", nbytes: int = 1000, ranks: int = 2, **changes: Any) -> Case:
    chosen = COLLECTIVES[collective]
    redop = REDUCTIONS["sum"] if chosen.reduces else NONE
    fields = {"dtype": DATATYPES["float"], "redop": redop, "root": 0, "in_place": False}
    return Case(chosen, nbytes, ranks=ranks, **fields | changes)  # type: ignore[arg-type]


def prepare(way: Implementation | str, case: Case, platform: Any) -> Any:
    """The operation; Unsupported where the implementation refuses the case."""
    implementation = implementations()[way] if isinstance(way, str) else way
    implementation.refuse(case)
    return implementation.prepare(case, platform)


def flaw(way: Implementation | str, case: Case, platform: Any, seeds: int = 1, launches: int = 1) -> Any:
    """What is wrong with a result of new data each time; None where all are right."""
    prepared = prepare(way, case, platform)
    for seed in range(1, seeds + 1):
        platform.fill(case, seed, prepared.wire)
        platform.time(prepared, launches)
        if found := platform.check(case, seed, prepared.wire):
            return found
    return None
