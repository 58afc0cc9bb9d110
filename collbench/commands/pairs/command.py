"""Measure every pair of ranks: latency, one way, both ways; alone, and all at once, which shows who contends.

For example:
  collbench pairs
  collbench pairs --on cpu --ranks 4 --impl mpi
  mpirun -n 64 collbench pairs --alone 0 --json -
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import click

from collbench.analysis.sequential import TO_DEVIATION, usual_slower
from collbench.cli.options import RENDEZVOUS_FOLDER, json_option, made, options_of, print_answer, try_output
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session, say_where
from collbench.commands.pairs.measured import LATENCY_BYTES
from collbench.commands.pairs.rows import BOTH_WAYS, LATENCY, ONE_WAY, PairMessages, PairTimes
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.exchanges import ways
from collbench.measure.session import Session
from collbench.present.columns import Column
from collbench.present.terminal import Table, room
from collbench.requests import words
from collbench.requests.declared import NAMES, SIZE, Opt, Request, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import SweepRequest, measured_sweep, new_folder, split_names
from collbench.results import Result, Skipped, by_key
from collbench.runfile.schema import to_line
from collbench.runfile.store import Run
from collbench.units import format_size, parse_size, significant

_WIDTH, _MOST = 6, 200  # characters of a number, and of a line where there is no terminal
_NAMED = 10  # outliers that are named
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


@click.command(params=[*options_of(PairsRequest), RENDEZVOUS_FOLDER, json_option("the rows of the run file")])
def command(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure every pair of ranks: latency, bandwidth one way and both ways; each pair alone, and all at once.

    What is slower at once than alone, pairs contend for.  On GPUs NCCL sends, copy engines copy, and kernels store; on
    a CPU MPI does, memcpy, and the same kernels.  `collbench compare` compares two runs pair by pair.
    """
    try_output(as_json, "--json FILE", out)
    session = pairs_session(made(PairsRequest, options), out or new_folder(["pairs"], socket.gethostname()))
    interrupted = run_session(session, LiveTable())

    def show() -> None:
        click.echo("\n".join(lines(session.results)))
        say_where(session)

    if session.leader and not interrupted:
        print_answer(show, as_json, [to_line(row) for row in session.results])
    return interrupted or finish([session])


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield the matrices, what is slower at once than alone, and the outliers."""
    every = matrices(results)
    for (name, nbytes, pattern, at_once), rows in every.items():
        unit = "us" if pattern == LATENCY else "GB/s of each direction" if pattern == BOTH_WAYS else "GB/s"
        yield f"{name}, {pattern}, {'at once' if at_once else 'alone'}, {format_size(nbytes)}: {unit}"
        yield from _matrix(rows)
        if at_once and (apart := every.get((name, nbytes, pattern, False))):
            shares = {(row.pair.sender, row.pair.receiver): row.typical for row in apart}
            slower = median(row.typical / shares[row.pair.sender, row.pair.receiver] for row in rows)
            yield f"at once {significant(slower, 3)}x the time of each pair alone"
        yield ""
    for row in results:
        if isinstance(row, Skipped):
            yield f"{row.implementation}: {row.describe()}"
    far = list(outliers(results))
    for row, slower in far[:_NAMED]:
        yield f"slow: {', '.join(row.pair.words[1:])}, {row.label}: {slower:.2f}x the median"
    if len(far) > _NAMED:
        yield f"... and {len(far) - _NAMED} more (--json has all)"


def _matrix(rows: Sequence[PairTimes]) -> Iterator[str]:
    """Yield senders down and receivers across; of many ranks the range alone."""
    cells: dict[tuple[int, int], float] = {}
    for row in rows:
        cells[row.pair.sender, row.pair.receiver] = shown(row)
        if row.pair.pattern != ONE_WAY:
            cells[row.pair.receiver, row.pair.sender] = shown(row)
    ranks = sorted({end for pair in cells for end in pair})
    if (len(ranks) + 1) * (_WIDTH + 1) > (room() or _MOST):
        low, high = (significant(each, 3) for each in (min(cells.values()), max(cells.values())))
        yield f"{low} to {high}, median {significant(median(cells.values()), 3)}; the figure has all pairs"
        return

    def column(receiver: int) -> Column[int]:
        return Column(str(receiver), lambda sender: cells.get((sender, receiver)), _number, form=f">{_WIDTH}")

    table = Table[int]([Column("from", str, form=">"), *map(column, ranks)])
    yield table.heading()
    yield from map(table.row, ranks)


def _number(value: float) -> str:
    return significant(value, 3)


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
