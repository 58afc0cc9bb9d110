"""Ends the ranks of a run from outside, and removes the shared memory that killed processes leave as files."""

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

_SHARED_MEMORY = "/dev/shm/"  # where Linux names it


def shared_files(pid: int | str = "self") -> set[str]:
    """Named shared memory that a process maps; none if there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {line.split()[-1] for line in lines if _SHARED_MEMORY in line and "(deleted)" not in line}


def end(pids: Collection[int], known: Collection[str] = ()) -> None:
    """Kill these processes, and remove the shared memory that they map and what was known of before.

    All are stopped before any is killed: the death of one makes its launcher kill the others, whose maps are then gone.
    """
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    for path in set(known).union(*map(shared_files, pids)):
        Path(path).unlink(missing_ok=True)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
