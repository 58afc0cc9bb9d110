"""A row of a sum of random values that nobody added."""

from dataclasses import replace
from typing import Any

from collbench.commands.verify.rows import CALLS, RANKS, Bits, SumBits, SumError, places
from tests.conftest import case

CASE = case(nbytes=4096, ranks=4, work=Bits("normal"))
ERROR = SumError(1024, 0.25, 8.0, 0.5, "float")


def row(name: str = "mpi", digest: str = "a", nbytes: int = 4096, law: str = "normal", **more: Any) -> SumBits:
    of = replace(CASE, nbytes=nbytes, work=Bits(law))
    bits = more.pop("bits", tuple(range(1, 1 + len(places(of.block)))))
    fields = {"calls": 50, "compared": (RANKS, CALLS), "error": ERROR} | more
    return SumBits(of, name, "cpu", digest, bits, **fields)
