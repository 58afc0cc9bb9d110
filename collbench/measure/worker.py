"""The ranks' side of a run: `python -m collbench.measure.worker` measures what the supervisor sends, and only measures.

Rank 0 talks to the supervisor and tells the others.  Every process watches the supervisor itself: should that vanish,
even by kill -9, no rank is left spinning.
"""

import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from collbench import algorithms
from collbench.cases import Case, Sampling, Sweep
from collbench.errors import CaseFailed, CollbenchError
from collbench.host import processes
from collbench.measure import protocol
from collbench.measure.protocol import FOLDER, PLATFORM, SUPERVISOR
from collbench.measure.sampling import Heartbeat, measure
from collbench.platforms import compiler, find_platform, open_platform
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.platforms.processes import Alone, Team
from collbench.records import convert
from collbench.results import Result
from collbench.runfile.header import SweepPart, variables
from collbench.runfile.schema import to_case, to_line, to_sweep

_TIDYING = threading.Event()  # once the supervisor is gone: a thread tidies up, and then ends this process
_GRACE = 3.0  # seconds that a failing rank waits to be ended: its abort could overtake what rank 0 has to say


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return what a sweep wants of memory: what its work says, else its implementations."""
    work = next(filter(None, sweep.works), None)  # all works of a sweep are of one kind
    if work and (of_work := getattr(import_module(work.MODULE), "needs", None)):
        needed: Needs = of_work(sweep, platform)
        return needed
    return algorithms.needs(sweep.implementations, sweep.ranks, platform)


def execute_case(
    case: Case,
    names: Sequence[str],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: measure a case, carry its work out, or trace it; yield a result of each implementation.

    Raises:
        CaseFailed: The platform must be opened anew.

    """
    # Imported where it is needed: most runs measure collectives.
    if case.work:
        results: Iterator[Result] = import_module(case.work.MODULE).measure(
            case, names, platform, sampling, heartbeat, launches
        )
        return results
    chosen = [algorithms.implementations()[name] for name in names]
    if sampling.traced:
        from collbench.measure.tracing import explain

        return explain(case, chosen, platform, sampling, heartbeat)
    return measure(case, chosen, platform, sampling, heartbeat, launches)


def main() -> None:
    """Serve one supervisor until it says stop or is gone."""
    # The launcher sends it when another rank has died: go at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = Path(os.environ[FOLDER])
    _die_with(int(os.environ[SUPERVISOR]), folder)
    world: Team = MpiProcesses.of_world() if find_platform(os.environ[PLATFORM]).process_per_rank else Alone()
    if isinstance(world, MpiProcesses):
        world.hang_bells(folder)

    # Once every rank has the shared memory, its name can go: then it is gone with the last of them.
    world.meet()
    processes.unlink_mpich_memory()
    channel = None
    try:
        channel = protocol.connect(folder) if world.leader else None
        try:
            serve(world, channel, protocol.Heartbeat(folder))
        except CollbenchError as error:
            _say_why(error, channel)
            world.abort()
    except protocol.Closed:
        # The supervisor is gone: the thread that watches it tidies up, which an abort would not.
        time.sleep(2 * _GRACE)
        world.abort()
    except BaseException:  # perhaps of the other ranks' or a compiler's end, which that thread brings about
        if _TIDYING.is_set():
            time.sleep(2 * _GRACE)
        raise


def _say_why(error: CollbenchError, channel: protocol.Channel | None) -> None:
    """Tell the supervisor, and leave it the time to end the ranks; `protocol.Closed` if it is gone."""
    if channel:
        kind = "failed" if isinstance(error, CaseFailed) else "refused"
        files = sorted(processes.shared_files())
        channel.send({kind: str(error), "error": type(error).__name__, "files": files})
        channel.receive(seconds=_GRACE)
    else:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # for the log, should rank 0 have nothing to say
        time.sleep(_GRACE)


def serve(world: Team, channel: protocol.Channel | None, heartbeat: protocol.Heartbeat) -> None:
    """*Collective*: carry out what the supervisor orders, until it says stop; rank 0 has the channel to it."""
    first = _next_order(world, channel)
    sweep = to_sweep(SweepPart.from_json(first["sweep"]))
    requested = needs(sweep, os.environ[PLATFORM])
    if isinstance(world, MpiProcesses):  # whose kernels are compiled
        compiler.prove_compiler(world)

    # Before memory is touched, which lies near the core that touches it first.
    world.bind(first["cores"])
    platform = open_platform(sweep, requested, os.environ[PLATFORM], world)

    # What the supervisor must know to write the header, and to clean up after ranks that were killed.
    hello = {
        "pids": world.exchange(os.getpid()),
        "files": sorted(processes.shared_files()),
        "topology": platform.topology(),
        "versions": platform.versions(),
        "variables": variables(named=first["named"]),
    }
    if channel:
        channel.send(hello)
        threading.Thread(target=protocol.answer, args=(Path(os.environ[FOLDER]), platform.waits), daemon=True).start()
    beat = heartbeat.beat if channel else lambda *_: None

    # Ranks without an order sleep in the broadcast.
    while "case" in (order := _next_order(world, channel)):
        case, sampling = to_case(order["case"]), convert(order["sampling"], Sampling)
        for result in execute_case(case, order["implementations"], platform, sampling, beat, order["launches"]):
            if channel:
                channel.send({"result": to_line(result)})
        if channel:
            channel.send({"done": True})
    platform.close()


def _next_order(world: Team, channel: protocol.Channel | None) -> dict[str, Any]:
    order = world.broadcast(channel.receive() if channel else None)
    assert isinstance(order, dict)
    return order


def _die_with(supervisor: int, folder: Path) -> None:
    """End the run when the supervisor ends, from a thread that sleeps until then, and tidy up in its place."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        os._exit(1)  # somebody has tidied up

    # It may have ended before this process could watch it.
    try:
        wait = processes.watch_end(supervisor)
    except ProcessLookupError:
        _tidy(folder, lock)

    def watch() -> None:
        wait()
        _TIDYING.set()
        _tidy(folder, lock)

    threading.Thread(target=watch, daemon=True).start()


def _tidy(folder: Path, lock: int) -> NoReturn:
    """End all processes of the run of that folder, launcher and compilers too, and remove what they leave."""
    # The rank that locks the folder first does this, lest two stop each other.
    fcntl.flock(lock, fcntl.LOCK_EX)
    processes.end_marked(FOLDER, str(folder), processes.shared_files())
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
