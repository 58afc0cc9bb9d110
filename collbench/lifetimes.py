"""Whether a process lives, which one it is, and when it ends: of processes that are not our children."""

import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_PAUSE = 0.2  # seconds between two looks at a process, where the kernel does not say when it ends


class Life(NamedTuple):
    """A living process: when it was started, which tells it from a later one with its number, and its parent."""

    birth: str
    parent: int


def life(pid: int) -> Life | None:
    """None if there is no such process, or it is dead and only its status is still to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Life(fields[19], int(fields[1]))  # proc(5): behind the name in parentheses


def lives(pid: int, birth: str) -> bool:
    """Whether that very process still does."""
    found = life(pid)
    return found is not None and found.birth == birth


def end_of(pid: int, pause: float = _PAUSE) -> Callable[[], None]:
    """A function that returns once the process has ended, however; ProcessLookupError if there is none now.

    It sleeps on the process's handle.  Kernels before 5.3, sandboxes and some containers' filters have no handles:
    there it looks every `pause` seconds, some microseconds each time.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        if (first := life(pid)) is None:
            raise ProcessLookupError from None
        return lambda: _poll(pid, first.birth, pause)

    def wait() -> None:
        select.select([handle], [], [])

    return wait


def _poll(pid: int, birth: str, pause: float) -> None:
    while lives(pid, birth):
        time.sleep(pause)
