"""A watchdog that ends an outside launcher's processes after a stall.

A process may wait for ever for one that was stopped, never started or took another branch. So a thread in each
process waits for a deadline, which every new phase extends. It starts before anything that may fail on one node.
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

START = 60.0  # seconds for all to start, before a time-out is known
_LOOK = 0.25  # seconds between two checks of the deadline, which may also move closer; Open MPI kills 1 s after SIGTERM
_GRACE = 5.0  # seconds that the others leave rank 0 to record the reason in the run file
_BEFORE = 1.5  # seconds that rank 0 leaves another rank to report its error
_ABORT = 2.0  # seconds for MPI_Abort, which may wait for a hung thread's lock


def no_progress(seconds: float, phase: str) -> str:
    """Return the reason for ending a run after *seconds* without progress."""
    return f"no progress for {seconds:.0f} s (--timeout)" + (f" in the phase: {phase}" if phase else "")


class Phase(Enum):
    """Progress of the processes, which decides how one that fails informs the others."""

    APART = auto()  # no process waits for another
    GATHERING = auto()  # the others learn it in the next exchange
    MEASURING = auto()  # the others may be anywhere, and are ended


class Watchdog:
    """Ends the run from a thread unless `feed` is called in time."""

    def __init__(self) -> None:
        self.phase = Phase.APART
        self.last_words: Callable[[str], str] = lambda reason: ""  # records why the run ends; returns text for the user
        self.trouble: Callable[[], str] = str  # this process's error, if the others have not received it
        self.waits: Callable[[], str] = str  # which rank waits for which, as this process sees it
        self.hanging = False  # whether a library or device hangs and would block this process's exit
        self._rank = 0
        self._losing = threading.Lock()
        self.seconds, self._deadline, self._doing = START, 0.0, ""
        self._stopped = threading.Event()

    def start(self, rank: int) -> None:
        """Start watching this rank, before anything can hang."""
        self._rank, self.phase, self._stopped = rank, Phase.GATHERING, threading.Event()
        self.feed(START)
        threading.Thread(target=self._watch, args=(self._stopped,), daemon=True).start()

    def feed(self, seconds: float, phase: str = "") -> None:
        """Restart the timer: the phase that begins now may take `seconds`."""
        self.seconds, self._deadline, self._doing = seconds, time.monotonic() + seconds, phase

    def stop(self) -> None:
        """Stop watching: no process waits for another, and the rest may take any time."""
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
        """End the run because a process is gone; do nothing if none waits for another, as at the end of a command."""
        with self._losing:
            time.sleep(_LOOK)  # it may have ended normally before this one
            if self.phase is not Phase.APART:
                self._print(f"{reason}; the run ends here{self.last_words(reason)}")
                end_all()

    def _print(self, words: str) -> None:
        if words:
            sys.stderr.write(f"collbench: error: rank {self._rank}: {words}\n")
            sys.stderr.flush()

    def leave(self) -> None:
        """End all processes if others may wait for this one, which cannot continue."""
        if self.phase is not Phase.APART:
            end_all()

    def leave_hanging(self) -> None:
        """End a finished process that holds a hanging resource; rank 0, which writes, ends them all."""
        if self.hanging:
            time.sleep(START if self._rank else 0.0)
            end_all()


WATCHDOG = Watchdog()


def end_all() -> None:
    """End this process and all others of the launcher, even where MPI hangs."""
    seconds = _ABORT if "mpi4py.MPI" in sys.modules else START / 2  # the others may start MPI later
    thread = threading.Thread(target=_abort, daemon=True)
    thread.start()
    thread.join(seconds)
    os._exit(BAD)


def _abort() -> None:
    if not starts_mpi():
        return  # the others see that this process is gone
    # If this process has not started MPI yet, start it now: the others may wait for it there.
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
    """Bound the start of MPI, which waits for all processes and holds the GIL, so no thread can watch it.

    A child process watches, and ends with this one.
    """
    line = f"collbench: error: rank {rank}: MPI did not start within {seconds:.0f} s: not all processes came to it"
    limit = seconds + (_GRACE if rank else 0)
    command = [sys.executable, "-I", "-S", "-c", _GUARD, str(limit), str(os.getpid()), line]
    with subprocess.Popen([*command, str(Path(__file__).parents[2])], stdin=subprocess.PIPE) as guard:
        try:
            yield
        finally:
            guard.kill()
