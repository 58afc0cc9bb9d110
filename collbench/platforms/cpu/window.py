"""Memory that all ranks of a machine map, and that is in no folder: it ends with the last process that maps it.

So nothing is left behind, whoever is killed and when.  The first rank of a machine makes a file of memory (memfd), and
the others open it through /proc, or are handed it over a socket where /proc does not let them.  Each rank's part is a
span of whole huge pages, and a page lies where it is first touched: a rank that fills its own buffers has them near.
"""

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from collbench.errors import PlatformError
from collbench.platforms.cpu.memory import nameless
from collbench.units import format_size

T = TypeVar("T")

HUGE = 2**21  # bytes: of a huge page on x86-64 and, mostly, on arm64
_PATIENCE = 10.0  # seconds until every rank has come for the memory
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as unix(7) has them
_FAILURES = OSError, ValueError, OverflowError  # of the last, Python's own refusals of a length


@dataclass(frozen=True)
class _Offer:
    """Where the first rank's file is, and how to tell that it is the one."""

    pid: int
    fd: int
    identity: tuple[int, int, int]  # device, inode, bytes
    socket: str = ""  # abstract: it has no file either
    token: bytes = b""  # whoever knows it is one of the ranks, since MPI told it


class Window:
    """The memory of all ranks of this machine; `bases` has the address of each one's part, by its rank in the run."""

    def __init__(self, comm: Any, nbytes: int) -> None:
        """*Collective*: so many bytes for each rank, of an mpi4py communicator; PlatformError on all of a machine."""
        from mpi4py import MPI

        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        neighbours: list[int] = node.allgather(comm.Get_rank())
        page = HUGE if nbytes >= HUGE else mmap.PAGESIZE
        part = -(-nbytes // page) * page
        fd = _shared(node, part * len(neighbours))
        try:
            self._memory = _agreed(node, lambda: mmap.mmap(fd, part * len(neighbours)))
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):  # kernels without huge pages refuse; others may be told to give none
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(self._memory, np.uint8).ctypes.data
        self.bases = {rank: start + place * part for place, rank in enumerate(neighbours)}
        self.cores: set[int] = set().union(*node.allgather(os.sched_getaffinity(0)))
        node.Free()

    def close(self) -> None:
        """Unmap it; what others have mapped stays theirs."""
        self._memory.close()


def _shared(node: Any, nbytes: int) -> int:
    """*Collective*: a descriptor of one file of so many bytes, open on every rank of the machine."""
    leads = node.Get_rank() == 0
    made = _agreed(node, lambda: _make(nbytes) if leads else -1)
    offer: _Offer = node.bcast(_Offer(os.getpid(), made, _identity(made)) if leads else None)
    fd = made if leads else _attempt(lambda: _open(offer))
    lacking = [place for place, ours in enumerate(node.allgather(isinstance(fd, int))) if not ours]
    if lacking:
        fd = _over_socket(node, offer, fd, lacking)
    assert isinstance(fd, int)
    return fd


def _make(nbytes: int) -> int:
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
    return fd


def _identity(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size


def _open(offer: _Offer) -> int:
    """Through /proc, which lets processes of one user; where process ids mean others, it is another file or none."""
    return _verified(os.open(f"/proc/{offer.pid}/fd/{offer.fd}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), offer)


def _verified(fd: int, offer: _Offer) -> int:
    if _identity(fd) != offer.identity:
        os.close(fd)
        raise OSError("it is another file than the first rank's")
    return fd


def _over_socket(node: Any, offer: _Offer, fd: Any, lacking: Sequence[int]) -> int:
    """*Collective*: the ranks that lack the file are handed it by the first; the descriptor on each."""
    leads = node.Get_rank() == 0
    name, token = f"\0collbench-{secrets.token_hex(8)}", secrets.token_bytes(16)
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as place:
        _agreed(node, lambda: _listen(place, name, len(lacking)) if leads else None)
        offer = node.bcast(_Offer(offer.pid, offer.fd, offer.identity, name, token) if leads else None)
        if leads:
            return _agreed(node, lambda: _hand_out(place, offer, len(lacking)))
        return _agreed(node, lambda: fd if isinstance(fd, int) else _fetch(place, offer))


def _listen(place: socket.socket, name: str, ranks: int) -> None:
    place.bind(name)
    place.listen(ranks)


def _hand_out(place: socket.socket, offer: _Offer, wanted: int) -> int:
    """To ranks alone: of this user, and with the token that MPI brought them.  Names of sockets are no secret."""
    deadline = time.monotonic() + _PATIENCE
    while wanted:
        place.settimeout(max(1e-3, deadline - time.monotonic()))
        with contextlib.closing(place.accept()[0]) as rank, contextlib.suppress(ConnectionError):
            rank.settimeout(1.0)
            if _user(rank) == os.geteuid() and hmac.compare_digest(rank.recv(len(offer.token)), offer.token):
                socket.send_fds(rank, [b"."], [offer.fd])
                wanted -= 1
    return offer.fd


def _fetch(place: socket.socket, offer: _Offer) -> int:
    place.settimeout(_PATIENCE)
    place.connect(offer.socket)
    if _user(place) != os.geteuid():
        raise OSError("another user answers in the first rank's place")
    place.sendall(offer.token)
    _, descriptors, _, _ = socket.recv_fds(place, 1, 1)
    if not descriptors:
        raise OSError("the first rank did not hand it out")
    return _verified(descriptors[0], offer)


def _user(peer: socket.socket) -> int:
    """Who is at the other end, as the kernel says."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _attempt(act: Callable[[], T]) -> T | PlatformError:
    try:
        return act()
    except PlatformError as error:
        return error
    except _FAILURES as error:
        return PlatformError(
            f"ranks of one machine cannot share memory: {_reason(error)}; "
            "start them in one container, as one user, with enough memory (`ulimit -v`)"
        )


def _agreed(node: Any, act: Callable[[], T]) -> T:
    """*Collective*: what `act` gives; if it fails on any rank of the machine, the lowest one's PlatformError on all."""
    mine = _attempt(act)
    failed = [error for error in node.allgather(mine if isinstance(mine, PlatformError) else None) if error]
    if failed:
        raise PlatformError(str(failed[0]))
    assert not isinstance(mine, PlatformError)
    return mine


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
