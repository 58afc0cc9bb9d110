"""Rows of pairs that nobody measured."""

from dataclasses import replace

from collbench.commands.scan.rows import LATENCY, ONE_WAY, PairMessages, PairTimes
from tests.conftest import case

CASE = case("sendrecv", 2**20, ranks=3, work=PairMessages())


def row(sender: int, receiver: int, seconds: float = 1e-4, pattern: str = ONE_WAY, at_once: bool = False) -> PairTimes:
    nbytes = 8 if pattern == LATENCY else CASE.nbytes
    of = replace(CASE, nbytes=nbytes, work=PairMessages(sender, receiver, pattern, at_once))
    return PairTimes(of, "mpi", platform="cpu", seconds=(seconds,) * 7)


EVERY = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
ROWS = [row(*pair, seconds=3e-4 if pair == (2, 0) else 1e-4) for pair in EVERY]
MADE_UP = {"pairs": ROWS}
