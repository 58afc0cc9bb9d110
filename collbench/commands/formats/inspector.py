"""The JSON of NCCL Inspector, a profiler plugin of NCCL, versions 4.0 to 4.4.

The plugin (plugins/profiler/inspector of NVIDIA/nccl) writes a line for each operation of each communicator of a
process.  From 4.3 on, a `dump_stats` line above the operations names the communicator.  Sizes of all-gather and
reduce-scatter are those of one rank's share (inspectorComputeCollBw in inspector.cc).  Sequence numbers count the
operations of one kind on one communicator.
"""

import io
from collections.abc import Iterator
from statistics import median
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.foreign_machine import ForeignMachine, on_nodes
from collbench.commands.formats.foreign_row import UnfitRow, bus_factors, make_case
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut
from collbench.commands.formats.importing import Format
from collbench.commands.formats.source import ForeignFile
from collbench.commands.formats.words import GREATEST, LASTING, MOST_RANKS, clean, span
from collbench.errors import RunFileError
from collbench.results import Note, Reported, by_key

READ = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv")
PER_RANK = ("AllGather", "ReduceScatter")  # sizes are of one rank's share
LOST = ("coll_dropped_since_last_dump", "p2p_dropped_since_last_dump")
STATISTIC = "median of a program's operations, slowest rank"
REAL = "times are of a real program, not of a benchmark: they overlap with computation and include waits for late ranks"

_Count = Annotated[int, Meta(ge=0, le=GREATEST)]
_Members = dict[str, Any]


class InspectorLine(Struct):
    """A line of a file; other members, like traces of proxies, are not read."""

    header: _Members = {}  # the communicator
    metadata: _Members = {}
    dump_stats: dict[str, int | str] = {}
    coll_perf: _Members = {}
    p2p_perf: _Members = {}


class Operation(Struct, frozen=True):
    """One rank's time of one operation: the members of its line, without `coll_` and `p2p_`."""

    id: str  # of the communicator
    rank: _Count
    n_ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS)]
    nnodes: Annotated[int, Meta(ge=1, le=MOST_RANKS)]
    hostname: str
    inspector_output_format_version: str
    name: str
    sn: _Count
    msg_size_bytes: Annotated[int, Meta(ge=1, le=GREATEST // MOST_RANKS)]
    exec_time_us: float
    timing_source: str
    busbw_gbs: float = 0.0
    algo: str = ""
    proto: str = ""
    peer: _Count | None = None  # of a send or receive
    collective: str = ""  # collbench's name

    @property
    def nbytes(self) -> int:
        """The size of the whole array."""
        return self.msg_size_bytes * (self.n_ranks if self.name in PER_RANK else 1)


def recognises(source: ForeignFile) -> bool:
    """Whether a file begins with a line of NCCL Inspector."""
    return source.head.startswith("{") and '"n_ranks"' in source.head


def read(source: ForeignFile, hints: Hints) -> Iterator[ImportedTest]:
    """Read the files of one program: a test for each number of ranks and nodes; RunFileError if nothing has a time."""
    left_out = LeftOut()
    operations = list(dict.fromkeys(_operations(source, left_out)))  # a file may be given twice
    hosts = {(each.id, each.rank): each.hostname for each in operations}
    machines: dict[tuple[int, int], list[Operation]] = {}
    for each in operations:
        if nodes := _nodes(each, hosts):
            machines.setdefault((each.n_ranks if each.peer is None else 2, nodes), []).append(each)
        else:
            left_out.add("the files do not tell whether its two ranks share a node", each)
    if not machines:
        reasons = "; ".join(left_out.reasons[:2])
        raise RunFileError(f"{source.file}: no operation with a time; give one object per line (`jq -c .`); {reasons}")
    remarks: tuple[str, ...] = (REAL,)
    for (ranks, nodes), alike in machines.items():
        first, name = alike[0], f"{ranks} x unknown GPU{on_nodes(nodes)}"
        yield ImportedTest(
            tool="NCCL Inspector",
            version=clean(first.inspector_output_format_version, 20),
            machine=ForeignMachine(ranks=ranks, name=name, hostname=clean(first.hostname, 64), nodes=nodes),
            results=tuple(_rows(alike, ranks, left_out)),
            complete=not source.torn,
            left_out=left_out.reasons,
            remarks=remarks,
        )
        left_out, remarks = LeftOut(), ()


def _operations(source: ForeignFile, left_out: LeftOut) -> Iterator[Operation]:
    """Yield the operations that have a time."""
    decoder, marker = msgspec.json.Decoder(InspectorLine), InspectorLine()
    for number, words in enumerate(io.BytesIO(source.content)):
        source.budget.spend(source.name, "lines of a log")
        try:
            line = decoder.decode(words)
            if line.dump_stats:
                marker = line
                if lost := sum(int(line.dump_stats.get(kind, 0)) for kind in LOST):
                    left_out.add(f"{lost} operations that the plugin dropped", number)
            if members := line.coll_perf or line.p2p_perf:
                members = {key.partition("_")[2] or "name": value for key, value in members.items()}

                # A line without a communicator belongs to that of the marker above.
                where = line if line.header else marker
                yield _operation({**members, **where.metadata, **where.header})
        except UnfitRow as error:
            left_out.add(str(error), number)
        except (ValueError, OverflowError, RecursionError) as error:
            left_out.add(f"incomplete record: {clean(error)}", number)
            marker = InspectorLine()  # the broken line may be the next marker


def _operation(members: _Members) -> Operation:
    """Return the operation of a record; UnfitRow if it has no valid time, ValueError if it is incomplete."""
    if members.get("name") not in READ:
        raise UnfitRow(f"no collective that collbench reads: {clean(members.get('name'), 40)}")
    if "id" not in members:
        raise UnfitRow("its communicator is unknown")
    collective = "sendrecv" if members["name"] in ("Send", "Recv") else members["name"].lower()
    each = msgspec.convert({**members, "collective": collective}, Operation)
    if each.peer == each.rank:
        raise UnfitRow("a rank sends to itself")
    if not 0 < each.exec_time_us <= LASTING * 1e6:
        raise UnfitRow("it is not timed")
    if each.timing_source == "collective_cpu":
        raise UnfitRow("only its call is timed, on the CPU")

    # Times are rounded down to microseconds; a bandwidth of 0 is unknown.
    time = each.exec_time_us / 1e6, (each.exec_time_us + 1) / 1e6
    low, high = bus_factors(each.nbytes, time, None, span(each.busbw_gbs or None))
    if not low <= COLLECTIVES[each.collective].bus_factor(each.n_ranks) <= high:
        raise UnfitRow("its size, time and bus bandwidth contradict each other")
    return each


def _nodes(each: Operation, hosts: dict[tuple[str, int], str]) -> int | None:
    """Return the number of nodes of an operation (1 or 2 for a send or receive); None if the files do not tell."""
    if each.peer is None or each.nnodes == 1:
        return each.nnodes
    if each.nnodes == each.n_ranks:
        return 2
    ends = {hosts.get((each.id, end)) for end in (each.rank, each.peer)}
    return None if None in ends else len(ends)


def _rows(operations: list[Operation], ranks: int, left_out: LeftOut) -> Iterator[Reported]:
    """Yield a row for each collective and size: a sample is the time of an operation's slowest rank."""
    sizes = by_key(operations, lambda each: (each.collective, each.nbytes))
    for number, ((collective, nbytes), alike) in enumerate(sizes.items()):
        # Each rank has a record of an operation.  A send and its receive are an operation each.
        joined = by_key(alike, lambda each: (each.id, each.name, each.sn, each.peer, each.peer is None or each.rank))
        seen = max(map(len, joined.values()))

        # Operations that fewer ranks recorded may lack the slowest rank.
        partly = [operation for operation, by_rank in joined.items() if len(by_rank) < seen]
        if partly:
            left_out.add("operations that fewer ranks recorded than others of their size", *partly)
        complete = [by_rank for by_rank in joined.values() if len(by_rank) == seen]
        slowest = [max(each.exec_time_us for each in by_rank) / 1e6 for by_rank in complete]
        fastest = [min(each.exec_time_us for each in by_rank) / 1e6 for by_rank in complete]
        chosen = [f"{each.algo}/{each.proto}" for by_rank in complete for each in by_rank if each.algo]
        methods = {clean(method.lower(), 40) for method in chosen}
        who = "the time of one rank only"
        if seen > 1:
            share = median(fastest) / median(slowest)
            who = f"slowest of {seen} ranks of {ranks}, {share:.2f} of it on the fastest"
        note = Note.of("real traffic", who, *sorted(methods), "type not reported")
        dtype = "float" if COLLECTIVES[collective].reduces else "int8"
        case = make_case(COLLECTIVES[collective], nbytes, dtype, "sum", 0, ranks, in_place=False)
        printed = {"row": number}
        yield Reported(case, "nccl", "gpu", median(slowest), STATISTIC, None, tuple(slowest), printed, note=note)


FORMAT = Format("nccl-inspector", recognises, read, joins=True, order=1)
