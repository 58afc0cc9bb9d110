"""The tests of the OSU Micro-Benchmarks, a record each: their names, what they measure, and what they print."""

from collections.abc import Callable
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES, WINDOW, Collective
from collbench.results import Observed

TIMES = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)")


@dataclass(frozen=True)
class OsuKind:
    """What one of their tests measures."""

    title: str
    program: str  # less `osu_`; of two with one program the first is today's
    collective: str  # what its rows are of; empty if a foreign log's are left out
    per_rank: bool = False  # whether its sizes are of each rank's message and not of the whole array
    pair: bool = False  # whether it is of two ranks, whatever was started
    note: str = ""  # what else two ranks do, where `collective` is not quite it
    own: str = ""  # the collective that is just this, where a foreign log's rows are of another
    columns: tuple[str, ...] = TIMES[:1]
    preamble: Callable[[int], str] = lambda ranks: ""  # a line between title and columns

    @property
    def measured(self) -> Collective:
        """What is carried out here for such a test."""
        return COLLECTIVES[self.own or self.collective]

    @property
    def timed(self) -> bool:
        """Whether it prints times; else it prints rates."""
        return self.columns == TIMES[:1]

    def messages(self, ranks: int) -> int:
        """How many of its sizes make the whole array."""
        return ranks if self.per_rank else 1

    def figures(self, result: Observed, seconds: float) -> list[str]:
        """What stands behind the size, in OSU's units: microseconds, 1e6 bytes/s, messages/s."""
        if self.timed:
            return [f"{seconds * 1e6:.2f}"]
        pace = result.case.collective.bus_factor(result.case.ranks) / seconds
        return [f"{pace * result.case.nbytes / 1e6:.2f}", f"{pace:.2f}"][: len(self.columns)]


def _pairs(ranks: int) -> str:
    return f"# [ pairs: {ranks // 2} ] [ window size: {WINDOW} ]"


_ONE, _BOTH = "one direction, many messages in flight", "both directions together, many messages in flight"
_RATE = ("Bandwidth (MB/s)",)
_TESTS = (
    OsuKind("Allreduce Latency", "allreduce", "allreduce"),
    OsuKind("Reduce Latency", "reduce", "reduce"),
    OsuKind("Broadcast Latency", "bcast", "broadcast"),
    OsuKind("Bcast Latency", "bcast", "broadcast"),
    OsuKind("Reduce_scatter Latency", "reduce_scatter", "reducescatter"),
    OsuKind("Allgather Latency", "allgather", "allgather", per_rank=True),
    OsuKind("Gather Latency", "gather", "gather", per_rank=True),
    OsuKind("Scatter Latency", "scatter", "scatter", per_rank=True),
    OsuKind("All-to-All Personalized Exchange Latency", "alltoall", "alltoall", per_rank=True),
    OsuKind("Alltoall Latency", "alltoall", "alltoall", per_rank=True),
    OsuKind("Barrier Latency", "barrier", "barrier"),
    OsuKind(
        "Latency", "latency", "sendrecv", pair=True, note="half a round trip, one direction at a time", own="pingpong"
    ),
    OsuKind("Bandwidth", "bw", "sendrecv", pair=True, note=_ONE, own="bandwidth", columns=_RATE),
    OsuKind("Bi-Directional Bandwidth", "bibw", "sendrecv", pair=True, note=_BOTH, own="bidirectional", columns=_RATE),
    OsuKind(
        "Multiple Bandwidth / Message Rate",
        "mbw_mr",
        "",
        own="multipair",
        columns=("MB/s", "Messages/s"),
        preamble=_pairs,
    ),
)
TESTS = {kind.title.lower(): kind for kind in _TESTS}
PROGRAMS = {kind.program: kind for kind in reversed(_TESTS)}
MEASURED = {kind.measured.name: kind for kind in reversed(_TESTS)}
"""The test of each collective that OSU has one for."""
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
NAMES = {dtype: name for name, dtype in reversed(TYPES.items())}
