# ruff: noqa: N802 - the names are CuPy's
"""NCCL on the machine of cuda.py: it moves and reduces the bytes with NumPy, once every rank's stream is there.

Between processes the bytes pass through files of a folder, whose name is the unique id.

It is held against CuPy 14.2 (cupy_backends/cuda/libs/nccl.pyx) and NCCL 2.30. Deliberate differences: groups are not
nested, calls outside a group are refused, and initAll is not there, since it keeps the GIL for as long as NCCL starts:
no limit of time, no signal and no other thread gets its turn. A status beyond CuPy's list ends in a KeyError, as
there. Before CuPy 14 a unique id is a tuple of numbers; whoever hands it on must not care.
"""

import ctypes
import os
import pickle
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from collbench.datatypes import DATATYPES, REDUCTIONS, Array, Datatype
from collbench.platforms.layout import view

ELEMENTS = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16")
SHARING_SINCE = 23000
INVALID_USAGE = 5
ID_BYTES = 128
PATIENCE = 30.0  # seconds for another process
ZERO = 2  # a policy on CTAs: none at all
NAMES = (  # as CuPy writes them, by status
    "NCCL_ERROR_SUCCESS",
    "NCCL_ERROR_UNHANDLED_CUDA_ERROR",
    "NCCL_ERROR_SYSTEM_ERROR",
    "NCCL_ERROR_INTERNAL_ERROR",
    "NCCL_ERROR_INVALID_ARGUMENT",
    "NCCL_ERROR_INVALID_USAGE",
    "NCCL_ERROR_REMOTE_ERROR",
)


class NcclError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        if status >= len(NAMES):
            exec(compile(f"raise KeyError({status})", "cupy_backends/cuda/libs/nccl.pyx", "exec"))
        super().__init__(f"{NAMES[status]}: the NCCL of the test says so")


class Nccl:
    """The functions of cupy.cuda.nccl."""

    NcclError = NcclError
    available = True

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._calls: list[Call] | None = None
        self._left: list[Call] = []
        self._starts: list[Start] = []
        self.debug: Any = None  # the subsystems and the file of the log, once NCCL has looked at the environment

        class NcclCommunicator(Communicator):
            def __init__(comm, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:  # noqa: N803, N805
                assert isinstance(commId, bytes)
                assert (len(commId), config) == (ID_BYTES, None)
                bus = machine.buses.get(machine.current, machine.current)
                Communicator.__init__(comm, self, rank, ndev)
                self._begin(Start(comm, Path(commId.rstrip(b"\0").decode()), (machine.node, bus)))

        self.NcclCommunicator = NcclCommunicator
        if machine.simulation:
            machine.simulation.attach(self)

    def get_unique_id(self) -> bytes:
        return tempfile.mkdtemp(prefix="made-up-nccl-").encode().ljust(ID_BYTES, b"\0")

    def say(self, subsystem: str, text: str) -> None:
        """A line of the log, where the environment asked for it when NCCL last looked."""
        if self.debug is None:
            wanted = os.environ.get("NCCL_DEBUG_SUBSYS", "INIT") if os.environ.get("NCCL_DEBUG") == "INFO" else ""
            self.debug = wanted.split(","), os.environ.get("NCCL_DEBUG_FILE") or "/dev/stdout"
        wanted, file = self.debug
        if subsystem in wanted:
            with Path(file).open("a") as output:
                output.write(f"node:1:1 [0] NCCL INFO {text}\n")

    def _plan(self, calls: list["Call"]) -> None:
        """Say what each collective of rank 0 runs as: by its size, or by the windows that it lies in."""
        for call in calls:
            if call.rank or call.name in ("send", "recv"):
                continue
            nbytes, operation = _nbytes(call), call.name[0].upper() + call.name[1:]
            way = f": {nbytes} Bytes -> Algo {self._machine.algorithm} proto {'LL' if nbytes < 4096 else 'SIMPLE'}"
            way += " channel{Lo..Hi}={0..3}"
            if _in_window(call):
                way = f" [Symmetric]: {nbytes} Bytes -> Kernel {operation}_LL nchannels 4 nthreads 512 nWorks 1"
                if _by_copies(call):
                    way = f" [Copy Engine]: {nbytes} Bytes -> cudaMemcpyAsync"
            self.say("TUNING", operation + way)

    def get_version(self) -> int:
        number = ctypes.c_int(self._machine.nccl_version)
        if library := os.environ.get("COLLBENCH_NCCL"):
            ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
        return number.value

    def _begin(self, start: "Start") -> None:
        """Outside a group at once; within one when it ends, since those of one process may need each other."""
        self._starts.append(start)
        if self._calls is None:
            self._connect()

    def _connect(self) -> None:
        starts, self._starts = self._starts, []
        if not starts:
            return
        if level := os.environ.get("NCCL_DEBUG"):
            said = os.environ.get("NCCL_DEBUG_FILE")
            with open(said, "w") if said else os.fdopen(os.dup(1), "w") as output:  # noqa: PTH123
                output.write(f"made-up NCCL {level} rank {starts[0].comm._rank} connects\n")
        together = len(starts) == starts[0].comm._size
        if together:
            assert [start.comm._rank for start in starts] == list(range(len(starts))), "a rank was left out"
            starts[0].folder.rmdir()
        if self._machine.nccl_hangs == "start":
            self._machine.stopping.wait()
        if together:
            refuse_sharing(self._machine, [start.place for start in starts])
        else:
            (start,) = starts  # a rank a process
            start.comm._meeting = Meeting(start.folder, start.comm._rank, start.comm._size)
            refuse_sharing(self._machine, start.comm._meeting.exchange(start.place))

    def groupStart(self) -> None:
        assert self._calls is None
        self._calls, self._left = self._left, []

    def _add(self, call: "Call") -> None:
        assert self._calls is not None, "one thread that drives several ranks must group their calls"
        self._calls.append(call)

    def groupEnd(self) -> None:
        calls, self._calls = self._calls, None
        assert calls is not None, "the group was closed before"
        self._connect()
        if not calls:
            return
        self._plan(calls)
        current = self._machine.current
        for group in map(Group, _apart(calls)):
            for stream in group.streams:
                real = self._machine.stream(stream)
                self._machine.current = real.device_id
                if real._capture is None:
                    self._machine.clock.sleep(self._machine.host_delay)
                real.enqueue(group.run, queued=True)
                mixing = real._capture is not None and os.environ.get("NCCL_GRAPH_MIXING_SUPPORT") != "0"
                for _ in range(mixing + (3 * group.ranks - 1) * _by_copies(calls[0])):
                    real.enqueue(
                        lambda: None, queued=True
                    )  # an event, for operations outside of the graph; flags, copies
        self._machine.current = current

    def simulate_end(self) -> int:
        """Collectives are dropped; of sends and receives the real one loses count, and finds them in the next group."""
        calls, self._calls = self._calls, None
        simulation = self._machine.simulation
        simulation.groups.append([call.name for call in calls or ()])
        simulation.elements = max((call.count for call in calls or ()), default=0)
        if calls is None:
            return INVALID_USAGE
        self._left = [call for call in calls if call.name in ("send", "recv")]
        return 0


def make_nccl(machine: Any) -> Any:
    """Without the library CuPy's module has nothing but the word that it is not available."""
    return Nccl(machine) if machine.has_nccl else SimpleNamespace(available=False)


def refuse_sharing(machine: Any, devices: list[Any]) -> None:
    """Ranks on one device, unless NCCL is new enough and was told."""
    able = machine.nccl_version >= SHARING_SINCE and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    if len(set(devices)) < len(devices) and not able:
        raise NcclError(INVALID_USAGE)


@dataclass
class Start:
    """A communicator that is to be connected: by the folder that the id names, from the bus of a device of a node."""

    comm: "Communicator"
    folder: Path
    place: tuple[str, int]


class Meeting:
    """Processes that leave each other files in a folder."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._folder, self._rank, self._size = folder, rank, size
        self._count = 0
        self._traded = Counter[int]()  # with every other one

    def trade(self, peer: int, mine: Any) -> Any:
        """Return the data of another rank in exchange; a rank trades with several in the order of the pairs."""
        pair = f"pair-{min(self._rank, peer)}-{max(self._rank, peer)}-{self._traded[peer]}"
        self._traded[peer] += 1
        self._leave(f"{pair}-{self._rank}", mine)
        theirs = self._folder / f"{pair}-{peer}"
        told = self._wait(theirs)
        theirs.unlink()
        return told

    def exchange(self, mine: Any) -> list[Any]:
        self._count += 1
        self._leave(f"{self._count}-{self._rank}", mine)
        found = [self._wait(self._folder / f"{self._count}-{rank}") for rank in range(self._size)]
        (self._folder / f"{self._count - 1}-{self._rank}").unlink(missing_ok=True)  # all have read it by now
        return found

    def _leave(self, name: str, mine: Any) -> None:
        """Write a file, which others find whole or not at all."""
        scratch = self._folder / f"{self._rank}"
        scratch.write_bytes(pickle.dumps(mine))
        scratch.rename(self._folder / name)

    def _wait(self, file: Path) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not file.exists():
            assert time.monotonic() < deadline, "another process never came"
            time.sleep(1e-4)
        return pickle.loads(file.read_bytes())


class Call:
    """A request of one rank."""

    def __init__(self, comm: "Communicator", name: str, stream: int, **details: int) -> None:
        self.comm, self.rank, self.name, self.stream = comm, comm._rank, name, stream
        self.__dict__.update(details)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Communicator:
    """One rank; the methods' parameters are CuPy's."""

    def __init__(self, nccl: Nccl, rank: int, size: int, meeting: Meeting | None = None) -> None:
        self._nccl, self._rank, self._size, self._alive = nccl, rank, size, True
        self._called = False  # for an operation, which a graph may hold
        self._meeting = meeting

    def _add(self, name: str, stream: int, **details: int) -> None:
        assert self._alive
        self._called = True
        self._nccl._add(Call(self, name, stream, **details))

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        self._add("allReduce", stream, sent=sendbuf, received=recvbuf, count=count, element=datatype, op=op)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        self._add("reduce", stream, sent=sendbuf, received=recvbuf, count=count, element=datatype, op=op, root=root)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        self._add("broadcast", stream, sent=sendbuff, received=recvbuff, count=count, element=datatype, root=root)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        self._add("reduceScatter", stream, sent=sendbuf, received=recvbuf, count=recvcount, element=datatype, op=op)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        self._add("allGather", stream, sent=sendbuf, received=recvbuf, count=count, element=datatype)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._add("send", stream, sent=sendbuf, count=count, element=datatype, peer=peer)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._add("recv", stream, received=recvbuf, count=count, element=datatype, peer=peer)

    def alltoAll(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        block = count * DATATYPES[ELEMENTS[datatype]].itemsize
        for peer in range(self._size):
            self.send(sendbuf + peer * block, count, datatype, peer, stream)
            self.recv(recvbuf + peer * block, count, datatype, peer, stream)

    def gather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, root: int, stream: int) -> None:
        block = count * DATATYPES[ELEMENTS[datatype]].itemsize
        self.send(sendbuf, count, datatype, root, stream)
        for peer in range(self._size if self._rank == root else 0):
            self.recv(recvbuf + peer * block, count, datatype, peer, stream)

    def scatter(self, sendbuf: int, recvbuf: int, count: int, datatype: int, root: int, stream: int) -> None:
        block = count * DATATYPES[ELEMENTS[datatype]].itemsize
        for peer in range(self._size if self._rank == root else 0):
            self.send(sendbuf + peer * block, count, datatype, peer, stream)
        self.recv(recvbuf, count, datatype, root, stream)

    def check_async_error(self) -> None:
        if self._nccl._machine.network_error:
            raise NcclError(self._nccl._machine.network_error)

    def __del__(self) -> None:
        """CuPy destroys what is forgotten, for which NCCL waits until its streams are done."""
        if self._alive and self._nccl._machine.nccl_hangs:
            self._nccl._machine.stopping.wait()

    def destroy(self) -> None:
        graphs = self._called and self._nccl._machine.graphs
        assert not graphs, "NCCL waits for ever for the graphs that hold its operations"
        if self._meeting:
            self._meeting.exchange("all processes let go together")
        self._alive = False


def _apart(calls: list[Call]) -> list[list[Call]]:
    """Messages of ranks that have nothing to do with each other do not wait for each other."""
    if calls[0].comm._meeting or any(call.name not in ("send", "recv") for call in calls):
        return [calls]
    of: dict[int, list[Call]] = {}
    for call in calls:
        mine, theirs = of.setdefault(call.rank, []), of.setdefault(call.peer, [])
        if mine is not theirs:
            mine += theirs
            of |= {rank: mine for rank, held in of.items() if held is theirs}
        mine.append(call)
    return list({id(held): held for held in of.values()}.values())


def _in_window(call: Call) -> bool:
    low, high = getattr(call.comm, "window", None) or (0, 0)
    return bool(low <= call.sent < high and low <= call.received < high)


def _by_copies(call: Call) -> bool:
    """Copy engines add nothing."""
    whole = call.name not in ("send", "recv") and "educe" not in call.name
    return whole and _in_window(call) and call.comm.policy == ZERO


class Group:
    """The calls of all ranks between start and end; carried out when the streams of all ranks have come to it."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.streams = sorted({call.stream for call in calls})
        self.meeting = calls[0].comm._meeting
        self.ranks = calls[0].comm._size
        everyone = set(range(self.ranks))
        self.messages = all(call.name in ("send", "recv") for call in calls)
        concerned = {rank for call in calls for rank in (call.rank, call.peer)} if self.messages else everyone
        wanted = {calls[0].comm._rank} if self.meeting else concerned
        assert {call.rank for call in calls} == wanted, "a rank was left out"
        self.barrier = threading.Barrier(len(self.streams))
        self.machine = calls[0].comm._nccl._machine

    def run(self) -> None:
        if self.machine.nccl_hangs == "operation":
            self.machine.stopping.wait()
        if self.barrier.wait() == 0:
            if self.machine.nccl_seconds:
                slowest = max(self.machine.slower.get(call.rank, 1.0) for call in self.calls)
                self.machine.clock.sleep(slowest * self.machine.nccl_seconds)
            try:
                with np.errstate(all="ignore"):  # whatever the buffers hold
                    self._carry_out(self._of_all() if self.meeting else self.calls)
            except Exception:
                self.barrier.abort()
                raise
        self.barrier.wait()

    def _of_all(self) -> list[Call]:
        """Every process's calls: this one's as they are, the others' on copies of what they send."""
        assert self.meeting
        if self.messages:
            return self._of_pairs(self.meeting)
        told = self.meeting.exchange([_told(call) for call in self.calls])
        mine = self.calls[0].comm
        calls = []
        for rank, theirs in enumerate(told):
            calls += self.calls if rank == mine._rank else [_heard(mine, rank, *peer) for peer in theirs]
        return calls

    def _of_pairs(self, meeting: Meeting) -> list[Call]:
        """Messages concern their two ends only: the others need not come."""
        mine = self.calls[0].comm
        calls = list(self.calls)
        for peer in sorted({call.peer for call in self.calls} - {mine._rank}):
            own = [_told(call) for call in self.calls if call.peer == peer]
            calls += [_heard(mine, peer, *call) for call in meeting.trade(peer, own)]
        return calls

    def _carry_out(self, calls: list[Call]) -> None:
        whole = [call for call in calls if call.name not in ("send", "recv")]
        _WHOLE[whole[0].name](whole) if whole else _pairs(calls)


def _nbytes(call: Call) -> int:
    return int(call.count * DATATYPES[ELEMENTS[call.element]].itemsize)


def _told(call: Call) -> tuple[str, dict[str, int], bytes]:
    """A call with the bytes that it sends."""
    details = {name: getattr(call, name) for name in ("count", "element", "op", "root", "peer") if name in vars(call)}
    blocks = call.comm._size if call.name == "reduceScatter" else 1
    return call.name, details, view(call.sent, _nbytes(call) * blocks).tobytes() if "sent" in vars(call) else b""


def _heard(comm: Communicator, rank: int, name: str, details: dict[str, int], sent: bytes) -> Call:
    """Another process's call; what it would receive goes nowhere."""
    held, lost = np.frombuffer(sent, np.uint8), np.zeros(comm._size * details["count"] * 16, np.uint8)
    call = Call(comm, name, 0, sent=held.ctypes.data, received=lost.ctypes.data, **details)
    call.__dict__.update(rank=rank, held=(held, lost))
    return call


def _array(call: Call, address: int, first: int = 0) -> Array:
    """`count` elements as stored, from the block `first`."""
    nbytes = _nbytes(call)
    return view(address + first * nbytes, nbytes).view(DATATYPES[ELEMENTS[call.element]].storage)


def _reduced(calls: list[Call], first: int = 0) -> Array:
    datatype = DATATYPES[ELEMENTS[calls[0].element]]
    numbers = np.array([_wide(datatype, _array(call, call.sent, first)) for call in calls])
    (name,) = (reduction.name for reduction in REDUCTIONS.values() if reduction.code == calls[0].op)
    if name == "avg":
        total = np.sum(numbers, axis=0)
        return datatype.encode(total / len(calls) if datatype.kind == "float" else total // len(calls))
    combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    return datatype.encode(combine.reduce(numbers, dtype=numbers.dtype))


def _wide(datatype: Datatype, stored: Array) -> Array:
    return datatype.decode(stored).astype(np.float64) if datatype.kind == "float" else stored


def _all_reduce(calls: list[Call]) -> None:
    result = _reduced(calls)
    for call in calls:
        _array(call, call.received)[:] = result


def _reduce(calls: list[Call]) -> None:
    root = calls[calls[0].root]
    _array(root, root.received)[:] = _reduced(calls)


def _broadcast(calls: list[Call]) -> None:
    root = calls[calls[0].root]
    for call in calls:
        _array(call, call.received)[:] = _array(root, root.sent).copy()


def _reduce_scatter(calls: list[Call]) -> None:
    results = [_reduced(calls, call.rank) for call in calls]
    for call, result in zip(calls, results, strict=True):
        _array(call, call.received)[:] = result


def _all_gather(calls: list[Call]) -> None:
    sent = [_array(call, call.sent).copy() for call in calls]
    for call in calls:
        for rank, block in enumerate(sent):
            _array(call, call.received, rank)[:] = block


def _pairs(calls: list[Call]) -> None:
    waiting: dict[tuple[int, int], list[Array]] = {}
    for call in calls:
        if call.name == "send":
            waiting.setdefault((call.rank, call.peer), []).append(_array(call, call.sent).copy())
    for call in calls:
        if call.name == "recv":
            _array(call, call.received)[:] = waiting[call.peer, call.rank].pop(0)
    assert not any(waiting.values()), "a send without its receive"


_WHOLE: dict[str, Callable[[list[Call]], None]] = {
    "allReduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "reduceScatter": _reduce_scatter,
    "allGather": _all_gather,
}
