"""Measure every pair of ranks: latency, one way, both ways; alone, and all at once, which shows who contends.

For example:
  collbench pairs
  collbench pairs --on cpu --ranks 4 --impl mpi
  mpirun -n 64 collbench pairs --alone 0 --json -
"""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from collbench.cli.options import RENDEZVOUS_FOLDER, json_option, made, options_of, print_answer, try_output
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session, say_where
from collbench.commands.pairs.library import PairsRequest, matrices, outliers, pairs_session, shown
from collbench.commands.pairs.rows import BOTH_WAYS, LATENCY, ONE_WAY, PairTimes
from collbench.present.columns import Column
from collbench.present.terminal import Table, room
from collbench.requests.sweeps import new_folder
from collbench.results import Result, Skipped
from collbench.runfile.schema import to_line
from collbench.units import format_size, significant

_WIDTH, _MOST = 6, 200  # characters of a number, and of a line where there is no terminal
_NAMED = 10  # outliers that are named


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
