"""Shared memory of one machine's ranks: size, window and lock.

The first rank creates a memfd, and the others open it through that rank's /proc. It has no name and ends with the
last process that maps it, so a killed process leaves nothing behind. Each rank's part consists of whole huge pages.
Pages are placed at first touch, so a rank that fills its own buffers has them near.

Its size is limited by free memory and by control groups (docker's --memory, a batch job's).
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collbench.errors import CaseFailed, PlatformError
from collbench.topology.discover_cpu import control_groups, kilobytes, read_text
from collbench.units import format_size

if TYPE_CHECKING:  # the room of a machine is known without NumPy
    from collbench.platforms.processes import Team

HUGE = 2**21  # bytes: of a huge page on x86-64 and, mostly, on arm64
_FAILURES = OSError, ValueError, OverflowError  # of the last, Python's own refusals of a length


class Window:
    """The memory of all ranks of this machine; `bases` has the address of each rank's part, by its rank in the run."""

    def __init__(self, team: "Team", nbytes: int) -> None:
        """*Collective*: map `nbytes` for each rank of this machine; PlatformError on all if one cannot."""
        neighbours = team.neighbours()
        page = HUGE if nbytes >= HUGE else mmap.PAGESIZE
        part = -(-nbytes // page) * page

        # The file has no name, so the memory ends with the last process that maps it.
        fd = _share(team, neighbours[0], part * len(neighbours))
        try:
            with _agreeing(team):
                self._memory = mmap.mmap(fd, part * len(neighbours))
        finally:
            os.close(fd)

        # Kernels without huge pages refuse; others may be configured to give none.
        with contextlib.suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.bases = {rank: start + index * part for index, rank in enumerate(neighbours)}
        cores = team.gather(os.sched_getaffinity(0))
        self.cores: set[int] = set().union(*(cores[rank] for rank in neighbours))

    def close(self) -> None:
        """Unmap the window; what other processes have mapped stays theirs."""
        self._memory.close()


def _share(team: "Team", first: int, nbytes: int) -> int:
    """*Collective*: return a descriptor of a file of `nbytes`, which rank `first` makes for its machine."""
    leads = team.rank == first
    fd = -1
    with _agreeing(team):
        if leads:
            fd = _make(nbytes)
    process, descriptor, file = team.gather((os.getpid(), fd, _identity(fd)) if leads else None)[first]

    # The kernel opens what a process has in /proc for processes of the same user alone.  In another container the
    # number may be that of another process.
    with _agreeing(team):
        if not leads:
            fd = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
            if _identity(fd) != file:
                os.close(fd)
                raise OSError("the first rank is in another container")
    return fd


def _make(nbytes: int) -> int:
    """Return a descriptor of a new file in memory, of which nobody can cut off what others are storing into."""
    fd = os.memfd_create("collbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
    except _FAILURES as error:
        os.close(fd)
        raise PlatformError(
            f"no shared memory of {format_size(nbytes)}: {_reason(error)}; lower -e or --ranks, or raise `ulimit -f`"
        ) from error
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@contextmanager
def _agreeing(team: "Team") -> Iterator[None]:
    """*Collective*: run what is inside; if it fails on any rank, raise the same PlatformError on all of them."""
    with team.agreeing():
        try:
            yield
        except _FAILURES as error:
            raise PlatformError(
                f"ranks of one machine cannot share memory: {_reason(error)}; "
                "start them in one container, as one user, with enough memory (`ulimit -v`)"
            ) from error


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


_UNLIMITED = 2**60  # bytes: version 1 writes the largest multiple of a page for no limit


class Room(NamedTuple):
    """Bytes that may be taken, who limits them, and what a user can do about it."""

    free: int
    where: str
    fix: str


_GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where control groups of version 2 and of version 1 say their limit, what is taken, and what of that can be had."""


def room(root: Path = Path("/")) -> Room:
    """Return what this process and its children may take: the least of all limits."""
    rooms = list(_groups(root))
    free = kilobytes(read_text(root / "proc/meminfo"), "MemAvailable")
    if free is not None:
        rooms.append(Room(free, "this machine", "end what takes it"))
    return min(rooms, default=Room(_UNLIMITED, "this machine", ""))


def _groups(root: Path) -> Iterator[Room]:
    """Yield what is left in each control group above this process that has a limit."""
    for folder in control_groups(root, "memory"):
        for limit, usage, reclaimable in _GROUP_FILES:
            most, taken = read_text(folder / limit), read_text(folder / usage)
            if most.isdigit() and taken.isdigit() and int(most) < _UNLIMITED:
                # Pages of files that can be dropped count as free.
                cached = re.search(rf"^{reclaimable} (\d+)$", read_text(folder / "memory.stat"), re.MULTILINE)
                free = int(most) - int(taken) + int(cached[1] if cached else 0)
                yield Room(max(0, free), "its control group", "raise its limit (docker: --memory)")


NBYTES = 512  # of a monitor; glibc's mutex has 40 or 48 bytes, its condition variable 48
_SHARED, _ROBUST = 1, 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST: of glibc and of musl
_CONDITION = 256  # bytes behind the mutex
_NAP = 1.0  # seconds of a wait, after which it looks at the time itself


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Monitor:
    """The one at an address, which one process prepares before any other comes."""

    def __init__(self, address: int) -> None:
        self._mutex, self._condition = ctypes.c_void_p(address), ctypes.c_void_p(address + _CONDITION)
        library = ctypes.CDLL(None)
        self._lock, self._unlock = library.pthread_mutex_lock, library.pthread_mutex_unlock
        self._wait, self._wake = library.pthread_cond_timedwait, library.pthread_cond_broadcast

    def prepare(self) -> None:
        """Make it new; whatever lay there is gone."""
        library, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        for start, kind, setting, value in (
            (self._mutex, "mutex", "setrobust", _ROBUST),
            (self._condition, "cond", "setclock", time.CLOCK_MONOTONIC),
        ):
            _succeed(getattr(library, f"pthread_{kind}attr_init")(attributes))
            _succeed(getattr(library, f"pthread_{kind}attr_setpshared")(attributes, _SHARED))
            _succeed(getattr(library, f"pthread_{kind}attr_{setting}")(attributes, value))
            _succeed(getattr(library, f"pthread_{kind}_init")(start, attributes))
            _succeed(getattr(library, f"pthread_{kind}attr_destroy")(attributes))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Alone inside; CaseFailed if a process died in there."""
        _succeed(self._lock(self._mutex))
        try:
            yield
        finally:
            self._unlock(self._mutex)

    def until(self, met: Callable[[], bool], timeout: float) -> bool:
        """Inside `held`: let others in until `met` is true, at most `timeout` seconds; return whether it is."""
        deadline = time.monotonic() + timeout
        while not met():
            now = time.monotonic()
            if now >= deadline:
                return False
            end = min(deadline, now + _NAP)
            limit = _Timespec(int(end), int(end % 1 * 1e9))
            code = self._wait(self._condition, self._mutex, ctypes.byref(limit))
            if code != errno.ETIMEDOUT:
                _succeed(code)
        return True

    def wake(self) -> None:
        """Wake the waiting processes, which look again; call it inside `held`."""
        _succeed(self._wake(self._condition))


def _succeed(code: int) -> None:
    if code == errno.EOWNERDEAD:
        raise CaseFailed("a rank died while it held the lock that all share")
    if code:
        raise CaseFailed(f"a lock that ranks share fails: {os.strerror(code)}")
