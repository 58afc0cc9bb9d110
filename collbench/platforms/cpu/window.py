"""Memory that the ranks of a machine share: how much there is, one window for all, and a lock in it.

The window is in no folder and ends with the last process that maps it, so a killed process leaves nothing behind.  The
first rank of a machine makes a file of memory (memfd) and hands it to the others over a socket.  Each rank's part is a
span of whole huge pages, and a page lies where it is first touched: a rank that fills its own buffers has them near.

How much there is depends on the machine's free memory and on the control groups above this process (docker's --memory,
a job's); only where the kernel has no memfd on the room in /dev/shm (docker's --shm-size), too.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import secrets
import shutil
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from collbench.errors import CaseFailed, PlatformError
from collbench.units import format_size

T = TypeVar("T")

HUGE = 2**21  # bytes: of a huge page on x86-64 and, mostly, on arm64
FOLDER = Path("/dev/shm")  # the file system in memory that every Linux has
_TIMEOUT = 10.0  # seconds until every rank has come for the memory
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as unix(7) has them
_FAILURES = OSError, ValueError, OverflowError  # of the last, Python's own refusals of a length


class Window:
    """The memory of all ranks of this machine; `bases` has the address of each rank's part, by its rank in the run."""

    def __init__(self, comm: Any, nbytes: int) -> None:
        """*Collective*: map so many bytes for each rank of an mpi4py communicator.

        Raises:
            PlatformError: On all ranks of a machine, if any of them cannot map the memory.

        """
        from mpi4py import MPI

        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        neighbours: list[int] = node.allgather(comm.Get_rank())
        page = HUGE if nbytes >= HUGE else mmap.PAGESIZE
        part = -(-nbytes // page) * page
        fd = _share(node, part * len(neighbours))
        try:
            self._memory = _agreed(node, lambda: mmap.mmap(fd, part * len(neighbours)))
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):  # kernels without huge pages refuse; others may be configured to give none
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.bases = {rank: start + place * part for place, rank in enumerate(neighbours)}
        self.cores: set[int] = set().union(*node.allgather(os.sched_getaffinity(0)))
        node.Free()

    def close(self) -> None:
        """Unmap the window; what other processes have mapped stays theirs."""
        self._memory.close()


def _share(node: Any, nbytes: int) -> int:
    """*Collective*: return a descriptor of one file of so many bytes, open on every rank of the machine."""
    leads, others = node.Get_rank() == 0, node.Get_size() - 1
    # The name is of the abstract kind, which no folder shows and which ends with the socket.
    name: str = node.bcast(f"\0collbench-{secrets.token_hex(16)}" if leads else "")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as place:
        fd = _agreed(node, lambda: _offer(place, name, nbytes, others) if leads else -1)
        return _agreed(node, lambda: _hand_out(place, fd, others) if leads else _fetch(place, name))


def _offer(place: socket.socket, name: str, nbytes: int, others: int) -> int:
    """Make the file, and listen for the ranks that are to get it."""
    fd = nameless()
    try:
        os.ftruncate(fd, nbytes)
    except _FAILURES as error:
        os.close(fd)
        raise PlatformError(
            f"no shared memory of {format_size(nbytes)}: {_reason(error)}; lower -e or --ranks, or raise `ulimit -f`"
        ) from error
    with contextlib.suppress(OSError):  # only memfd has seals: nobody cuts off what others are storing into
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    place.bind(name)
    place.listen(others)
    return fd


def _hand_out(place: socket.socket, fd: int, others: int) -> int:
    """Send the descriptor to so many processes of this user: names of sockets are no secret."""
    deadline = time.monotonic() + _TIMEOUT
    while others:
        place.settimeout(max(1e-3, deadline - time.monotonic()))
        with contextlib.closing(place.accept()[0]) as rank, contextlib.suppress(ConnectionError):
            if _user(rank) == os.geteuid():
                socket.send_fds(rank, [b"."], [fd])
                others -= 1
    return fd


def _fetch(place: socket.socket, name: str) -> int:
    place.settimeout(_TIMEOUT)
    place.connect(name)
    if _user(place) != os.geteuid():
        raise OSError("another user answers in the first rank's place")
    _, descriptors, _, _ = socket.recv_fds(place, 1, 1)
    if not descriptors:
        raise OSError("the first rank did not hand it out")
    return descriptors[0]


def _user(peer: socket.socket) -> int:
    """Return the user at the other end, as the kernel says."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _agreed(node: Any, act: Callable[[], T]) -> T:
    """*Collective*: return what `act` returns; if it fails on any rank of the machine, raise its error on all."""
    result: T | None = None
    failure = ""
    try:
        result = act()
    except PlatformError as error:
        failure = str(error)
    except _FAILURES as error:
        failure = (
            f"ranks of one machine cannot share memory: {_reason(error)}; "
            "start them in one container, as one user, with enough memory (`ulimit -v`)"
        )
    failures = [text for text in node.allgather(failure) if text]
    if failures:
        raise PlatformError(failures[0])
    return result  # type: ignore[return-value]


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


_UNLIMITED = 2**60  # bytes: version 1 writes the largest multiple of a page for no limit


class Room(NamedTuple):
    """Bytes that may be taken, who limits them, and what a user can do about it."""

    free: int
    where: str
    fix: str


def nameless() -> int:
    """Return a descriptor of an empty file in memory without a name; PlatformError where the system has none."""
    if (fd := _memfd()) is not None:
        return fd
    try:
        return os.open(FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PlatformError(
            f"no memory that ranks can share: neither memfd_create nor {FOLDER} gives any ({error.strerror}); "
            "mount a tmpfs there"
        ) from error


def _memfd() -> int | None:
    """None in kernels before 3.17 and in sandboxes that do not know it."""
    try:
        return os.memfd_create("collbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        return None


def room(root: Path = Path("/")) -> Room:
    """Return what this process and its children may take: the least of all limits."""
    rooms = [*_groups(root), *_machine(root)]
    if (fd := _memfd()) is None:
        rooms.append(Room(shutil.disk_usage(FOLDER).free, str(FOLDER), "enlarge it (docker: --shm-size)"))
    else:
        os.close(fd)
    return min(rooms, default=Room(_UNLIMITED, "this machine", ""))


def _machine(root: Path) -> Iterator[Room]:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    if match:
        yield Room(int(match[1]) * 1024, "this machine", "end what takes it")


def _groups(root: Path) -> Iterator[Room]:
    """Yield what is left in each control group above this process that has a limit, of versions 1 and 2."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            yield from _above(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _above(mount / "memory", path, *names)


def _above(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[Room]:
    """In a container the path may be the host's, of which only the mount's own files are to be seen."""
    group = Path(*(part for part in Path(path).parts if part not in ("/", "..")))
    for folder in dict.fromkeys(mount / part for part in (group, *group.parents)):
        most, taken = _text(folder / limit).strip(), _text(folder / usage).strip()
        if not (most.isdigit() and taken.isdigit()) or int(most) >= _UNLIMITED:
            continue
        cached = re.search(rf"^{reclaimable} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
        free = int(most) - int(taken) + int(cached[1] if cached else 0)
        yield Room(max(0, free), "its control group", "raise its limit (docker: --memory)")


def _text(path: Path) -> str:
    """Return the text of a file, or nothing."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


NBYTES = 512  # of a monitor; glibc's mutex has 40 or 48 bytes, its condition variable 48
_SHARED, _ROBUST = 1, 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST: of glibc and of musl
_CONDITION = 256  # bytes behind the mutex
_NAP = 1.0  # seconds of a wait, after which it looks at the time itself


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class Monitor:
    """The one at an address, which one process prepares before any other comes."""

    def __init__(self, address: int) -> None:
        self._mutex, self._condition = ctypes.c_void_p(address), ctypes.c_void_p(address + _CONDITION)
        library = _library()
        self._lock, self._unlock = library.pthread_mutex_lock, library.pthread_mutex_unlock
        self._wait, self._wake = library.pthread_cond_timedwait, library.pthread_cond_broadcast

    def prepare(self) -> None:
        """Make it new; whatever lay there is gone."""
        library, attributes = _library(), ctypes.create_string_buffer(64)
        for start, (kind, place, more) in (
            (self._mutex, ("mutex", "mutexattr", ("setrobust", _ROBUST))),
            (self._condition, ("cond", "condattr", ("setclock", time.CLOCK_MONOTONIC))),
        ):
            _succeed(getattr(library, f"pthread_{place}_init")(attributes))
            _succeed(getattr(library, f"pthread_{place}_setpshared")(attributes, _SHARED))
            _succeed(getattr(library, f"pthread_{place}_{more[0]}")(attributes, more[1]))
            _succeed(getattr(library, f"pthread_{kind}_init")(start, attributes))
            _succeed(getattr(library, f"pthread_{place}_destroy")(attributes))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Alone inside; CaseFailed if a process died in there."""
        _succeed(self._lock(self._mutex))
        try:
            yield
        finally:
            self._unlock(self._mutex)

    def until(self, met: Callable[[], bool], timeout: float) -> bool:
        """Inside `held`: let others in until that is met, for so many seconds at most; whether it is."""
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
