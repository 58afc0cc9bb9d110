"""Scenarios of several real processes on simulated GPUs; each process writes its observations to a file for the test.

`mpiexec -n 2 python -m tools.stand_in.scenarios FOLDER`, with the made-up driver on LD_LIBRARY_PATH.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

from collbench.algorithms import implementations, needs
from collbench.cases import Case, Sampling
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import CollbenchError, Unsupported
from collbench.measure.sampling import measure
from collbench.measure.tracing import explain
from collbench.measure.worker import Joined
from collbench.platforms.gpu import discover, launch, nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.interface import Prepared
from collbench.platforms.layout import MemoryLayout, buffers
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.results import Measurement, Skipped
from tools.stand_in.cases import AMONG_PROCESSES, ONE_PROCESS, SIZES, flaw, prepare, sweep
from tools.stand_in.cases import a_case as case_of_bytes
from tools.stand_in.cuda import Machine
from tools.stand_in.errors import ILLEGAL_ADDRESS, CUDARuntimeError
from tools.stand_in.simulate import Simulation, build_extension

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.Get_rank(), COMM.Get_size()
SPINS = launch.SPINS
SOME = ("nccl", "ring-flags", "two-shot", "ring-host")
EXACT = [way for way in AMONG_PROCESSES if not way.wire]
WAYS = [*EXACT, implementations()["narrow-bfloat16"]]  # the other wires are the same kernel

Scenario = Callable[[], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@contextmanager
def opened(
    devices: int = 2, traced: bool = False, names: Sequence[str] = SOME, bind: str = "none", **faults: Any
) -> Iterator[Any]:
    """The platform on this process's view of the machine, given back at the end."""
    for name in (*nccl.sharing(1, 1), *nccl.CAPTURED):
        os.environ.pop(name, None)
    machine = Machine(devices, multiprocessors=8, process=RANK, **faults)
    discover.node_name = lambda: (machine.node, "")
    gpu.load_cupy = machine.cupy
    wanted = sweep(ranks=RANKS, implementations=tuple(names), sampling=Sampling(traced=traced), bind=bind)
    platform = gpu.open_platform(wanted, MemoryLayout.of(wanted, needs(names, RANKS, "gpu")), MpiProcesses(COMM))
    platform.machine = machine
    yield platform
    platform.close()
    machine.stop()


def a_case(collective: str = "allreduce", nbytes: int = 1000, **changes: Any) -> Case:
    rough = case_of_bytes(collective, nbytes, RANKS, **changes)
    return replace(rough, nbytes=max(rough.block, 1) * rough.granule)


def outcome(platform: Any, name: str, case: Case) -> str:
    try:
        found = flaw(name, case, platform, seeds=2)
    except Unsupported as reason:
        return f"skipped: {reason}"
    return f"WRONG: {found}" if found else "right"


def on(rank: int, **faults: Any) -> dict[str, Any]:
    return faults if rank == RANK else {}


@scenario
def every_case() -> Any:
    """Fewer elements than ranks for some; with two processes several laps."""
    with opened(names=[way.name for way in WAYS]) as platform:
        found = {
            f"{way.name} {name} {nbytes}": outcome(platform, way.name, a_case(name, nbytes))
            for way in WAYS
            for name in way.collectives
            for nbytes in (SIZES[-1] if RANKS == 2 else SIZES[1], *SIZES[: way.name in SOME])
        }
        half = {"dtype": DATATYPES["bfloat16"], "redop": REDUCTIONS["avg"]}
        for name in SOME:
            found[f"{name} average of bfloat16"] = outcome(platform, name, a_case(**half))
        for name in ("reduce", "gather", "scatter"):
            last = a_case(name, 1200, root=RANKS - 1, in_place=True)
            found[f"nccl {name} of the last"] = outcome(platform, "nccl", last)
        return {"found": found, "note": str(platform.note), "local": list(platform.local)}


@scenario
def all_on_one_gpu() -> Any:
    names = [way.name for way in EXACT]
    with opened(devices=1, names=names) as platform:
        found = {way.name: outcome(platform, way.name, a_case()) for way in EXACT}
        blocks = platform.launcher.blocks(64)
    left = [*platform.machine.blocks, *platform.machine.shared.opened, *platform.machine.shared.allocated]
    return {"found": found, "note": str(platform.note), "left": left, "blocks": blocks}


@scenario
def the_runner() -> Any:
    with opened(devices=RANKS, names=(*SOME, "auto")) as platform:
        ways = [implementations()[name] for name in SOME]
        results = list(measure(a_case(), ways, platform, Sampling(iters=3, region=1e-4)))
        others = [implementations()[name] for name in ONE_PROCESS]
        refused = list(measure(a_case(), others, platform, Sampling(iters=1)))
    assert all(isinstance(one, Skipped) and "process" in one.reason for one in refused), refused
    assert all(isinstance(result, Measurement) for result in results), results
    return [(result.implementation, result.launches, result.seconds, str(result.mismatch)) for result in results]


def estimates(**changes: Any) -> Any:
    """The estimates that each process gets for one case, and the number of queries to NCCL."""
    simulation = Simulation(build_extension(Path(sys.argv[1], f"nccl-{RANK}")), **changes)
    with opened(devices=RANKS, names=("nccl",), simulation=simulation) as platform:
        estimate = prepare("nccl", a_case(), platform).estimate
        after = outcome(platform, "nccl", a_case("allgather"))
    return [estimate, after, sum(map(bool, simulation.groups))]


@scenario
def the_slowest_rank_counts() -> Any:
    with opened(names=("nccl",)) as platform:
        slow = Prepared(lambda launches: time.sleep(0.2 * (RANK == 1)), host_driven=True)
        return platform.clock.time(slow, 1)


@scenario
def more_operations_than_a_graph_has() -> Any:
    with opened(devices=RANKS, names=("nccl",)) as platform:
        platform.clock.time(prepare("nccl", a_case(), platform), 2 * 256 + 1)
        return platform.machine.replays


@scenario
def room_for_no_grid_on_one() -> Any:
    with opened(traced=True, **on(1, blocks_each=0)) as platform:
        ways = [implementations()[name] for name in SOME]
        results = list(measure(a_case(), ways, platform, Sampling(iters=1, region=0.0)))
        looked_into = list(explain(a_case(), ways, platform, Sampling(region=0.0)))
    return [{row.implementation: row.reason or "done" for row in rows} for rows in (results, looked_into)]


@scenario
def a_wrong_element() -> Any:
    with opened(names=("nccl",)) as platform:
        case = a_case()
        assert outcome(platform, "nccl", case) == "right"
        if RANK == 1:
            platform.launcher.store(1, buffers(platform.memory, case, 1)[1] + 4 * 3, np.array([7.0], np.float32))
        return str(platform.checker.check(case, 2))


def faulty(**faults: Any) -> Any:
    """The outcomes of nccl, of two rungs of the ladder, and of the host's rung."""
    with opened(**faults) as platform:
        return {name: outcome(platform, name, a_case()) for name in SOME}


@scenario
def two_nodes() -> Any:
    with opened(devices=1, names=(*SOME, "auto"), node=f"node{RANK * 2 // RANKS}") as platform:
        found = {name: outcome(platform, name, a_case()) for name in (*SOME, "auto")}
        return {"found": found, "topology": platform.topology().to_json(), "note": str(platform.note)}


@scenario
def near_their_gpus() -> Any:
    """A core is next to each GPU: those of the process before, with --bind none, with --bind core, bound by others."""
    before, seen = os.sched_getaffinity(0), []
    cores = sorted(before)
    with mock.patch.object(discover, "read_text", lambda path: str(cores[int(path.parent.name[5:7]) % len(cores)])):
        for bind, mine in (("none", before), ("core", before), ("core", {cores[-1 - RANK % len(cores)]})):
            os.sched_setaffinity(0, mine)
            with opened(names=("nccl",), bind=bind) as platform:
                seen.append((sorted(os.sched_getaffinity(0)), outcome(platform, "nccl", a_case())))
    os.sched_setaffinity(0, before)
    return cores, seen


def refused(act: Callable[[], Any]) -> str:
    """The error that every process must see."""
    try:
        act()
    except CollbenchError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def not_opened(**faults: Any) -> str:
    with ExitStack() as stack:
        return refused(lambda: stack.enter_context(opened(**faults)))


SCENARIOS |= {
    "nccl_expects_more_of_one": lambda: estimates(expects=10.0 + 5 * RANK),
    "nccl_cannot_say_on_one": lambda: estimates(**on(1, status=3)),
    "one_has_no_function_to_ask": lambda: estimates(**on(1, registers=False)),
    "no_peer_access_for_one": lambda: faulty(**on(1, without_peers={(1, 0)})),
    "gpus_hidden_from_each_other": lambda: faulty(devices=1, buses={0: RANK}),
    "stores_of_one_are_lost": lambda: faulty(**on(0, losing_stores={(0, 1)})),
    "copies_of_one_are_lost": lambda: faulty(**on(1, losing_copies={(1, 0)})),
    "one_cannot_share": lambda: faulty(**on(1, shares_memory=False)),
    "no_nccl_for_one": lambda: faulty(**on(1, has_nccl=False)),
    "an_older_nccl_for_one": lambda: faulty(**on(1, nccl_version=23004)),
    "no_memory_for_one": lambda: not_opened(**on(1, free=2**19)),
    "no_gpu_for_one": lambda: not_opened(**on(RANKS - 1, devices=0)),
}


@scenario
def a_surprise_for_one() -> Any:
    team = MpiProcesses(COMM)

    def act() -> None:
        with team.agreeing():
            team.meet()
            if RANK == 1:
                raise ZeroDivisionError("nobody thought of it")
            team.exchange("on my way")
            team.meet()

    return [refused(act), team.exchange(RANK)]


@scenario
def one_fails_while_the_other_is_busy() -> Any:
    """One process stays busy until the error of the other can be received."""
    team, heard, file = MpiProcesses(COMM), [""], Path(sys.argv[1], "heard")

    def listen() -> None:
        wait_for(lambda: bool(team.trouble))
        heard[0] = team.trouble
        file.touch()

    def act() -> None:
        with team.agreeing():
            if RANK == 1:
                raise CUDARuntimeError(ILLEGAL_ADDRESS)
            wait_for(file.exists)

    listener = threading.Thread(target=listen)
    if RANK == 1:
        listener.start()
    said = refused(act)
    if RANK == 1:
        listener.join()
    return [said, team.exchange([*heard, team.trouble])]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)


@scenario
def a_broken_gpu_at_the_end() -> Any:
    with opened(names=("nccl",)) as platform:
        found = outcome(platform, "nccl", a_case())
        if RANK == 1:
            platform.streams[1].stream._failure = CUDARuntimeError(ILLEGAL_ADDRESS)
    return found


@scenario
def another_platform_and_sweep_for_one() -> Any:
    wanted = sweep(ranks=RANKS)
    joined = Joined("cpu" if RANK else "gpu", replace(wanted, sizes=wanted.sizes[: 3 - RANK]))
    return [joined._name, joined._sweep.sizes]


@scenario
def one_waits_in_vain() -> Any:
    launch.SPINS = 500
    with opened(names=("ring-flags",), **on(1, dead={1 % 2})) as platform:
        prepared = prepare("ring-flags", a_case(), platform)
        said = [refused(lambda: platform.clock.time(prepared, 1)) for _ in range(2)]
    launch.SPINS = SPINS
    return said


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or SCENARIOS:
        (folder / f"{name}-{RANK}.json").write_text(json.dumps(SCENARIOS[name]()))


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
