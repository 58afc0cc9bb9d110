"""Processes that a launcher without MPI started: they speak by sockets, each of them with the first.

The first process listens, and how the others learn where is the business of rendezvous.py.  A process that connects
shows the word that the first process left there, before anything else of it is read: what follows are pickles.  The
kernel tells at once when a process is gone, even by kill -9, so nobody has to wait for a time-out then.
"""

import hmac
import json
import os
import pickle
import resource
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from collbench.datatypes import Array
from collbench.errors import PlatformError
from collbench.host import launcher
from collbench.platforms.processes import Processes, node_name

_LENGTH = struct.Struct("<Q")
_MOST = 4096  # bytes of what is read from somebody who has not shown the word yet
_ANSWERING = 5.0  # seconds for a process that has connected to show it
_CONNECTING = 3.0  # seconds for a connection
_PAUSE = 0.1  # seconds between two looks for where the first process listens


class Rendezvous(Protocol):
    """A place where the first process leaves a text for all others."""

    what: str  # in words, for errors

    def leave(self, text: str) -> None:
        """Leave it, in place of what a start before this one has left."""

    def find(self) -> str:
        """Return the text that lies there; "" if there is none yet."""

    def close(self) -> None:
        """Take the text away: all have come, or are waited for no more."""


class _Gone(Exception):
    """The other process is not there any more, or has never been one of ours."""


class _Link:
    """A connection to another process: messages, each with its length before it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection

    def send(self, message: bytes) -> None:
        try:
            self.socket.sendall(_LENGTH.pack(len(message)) + message)
        except OSError as error:
            raise _Gone from error

    def receive(self, most: int | None = None) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if most is not None and length > most:
            raise _Gone
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(min(count - len(parts), 2**20))
            except OSError as error:
                raise _Gone from error
            if not part:
                raise _Gone
            parts += part
        return bytes(parts)


class SocketProcesses(Processes):
    """The processes of a launcher without MPI."""

    def __init__(self, rank: int, size: int, links: Mapping[int, _Link]) -> None:
        super().__init__(rank, size)
        self.links = links  # of the leader to all others by rank, of another to the leader
        self._lost: Callable[[int], None] = lambda rank: None

    @classmethod
    def at(cls, place: Rendezvous, rank: int, size: int, seconds: float) -> Self:
        """Return all processes that the launcher started, once they have found each other.

        Raises:
            PlatformError: They have not within so many seconds.

        """
        deadline = time.monotonic() + seconds
        if rank:
            return cls(rank, size, {0: _connect(rank, size, place, deadline)})
        return cls(rank, size, _accept(size, place, deadline))

    def watch(self, lost: Callable[[int], None]) -> None:
        """Call that, from a thread, with the rank of a process as soon as that is gone."""
        self._lost = lost
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        hung_up = select.poll()
        ranks = {link.socket.fileno(): rank for rank, link in self.links.items()}
        for descriptor in ranks:
            hung_up.register(descriptor, select.POLLRDHUP)
        while ranks:
            for descriptor, _ in hung_up.poll():
                hung_up.unregister(descriptor)
                self._lost(ranks.pop(descriptor))

    def _send(self, rank: int, message: bytes) -> None:
        try:
            self.links[rank].send(message)
        except _Gone:
            self._give_up(rank)

    def _receive(self, rank: int) -> bytes:
        try:
            return self.links[rank].receive()
        except _Gone:
            self._give_up(rank)

    def _give_up(self, rank: int) -> NoReturn:
        self._lost(rank)
        raise PlatformError(f"rank {rank} is gone")

    def gather(self, mine: Any) -> list[Any]:
        """Send it to the first process, which sends all to everybody."""
        if not self.leader:
            self._send(0, pickle.dumps(mine))
            everyone: list[Any] = pickle.loads(self._receive(0))
            return everyone
        everyone = [mine, *(pickle.loads(self._receive(rank)) for rank in range(1, self.size))]
        self.broadcast(everyone)
        return everyone

    def broadcast(self, message: Any) -> Any:
        """Wait in the kernel, where this is not the first process."""
        if not self.leader:
            return pickle.loads(self._receive(0))
        packed = pickle.dumps(message)
        for rank in self.links:
            self._send(rank, packed)
        return message

    def any_of(self, mine: bool) -> bool:
        """Gather what all say."""
        return any(self.gather(mine))

    def slowest(self, mine: Array) -> Array:
        """Gather the numbers of all."""
        largest: Array = np.max(self.gather(mine), axis=0)
        return largest

    def neighbours(self) -> list[int]:
        """Return the ranks of the same machine and, where Slurm has several nodes on it, of the same node."""
        nodes = self.gather((os.environ.get("SLURMD_NODENAME"), node_name()))
        return [rank for rank, node in enumerate(nodes) if node == nodes[self.rank]]

    def send(self, numbers: Array, rank: int) -> None:
        """Send the bytes of an array."""
        self._send(rank, numbers.tobytes())

    def receive(self, numbers: Array, rank: int) -> None:
        """Receive the bytes of an array."""
        numbers[:] = np.frombuffer(self._receive(rank), numbers.dtype)

    def sleep_until_sent(self) -> None:
        """Sleep in the kernel."""
        select.select([self.links[0].socket], [], [])

    def abort(self) -> None:
        """End this process: the others see it."""
        os._exit(1)


def _accept(size: int, place: Rendezvous, deadline: float) -> dict[int, _Link]:
    """Listen, leave word where, and return a connection to each other rank."""
    here = launcher.neighbours() == size  # nobody else has to reach this machine
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection to each of a thousand ranks
    server = socket.create_server(("127.0.0.1" if here else "", 0), backlog=size)
    word = secrets.token_hex(16)
    hosts = [] if here else [*filter(None, [os.environ.get("MASTER_ADDR")]), *_addresses()]
    where = {"node": node_name(), "hosts": hosts, "port": server.getsockname()[1], "word": word}
    links: dict[int, _Link] = {}
    with server, closing(place):
        place.leave(json.dumps(where))
        while len(links) < size - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = ", ".join(str(rank) for rank in range(1, size) if rank not in links)
                raise PlatformError(
                    f"rank {missing} of {size} did not come to {place.what} in time: start all, or raise --timeout"
                ) from None
            try:
                rank, link = _admit(connection, word, size, links)
                links[rank] = link
            except (_Gone, ValueError, TypeError, KeyError):  # somebody else's
                connection.close()
    return links


def _admit(connection: socket.socket, word: str, size: int, links: Mapping[int, _Link]) -> tuple[int, _Link]:
    """Return who has connected; `_Gone` if it is none of the processes that are waited for."""
    connection.settimeout(_ANSWERING)
    link = _Link(connection)
    hello = json.loads(link.receive(_MOST))
    if not hmac.compare_digest(str(hello["word"]), word):
        raise _Gone
    rank, other = int(hello["rank"]), int(hello["size"])
    refusal = ""
    if other != size:
        refusal = f"rank {rank} was started as one of {other} processes, rank 0 as one of {size}"
    elif rank in links or not 0 < rank < size:
        refusal = f"there is a rank {rank} already"
    link.send(json.dumps({"refused": refusal}).encode())
    if refusal:
        raise _Gone
    connection.settimeout(None)
    return rank, link


def _connect(rank: int, size: int, place: Rendezvous, deadline: float) -> _Link:
    """Return a connection to the first process, once it says where it listens."""
    tried = ""
    while time.monotonic() < deadline:
        if text := place.find():
            where = json.loads(text)
            local = ["127.0.0.1"] if where["node"] == list(node_name()) else []
            for host in [*local, *where["hosts"]]:
                tried = f"{host}:{where['port']}"
                with suppress(OSError, _Gone, ValueError, KeyError):  # left by an earlier start
                    return _introduce(host, rank, size, where)
        time.sleep(_PAUSE)
    found = (
        f"nobody answers at {tried}, where rank 0 should be by {place.what}"
        if tried
        else f"no word of rank 0 in {place.what}"
    )
    raise PlatformError(f"{found}: start all ranks, give each run a folder of its own, or raise --timeout")


def _introduce(host: str, rank: int, size: int, where: Mapping[str, Any]) -> _Link:
    connection = socket.create_connection((host, int(where["port"])), timeout=_CONNECTING)
    with ExitStack() as undo:
        undo.enter_context(connection)
        link = _Link(connection)
        link.send(json.dumps({"word": where["word"], "rank": rank, "size": size}).encode())
        if refused := json.loads(link.receive(_MOST))["refused"]:
            raise PlatformError(f"{refused}: do two runs meet in one place? give each its own --rendezvous")
        connection.settimeout(None)
        undo.pop_all()
    return link


def _addresses() -> Iterator[str]:
    """Yield the addresses of this machine that others may reach."""
    import psutil

    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                yield each.address
