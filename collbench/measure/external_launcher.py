"""A run inside processes that somebody else started (mpirun, srun, torchrun): each is a rank, the first stores.

Until all are open, whatever any of them refuses is refused by all: one that simply ended would leave the others waiting
for it.  Afterwards there is no supervisor to restart ranks, so a case that fails ends the run, and a watchdog in each
process (launcher_watchdog.py) ends it where nothing goes on.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache

from collbench import __version__
from collbench.cases import Case, Sweep
from collbench.errors import CaseFailed, CollbenchError, PlatformError
from collbench.host import processes, signals
from collbench.host.launcher import launched, starts_mpi
from collbench.measure.launcher_watchdog import WATCHDOG, Phase, end_all, guarded
from collbench.measure.protocol import Ranks, WorkerHello
from collbench.measure.resumed import tasks
from collbench.measure.supervisor import seconds_for
from collbench.measure.worker import execute_case, needs
from collbench.platforms import compiler, find_platform, open_platform
from collbench.platforms.cpu import mpi_libraries
from collbench.platforms.interface import Platform
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.platforms.processes import Team, node_name
from collbench.platforms.socket_processes import Rendezvous, SocketProcesses, usual_rendezvous
from collbench.results import Result
from collbench.results.collectives import Failed
from collbench.runfile.header import SweepPart, variables
from collbench.runfile.schema import sweep_part, to_sweep

_LEAST = 10.0  # seconds for all to come, however short the time-out: interpreters start more or less slowly


@cache
def world() -> Team:
    """Return all processes of the launcher; the first call starts MPI, or has them find each other without it."""
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
        WATCHDOG.phase = Phase.APART  # there is nobody to agree with
        raise
    team.watch(lambda lost: WATCHDOG.lost(f"rank {lost} is gone"))
    return team


def agree_on(error: CollbenchError) -> None:
    """Raise on all processes what one of them cannot go on for, if they come to an exchange next."""
    if WATCHDOG.phase is not Phase.GATHERING or error.agreed:
        return
    try:
        everyone = world()
    except PlatformError:  # they cannot speak to each other by this launcher, none of them
        error.agreed = starts_mpi()
        raise error from None
    with everyone.agreeing():
        raise error


class Joined(Ranks):
    """The counterpart of Supervisor under an outside launcher; every process iterates over the same results."""

    def __init__(self, platform: str, sweep: Sweep, existing: Sequence[Result] = ()) -> None:
        self._limit = max(_LEAST, 2 * sweep.sampling.timeout)
        if WATCHDOG.phase is Phase.APART:  # after a sweep before this one
            WATCHDOG.start(world().rank)
        WATCHDOG.feed(self._limit)
        self._world = world()
        WATCHDOG.trouble = lambda: self._world.trouble
        with self.agreeing():
            self._world.local(sweep.ranks)  # refuses another number of processes

        # Nodes may have installs of their own.
        versions = self._world.exchange(__version__)
        with self.agreeing():
            for rank, version in enumerate(versions):
                if version != versions[0]:
                    differing = f"rank {rank} runs collbench {version}, but rank 0 runs {versions[0]}"
                    raise PlatformError(f"{differing}: install one of them on every node")
        self._pids = self._world.exchange((node_name(), os.getpid()))
        processes.unlink_mpich_memory()

        # Memory and GPUs may differ between nodes: what rank 0 found is what all do, or fail together in opening.
        self._name, fields = self._world.broadcast((platform, sweep_part(sweep).to_json()))
        self._sweep, self._existing = to_sweep(SweepPart.from_json(fields)), existing
        self._platform: Platform | None = None
        self._current: tuple[Case, str] | None = None
        self._started: set[str] = set()  # implementations whose library has been started

    def agreeing(self) -> AbstractContextManager[None]:
        """*Collective*: what fails inside on one process fails on all."""
        return self._world.agreeing()

    def start(self, stack: ExitStack) -> WorkerHello:
        """*Collective*: give the ranks their memory."""
        kind = find_platform(self._name)
        WATCHDOG.feed(max(self._limit, kind.cold_start))

        # Compilers and cores before memory is touched, which lies near the core that touches it first.
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
            if self._platform and kind is None:  # else the others may not come to close it too
                WATCHDOG.hanging = not self._platform.close()
            WATCHDOG.stop()
            self._open.__exit__(kind, error, None)
            return

        # The others may wait for this rank for ever, so all are ended; the abort would not say why.
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
        """Return which ranks of this machine have ended, or else which rank waits for which, as far as it is known."""
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
        """Allow the time of another step of the case, and end if a signal has come."""
        signals.check()
        assert self._current
        case, before = self._current
        self._current = case, name or before
        limit = seconds_for(case, self._sweep.sampling)

        # With its first operation a library starts.
        if name not in self._started:
            limit = max(limit, find_platform(self._name).cold_start)
        WATCHDOG.feed(limit, phase)

    def failed(self, reason: str) -> Failed:
        """Return the row of what was carried out last."""
        case, name = self._current or (next(iter(self._sweep.cases())), self._sweep.implementations[0])
        return Failed(case, name, self._name, reason)
