"""Ends the ranks of a run from outside, and removes the shared memory that killed processes leave as files.

A rank's launcher, its proxies, ranks and compilers may be anybody's children by then, in sessions of their own, and
unknown to those who must end them.  What they all have is the variable that names the folder of their run.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping
from itertools import starmap
from pathlib import Path

from collbench.lifetimes import life, lives

_SHARED_MEMORY = "/dev/shm/"  # where Linux names it
_MPICH = f"{_SHARED_MEMORY}mpich_shm_"
_OF_MPI = ("mpich_shm_", "ucx_shm_")  # names that MPICH and the library below it give
_MOMENT = 0.1  # seconds, in which a process surely maps what it has just made
_PROCESSES = Path("/proc")
_PATIENCE = 2.0  # seconds for killed processes to be gone


def shared_files(pid: int | str = "self") -> set[str]:
    """Named shared memory that a process maps or has open; none if there is no such process."""
    folder = _PROCESSES / str(pid)
    opened = []
    try:
        lines = (folder / "maps").read_text(encoding="utf-8").splitlines()
        for entry in (folder / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the one that the list was read by is closed again
                opened.append(str(entry.readlink()))
    except OSError:
        return set()
    names = [line.split(None, 5)[-1] for line in lines if _SHARED_MEMORY in line] + opened
    return {name for name in names if name.startswith(_SHARED_MEMORY) and not name.endswith("(deleted)")}


def unname() -> None:
    """Take the name of the memory that MPICH shares, once all ranks have it: so it goes with the last of them.

    Other libraries open theirs when two ranks first speak to each other, and take the names themselves.
    """
    for path in shared_files():
        if path.startswith(_MPICH):
            Path(path).unlink(missing_ok=True)


def unname_orphans(since: float) -> None:
    """Remove memory that MPI made after `since` (as files' times count) and nobody maps, nor does a moment later.

    For ranks that were all killed before anybody could look what they map.
    """
    for second_look in (False, True):
        if second_look:
            time.sleep(_MOMENT)
        orphans = {
            str(path)
            for path in Path(_SHARED_MEMORY).iterdir()
            if path.name.startswith(_OF_MPI) and _made_after(path, since)
        }
        orphans -= set().union(
            *(shared_files(folder.name) for folder in _PROCESSES.iterdir() if folder.name.isdecimal())
        )
        if not orphans:
            return
    for name in orphans:
        Path(name).unlink(missing_ok=True)


def _made_after(path: Path, since: float) -> bool:
    try:
        facts = path.stat()
    except OSError:
        return False
    return facts.st_uid == os.getuid() and facts.st_ctime >= since


def marked(name: str, value: str) -> set[int]:
    """All living processes, but for this one, that were started with this variable in their environment.

    One that is about to run another program shows no environment for a moment: it counts as its parent does.
    """
    wanted = f"{name}={value}".encode()
    pids, silent = set(), {}
    for pid in (int(folder.name) for folder in _PROCESSES.iterdir() if folder.name.isdecimal()):
        with contextlib.suppress(OSError):  # another user's, or gone
            said = (_PROCESSES / str(pid) / "environ").read_bytes()
            if pid != os.getpid() and wanted in said.split(b"\0"):
                pids.add(pid)
            elif not said and (found := life(pid)):
                silent[pid] = found.parent
    return pids | {pid for pid, parent in silent.items() if parent in pids}


def end_marked(name: str, value: str, known: Collection[str] = ()) -> None:
    """Kill all that have this variable, until none is left, and remove their shared memory and what was `known` of it.

    All are stopped before any is killed: the death of one makes its launcher kill the others, whose maps are then gone.
    """
    deadline = time.monotonic() + _PATIENCE
    births = _stop_marked(name, value)
    end(births, known)
    while births and _gone(births, deadline):
        if births := _stop_marked(name, value):  # whoever showed no environment, and whose parent is gone
            end(births)


def _gone(births: Mapping[int, str], deadline: float) -> bool:
    """Whether these are all dead by then."""
    while left := any(starmap(lives, births.items())):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return not left


def _stop_marked(name: str, value: str) -> dict[int, str]:
    """All that have this variable, and when they were born: a number may soon be another's."""
    stopped: dict[int, str] = {}
    while fresh := marked(name, value) - set(stopped):  # one that was about to start another may just have done so
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
            stopped[pid] = found.birth if (found := life(pid)) else ""
    return stopped


def end(pids: Collection[int], known: Collection[str] = ()) -> None:
    """Kill these processes, and remove the shared memory that they map and what was known of before."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    for path in set(known).union(*map(shared_files, pids)):
        Path(path).unlink(missing_ok=True)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
