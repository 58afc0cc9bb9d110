"""`collbench.pairs`: every pair of ranks, alone and beside others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from collbench.analysis.sequential import TO_DEVIATION, usual_slower
from collbench.commands.pairs.measured import LATENCY_BYTES
from collbench.commands.pairs.rows import LATENCY, PairMessages, PairTimes
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.exchanges import ways
from collbench.measure.session import Session
from collbench.requests import words
from collbench.requests.declared import NAMES, SIZE, Opt, Request, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import SweepRequest, measured_sweep, split_names
from collbench.results import Result, by_key
from collbench.runfile.store import Run
from collbench.units import parse_size

_FAR = 4  # standard deviations from the others


@dataclass(frozen=True)
class PairsRequest(Request):
    """Which pairs to measure, with what messages."""

    ranks: words.Ranks = None
    _: KW_ONLY
    on: words.Here = "auto"
    impl: Annotated[
        words.Names,
        Opt("--impl", "What sends: the library (mpi, nccl), copy, kernel.", "all", "NAME[,NAME]|library", NAMES),
    ] = "all"
    size: Annotated[
        words.Size,
        Opt("--size", "Bytes of a message of the bandwidths.", unit=SIZE, least=LATENCY_BYTES + 1, most=2**31),
    ] = "4M"
    alone: Annotated[
        int, Opt("--alone", "Measure each pair alone too where there are at most N ranks.", metavar="N", least=0)
    ] = 16
    timeout: words.Timeout = "60s"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None


@takes(PairsRequest)
def pairs(request: PairsRequest) -> Run:
    """Measure latency and bandwidth of every pair of ranks, alone and at once, as `collbench pairs` does.

    Returns:
        The run, with a result for each pair, pattern and implementation: `pair` says whose it is, `times` are seconds
        of a message, `rate` is in bytes per second.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.
        StorageError: The run can no longer be written.

    >>> import collbench
    >>> run = collbench.pairs(2, on="cpu", impl="mpi", size="64K")
    >>> run.results[0].right
    True

    """
    return run_to_end(pairs_session(request, Path(request.out) if request.out else None), request.each)


def pairs_session(request: PairsRequest, folder: Path | None) -> Session:
    """Return the session of a request, with the ranks of an outside launcher if there are any."""
    joined, largest = launched(), parse_size(str(request.size))
    messages = SweepRequest(
        "sendrecv", on=request.on, ranks=request.ranks, impl="library", minbytes=LATENCY_BYTES, maxbytes=largest,
        cudagraph=False, starts=None if joined else 1, timeout=request.timeout,
    )  # fmt: skip
    platform, sweep = measured_sweep(messages, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has no pairs; give 2 or more")
    names = _names(request.impl, platform)
    alone = sweep.ranks <= request.alone  # which takes as many times as there are pairs
    sizes = LATENCY_BYTES, largest
    sweep = replace(
        sweep, implementations=names, sizes=sizes, requested=None, works=(PairMessages(alone=alone),), starts=1
    )
    return Session(platform, sweep, joined, folder)


def _names(impl: words.Names, platform: str) -> tuple[str, ...]:
    known = ways(platform)
    chosen: list[str] = []
    for name in split_names(impl):
        if name not in (*known, "all", "library"):
            raise unknown("--impl", name, (*known, "library", "all"))
        chosen += {"all": known, "library": known[:1]}.get(name, (name,))
    return tuple(dict.fromkeys(chosen))


Kind = tuple[str, int, str, bool]  # implementation, bytes, pattern, at once


def matrices(results: Sequence[Result]) -> dict[Kind, list[PairTimes]]:
    """Return the results by what they are of, each a matrix of senders and receivers."""
    rows = [row for row in results if isinstance(row, PairTimes)]
    return by_key(rows, lambda row: (row.label, row.case.nbytes, row.pair.pattern, row.pair.at_once))


class Outlying(NamedTuple):
    """A pair that is slower than the others of its matrix."""

    row: PairTimes
    slower: float  # times the median


def outliers(results: Sequence[Result]) -> Iterator[Outlying]:
    """Yield pairs that are slower than most by more than is usual, the slowest of a matrix first."""
    for rows in matrices(results).values():
        usual = median(row.typical for row in rows)
        spread = TO_DEVIATION * median(abs(row.typical - usual) for row in rows)
        limit = max(usual * (1 + usual_slower(rows[0].platform)), usual + _FAR * spread)
        far = [Outlying(row, row.typical / usual) for row in rows if row.typical > limit and len(rows) > 2]
        yield from sorted(far, key=lambda found: -found.slower)


def shown(row: PairTimes) -> float:
    """Return what a matrix has of a pair: microseconds of a latency, else GB/s of one direction."""
    return 1e6 * row.typical if row.pair.pattern == LATENCY else row.rate / 1e9
