"""Cases for the machine of cuda.py: implementations by their needs, sweeps, cases, and a run of a case."""

from typing import Any

from collbench.algorithms import Implementation, implementations
from collbench.cases import Case, Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS

ON_GPU = [  # on any GPU; test_multicast.py has those that need a switch, test_fast_paths.py NCCL's fast paths
    implementation
    for implementation in implementations().values()
    if "gpu" in implementation.platforms and not implementation.multicast and not implementation.path
]
LADDER = [implementation for implementation in ON_GPU if not implementation.library]
ONE_PROCESS = ("ring-events", *(name for name, way in implementations().items() if way.multicast))
AMONG_PROCESSES = [way for way in ON_GPU if way.name not in ONE_PROCESS]
ALL, EXACT = tuple(way.name for way in ON_GPU), tuple(way.name for way in ON_GPU if not way.wire)
SIZES = (4, 1000, 70000)


def sweep(**changes: Any) -> Sweep:
    fields = {
        "collectives": tuple(COLLECTIVES.values()),
        "sizes": SIZES,
        "dtypes": (DATATYPES["float"],),
        "redops": (REDUCTIONS["sum"],),
        "ranks": 2,
        "spin": "auto",
        "bind": "core",
        "sampling": Sampling(),
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
    """Return the fault of a result, with new data each time; None if all are right."""
    prepared = prepare(way, case, platform)
    for seed in range(1, seeds + 1):
        platform.checker.fill(case, seed, prepared.wire)
        platform.clock.time(prepared, launches)
        if found := platform.checker.check(case, seed, prepared.wire):
            return found
    return None
