"""The rank process: `python -m collbench.measure.worker` measures the cases it receives.

Rank 0 talks to the supervisor and passes orders on. Every process watches the supervisor: if that dies, even by kill
-9, no rank is left spinning.

Under an outside launcher (mpirun, srun, torchrun) each process is a rank (`Joined`), and the first stores results.
Until every process has opened its platform, an error of one process is raised on all, so that none waits for another.
Afterwards no supervisor restarts ranks: a failed case ends the run, and so does each process's watchdog
(launcher_watchdog.py) after a stall.
"""

import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from collbench import __version__, algorithms
from collbench.cases import Case, Sampling, Sweep
from collbench.errors import CaseFailed, CollbenchError, PlatformError
from collbench.exits import BAD
from collbench.host import processes, signals
from collbench.host.launcher import launched, starts_mpi
from collbench.measure import protocol
from collbench.measure.launcher_watchdog import WATCHDOG, Phase, end_all, guarded
from collbench.measure.protocol import FOLDER, PLATFORM, SUPERVISOR, Ranks, WorkerHello
from collbench.measure.resumed import tasks
from collbench.measure.sampling import Heartbeat, measure
from collbench.measure.supervisor import seconds_for
from collbench.platforms import compiler, find_platform, open_platform
from collbench.platforms.cpu import mpi_libraries
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.platforms.processes import Alone, Team, node_name
from collbench.platforms.socket_processes import Rendezvous, SocketProcesses, usual_rendezvous
from collbench.records import convert
from collbench.results import Result
from collbench.results.collectives import Failed
from collbench.runfile.schema import sweep_fields, to_line, to_sweep, variables

_LEAST = 10.0  # seconds for all processes to connect, whatever the time-out: interpreters may start slowly


@cache
def world() -> Team:
    """Return all processes of the launcher; the first call starts MPI, or connects them by sockets."""
    rank, size = launched() or (0, 1)
    seconds, rendezvous = WATCHDOG.seconds, None
    try:
        if size > 1 and not starts_mpi():
            WATCHDOG.feed(2 * seconds)
            rendezvous = usual_rendezvous(seconds)
        elif file := mpi_libraries.of_launcher():  # not the library that mpi4py would find
            os.environ[mpi_libraries.LIBMPI] = str(mpi_libraries.loadable(file))
    except PlatformError as error:
        error.agreed = True  # all processes have that launcher and environment
        raise
    if rendezvous:
        return _without_mpi(rendezvous, rank, size, seconds)
    with guarded(rank, seconds) if size > 1 else nullcontext():
        return MpiProcesses.of_world()


def _without_mpi(rendezvous: Rendezvous, rank: int, size: int, seconds: float) -> SocketProcesses:
    try:
        team = SocketProcesses.at(rendezvous, rank, size, seconds)
    except PlatformError:
        WATCHDOG.phase = Phase.APART  # there is no connection to agree by
        raise
    team.watch(lambda lost: WATCHDOG.lost(f"rank {lost} is gone"))
    return team


def agree_on(error: CollbenchError) -> None:
    """Raise one process's fatal error on all processes, if their next step is an exchange."""
    if WATCHDOG.phase is not Phase.GATHERING or error.agreed:
        return
    try:
        everyone = world()
    except PlatformError:  # no process can reach another under this launcher
        error.agreed = starts_mpi()
        raise error from None
    with everyone.agreeing():
        raise error


class Joined(Ranks):
    """The counterpart of Supervisor under an outside launcher; every process iterates over the same results."""

    def __init__(self, platform: str, sweep: Sweep, existing: Sequence[Result] = ()) -> None:
        self._limit = max(_LEAST, 2 * sweep.sampling.timeout)
        if WATCHDOG.phase is Phase.APART:  # an earlier sweep stopped the watchdog
            WATCHDOG.start(world().rank)
        WATCHDOG.feed(self._limit)
        self._world = world()
        WATCHDOG.trouble = lambda: self._world.trouble
        with self.agreeing():
            self._world.local(sweep.ranks)  # raises on a different number of processes

        # Nodes may have separate installations.
        versions = self._world.exchange(__version__)
        with self.agreeing():
            for rank, version in enumerate(versions):
                if version != versions[0]:
                    differing = f"rank {rank} runs collbench {version}, but rank 0 runs {versions[0]}"
                    raise PlatformError(f"{differing}: install the same version on every node")
        self._pids = self._world.exchange((node_name(), os.getpid()))
        processes.unlink_mpich_memory()

        # Memory and GPUs may differ between nodes: all use rank 0's sweep, or fail together in opening.
        self._name, fields = self._world.broadcast((platform, sweep_fields(sweep)))
        self._sweep, self._existing = to_sweep(fields), existing
        self._platform: Platform | None = None
        self._current: tuple[Case, str] | None = None
        self._started: set[str] = set()  # implementations with a started library

    def agreeing(self) -> AbstractContextManager[None]:
        """*Collective*: an error inside on one process is raised on all."""
        return self._world.agreeing()

    def start(self, stack: ExitStack) -> WorkerHello:
        """*Collective*: allocate the ranks' memory."""
        kind = find_platform(self._name)
        WATCHDOG.feed(max(self._limit, kind.cold_start))

        # First compile and bind: memory lies near the core that touches it first.
        requested = needs(self._sweep, self._name)
        cores: list[int] = []
        if kind.process_per_rank:
            compiler.prove_compiler(self._world)
            if self._sweep.bind == "core":
                cores = self._world.cores_to_bind(kind.cores)
                self._world.bind(cores)
        self._platform = open_platform(self._sweep, requested, self._name, self._world)
        WATCHDOG.waits = self._waits
        topology = self._platform.topology()
        with self.agreeing():
            versions = self._platform.versions()
        stack.enter_context(signals.deferred())
        return WorkerHello(topology, versions, variables(), cores=tuple(cores))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *rest: object) -> None:
        if kind is None or self._world.size == 1 or getattr(error, "agreed", False):
            if self._platform and kind is None:  # close is collective: after an error the others may not reach it
                WATCHDOG.hanging = not self._platform.close()
            WATCHDOG.stop()
            self._open.__exit__(kind, error, None)
            return

        # The others may wait for this rank for ever, so end all; an abort would give no reason.
        if issubclass(kind, Exception) and not getattr(error, "quietly", False):
            sys.stderr.write(f"collbench: error: rank {self._world.rank}: {error or kind.__name__}\n")
            sys.stderr.flush()
        end_all()

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep on every process."""
        assert self._platform
        WATCHDOG.phase = Phase.MEASURING
        for case, names, sampling in tasks(self._sweep, self._existing):
            self._current = case, names[0]
            self._beat(names[0])
            try:
                yield from execute_case(case, names, self._platform, sampling, self._beat)
            except CaseFailed as reason:
                yield self.failed(f"{reason}; the run ends here")
                return

    def _waits(self) -> str:
        """Return which ranks of this machine have ended, or else which rank waits for which, if known."""
        ended = []
        for rank, (node, pid) in enumerate(self._pids):
            if node == node_name() and not processes.is_alive(pid):
                ended.append(str(rank))
        if ended:
            return f"rank{'s' * (len(ended) > 1)} {', '.join(ended)} ended"
        for rank, (node, pid) in enumerate(self._pids):
            if node == node_name() and processes.is_stuck(pid):
                return f"rank {rank} is stopped or waits for a device"
        return self._platform.waits() if self._platform else ""

    def _beat(self, name: str, phase: str = "") -> None:
        """Extend the watchdog's limit for the next step; end on a pending signal."""
        signals.check()
        assert self._current
        case, before = self._current
        self._current = case, name or before
        limit = seconds_for(case, self._sweep.sampling)

        # A library starts with its first operation.
        if name not in self._started:
            limit = max(limit, find_platform(self._name).cold_start)
        WATCHDOG.feed(limit, phase)

    def failed(self, reason: str) -> Failed:
        """Return a failed row for the last implementation."""
        case, name = self._current or (next(iter(self._sweep.cases())), self._sweep.implementations[0])
        return Failed(case, name, self._name, reason)


_TIDYING = threading.Event()  # set once the supervisor is gone: a thread cleans up, then ends this process
_GRACE = 3.0  # seconds that a failing rank waits to be ended, since its abort could overtake rank 0's report


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return a sweep's memory needs: those of its work, else of its implementations."""
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
    """*Collective*: measure or trace a case, or carry out its work; yield a result of each implementation.

    CaseFailed if the platform must be opened anew.
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
    """Serve one supervisor until it stops the ranks or is gone."""
    # The launcher sends SIGINT after another rank has died: end at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = Path(os.environ[FOLDER])
    _die_with(int(os.environ[SUPERVISOR]), folder)
    world: Team = MpiProcesses.of_world() if find_platform(os.environ[PLATFORM]).process_per_rank else Alone()
    if isinstance(world, MpiProcesses):
        world.hang_bells(folder)

    # Once every rank has mapped the shared memory, unlink its name: it ends with the last rank.
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
        # The supervisor is gone: the watching thread cleans up; an abort would not.
        time.sleep(2 * _GRACE)
        world.abort()
    except BaseException:  # perhaps because the watching thread ended other ranks or a compiler
        if _TIDYING.is_set():
            time.sleep(2 * _GRACE)
        raise


def _say_why(error: CollbenchError, channel: protocol.Channel | None) -> None:
    """Report the error to the supervisor, and give it time to end the ranks; `protocol.Closed` if it is gone."""
    if channel:
        kind = "failed" if isinstance(error, CaseFailed) else "refused"
        files = sorted(processes.shared_files())
        channel.send({kind: str(error), "error": type(error).__name__, "files": files})
        channel.receive(seconds=_GRACE)
    else:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # for the log, in case rank 0 reports nothing
        time.sleep(_GRACE)


def serve(world: Team, channel: protocol.Channel | None, heartbeat: protocol.Heartbeat) -> None:
    """*Collective*: carry out the supervisor's orders until it stops the ranks; rank 0 has the channel."""
    first = _next_order(world, channel)
    sweep = to_sweep(first["sweep"])
    requested = needs(sweep, os.environ[PLATFORM])
    if isinstance(world, MpiProcesses):  # only these compile their kernels
        compiler.prove_compiler(world)

    # Before any memory is touched: it lies near the core that touches it first.
    world.bind(first["cores"])
    platform = open_platform(sweep, requested, os.environ[PLATFORM], world)

    # Facts for the supervisor: to write the header, and to clean up after killed ranks.
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

    cases = tuple(sweep.cases())

    # Ranks without an order sleep in the broadcast.
    while "case" in (order := _next_order(world, channel)):
        case, sampling = cases[order["case"]], convert(order["sampling"], Sampling)
        if order["work"]:
            case = replace(case, work=convert(order["work"], type(case.work)))
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
    """Start a thread that ends the run and cleans up when the supervisor dies."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        os._exit(BAD)  # another process has cleaned up

    # The supervisor may have ended before this process watched it.
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
    """End all processes of the folder's run, launcher and compilers included, and remove their leftovers."""
    # Only the rank that locks the folder first does this, or two would stop each other.
    fcntl.flock(lock, fcntl.LOCK_EX)
    processes.end_marked(FOLDER, str(folder), processes.shared_files())
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(BAD)


if __name__ == "__main__":
    main()
