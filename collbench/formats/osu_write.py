"""Writes tables of the OSU Micro-Benchmarks, and knows their tests and types."""

from collections.abc import Iterator
from dataclasses import dataclass

from collbench.formats.exported import (
    ExportLine,
    ExportSelection,
    Part,
    mean_seconds,
    other_figures,
    parts,
    signature,
    texts,
)
from collbench.observed import Observed

NAME = "osu"


@dataclass(frozen=True)
class OsuKind:
    """What one of their tests measures."""

    title: str
    collective: str
    per_rank: bool = False  # whether its sizes are of each rank's message and not of the whole array
    pair: bool = False  # whether two ranks do something else than the collective, which is told in the note
    note: str = ""

    def messages(self, ranks: int) -> int:
        """How many of its sizes make the whole array."""
        return ranks if self.per_rank else 1


_TESTS = (
    OsuKind("Allreduce Latency", "allreduce"),
    OsuKind("Reduce Latency", "reduce"),
    OsuKind("Broadcast Latency", "broadcast"),
    OsuKind("Bcast Latency", "broadcast"),
    OsuKind("Reduce_scatter Latency", "reducescatter"),
    OsuKind("Allgather Latency", "allgather", per_rank=True),
    OsuKind("Gather Latency", "gather", per_rank=True),
    OsuKind("Scatter Latency", "scatter", per_rank=True),
    OsuKind("All-to-All Personalized Exchange Latency", "alltoall", per_rank=True),
    OsuKind("Alltoall Latency", "alltoall", per_rank=True),
    OsuKind("Latency", "sendrecv", pair=True, note="half a round trip, one direction at a time"),
    OsuKind("Bandwidth", "sendrecv", pair=True, note="one direction, many messages in flight"),
    OsuKind(
        "Bi-Directional Bandwidth", "sendrecv", pair=True, note="both directions together, many messages in flight"
    ),
)
TESTS = {kind.title.lower(): kind for kind in _TESTS}
_TITLES = {kind.collective: kind for kind in reversed(_TESTS) if not kind.pair}
TYPES = {
    "MPI_CHAR": "int8",
    "MPI_SIGNED_CHAR": "int8",
    "MPI_INT8_T": "int8",
    "MPI_BYTE": "uint8",
    "MPI_UNSIGNED_CHAR": "uint8",
    "MPI_UINT8_T": "uint8",
    "MPI_INT": "int32",
    "MPI_INT32_T": "int32",
    "MPI_UNSIGNED": "uint32",
    "MPI_UINT32_T": "uint32",
    "MPI_LONG": "int64",
    "MPI_INT64_T": "int64",
    "MPI_UINT64_T": "uint64",
    "MPI_FLOAT": "float",
    "MPI_DOUBLE": "double",
    "HALF": "half",
    "BFLOAT16": "bfloat16",
}
_NAMES = {dtype: name for name, dtype in reversed(TYPES.items())}


def write(selection: ExportSelection) -> str:
    """A table for each collective, type and number of ranks; times are means, in microseconds."""
    lines: list[str] = []
    for part in parts(selection):
        lines += _own(part) if part.test.format == NAME else _made(part, selection)
    return "\n".join(lines) + "\n"


def _own(part: Part) -> Iterator[str]:
    yield ""
    yield from texts(part.test.layout.get("before"))
    yield from (str(line.printed.get("line", "")) for line in part.lines)


def _made(part: Part, selection: ExportSelection) -> Iterator[str]:
    """Nothing for a collective without such a test; such rows are left out."""
    groups: dict[tuple[str, str, int], list[Observed]] = {}
    for line in part.lines:
        result = _held(line, selection)
        if result:
            case = result.case
            groups.setdefault((case.dtype.name, case.redop.name, case.root), []).append(result)
    for (dtype, _, _), results in groups.items():
        yield from _table(_TITLES[results[0].case.collective.name], dtype, results)


def _held(line: ExportLine, selection: ExportSelection) -> Observed | None:
    """What such a table can hold of a row: out of place, summed, from the first root, with a time."""
    if line.inside:
        selection.leave("OSU has no results in place")
    result = line.out
    if result is None:
        return None
    case, kind = result.case, _TITLES.get(result.case.collective.name)
    reasons = {
        f"OSU has no {case.collective.name}": kind is None,
        "OSU has no other operation than sum": case.collective.reduces and case.redop.name != "sum",
        "OSU has no other root than 0": case.root != 0,
        "no time": mean_seconds(result) <= 0,
        "not as many bytes for each rank": kind is not None and case.nbytes % kind.messages(case.ranks) != 0,
    }
    for reason, holds in reasons.items():
        if holds:
            selection.leave(reason)
            return None
    return result


def _table(kind: OsuKind, dtype: str, results: list[Observed]) -> Iterator[str]:
    first = results[0]
    ranks, spread = first.case.ranks, all(len(result.times) > 1 for result in results)
    yield ""
    yield signature(first)
    yield from other_figures(results)
    yield f"# OSU {'NCCL-CUDA' if first.implementation == 'nccl' else 'MPI'} {kind.title} Test v7.4"
    yield f"# Datatype: {_NAMES.get(dtype, dtype.upper())}."
    yield f"{'# Size':<10}{'Avg Latency(us)':>20}" + ("".join(f"{name:>20}" for name in _SPREAD) if spread else "")
    for result in results:
        ends = (min(result.times), max(result.times)) if spread else ()
        figures = "".join(f"{seconds * 1e6:20.2f}" for seconds in (mean_seconds(result), *ends))
        yield f"{result.case.nbytes // kind.messages(ranks):<10d}{figures}"


_SPREAD = ("Min Latency(us)", "Max Latency(us)")
