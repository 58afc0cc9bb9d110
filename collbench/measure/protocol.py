"""Protocol between supervisor and ranks: JSON over sockets, heartbeats in shared memory.

The heartbeat is a file that both sides map, because a dead or hanging rank can no longer report its phase.
"""

import json
import math
import mmap
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from collbench.host import processes, signals
from collbench.records import encoded
from collbench.results import Result
from collbench.runfile.schema import Interleaved, TopologyPart

WORKER = "collbench.measure.worker"  # the module that ranks run
FOLDER = "COLLBENCH_LINK"  # the variable that names the folder of socket and heartbeat
SUPERVISOR = "COLLBENCH_SUPERVISOR"  # the variable that gives the supervisor's process id
PLATFORM = "COLLBENCH_PLATFORM"  # decides whether MPI starts, before the first message

Tell = Callable[[str], None]  # takes the work in progress, as text

_ANSWERING = 1.0  # seconds for hanging ranks to answer
_SIGNALS = 0.2  # seconds between two checks for a signal
_PAGE = struct.Struct("Q56s64s")  # count of begun phases, current implementation and phase


def tell_nobody(text: str) -> None:
    """Discard the report of work in progress."""


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._messages = Connection(connection.detach())

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, which may hold cases, sweeps and results; Closed if the other end is gone."""
        try:
            self._messages.send_bytes(encoded(message))
        except OSError:
            raise Closed from None

    def receive(self, seconds: float = math.inf) -> dict[str, Any] | None:
        """Return the next message, or None after `seconds` without one; Closed if the other end is gone.

        Interrupted if a deferred signal has come; a wait without a limit does not check for signals.
        """
        deadline = time.monotonic() + seconds
        signals.check()
        try:
            # Without a deadline the process sleeps in the kernel until a message comes.
            while seconds < math.inf and not self._messages.poll(max(0.0, min(deadline - time.monotonic(), _SIGNALS))):
                signals.check()
                if time.monotonic() >= deadline:
                    return None
            message: dict[str, Any] = json.loads(self._messages.recv_bytes())
        except (OSError, EOFError):
            raise Closed from None
        return message

    def close(self) -> None:
        """Hang up."""
        self._messages.close()


def listen(folder: Path) -> socket.socket:
    """Return the supervisor's socket in a private folder."""
    server = socket.socket(socket.AF_UNIX)
    with processes.short_name(folder) as name:
        server.bind(f"{name}/socket")
    server.listen(1)
    return server


def connect(folder: Path) -> Channel:
    """Return the ranks' end; Closed if the supervisor is gone already."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with processes.short_name(folder) as name:
            connection.connect(f"{name}/socket")
    except OSError as error:
        connection.close()
        raise Closed from error
    return Channel(connection)


def answer(folder: Path, say: Callable[[], str]) -> None:
    """Answer the supervisor's question about a stall, from a thread, since the main one may hang in a kernel."""
    with suppress(Closed), closing(connect(folder)) as channel:
        channel.receive()
        channel.send({"answer": say()})


def ask(server: socket.socket) -> str:
    """Return the answer of hanging ranks, or ""."""
    server.settimeout(_ANSWERING)
    with suppress(OSError, Closed), closing(Channel(server.accept()[0])) as channel:
        channel.send({"question": "waits"})
        return str((channel.receive(_ANSWERING) or {}).get("answer", ""))
    return ""


class Heartbeat:
    """A count in shared memory: rank 0 increments it for each new phase, and the supervisor reads it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "heartbeat"

        # The supervisor creates the page first.
        if not path.exists():
            path.write_bytes(bytes(_PAGE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PAGE.size)
        self._count = 0

    def beat(self, implementation: str, phase: str = "") -> None:
        """Record that a phase of this implementation begins."""
        self._count += 1
        _PAGE.pack_into(self._memory, 0, self._count, implementation.encode()[:55], phase.encode()[:63])

    def read(self) -> tuple[int, str, str]:
        """Return the count of begun phases, the latest implementation ("" before the first), and its phase."""
        count, name, phase = _PAGE.unpack_from(self._memory)
        return count, name.rstrip(b"\0").decode(), phase.rstrip(b"\0").decode(errors="ignore")


@dataclass(frozen=True)
class WorkerHello:
    """The ranks' message once they are ready, valid for the whole run; empty before that."""

    topology: TopologyPart = field(default_factory=TopologyPart)  # what connects the ranks
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = ()  # of each rank
    cores: tuple[int, ...] = ()  # of each rank, where they are bound
    starts: int = 1  # number of starts of the ranks
    interleaved: Interleaved = field(default_factory=Interleaved)  # arm of an interleaved run

    def moved(self, before: "WorkerHello") -> str:
        """Return why these ranks cannot replace the earlier ones because their GPUs differ, or "".

        A lost GPU gets no ranks, so the run's header would no longer be true.
        """
        # Node and bus identify a GPU: other properties may change as it fails.
        now = [(gpu.host, gpu.bus_id) for gpu in self.topology.gpus]
        if now == [(gpu.host, gpu.bus_id) for gpu in before.topology.gpus]:
            return ""
        return "fresh ranks are on other GPUs than the run began on"


class Ranks(ABC):
    """A context manager that executes a sweep: local ranks, launched ranks, or the model."""

    greeting = WorkerHello()  # their report, once they are ready
    tell: Tell = staticmethod(tell_nobody)  # called with the work in progress; `lines` with the rows so far

    @abstractmethod
    def start(self, stack: ExitStack) -> WorkerHello:
        """Enter all required contexts into the stack, and return the common hello."""

    @abstractmethod
    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep."""

    def __enter__(self) -> Self:
        # Leave the contexts that were entered before a failure.
        with ExitStack() as stack:
            self.greeting = self.start(stack)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)
