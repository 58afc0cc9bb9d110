"""The protocol between the supervisor and its ranks: JSON over a socket, a heartbeat in shared memory, a hello.

The heartbeat is a file that both sides map, because a rank that dies or hangs can no longer say what it was doing.
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
PLATFORM = "COLLBENCH_PLATFORM"  # decides whether MPI is started, before anything is received

Tell = Callable[[str], None]  # takes what is at work, as text

_ANSWERING = 1.0  # seconds for ranks that hang to say why
_SIGNALS = 0.2  # seconds between two looks whether a signal has come
_PAGE = struct.Struct("Q56s64s")  # how often something was begun, the implementation it was begun for, and the phase


def tell_nobody(text: str) -> None:
    """Show nobody what is at work."""


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._messages = Connection(connection.detach())

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, which may hold cases, sweeps and results; Closed if nobody is there."""
        try:
            self._messages.send_bytes(encoded(message))
        except OSError:
            raise Closed from None

    def receive(self, seconds: float = math.inf) -> dict[str, Any] | None:
        """Return the next message, or None if none comes within `seconds`; Closed if there will be none.

        Interrupted if a deferred signal asks for the end, which is not looked for while this waits for ever.
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
    """Answer the supervisor once it asks why nothing goes on; for a thread, since the main one may hang in a kernel."""
    with suppress(Closed), closing(connect(folder)) as channel:
        channel.receive()
        channel.send({"answer": say()})


def ask(server: socket.socket) -> str:
    """Return what ranks that hang have to say; "" if they do not answer."""
    server.settimeout(_ANSWERING)
    with suppress(OSError, Closed), closing(Channel(server.accept()[0])) as channel:
        channel.send({"question": "waits"})
        return str((channel.receive(_ANSWERING) or {}).get("answer", ""))
    return ""


class Heartbeat:
    """A count in shared memory: rank 0 beats whenever something begins, and the supervisor reads."""

    def __init__(self, folder: Path) -> None:
        path = folder / "heartbeat"

        # The supervisor comes first, and makes the page.
        if not path.exists():
            path.write_bytes(bytes(_PAGE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PAGE.size)
        self._count = 0

    def beat(self, implementation: str, phase: str = "") -> None:
        """Note that something begins for this implementation, and if it has several phases, which."""
        self._count += 1
        _PAGE.pack_into(self._memory, 0, self._count, implementation.encode()[:55], phase.encode()[:63])

    def read(self) -> tuple[int, str, str]:
        """Return how often something was begun, for which implementation last ("" before the first), and the phase."""
        count, name, phase = _PAGE.unpack_from(self._memory)
        return count, name.rstrip(b"\0").decode(), phase.rstrip(b"\0").decode(errors="ignore")


@dataclass(frozen=True)
class WorkerHello:
    """The ranks' message once they are ready, which holds for the whole run; empty before that."""

    topology: TopologyPart = field(default_factory=TopologyPart)  # what connects the ranks
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = ()  # of each rank
    cores: tuple[int, ...] = ()  # of each rank, where they are bound
    starts: int = 1  # how often the ranks were started
    interleaved: Interleaved = field(default_factory=Interleaved)  # arm of an interleaved run

    def moved(self, before: "WorkerHello") -> str:
        """Return why these ranks cannot go on for those before them, on other GPUs; "" if they can.

        A lost GPU is dealt no ranks any more: the header, and all that is drawn by it, would be of another run.
        """
        # Node and bus tell a GPU: what else is known of it may change as it fails.
        now = [(gpu.host, gpu.bus_id) for gpu in self.topology.gpus]
        if now == [(gpu.host, gpu.bus_id) for gpu in before.topology.gpus]:
            return ""
        return "fresh ranks are on other GPUs than the run began on"


class Ranks(ABC):
    """Anything that executes a sweep: local ranks, launched ranks, or the model. It is there inside `with`."""

    greeting = WorkerHello()  # their report, once they are ready
    tell: Tell = staticmethod(tell_nobody)  # called with the work in progress; `lines` with the rows so far

    @abstractmethod
    def start(self, stack: ExitStack) -> WorkerHello:
        """Enter the contexts of all that is needed into the stack, and return the common hello."""

    @abstractmethod
    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep."""

    def __enter__(self) -> Self:
        # Contexts entered before a failure are left again.
        with ExitStack() as stack:
            self.greeting = self.start(stack)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)
