"""Ends the processes of an outside launcher when nothing has begun for too long: nobody else watches over them.

Any process may wait for ever for one that was stopped, never came or took another way.  So a thread in each sleeps
until the time is up, and is put off by whatever begins.  It is there before anything that may be broken on one node.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from collbench.exits import BAD
from collbench.host import processes, signals
from collbench.host.launcher import starts_mpi

START = 60.0  # seconds until all have come, where nobody has said a time-out yet
_LOOK = 0.25  # seconds between two looks at the deadline, which may come nearer too; Open MPI kills 1 s after SIGTERM
_GRACE = 5.0  # seconds that the others leave to rank 0, which can note in the run file what happened
_BEFORE = 1.5  # seconds before rank 0 ends all, in which another rank says what it failed of
_ABORT = 2.0  # seconds that MPI_Abort gets, which may wait for a lock that a hung thread holds


def no_progress(seconds: float, phase: str) -> str:
    """Return the reason for the end of what made no progress for so long."""
    return f"no progress for {seconds:.0f} s (--timeout)" + (f" in the phase: {phase}" if phase else "")


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
        self.trouble: Callable[[], str] = str  # this process's error, if the others have not received it
        self.waits: Callable[[], str] = str  # ranks and the ranks that they wait for, as this process sees them
        self.hanging = False  # whether a library or device hangs, for which this process's exit would wait
        self._rank = 0
        self._losing = threading.Lock()
        self.seconds, self._deadline, self._doing = START, 0.0, ""
        self._stopped = threading.Event()

    def start(self, rank: int) -> None:
        """Watch over this rank, before anything can hang."""
        self._rank, self.phase, self._stopped = rank, Phase.GATHERING, threading.Event()
        self.feed(START)
        threading.Thread(target=self._watch, args=(self._stopped,), daemon=True).start()

    def feed(self, seconds: float, phase: str = "") -> None:
        """Restart the timer: the phase that begins now may take `seconds`."""
        self.seconds, self._deadline, self._doing = seconds, time.monotonic() + seconds, phase

    def stop(self) -> None:
        """Watch no more: none waits for another, and what follows may take as long as it likes."""
        self.phase = Phase.APART
        self._stopped.set()

    def _watch(self, stopped: threading.Event) -> None:
        grace, printed = _GRACE if self._rank else 0.0, ""
        came: int | None = None
        while (left := self._deadline + grace - time.monotonic()) > 0:
            if stopped.wait(min(left, _LOOK)):
                return
            if left < grace + _BEFORE and self.trouble() != printed:
                printed = self.trouble()
                self._print(printed)
            before, came = came, signals.unanswered()
            if came and came == before and not self._rank:  # it must report before the launcher kills it
                break
        what = no_progress(self.seconds, self._doing)
        if came:
            what = f"{signal.Signals(came).name} came, and nothing goes on"
        reason = "; ".join(filter(None, (what, self.waits())))
        self._print(f"{reason}; the run ends here{self.last_words(reason)}")
        end_all()

    def lost(self, reason: str) -> None:
        """End the run, since a process is gone; do nothing if none waits for another, as at the end of a command."""
        with self._losing:
            time.sleep(_LOOK)  # it may just have come to its end before this one
            if self.phase is not Phase.APART:
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
    os._exit(BAD)


def _abort() -> None:
    if not starts_mpi():
        return  # the others see that this process is gone
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

    A child process does, and ends with this one.
    """
    line = f"collbench: error: rank {rank}: MPI did not start within {seconds:.0f} s: not all processes came to it"
    limit = seconds + (_GRACE if rank else 0)
    command = [sys.executable, "-I", "-S", "-c", _GUARD, str(limit), str(os.getpid()), line]
    with subprocess.Popen([*command, str(Path(__file__).parents[2])], stdin=subprocess.PIPE) as guard:
        try:
            yield
        finally:
            guard.kill()
