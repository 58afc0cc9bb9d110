"""Ends the processes of an outside launcher when nothing has begun for too long: nobody else watches over them.

Any of them may wait for ever for one that was stopped, never came or took another way.  So a thread of each sleeps
until the time is up, and is put off by whatever begins.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from collbench.measure import cleanup

START = 60.0  # seconds until all have come, where nobody has said a time-out yet
_LOOK = 0.5  # seconds, since the deadline may come nearer too
_GRACE = 5.0  # seconds that the others leave to rank 0, which can note in the run file what happened
_BEFORE = 1.5  # seconds before rank 0 ends all, in which another rank says what it failed of
_ABORT = 2.0  # seconds that MPI_Abort gets, which may wait for a lock that a hung thread holds

LastWords = Callable[[str], str]
"""Writes down for what reason the run ends; what a reader must know besides."""


class Phase(Enum):
    """How far the processes are, which decides how one that fails tells the others."""

    APART = auto()  # none waits for another
    GATHERING = auto()  # the others come to an exchange next, and learn it there
    MEASURING = auto()  # they may be anywhere, and are ended


class Watchdog:
    """Of this process, with the phase that it is in; it rings once if it is not fed in time."""

    def __init__(self) -> None:
        self.phase = Phase.APART
        self.last_words: LastWords = lambda reason: ""
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
        """Something begins, which may take that long."""
        self.seconds, self._deadline = seconds, time.monotonic() + seconds

    def stop(self) -> None:
        """From here on none waits for another, and what follows may take as long as it likes."""
        self.phase = Phase.APART
        self._stopped.set()

    def _watch(self, stopped: threading.Event) -> None:
        grace, said = _GRACE if self._rank else 0.0, ""
        while (left := self._deadline + grace - time.monotonic()) > 0:
            if stopped.wait(min(left, _LOOK)):
                return
            if left < grace + _BEFORE and self.trouble() != said:
                said = self.trouble()
                sys.stderr.write(f"collbench: error: rank {self._rank}: {said}\n" if said else "")
                sys.stderr.flush()
        reason = f"no progress for {self.seconds:.0f} s (--timeout)"
        more = self.last_words(reason)
        sys.stderr.write(f"collbench: error: rank {self._rank}: {reason}; the run ends here{more}\n")
        sys.stderr.flush()
        end_all()

    def leave_hanging(self) -> None:
        """The end of a process that did all it had to, and holds what hangs: rank 0, which writes, ends them all."""
        if self.hanging:
            time.sleep(START if self._rank else 0.0)
            end_all()

    def leave(self) -> None:
        """End all if others may wait for this process, which cannot go on."""
        if self.phase is not Phase.APART:
            end_all()


WATCHDOG = Watchdog()


def end_all() -> None:
    """End this process and all others of the launcher, even where MPI hangs."""
    patience = _ABORT if "mpi4py.MPI" in sys.modules else START / 2  # the others may come to MPI's start later
    thread = threading.Thread(target=_abort, daemon=True)
    thread.start()
    thread.join(patience)
    os._exit(1)


def _abort() -> None:
    """Where this process has not come to MPI yet, it does so, since the others may wait for it there."""
    with suppress(ImportError):
        from mpi4py import MPI

        cleanup.unname()
        MPI.COMM_WORLD.Abort(1)


_GUARD = """
import select, sys
seconds, pid, line, home = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    print(line, file=sys.stderr, flush=True)
    sys.path.insert(0, home)
    from collbench.measure import cleanup
    cleanup.end([int(pid)])
"""


@contextmanager
def guarded(rank: int, seconds: float) -> Iterator[None]:
    """Around the start of MPI, which waits for all processes and keeps Python's lock, so that no thread can watch it.

    A process beside this one does, and goes with it.
    """
    line = f"collbench: error: rank {rank}: MPI did not start within {seconds:.0f} s: not all processes came to it"
    mine = str(seconds + (_GRACE if rank else 0)), str(os.getpid()), line, str(Path(__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", _GUARD, *mine]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        try:
            yield
        finally:
            guard.kill()
