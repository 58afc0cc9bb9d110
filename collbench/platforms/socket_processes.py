"""Processes that a launcher without MPI started, connected by sockets.

The first process listens, and the others read its address at a rendezvous: torch's store, or a shared folder. Both
ends of a connection first prove that they know the secret stored there, since pickles follow. A closed connection
reveals at once that a process is gone, even by kill -9, without a time-out.

Two jobs in one folder may look alike. So the folder holds one file at a time, and ranks get their answer some time
after all have connected. All are refused if a rank has connected twice by then.
"""

import os
import pickle
import re
import resource
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import ProcessError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, NoReturn, Self

import msgspec
import numpy as np

from collbench.datatypes import Array
from collbench.errors import PlatformError
from collbench.exits import BAD
from collbench.host import launcher, processes
from collbench.host.launcher import RENDEZVOUS
from collbench.platforms.processes import Team, node_name

HANDSHAKE = 5.0  # seconds for a process that has connected to show that it knows the secret
_CONNECTING = 3.0  # seconds for a connection
_PAUSE = 0.1  # seconds between two looks for where the first process listens, and whether all have come
_STRANGERS = 1000  # threads for connections that have not shown yet that they know the secret, two for each

_GONE = (OSError, EOFError, ProcessError, AssertionError)
"""Errors of a peer that has ended, or that was never one of ours."""


class SocketProcesses(Team):
    """The processes of a launcher without MPI."""

    def __init__(self, rank: int, size: int, links: Mapping[int, Connection]) -> None:
        super().__init__(rank, size)
        self.links = links  # of the leader to all others by rank, of another to the leader
        self._lost: Callable[[int], None] = lambda rank: None

    @classmethod
    def at(cls, place: "Rendezvous", rank: int, size: int, seconds: float) -> Self:
        """Return all processes that the launcher started; PlatformError if they do not meet within `seconds`."""
        deadline = time.monotonic() + seconds
        if rank:
            return cls(rank, size, {0: _connect(rank, size, place, deadline)})
        try:
            return cls(rank, size, _accept(size, place, deadline))
        except OSError as error:
            raise PlatformError(f"no socket for the other ranks: {error}; set TMPDIR to a folder with room") from None

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
        os._exit(BAD)


@dataclass(frozen=True)
class _Endpoint:
    """The address of the first process, as it stands at a rendezvous."""

    secret: str
    node: tuple[str, str]
    folder: str = ""  # of the socket, where all processes are on this machine
    hosts: tuple[str, ...] = ()  # else where the first process can be reached
    port: int = 0


def _accept(size: int, place: "Rendezvous", deadline: float) -> dict[int, Connection]:
    """Listen, leave word where, and return a connection to each other rank."""
    # A connection to each of a thousand ranks.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    arrived: list[tuple[int, int, Connection]] = []  # of peers that know the secret: rank, number of ranks
    with closing(place), _listening(size) as (server, endpoint):
        place.leave(text := msgspec.json.encode(endpoint).decode(), lambda other: _reach(other, 0, size, deadline))
        server.settimeout(_PAUSE)
        ends, refusal, came = deadline, "", arrived
        while not refusal and time.monotonic() < ends:
            with suppress(TimeoutError):
                connection, _ = server.accept()
                if threading.active_count() < size + _STRANGERS:
                    known = connection, endpoint.secret, arrived
                    threading.Thread(target=_handshake, args=known, daemon=True).start()
                else:
                    connection.close()
            came = arrived[:]  # later ones get no answer, and ask again
            if ends == deadline and len(came) >= size - 1:
                ends = time.monotonic() + place.settling
            refusal = _differing(came, size)
        if refusal or (place.settling and place.find() != text):
            fix = f"do two jobs meet in {place.what}? give each its own --rendezvous"
            refusal = f"{refusal or 'there is a rank 0 already'}; {fix}"
        elif missing := set(range(1, size)).difference(rank for rank, _, _ in came):
            absent = ", ".join(map(str, sorted(missing)))
            refusal = f"rank {absent} of {size} did not reach {place.what} in time: start all ranks, or raise --timeout"
        for _, _, link in came:
            with suppress(*_GONE):  # it is watched from now on
                link.send(refusal)
    if refusal:
        raise PlatformError(refusal)
    return {rank: link for rank, _, link in came}


def _handshake(connection: socket.socket, secret: str, came: list[tuple[int, int, Connection]]) -> None:
    """Note who has connected; for a thread, so that nobody keeps others waiting."""
    # Perhaps somebody else's connection: nothing is unpickled before both sides have shown the secret.
    with suppress(*_GONE):
        with _opening(connection) as link:
            deliver_challenge(link, secret.encode())
            answer_challenge(link, secret.encode())
            rank, size = link.recv()
        came.append((rank, size, link))


def _differing(came: Sequence[tuple[int, int, Connection]], size: int) -> str:
    """Return why those who came are not of one job; "" if they may be."""
    started = "rank {} was started as one of {} processes, rank 0 as one of {}"
    reasons = [started.format(rank, others, size) for rank, others, _ in came if others != size]
    ranks = sorted([0, *(rank for rank, _, _ in came)])
    reasons += [f"there is a rank {rank} already" for rank, following in pairwise(ranks) if rank == following]
    return next(iter(reasons), "")


@contextmanager
def _listening(size: int) -> Iterator[tuple[socket.socket, _Endpoint]]:
    """Yield a socket that listens, and where that is; on one machine only processes of this user reach it."""
    here = launcher.neighbours() == size
    family = socket.AF_UNIX if here else socket.AF_INET
    with TemporaryDirectory(prefix="collbench-") as folder, socket.socket(family) as server:
        with processes.short_name(Path(folder)) as name:
            server.bind(f"{name}/rank-0" if here else ("", 0))
        server.listen(socket.SOMAXCONN)
        hosts = () if here else (*filter(None, [os.environ.get("MASTER_ADDR")]), *_addresses())
        port = 0 if here else server.getsockname()[1]
        yield server, _Endpoint(secrets.token_hex(16), node_name(), folder if here else "", hosts, port)


def _connect(rank: int, size: int, place: "Rendezvous", deadline: float) -> Connection:
    """Return a connection to the first process, once it says where it listens."""
    text = ""
    while time.monotonic() < deadline:
        text = place.find()
        if link := _reach(text, rank, size, deadline):
            return link
        time.sleep(_PAUSE)
    reason = f"no answer at rank 0's address from {place.what}" if text else f"no address of rank 0 in {place.what}"
    raise PlatformError(f"{reason}: start all ranks, give each run a folder of its own, or raise --timeout")


def _reach(text: str, rank: int, size: int, deadline: float) -> Connection | None:
    """Return a connection to the first process that left this; None if nobody is there, PlatformError if refused."""
    try:
        endpoint = msgspec.json.decode(text, type=_Endpoint)
    except (msgspec.MsgspecError, RecursionError):
        return None
    local = ["127.0.0.1"] if endpoint.node == node_name() else []
    for host in [endpoint.folder] if endpoint.folder else [*local, *endpoint.hosts]:
        # Leftovers of an earlier start are tried in vain.
        with suppress(*_GONE, ValueError, OverflowError):
            with _opening(_dial(endpoint, host)) as link:
                answer_challenge(link, endpoint.secret.encode())
                deliver_challenge(link, endpoint.secret.encode())
                link.send((rank, size))
            if refusal := link.recv():
                raise PlatformError(refusal)
            return link
        if time.monotonic() > deadline:
            break
    return None


def _dial(endpoint: _Endpoint, host: str) -> socket.socket:
    if not endpoint.folder:
        return socket.create_connection((host, endpoint.port), timeout=_CONNECTING)
    with processes.short_name(Path(endpoint.folder)) as name:
        about = Path(name).stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise PermissionError(endpoint.folder)
        opened = socket.socket(socket.AF_UNIX)
        opened.connect(f"{name}/rank-0")
    return opened


@contextmanager
def _opening(opened: socket.socket) -> Iterator[Connection]:
    """Yield messages over a socket to a process that is not known yet, and hang up where that takes it long."""
    # The limit is of all that is said: a byte now and then keeps nobody waiting.
    limit = threading.Timer(HANDSHAKE, opened.shutdown, [socket.SHUT_RDWR])
    limit.daemon = True
    with opened:
        opened.settimeout(None)
        if opened.family != socket.AF_UNIX:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Connection(os.dup(opened.fileno()))
        limit.start()
        try:
            yield link
            opened.send(b"")  # fails if the limit came first
        except BaseException:
            link.close()
            raise
        finally:
            limit.cancel()


def _addresses() -> Iterator[str]:
    import psutil

    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                yield each.address


_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


def usual_rendezvous(seconds: float, environment: Mapping[str, str] = os.environ) -> "Rendezvous":
    """Return the place that the environment names, a folder or torch's store; PlatformError, with the fix, if none."""
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

    settling = 2.0  # seconds in which those of another job come, too, if it was started at the same time

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"collbench-{launcher.start() or 'first'}.json"
        self._left = ""
        self.what = str(folder)  # in words, for errors

    def leave(self, text: str, try_other: Callable[[str], object] = str) -> None:
        """Write the file whole, for this user alone, once `try_other` has not found anybody where another file says."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", encoding="utf-8", dir=self._path.parent) as file:
                file.write(text)
                file.flush()
                while not self._left:
                    try_other(standing := self.find())
                    self._remove(standing)
                    with suppress(FileExistsError):
                        os.link(file.name, self._path)
                        self._left = text
        except OSError as error:
            raise PlatformError(f"cannot write to {self.what}: {error.strerror}; choose another --rendezvous") from None

    def _remove(self, text: str) -> None:
        """Remove this user's file, unless it says something else by now."""
        with suppress(FileNotFoundError):
            if self._path.lstat().st_uid != os.getuid():
                raise PlatformError(f"{self._path} is another user's; choose another --rendezvous")
            if self.find() == text:
                self._path.unlink()

    def find(self) -> str:
        """Read the file, if it is this user's."""
        with suppress(OSError, ValueError, TypeError):
            # A folder of a network is not asked again unless it is listed.
            list(self._path.parent.iterdir())
            flags = os.O_NOFOLLOW | os.O_NONBLOCK  # a link leads elsewhere, and a pipe has nobody who writes
            with open(self._path, encoding="utf-8", opener=lambda path, more: os.open(path, flags | more)) as file:
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    return file.read(2**16)  # a message is much shorter
        return ""

    def close(self) -> None:
        """Remove the file that this process left."""
        if self._left and self.find() == self._left:
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

    settling = 0.0  # each job has its own

    def __init__(self, environment: Mapping[str, str], seconds: float) -> None:
        host, port = (environment[name] for name in _ADDRESS)
        self.what = f"torch's store at {host}:{port}"
        starts = environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._words = host, port, str(starts), str(seconds), f"collbench/{launcher.start(environment)}"
        self._child: subprocess.Popen[str] | None = None

    def leave(self, text: str, try_other: Callable[[str], object] = str) -> None:
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
