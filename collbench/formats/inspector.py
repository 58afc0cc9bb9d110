"""The JSON of NCCL Inspector, NCCL's profiler plugin (plugins/profiler/inspector of NVIDIA/nccl), versions 4.0 to 4.4.

A process writes a line for each operation of each of its communicators.  From 4.3 on the communicator stands in a
`dump_stats` line above its operations.  Sizes are of one rank's share in all-gather and reduce-scatter
(inspectorComputeCollBw in inspector.cc); sequence numbers count the operations of one kind on one communicator.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from collbench.collectives import COLLECTIVES
from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.imported import (
    MOST_RANKS,
    ROW_TOLERANCE,
    ForeignRow,
    Hints,
    ImportedTest,
    LeftOut,
    Machine,
    UnfitRow,
    make_results,
    no_collective,
)
from collbench.formats.source import GREATEST, HEAD, Source, clean, seconds_of, whole

NAME = "nccl-inspector"
BODIES = {"coll_perf": "coll", "p2p_perf": "p2p"}  # with what their members begin
READ_AS = {
    "AllReduce": "allreduce",
    "AllGather": "allgather",
    "ReduceScatter": "reducescatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Send": "sendrecv",
    "Recv": "sendrecv",
}
PER_RANK = ("allgather", "reducescatter")  # whose sizes are of a rank's share
REAL = "times are of a program at work, not of a benchmark: they overlap with its computing and wait for late ranks"

_Count = Annotated[int, Meta(ge=0, le=GREATEST)]


class Communicator(Struct, frozen=True):
    """The `header` of a record."""

    id: str
    rank: _Count
    n_ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS)]
    nnodes: Annotated[int, Meta(ge=1, le=MOST_RANKS)]


class Process(Struct, frozen=True):
    """The `metadata` of a record."""

    hostname: str = ""
    inspector_output_format_version: str = ""


class Body(Struct, frozen=True):
    """A collective, send or receive; its members without `coll_` or `p2p_`."""

    name: str
    sn: _Count
    msg_size_bytes: Annotated[int, Meta(ge=1, le=GREATEST)]
    exec_time_us: float
    timing_source: str = ""
    busbw_gbs: float = 0.0
    algo: str = ""
    proto: str = ""
    peer: _Count | None = None


class Line(Struct):
    """A line of a file; what else it may have, such as the traces of proxies, is not read."""

    header: Communicator | None = None
    metadata: Process = Process()
    coll_perf: dict[str, Any] | None = None
    p2p_perf: dict[str, Any] | None = None
    dump_stats: dict[str, Any] | None = None

    def counted(self, what: str) -> int:
        """Return the sum over collectives and messages of a count in `dump_stats`."""
        return sum(whole((self.dump_stats or {}).get(f"{kind}_{what}")) or 0 for kind in ("coll", "p2p"))


@dataclass(frozen=True)
class Operation:
    """What one rank took for one operation."""

    on: Communicator
    by: Process
    body: Body
    collective: str  # that it is read as
    nbytes: int  # of the whole array
    seconds: float
    ranks: int  # that take part: of a send or receive two
    nodes: int

    @property
    def once(self) -> tuple[object, ...]:
        """What the records of all ranks of an operation share; a send and its receive are an operation each."""
        end = () if self.body.peer is None else (self.on.rank, self.body.peer)
        return self.on.id, self.body.name, self.body.sn, *end


def recognises(source: Source) -> bool:
    """Whether it begins with such a line."""
    head = source.text[:HEAD].lstrip()
    return head.startswith("{") and '"n_ranks"' in head and any(f'"{body}"' in head for body in ("dump_stats", *BODIES))


def read(sources: Iterable[Source], hints: Hints) -> list[ImportedTest]:
    """Read the files of one program, a test for each collective and its ranks; RunFileError if nothing has a time."""
    left_out, operations, names, torn = LeftOut(), list[Operation](), list[str](), False
    for source in sources:
        operations += _operations(source, left_out)
        names.append(source.file)
        torn |= source.torn
    file = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    kinds: dict[tuple[int, int, str], list[Operation]] = {}
    for each in _placed(operations, left_out):
        kinds.setdefault((each.ranks, each.nodes, each.collective), []).append(each)
    if not kinds:
        raise RunFileError(f"{file}: no operation with a time; {'; '.join(left_out.reasons[:2])}")
    tests: list[ImportedTest] = []
    for (ranks, nodes, _), alike in kinds.items():
        by, on_nodes = alike[0].by, f" on {nodes} nodes" if nodes > 1 else ""
        machine = Machine(ranks, f"{ranks} x unknown GPU{on_nodes}", host=clean(by.hostname, 64), nodes=nodes)
        rows = list(_rows(alike, left_out))
        statistic = "median of a program's operations, slowest rank"
        results = make_results(file, rows, machine, implementation="nccl", statistic=statistic, left_out=left_out)
        tests.append(
            ImportedTest(
                format=NAME,
                tool="NCCL Inspector",
                version=clean(by.inspector_output_format_version, 20),
                file=file,
                machine=machine,
                results=results,
                complete=not torn,
                remarks=() if tests else (REAL,),
            )
        )
    return [replace(tests[0], left_out=left_out.reasons), *tests[1:]]


def _operations(source: Source, left_out: LeftOut) -> Iterator[Operation]:
    """Yield the operations of a file that have a time; a line without a communicator has that of the marker above."""
    decoder, marker, remaining = msgspec.json.Decoder(Line), Line(), 0
    for line_number, text in enumerate(source.text.split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (ValueError, RecursionError):
            left_out.add(f"line {line_number} is no whole record ({clean(text, 40)!r})", line_number)
            marker, remaining = Line(), 0  # it may have been the next marker
            continue
        if line.dump_stats is not None:
            marker, remaining = line, line.counted("records")
            if lost := line.counted("dropped_since_last_dump"):
                left_out.add(f"{lost} operations that the plugin lost before it wrote them", line_number)
        for body, prefix in BODIES.items():
            fields = getattr(line, body)
            if fields is None:
                continue
            if line.header is None and remaining > 0:
                line.header, line.metadata, remaining = marker.header, marker.metadata, remaining - 1
            try:
                yield _operation(line, {key.removeprefix(f"{prefix}_"): fields[key] for key in fields}, prefix)
            except UnfitRow as error:
                left_out.add(str(error), line_number)


def _operation(line: Line, fields: dict[str, Any], prefix: str) -> Operation:
    """Return what a record says; UnfitRow if that is not the time of an operation."""
    name = clean(fields.get(prefix), 40)
    if name not in READ_AS:
        raise UnfitRow(no_collective(name))
    try:
        body = msgspec.convert({**fields, "name": name}, Body)
    except (msgspec.ValidationError, OverflowError) as error:
        raise UnfitRow(f"it is no whole record: {clean(error)}") from None
    on, collective, seconds = line.header, COLLECTIVES[READ_AS[body.name]], seconds_of(body.exec_time_us)
    if on is None:
        raise UnfitRow("its communicator is not known")
    if max(on.rank, body.peer or 0) >= on.n_ranks or (body.peer is None) is bool(collective.name == "sendrecv"):
        raise UnfitRow("its ranks are impossible")
    if not seconds or body.timing_source == "collective_cpu":
        raise UnfitRow("it is timed on the CPU, by its call" if seconds else "it is not timed")
    nbytes = body.msg_size_bytes * (on.n_ranks if collective.name in PER_RANK else 1)
    busbw = nbytes / seconds / 1e9 * collective.bus_factor(on.n_ranks)
    if body.busbw_gbs >= 1 and abs(body.busbw_gbs - busbw) > ROW_TOLERANCE * busbw:
        raise UnfitRow("its size, time and bus bandwidth contradict each other")
    return Operation(on, line.metadata, body, collective.name, nbytes, seconds, on.n_ranks, on.nnodes)


def _placed(operations: list[Operation], left_out: LeftOut) -> Iterator[Operation]:
    """Yield operations with the ranks and nodes that take part: of a send or receive two, on a node or on two."""
    hosts = {(each.on.id, each.on.rank): each.by.hostname for each in operations}
    for at, each in enumerate(operations):
        peer, nodes = each.body.peer, each.nodes
        if peer is None:
            yield each
            continue
        ends = {hosts.get((each.on.id, end), "") for end in (each.on.rank, peer)}
        if peer == each.on.rank:
            left_out.add("a rank sends to itself", -1 - at)
        elif 1 < nodes < each.ranks and "" in ends:
            left_out.add("only the files of both its ranks tell whether they share a node", -1 - at)
        else:
            yield replace(each, ranks=2, nodes=2 if nodes == each.ranks > 1 or (nodes > 1 and len(ends) > 1) else 1)


def _rows(operations: Iterable[Operation], left_out: LeftOut) -> Iterator[ForeignRow]:
    """Yield a row for each size: a sample is the time of an operation's slowest rank."""
    sizes: dict[int, dict[object, dict[int, Operation]]] = {}
    for each in operations:
        sizes.setdefault(each.nbytes, {}).setdefault(each.once, {})[each.on.rank] = each
    for at, (nbytes, joined) in enumerate(sizes.items()):
        seen = max(map(len, joined.values()))
        for fewer in (key for key, ranks in joined.items() if len(ranks) < seen):
            left_out.add("operations that fewer ranks recorded than others of their size", hash(fewer))
        every = [tuple(ranks.values()) for ranks in joined.values() if len(ranks) == seen]
        samples = tuple(max(each.seconds for each in ranks) for ranks in every)
        first, collective = every[0][0], COLLECTIVES[every[0][0].collective]
        who = "one end of a send" if collective.name == "sendrecv" else "the time of one rank only"
        if seen > 1:
            least = median(min(each.seconds for each in ranks) for ranks in every) / median(samples)
            who = f"slowest of {seen} ranks, {least:.2f} of it on the fastest"
        missing = f"{first.ranks - seen} ranks are missing" if 1 < seen < first.ranks else ""
        bodies = [each.body for ranks in every for each in ranks]
        methods = sorted({f"{body.algo}/{body.proto}".lower() for body in bodies if body.algo})
        clock = "by the CPU's clock" if any(body.timing_source == "kernel_cpu" for body in bodies) else ""
        notes = ("real traffic", who, missing, clean(", ".join(methods)), clock, "type not said")
        yield ForeignRow(
            number=at,
            collective=collective.name,
            nbytes=nbytes,
            dtype="float" if collective.reduces else "int8",
            seconds=median(samples),
            samples=samples,
            note=", ".join(filter(None, notes)),
        )


SUMMARY = "JSON of NCCL Inspector, a file for each process"
FORMAT = Format(NAME, SUMMARY, recognises, lambda source, hints: read([source], hints), join=read, order=1)
