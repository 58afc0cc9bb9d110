"""Processes that are not our children: alive, ended, or to be ended.

A rank's launcher, proxies and compilers may have other parents and sessions by the time they must be ended. All of
them have the environment variable with the folder of their run.

psutil is imported where it is used, so ranks start without it.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_SHARED_MEMORY = "/dev/shm/"  # where Linux names it
_MPICH = f"{_SHARED_MEMORY}mpich_shm_"
_OF_MPI = ("mpich_shm_", "ucx_shm_")  # prefixes of MPICH and UCX
_MOMENT = 0.1  # seconds within which a process has mapped the memory it created
_POLL = 0.2  # seconds between two checks of a process without a pidfd
_ENDING = 2.0  # seconds for killed processes to end


def is_stuck(pid: int) -> bool:
    """Return whether a process is stopped, or waits in the kernel for a device: states T and D of proc(5)."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return facts.rpartition(")")[2].split()[0] in "TD"
    except (OSError, IndexError):
        return False


def is_alive(process: "int | psutil.Process") -> bool:
    """Return whether a process lives; a zombie does not."""
    import psutil

    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def watch_end(pid: int) -> Callable[[], object]:
    """Return a function that sleeps until the process has ended; ProcessLookupError if it does not exist."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise

    # Kernels before 5.3 and some sandboxes and containers have no pidfd: poll instead.
    except (OSError, AttributeError):
        import psutil

        if not is_alive(pid):
            raise ProcessLookupError from None
        process = psutil.Process(pid)

        def poll() -> None:
            while is_alive(process):
                time.sleep(_POLL)

        return poll
    return lambda: select.select([handle], [], [])


def shared_files(pid: int | str = "self") -> set[str]:
    """Return the named shared memory that a process maps or has open."""
    folder = Path("/proc", str(pid))
    opened = []
    try:
        lines = (folder / "maps").read_text(encoding="utf-8").splitlines()
        for entry in (folder / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the handle by which the folder is listed is closed again
                opened.append(str(entry.readlink()))
    except OSError:
        return set()
    names = [line.split(None, 5)[-1] for line in lines if _SHARED_MEMORY in line] + opened
    return {name for name in names if name.startswith(_SHARED_MEMORY) and not name.endswith("(deleted)")}


def unlink_mpich_memory() -> None:
    """Unlink MPICH's shared memory once all ranks have mapped it, so that it ends with the last rank.

    Other libraries map theirs at the first message between two ranks, and unlink it themselves.
    """
    for path in shared_files():
        if path.startswith(_MPICH):
            Path(path).unlink(missing_ok=True)


def unlink_orphans(since: float) -> None:
    """Remove unmapped memory that MPI created after *since* (in file time), but not within the last moment.

    This is for ranks that were killed before their maps could be read.
    """
    time.sleep(_MOMENT)
    orphans = set()
    for path in Path(_SHARED_MEMORY).iterdir():
        with contextlib.suppress(OSError):
            facts = path.stat()
            old = since <= facts.st_ctime < time.time() - _MOMENT
            if old and path.name.startswith(_OF_MPI) and facts.st_uid == os.getuid():
                orphans.add(str(path))
    for folder in Path("/proc").iterdir() if orphans else ():
        if folder.name.isdecimal():
            orphans -= shared_files(folder.name)
    for name in orphans:
        Path(name).unlink(missing_ok=True)


def marked(name: str, value: str) -> "list[psutil.Process]":
    """Return all other living processes that were started with this environment variable."""
    import psutil

    with_mark, silent = {}, []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # another user's process, or one that has ended
            environment = process.environ()
            if environment.get(name) == value and process.pid != os.getpid():
                with_mark[process.pid] = process
            elif not environment:
                silent.append((process.ppid(), process))

    # During exec a process briefly shows no environment: count it like its parent.
    return [*with_mark.values(), *(process for parent, process in silent if parent in with_mark)]


def end_marked(name: str, value: str, known: Collection[str] = ()) -> None:
    """Kill all processes that have this variable, and remove their shared memory and the *known* one."""
    deadline = time.monotonic() + _ENDING
    paths = set(known)

    # Stop all before killing any: after one death the launcher kills the others, and their maps are lost.
    while victims := _stop_marked(name, value):  # repeat for processes that showed no environment
        end(victims, paths)
        while any(map(is_alive, victims.values())):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        paths.clear()
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _stop_marked(name: str, value: str) -> "dict[int, psutil.Process]":
    stopped: dict[int, psutil.Process] = {}
    # Repeat until no process is new: one may have started another just before it was stopped.
    while fresh := [process for process in marked(name, value) if process.pid not in stopped]:
        for process in fresh:
            _signal(process.pid, signal.SIGSTOP)
            stopped[process.pid] = process
    return stopped


def end(pids: Collection[int], known: Collection[str] = ()) -> None:
    """Kill these processes, and remove the shared memory that they map and the *known* one."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    for path in set(known).union(*map(shared_files, pids)):
        Path(path).unlink(missing_ok=True)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def short_name(folder: Path) -> Iterator[str]:
    """Yield a short name of a folder, since a socket's path is limited to 107 bytes."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
