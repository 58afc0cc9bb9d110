"""`collbench.pairs` and `collbench scan --pairs`: matrices of latency and bandwidth."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

from collbench.commands.scan.rows import BOTH_WAYS, LATENCY, LATENCY_BYTES, ONE_WAY, PATTERNS, PairMessages, PairTimes
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.exchanges import ways
from collbench.measure.session import Session
from collbench.present.terminal import room
from collbench.requests import words
from collbench.requests.declared import NAMES, SIZE, Opt, Request, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import SweepRequest, measured_sweep, split_names
from collbench.results import Result, Skipped, by_key
from collbench.runfile.store import Run
from collbench.units import format_size, parse_size, significant

_MOST = 200  # characters of a line without a terminal
_BY_NAME = {pattern.replace(" ", "-"): (pattern,) for pattern in PATTERNS}


@dataclass(frozen=True)
class PairsRequest(Request):
    """The pairs to measure, and their messages."""

    ranks: words.Ranks = None
    _: KW_ONLY
    on: words.Here = "auto"
    impl: Annotated[words.Names, Opt("--impl", "Senders: library (mpi, nccl), copy, kernel.", unit=NAMES)] = "all"
    size: Annotated[words.Size, Opt("--size", "Message size for bandwidth.", unit=SIZE, least=9, most=2**31)] = "4M"
    alone: Annotated[int, Opt("--alone", "Also measure pairs alone, with up to N ranks.", metavar="N", least=0)] = 16
    patterns: Annotated[words.Names, Opt("--patterns", f"Patterns: {', '.join(_BY_NAME)}.", unit=NAMES)] = "all"
    timeout: words.Timeout = "60s"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None


@takes(PairsRequest)
def pairs(request: PairsRequest) -> Run:
    """Measure latency and bandwidth of all pairs of ranks, alone and at once.

    Returns:
        The run, with a result for each pair, pattern and implementation: `pair` has sender, receiver and pattern,
        `times` are seconds per message, `rate` is in bytes per second.

    >>> import collbench
    >>> run = collbench.pairs(2, on="cpu", impl="mpi", size="64K")
    >>> run.results[0].right
    True

    """
    return run_to_end(pairs_session(request, Path(request.out) if request.out else None), request.each)


def pairs_session(request: PairsRequest, folder: Path | None) -> Session:
    """Return the session of a request, with the ranks of a launcher if there is one."""
    joined, largest = launched(), parse_size(str(request.size))
    messages = SweepRequest(
        "sendrecv", on=request.on, ranks=request.ranks, impl="library", minbytes=LATENCY_BYTES, maxbytes=largest,
        cudagraph=False, starts=None if joined else 1, timeout=request.timeout,
    )  # fmt: skip
    platform, sweep = measured_sweep(messages, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has no pairs; give 2 or more")
    known = ways(platform)
    names = _chosen("--impl", request.impl, {name: (name,) for name in known} | {"library": known[:1], "all": known})
    patterns = _chosen("--patterns", request.patterns, _BY_NAME | {"all": PATTERNS})
    work = PairMessages(pattern=", ".join(patterns), alone=sweep.ranks <= request.alone)
    sizes = tuple(dict.fromkeys(LATENCY_BYTES if pattern == LATENCY else largest for pattern in patterns))
    sweep = replace(sweep, implementations=names, sizes=sizes, requested=None, works=(work,), starts=1)
    return Session(platform, sweep, joined, folder)


def _chosen(option: str, names: words.Names, known: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the values of the names, each once; `known` maps a name to its values."""
    chosen: list[str] = []
    for name in split_names(names) or [""]:
        if name not in known:
            raise unknown(option, name, known)
        chosen += known[name]
    return tuple(dict.fromkeys(chosen))


def matrices(results: Sequence[Result]) -> dict[tuple[str, int, str, bool], list[PairTimes]]:
    """Group the results of pairs into matrices by implementation, bytes, pattern and whether all pairs ran at once."""
    rows = [row for row in results if isinstance(row, PairTimes)]
    return by_key(rows, lambda row: (row.label, row.case.nbytes, row.pair.pattern, row.pair.at_once))


def cells(rows: Sequence[PairTimes]) -> dict[tuple[int, int], float]:
    """Return the cells of a matrix by sender and receiver: latency in microseconds, or GB/s of one direction."""
    values = {}
    for row in rows:
        ends = row.pair.sender, row.pair.receiver
        for place in (ends,) if row.pair.pattern == ONE_WAY else (ends, ends[::-1]):
            values[place] = 1e6 * row.typical if row.pair.pattern == LATENCY else row.rate / 1e9
    return values


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield the matrices, the slowdown of pairs at once over pairs alone, and skipped cases."""
    every = matrices(results)
    for (name, nbytes, pattern, at_once), rows in every.items():
        unit = "us" if pattern == LATENCY else "GB/s of each direction" if pattern == BOTH_WAYS else "GB/s"
        yield f"{name}, {pattern}, {rows[0].pair.words[-1]}, {format_size(nbytes)}: {unit}"
        unsure, each = [row for row in rows if row.unsure], every.get((name, nbytes, pattern, False), ())
        yield from _matrix(cells(rows), cells(unsure))
        if unsure:
            yield f"*: {len(unsure)} of {len(rows)}, disturbed by other programs or uncertain by more than 100 %"
        alone = {replace(row.pair, at_once=True): row.typical for row in each if not row.unsure}
        slower = [row.typical / alone[row.pair] for row in rows if row.pair in alone and not row.unsure]
        if at_once and slower:
            yield f"at once {significant(median(slower), 3)}x the time of each pair alone"
        yield ""
    yield from (f"{row.implementation}: {row.describe()}" for row in results if isinstance(row, Skipped))


def _matrix(values: Mapping[tuple[int, int], float], marked: Collection[tuple[int, int]]) -> Iterator[str]:
    """Yield a table of senders (down) and receivers (across), or only the range if it is too wide."""
    ranks = sorted({end for pair in values for end in pair})
    if 7 * len(ranks) + 4 > (room() or _MOST):
        low, high, middle = (significant(of(values.values()), 3) for of in (min, max, median))
        yield f"{low} to {high}, median {middle}; the figure has all pairs"
        return
    texts = {pair: significant(value, 3) + "*" * (pair in marked) for pair, value in values.items()}
    width = max(7, 1 + max(map(len, texts.values())))
    yield "".join(["from", *(f"{rank:>{width}}" for rank in ranks)])
    for sender in ranks:
        yield "".join([f"{sender:>4}", *(f"{texts.get((sender, rank), ''):>{width}}" for rank in ranks)]).rstrip()
