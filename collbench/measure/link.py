"""What passes between supervisor and workers: JSON lines over a socket, and a page that says what runs now.

The page is shared memory in a file, because a rank that dies or hangs can no longer say what it was doing.
"""

import json
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PAGE = struct.Struct("Q56s")  # how often something was begun, and the implementation it was begun for


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; Closed if nobody is there."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise Closed from None

    def receive(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next message; None if none comes within that many seconds (None: wait), Closed if none will."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._received:
            patience = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._connection], [], [], patience)[0]:
                return None
            try:
                part = self._connection.recv(1 << 20)
            except OSError:
                part = b""
            if not part:
                raise Closed
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def listen(folder: Path) -> socket.socket:
    """The supervisor's socket in a private folder."""
    server = socket.socket(socket.AF_UNIX)
    with _short(folder) as name:
        server.bind(f"{name}/socket")
    server.listen(1)
    return server


def connect(folder: Path) -> Channel:
    """The workers' end; Closed if the supervisor is gone already."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(folder) as name:
            connection.connect(f"{name}/socket")
    except OSError as error:
        connection.close()
        raise Closed from error
    return Channel(connection)


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Another name of a folder, whose own may be longer than the 107 bytes that a socket's may have."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


class Page:
    """The shared page: workers turn it, the supervisor looks."""

    def __init__(self, folder: Path) -> None:
        path = folder / "page"
        if not path.exists():
            path.write_bytes(bytes(_PAGE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PAGE.size)
        self._turns = 0

    def turn(self, implementation: str) -> None:
        """Something begins for this implementation."""
        self._turns += 1
        _PAGE.pack_into(self._memory, 0, self._turns, implementation.encode()[:55])

    def look(self) -> tuple[int, str]:
        """How often something was begun, and for which implementation last ("" before the first)."""
        turns, name = _PAGE.unpack_from(self._memory)
        return turns, name.rstrip(b"\0").decode()
