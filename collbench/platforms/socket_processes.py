"""Processes that a launcher without MPI started: they speak by sockets, each of them with the first.

The first process listens, and the others learn where at a rendezvous: torch's store, or a folder that all see.  A
process that connects and the first one show each other that they know the word left there, before anything else is
read: what follows are pickles.  The kernel tells at once when a process is gone, even by kill -9, so nobody has to wait
for a time-out then.
"""

import json
import os
import pickle
import re
import resource
import secrets
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import ProcessError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from collbench.datatypes import Array
from collbench.errors import PlatformError
from collbench.host import launcher
from collbench.host.launcher import RENDEZVOUS
from collbench.platforms.processes import Team, node_name

_ANSWERING = 5  # seconds for a process that has connected to show that it knows the word
_CONNECTING = 3.0  # seconds for a connection
_PAUSE = 0.1  # seconds between two looks for where the first process listens


_GONE = (OSError, EOFError, ProcessError, AssertionError)
"""What says that the other process is not there any more, or has never been one of ours."""


class SocketProcesses(Team):
    """The processes of a launcher without MPI."""

    def __init__(self, rank: int, size: int, links: Mapping[int, Connection]) -> None:
        super().__init__(rank, size)
        self.links = links  # of the leader to all others by rank, of another to the leader
        self._lost: Callable[[int], None] = lambda rank: None

    @classmethod
    def at(cls, place: "Rendezvous", rank: int, size: int, seconds: float) -> Self:
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
        # The kernel tells at once that the other end is gone, even by kill -9.
        hung_up = select.poll()
        ranks = {link.fileno(): rank for rank, link in self.links.items()}
        for descriptor in ranks:
            hung_up.register(descriptor, select.POLLRDHUP)
        while ranks:
            for descriptor, _ in hung_up.poll():
                hung_up.unregister(descriptor)
                self._lost(ranks.pop(descriptor))

    @contextmanager
    def _with(self, rank: int) -> Iterator[Connection]:
        """Yield the connection to a rank; PlatformError, and word to who watches, if that is gone."""
        try:
            yield self.links[rank]
        except _GONE:
            self._lost(rank)
            raise PlatformError(f"rank {rank} is gone") from None

    def gather(self, mine: Any) -> list[Any]:
        """Send it to the first process, which sends all to everybody."""
        everyone = [mine]
        if self.leader:
            for rank in range(1, self.size):
                with self._with(rank) as link:
                    everyone.append(link.recv())
        else:
            with self._with(0) as link:
                link.send(mine)
        gathered: list[Any] = self.broadcast(everyone)
        return gathered

    def broadcast(self, message: Any) -> Any:
        """Wait in the kernel, where this is not the first process."""
        if not self.leader:
            with self._with(0) as link:
                return link.recv()
        packed = pickle.dumps(message)
        for rank in self.links:
            with self._with(rank) as link:
                link.send_bytes(packed)
        return message

    def send(self, numbers: Array, rank: int) -> None:
        """Send the bytes of an array."""
        with self._with(rank) as link:
            link.send_bytes(numbers.tobytes())

    def receive(self, numbers: Array, rank: int) -> None:
        """Receive the bytes of an array."""
        with self._with(rank) as link:
            numbers[:] = np.frombuffer(link.recv_bytes(), numbers.dtype)

    def sleep_until_sent(self) -> None:
        """Sleep in the kernel."""
        self.links[0].poll(None)

    def abort(self) -> None:
        """End this process: the others see it."""
        os._exit(1)


def _accept(size: int, place: "Rendezvous", deadline: float) -> dict[int, Connection]:
    """Listen, leave word where, and return a connection to each other rank."""
    # A connection to each of a thousand ranks.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    # Where all processes are on this machine, nobody else has to reach it.
    here = launcher.neighbours() == size
    server = socket.create_server(("127.0.0.1" if here else "", 0), backlog=size)
    word = secrets.token_hex(16)
    hosts = [] if here else [*filter(None, [os.environ.get("MASTER_ADDR")]), *_addresses()]
    where = {"node": node_name(), "hosts": hosts, "port": server.getsockname()[1], "word": word}
    links: dict[int, Connection] = {}
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

            # Perhaps somebody else's connection: nothing is unpickled before both sides have shown the word.
            with suppress(*_GONE), _opening(connection) as link:
                deliver_challenge(link, word.encode())
                answer_challenge(link, word.encode())
                rank, other = link.recv()
                refusal = ""
                if other != size:
                    refusal = f"rank {rank} was started as one of {other} processes, rank 0 as one of {size}"
                elif rank in links or not 0 < rank < size:
                    refusal = f"there is a rank {rank} already"
                link.send(refusal)
                if refusal:
                    link.close()
                else:
                    links[rank] = link
    return links


def _connect(rank: int, size: int, place: "Rendezvous", deadline: float) -> Connection:
    """Return a connection to the first process, once it says where it listens."""
    tried = ""
    while time.monotonic() < deadline:
        if text := place.find():
            where = json.loads(text)
            local = ["127.0.0.1"] if where["node"] == list(node_name()) else []
            for host in [*local, *where["hosts"]]:
                tried = f"{host}:{where['port']}"

                # What an earlier start left is tried in vain.
                with suppress(*_GONE):
                    return _introduce(host, rank, size, where)
        time.sleep(_PAUSE)
    reason = f"no word of rank 0 in {place.what}"
    if tried:
        reason = f"nobody answers at {tried}, where rank 0 should be by {place.what}"
    raise PlatformError(f"{reason}: start all ranks, give each run a folder of its own, or raise --timeout")


def _introduce(host: str, rank: int, size: int, where: Mapping[str, Any]) -> Connection:
    with _opening(socket.create_connection((host, int(where["port"])), timeout=_CONNECTING)) as link:
        answer_challenge(link, where["word"].encode())
        deliver_challenge(link, where["word"].encode())
        link.send((rank, size))
        if refused := link.recv():
            raise PlatformError(f"{refused}: do two runs meet in one place? give each its own --rendezvous")
    return link


@contextmanager
def _opening(opened: socket.socket) -> Iterator[Connection]:
    """Yield messages over a socket, of which each has to come soon as long as the other process is not known."""
    # The limit of time is the kernel's: a Connection reads from the descriptor, past Python's socket.
    with opened:
        opened.settimeout(None)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _ANSWERING, 0))
        link = Connection(os.dup(opened.fileno()))
        try:
            yield link
        except BaseException:
            link.close()
            raise
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))


def _addresses() -> Iterator[str]:
    """Yield the addresses of this machine that others may reach."""
    import psutil

    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                yield each.address


_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


def usual_rendezvous(seconds: float, environment: Mapping[str, str] = os.environ) -> "Rendezvous":
    """Return the place that the environment names: a folder, or torch's store.

    Raises:
        PlatformError: It names none, with what to do.

    """
    if folder := environment.get(RENDEZVOUS):
        return Folder(Path(folder).expanduser())
    if missing := [name for name in _ADDRESS if not environment.get(name)]:
        why = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not set"
    elif not find_spec("torch"):
        why = "torch, whose store they would use, is not installed"
    else:
        return TorchStore(environment, seconds)
    raise PlatformError(
        f"the processes of this launcher cannot find each other: no MPI started them, and {why}; "
        "fix: --rendezvous FOLDER, which all of them see, or mpirun"
    )


class Folder:
    """A folder that all processes see; each start has its own file there, as far as launchers tell starts apart."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"collbench-{launcher.start() or 'first'}.json"
        self.what = str(folder)  # in words, for errors

    def leave(self, text: str) -> None:
        """Write the file whole, for this user alone."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self._path)
        except OSError as error:
            raise PlatformError(f"cannot write to {self.what}: {error.strerror}; choose another --rendezvous") from None

    def find(self) -> str:
        """Read the file, if it is this user's."""
        with suppress(OSError):
            # A folder of a network is not asked again unless it is listed.
            list(self._path.parent.iterdir())
            with self._path.open(encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    return file.read()
        return ""

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


_STORE = """
import datetime, sys, torch.distributed
host, port, starts, seconds, key, text = sys.argv[1:]
timeout = datetime.timedelta(seconds=float(seconds))
store = torch.distributed.TCPStore(host, int(port), is_master=starts == "True", wait_for_workers=False, timeout=timeout)
if text:
    store.set(key, text)
    print("left", flush=True)
    sys.stdin.read()
else:
    print(store.get(key).decode())
"""


class TorchStore:
    """The TCPStore at MASTER_ADDR:MASTER_PORT, which torchrun has there already, or the first process starts.

    A child process asks it: torch would bring an NCCL of its own, which CuPy would use then.
    """

    def __init__(self, environment: Mapping[str, str], seconds: float) -> None:
        host, port = (environment[name] for name in _ADDRESS)
        self.what = f"torch's store at {host}:{port}"
        starts = environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._words = host, port, str(starts), str(seconds), f"collbench/{launcher.start(environment)}"
        self._child: subprocess.Popen[str] | None = None

    def leave(self, text: str) -> None:
        """Set the key, which restarts of torchrun have different, and keep the store until `close`."""
        self._child = self._start(*self._words, text)
        assert self._child.stdout
        if self._child.stdout.readline() != "left\n":
            self._refuse(self._child)

    def find(self) -> str:
        """Wait for the key."""
        host, port, _, *rest = self._words
        child = self._start(host, port, "False", *rest, "")
        text, errors = child.communicate()
        if child.returncode:
            self._refuse(child, errors)
        return text

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        path = os.pathsep.join(filter(None, sys.path))  # where this process would find torch
        command = [sys.executable, "-P", "-c", _STORE, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | {"PYTHONPATH": path}
        )

    def _refuse(self, child: "subprocess.Popen[str]", errors: str = "") -> NoReturn:
        errors = errors or child.communicate()[1]
        error = re.search(r"^\S*(?:Error|Exception): (.*)", errors, re.MULTILINE)
        raise PlatformError(f"{self.what} cannot be reached: {error[1] if error else errors.strip()[-200:]}")

    def close(self) -> None:
        """End the child that has the store."""
        if self._child:
            self._child.communicate()


Rendezvous = Folder | TorchStore
"""Where the first process leaves a text, which all others find there until it closes it."""
