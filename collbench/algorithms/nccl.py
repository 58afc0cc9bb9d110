"""`nccl` and its fast paths, such as `nccl@registered` and `nccl@symmetric`.

This module has the calls of a rank (ncclAllReduce, ncclSend, ...); platforms/gpu/nccl/ launches them in groups. One
thread drives all ranks, so an operation is one or several groups with every rank's calls. Collectives that NCCL lacks
use its sends and receives, as in nccl-tests. A barrier is an all-reduce of one element. A fast path has its own
registered buffers (platforms/gpu/nccl/paths.py) and its own row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import COLLECTIVES, Flight
from collbench.errors import Unsupported
from collbench.platforms.interface import NOT_SAID, FastPath, Platform, Prepared
from collbench.platforms.layout import buffers

Call = Callable[[], Any]

# By their numbers in ncclDataType_t.
_TYPES = "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"


@dataclass(frozen=True)
class _End:
    """One rank's end of an operation, in NCCL's terms."""

    comm: Any  # cupy.cuda.nccl.NcclCommunicator, or that of a fast path
    case: Case
    rank: int
    sent: int
    received: int
    stream: int

    @property
    def element(self) -> int:
        return _TYPES.index(self.case.dtype.name)

    @property
    def at_root(self) -> bool:
        return self.rank == self.case.root

    def send(self, block: int, peer: int) -> Call:
        address = self.sent + block * self.case.block * self.case.dtype.itemsize
        return partial(self.comm.send, address, self.case.block, self.element, peer, self.stream)

    def receive(self, block: int, peer: int) -> Call:
        address = self.received + block * self.case.block * self.case.dtype.itemsize
        return partial(self.comm.recv, address, self.case.block, self.element, peer, self.stream)

    def whole(self, name: str, *rest: int) -> Iterator[Call]:
        """Yield the call of a collective that NCCL has; `rest` are its arguments between datatype and stream."""
        call = getattr(self.comm, name)
        yield partial(call, self.sent, self.received, self.case.block, self.element, *rest, self.stream)


def _alltoall(end: _End) -> Iterator[Call]:
    for peer in range(end.case.ranks):
        yield end.send(peer, peer)
        yield end.receive(peer, peer)


def _gather(end: _End) -> Iterator[Call]:
    yield end.send(0, end.case.root)
    if end.at_root:
        for peer in range(end.case.ranks):
            yield end.receive(peer, peer)


def _scatter(end: _End) -> Iterator[Call]:
    if end.at_root:
        for peer in range(end.case.ranks):
            yield end.send(peer, peer)
    yield end.receive(0, end.case.root)


def _sendrecv(end: _End) -> Iterator[Call]:
    yield end.send(0, (end.rank + 1) % end.case.ranks)
    yield end.receive(0, (end.rank - 1) % end.case.ranks)


_WHOLE: dict[str, Callable[[_End], Iterator[Call]]] = {
    "allreduce": lambda end: end.whole("allReduce", end.case.redop.code),
    "broadcast": lambda end: end.whole("broadcast", end.case.root),
    "allgather": lambda end: end.whole("allGather"),
    "reducescatter": lambda end: end.whole("reduceScatter", end.case.redop.code),
    "reduce": lambda end: end.whole("reduce", end.case.redop.code, end.case.root),
}
_OF_PAIRS: dict[str, Callable[[_End], Iterator[Call]]] = {
    "alltoall": _alltoall,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
}
_CALLS = _WHOLE | _OF_PAIRS

# Collectives that NCCL has since 2.28: the communicators of fast paths have them, since copy engines serve no sends.
_NEWER = {"alltoall": "alltoAll", "gather": "gather", "scatter": "scatter"}


def _flight(end: _End, flight: Flight) -> Iterator[Call]:
    """Yield a rank's calls of a group, whose messages are in flight together."""
    source, target = flight.source(end.rank, end.case.ranks), flight.to(end.rank, end.case.ranks)
    for _ in range(flight.count):
        if target is not None:
            yield end.send(0, target)
        if source is not None:
            yield end.receive(0, source)


def _groups(case: Case, ends: Sequence[_End]) -> list[list[Call]]:
    """The groups of an operation, in their order, each with the calls of all local ranks.

    Messages without data are left out: a stream goes on with its next group when this one is done.
    """
    flights = [flight for flight in case.collective.flights if not flight.bare]
    if not flights:
        root = [case.root] * case.collective.rooted
        if name := _newer(case, ends[0].comm):
            return [[call for end in ends for call in end.whole(name, *root)]]
        return [[call for end in ends for call in _CALLS[case.collective.name](end)]]
    groups = []
    for flight in flights:
        calls = [call for end in ends for call in _flight(end, flight)]
        if calls:
            groups.append(calls)
    return groups


def _newer(case: Case, comm: Any) -> str:
    """Return the communicator's method for a collective that NCCL has since 2.28; "" if it lacks it."""
    name = _NEWER.get(case.collective.name, "")
    return name if name and hasattr(comm, name) else ""


def _takes_part(end: _End) -> bool:
    flights = end.case.collective.flights
    return not flights or any(call for flight in flights for call in _flight(end, flight))


def _supports(case: Case) -> None:
    if case.in_place and case.collective.name == "alltoall":
        raise Unsupported("NCCL's all-to-all is made of sends and receives, which cannot share a buffer")


def _prepare(path: FastPath | None, case: Case, platform: Platform) -> Prepared:
    comm = platform.comm
    if comm.path is not path:
        raise Unsupported("its buffers are registered for single operations: steps and training measure nccl")
    ends = []
    for rank in platform.local:
        send, receive = buffers(platform.memory, case, rank)
        ends.append(_End(comm.ranks[rank], case, rank, send, receive, comm.stream(rank)))
    groups = _groups(case, ends)

    if case.collective.name in _WHOLE:
        comm.refuse_unplanned(case.collective.name)

    # A pair leaves the other ranks alone.
    busy = [end.rank for end in ends if _takes_part(end)]
    launch = partial(comm.launch, groups, busy)

    # The first operation of a kind connects the ranks, which allocates memory: nothing for a graph to capture.
    comm.first(launch)
    estimate = comm.estimate(groups[0]) if case.collective.name in _WHOLE else None
    prepared = Prepared(launch, groups=len(groups), note=comm.note, estimate=estimate, library=comm.library)

    # Of sends and receives NCCL's log says nothing: a pass with the log on would be for nothing.
    planned = case.collective.name in _WHOLE or _newer(case, ends[0].comm)
    ran = comm.ran(prepared) if planned else NOT_SAID
    return replace(prepared, ran=ran, library_bytes=comm.taken())


NCCL = Implementation(
    name="nccl",
    summary="NVIDIA's library, its own choice of algorithm and protocol",
    platforms=("gpu",),
    collectives=tuple(name for name, collective in COLLECTIVES.items() if name in _CALLS or collective.flights),
    prepare=partial(_prepare, None),
    supports=_supports,
    shared_without="NVLS and clusters of CTAs",
    estimates=tuple(_WHOLE),
)


_EFFICIENCY, _ZERO = 1, 2  # NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO

FAST_PATHS = (
    FastPath("registered", "with registered buffers", symmetric=False, reference=True),
    FastPath("symmetric", "with symmetric windows (2.27)", symmetric=True),
    FastPath("few-ctas", "with registered buffers and few CTAs", symmetric=False, policy=_EFFICIENCY),
    FastPath("copy-engine", "with symmetric windows and no CTAs (2.28)", symmetric=True, policy=_ZERO),
)


def _implementation(path: FastPath) -> Implementation:
    name, summary = f"nccl@{path.name}", f"the same {path.summary}"
    return replace(
        NCCL,
        name=name,
        summary=summary,
        prepare=partial(_prepare, path),
        home=lambda platform, case: platform.on_path(path),
        reference=path.reference,
        shared_without="",  # the row of plain NCCL says it
    )


IMPLEMENTATIONS = (NCCL, *map(_implementation, FAST_PATHS))
