"""A run inside processes that somebody else started (mpirun, srun): each is a rank, and rank 0 keeps the run file.

Until all are open, whatever any of them refuses is refused by all: one that simply ended would leave the others waiting
for it.  Afterwards there is no supervisor to restart ranks, so a case that fails ends the run.

Any process may wait for ever for one that was stopped, never came or took another way.  So a watchdog in each sleeps
until the time is up, is put off by whatever begins, and ends the processes where nothing has begun for too long.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Self

from collbench.cases import Case, Sweep
from collbench.errors import CaseFailed, CollbenchError, PlatformError
from collbench.host import processes, signals
from collbench.host.launcher import launched
from collbench.measure.protocol import WorkerHello, installation, refuse_other
from collbench.measure.supervisor import seconds_for
from collbench.measure.worker import execute_case, needs
from collbench.measurement import Failed, Result
from collbench.platforms import find_platform, kernels, open_platform
from collbench.platforms.cpu import installed
from collbench.platforms.processes import Processes
from collbench.platforms.roles import Platform
from collbench.runfile.environment import variables
from collbench.runfile.records import sweep_fields, to_sweep

START = 60.0  # seconds until all have come, where nobody has said a time-out yet
_LEAST = 10.0  # seconds for all to come, however short the time-out: interpreters start more or less slowly
_LOOK = 0.5  # seconds between two looks at the deadline, which may come nearer too
_GRACE = 5.0  # seconds that the others leave to rank 0, which can note in the run file what happened
_BEFORE = 1.5  # seconds before rank 0 ends all, in which another rank says what it failed of
_ABORT = 2.0  # seconds that MPI_Abort gets, which may wait for a lock that a hung thread holds


class Phase(Enum):
    """How far the processes are, which decides how one that fails tells the others."""

    APART = auto()  # none waits for another
    GATHERING = auto()  # the others come to an exchange next, and learn it there
    MEASURING = auto()  # they may be anywhere, and are ended


class Watchdog:
    """Ends the run from a thread unless `feed` is called in time."""

    def __init__(self) -> None:
        self.phase = Phase.APART
        self.last_words: Callable[[str], str] = lambda reason: ""  # notes why the run ends; what a user must know
        self.trouble: Callable[[], str] = str  # what this process failed of, if the others do not come to hear it
        self.hanging = False  # whether a library or device hangs, for which this process's exit would wait
        self._rank = 0
        self.seconds, self._deadline = START, 0.0
        self._stopped = threading.Event()

    def start(self, rank: int) -> None:
        """Watch over this rank, before anything can hang."""
        self._rank, self.phase, self._stopped = rank, Phase.GATHERING, threading.Event()
        self.feed(START)
        threading.Thread(target=self._watch, args=(self._stopped,), daemon=True).start()

    def feed(self, seconds: float) -> None:
        """Allow that many seconds for what begins now."""
        self.seconds, self._deadline = seconds, time.monotonic() + seconds

    def stop(self) -> None:
        """Watch no more: none waits for another, and what follows may take as long as it likes."""
        self.phase = Phase.APART
        self._stopped.set()

    def _watch(self, stopped: threading.Event) -> None:
        grace, printed = _GRACE if self._rank else 0.0, ""
        while (left := self._deadline + grace - time.monotonic()) > 0:
            if stopped.wait(min(left, _LOOK)):
                return
            if left < grace + _BEFORE and self.trouble() != printed:
                printed = self.trouble()
                self._print(printed)
        reason = f"no progress for {self.seconds:.0f} s (--timeout)"
        self._print(f"{reason}; the run ends here{self.last_words(reason)}")
        end_all()

    def _print(self, words: str) -> None:
        if words:
            sys.stderr.write(f"collbench: error: rank {self._rank}: {words}\n")
            sys.stderr.flush()

    def leave(self) -> None:
        """End all if others may wait for this process, which cannot go on."""
        if self.phase is not Phase.APART:
            end_all()

    def leave_hanging(self) -> None:
        """End a process that did all it had to, and holds what hangs: rank 0, which writes, ends them all."""
        if self.hanging:
            time.sleep(START if self._rank else 0.0)
            end_all()


WATCHDOG = Watchdog()


def end_all() -> None:
    """End this process and all others of the launcher, even where MPI hangs."""
    seconds = _ABORT if "mpi4py.MPI" in sys.modules else START / 2  # the others may come to MPI's start later
    thread = threading.Thread(target=_abort, daemon=True)
    thread.start()
    thread.join(seconds)
    os._exit(1)


def _abort() -> None:
    # A process that has not come to MPI's start yet does so now, since the others may wait for it there.
    with suppress(ImportError):
        from mpi4py import MPI

        processes.unlink_mpich_memory()
        MPI.COMM_WORLD.Abort(1)


_GUARD = """
import select, sys
seconds, pid, line, home = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    print(line, file=sys.stderr, flush=True)
    sys.path.insert(0, home)
    from collbench.host import processes
    processes.end([int(pid)])
"""


@contextmanager
def guarded(rank: int, seconds: float) -> Iterator[None]:
    """Bound the start of MPI, which waits for all processes and keeps Python's lock, so that no thread can watch it.

    A process beside this one does, and goes with it.
    """
    line = f"collbench: error: rank {rank}: MPI did not start within {seconds:.0f} s: not all processes came to it"
    limit = seconds + (_GRACE if rank else 0)
    command = [sys.executable, "-I", "-S", "-c", _GUARD, str(limit), str(os.getpid()), line]
    with subprocess.Popen([*command, str(Path(__file__).parents[2])], stdin=subprocess.PIPE) as guard:
        try:
            yield
        finally:
            guard.kill()


@cache
def world() -> Processes:
    """Return all processes of the launcher; the first call starts MPI."""
    rank, size = launched() or (0, 1)
    _load_the_launchers_library()
    with guarded(rank, WATCHDOG.seconds) if size > 1 else nullcontext():
        return Processes.of_world()


def _load_the_launchers_library() -> None:
    """Have mpi4py load the MPI library that belongs to the launcher of this process, not the one it would find."""
    try:
        file = installed.of_launcher()
    except PlatformError as error:
        error.agreed = True  # all processes have that launcher
        raise
    if file:
        os.environ[installed.LIBMPI] = str(file)


def agree_on(error: CollbenchError) -> None:
    """Raise on all processes what one of them cannot go on for, if they come to an exchange next."""
    if WATCHDOG.phase is not Phase.GATHERING or error.agreed:
        return
    try:
        everyone = world()
    except PlatformError:  # MPI cannot be started by this launcher, on any of them
        error.agreed = True
        raise error from None
    with everyone.agreeing():
        raise error


class Joined:
    """The counterpart of Supervisor under an outside launcher; every process iterates over the same results."""

    def __init__(self, platform: str, sweep: Sweep) -> None:
        self._limit = max(_LEAST, 2 * sweep.sampling.timeout)
        if WATCHDOG.phase is Phase.APART:  # after a sweep before this one
            WATCHDOG.start(world().rank)
        WATCHDOG.feed(self._limit)
        self._world = world()
        WATCHDOG.trouble = lambda: self._world.trouble
        with self.agreeing():
            self._world.local(sweep.ranks)  # refuses another number of processes
        self._refuse_others()
        processes.unlink_mpich_memory()
        # Memory and GPUs may differ between nodes: what rank 0 found is what all do, or fail together in opening.
        self._name, fields = self._world.broadcast((platform, sweep_fields(sweep)))
        self._sweep = to_sweep(fields)
        self._platform: Platform | None = None
        self._current: tuple[Case, str] | None = None
        self._started: set[str] = set()  # implementations whose library has been started
        self._open = ExitStack()
        self.greeting = WorkerHello()

    def agreeing(self) -> AbstractContextManager[None]:
        """*Collective*: what fails inside on one process fails on all."""
        return self._world.agreeing()

    def _refuse_others(self) -> None:
        """PlatformError on all processes if they have different code, as nodes with installs of their own may."""
        first, *others = self._world.exchange(installation())
        try:
            for rank, other in enumerate(others, 1):
                refuse_other(f"rank {rank}", other, "rank 0", first)
        except PlatformError as error:
            error.agreed = True
            raise

    def __enter__(self) -> Self:
        kind = find_platform(self._name)
        WATCHDOG.feed(max(self._limit, kind.cold_start))
        wanted = needs(self._sweep, self._name)
        cores: list[int] = []
        if kind.process_per_rank:
            kernels.prove_compiler(self._world)
            if self._sweep.bind == "core":
                cores = self._world.cores_to_bind(kind.cores)
                self._world.bind(cores)
        self._platform = open_platform(self._sweep, wanted, self._name, self._world)
        topology = self._platform.topology()
        with self.agreeing():
            versions = self._platform.versions()
        self.greeting = WorkerHello(topology, versions, variables(), cores=tuple(cores))
        self._open.enter_context(signals.deferred())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *rest: object) -> None:
        if kind is None or self._world.size == 1 or getattr(error, "agreed", False):
            if self._platform and kind is None:  # else the others may not come to close it too
                WATCHDOG.hanging = not self._platform.close()
            WATCHDOG.stop()
            self._open.__exit__(kind, error, None)
            return
        if issubclass(kind, Exception) and not getattr(error, "quietly", False):  # what the abort would not say
            sys.stderr.write(f"collbench: error: rank {self._world.rank}: {error or kind.__name__}\n")
            sys.stderr.flush()
        end_all()  # the others may wait for this rank for ever

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep on every process."""
        assert self._platform
        WATCHDOG.phase = Phase.MEASURING
        for case in self._sweep.cases():
            self._current = case, self._sweep.implementations[0]
            self._beat(self._current[1])
            results = execute_case(case, self._sweep.implementations, self._platform, self._sweep.sampling, self._beat)
            try:
                yield from results
            except CaseFailed as reason:
                yield self.failed(f"{reason}; the run ends here")
                return

    def _beat(self, name: str) -> None:
        """Allow the time of another step of the case, and end if a signal has come."""
        signals.check()
        assert self._current
        case, _ = self._current
        self._current = case, name
        limit = seconds_for(case, self._sweep.sampling)
        if name not in self._started:  # its library starts
            limit = max(limit, find_platform(self._name).cold_start)
        WATCHDOG.feed(limit)

    def failed(self, reason: str) -> Failed:
        """Return the row of what was carried out last."""
        case, name = self._current or (next(iter(self._sweep.cases())), self._sweep.implementations[0])
        return Failed(case, name, self._name, reason)
