"""The stress check of a case, whichever platform carries it out; kernels/check.cu has the other half.

Calls follow each other without a meeting of the ranks.  Each has inputs of its own, and is looked at in a few stretches
of every block, so that a call costs little more than its operation however large the array is.  One rank in turn is
delayed, so that a rank which does not wait for it works on what it has not written yet.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.datatypes import GROUP, Wire
from collbench.platforms import checking
from collbench.results import Mismatch

PROBE = np.dtype(
    [("block", np.uint64), ("part", np.uint64)]
    + [(name, np.uint32) for name in ("runs", "length", "grain", "reserved")]
)
"""`struct Probe` of kernels/check.cu."""

PIECE = np.dtype([("received", np.uint64), ("sent", np.uint64), ("source", np.int32), ("reserved", np.uint32)])
"""`struct Piece` of kernels/host/stress.hpp."""

INPUT, OUTPUT = 0xC3C3C3C3, 0xA5A5A5A5
"""What is written over inputs once a call has returned, and over results before the next; as in kernels/check.cu."""

LOOKED_AT = 2**16  # bytes of a buffer in each call, or somewhat less; all of a smaller one
STRETCH = 128  # bytes: what a stretch holds at most
_FEWEST = 2  # stretches of a part: its start and its end
_CALL_BITS = 48
_RARE, _LONG = 8, 8  # one delay of so many is so many times as long

WITH_DELAYS = "-DWITH_DELAYS"
"""The compiler's option for kernels that are delayed once in a call, at the end of a phase drawn by lot (trace.cuh)."""


@dataclass(frozen=True)
class Plan:
    """So many calls with seeds from `seed` on; the rank whose turn it is comes `late` by so many seconds or more."""

    calls: int
    late: float
    seed: int

    def stalls(self, rank: int, ranks: int, longest: float = 0.02) -> NDArray[np.uint64]:
        """Return the nanoseconds by which a rank is late in each call, shape (calls,).

        Turns go round all ranks and, if there are enough calls, once more for nobody; they are shifted from round to
        round, so that no rank is late in odd calls only.  In one call of eight the rank is very late, so that others
        may get several calls ahead; and now and then a rank is a little late out of turn.
        """
        numbers = np.arange(self.calls)
        period = min(ranks + 1, self.calls)
        turn = (numbers + numbers // period) % period == rank % period
        draws = np.random.default_rng((self.seed, rank)).random((3, self.calls))
        in_turn = np.where(draws[0] < 1 / _RARE, _LONG, 1.0)
        out_of_turn = np.where(draws[1] < 1 / _RARE, draws[2], 0.0)
        seconds = np.minimum(self.late * np.where(turn, in_turn, out_of_turn), longest)
        return (seconds * 1e9).astype(np.uint64)


def lost(seconds: float) -> int:
    """Return the nanoseconds that kernels with WITH_DELAYS lose in operations of so many seconds.

    Four operations, within which the other ranks come to their end; but no more than these would wait.
    """
    return int(1e9 * min(max(4 * seconds, 5e-5), 5e-3))


def probe(case: Case, wire: Wire | None = None) -> NDArray[np.void]:
    """Return where calls are looked at, shape (): PROBE.  With a wire these are whole groups."""
    size = case.dtype.itemsize
    blocks = max(case.send_count, case.receive_count) // case.block
    part = chunk_elements(case.block, 1 if case.collective.sharded else case.ranks, size)
    parts = -(-case.block // part)
    length = STRETCH // size
    runs = max(_FEWEST, LOOKED_AT // STRETCH // (blocks * parts))
    grain = GROUP if wire else 1
    return np.array((case.block, part, min(runs, -(-part // length)), length, grain, 0), PROBE)


def looked_at(where: NDArray[np.void]) -> int:
    """Return how many elements of a block are looked at in a call."""
    whole, rest = divmod(int(where["block"]), int(where["part"]))
    return whole * _looked_at_in_part(where, int(where["part"])) + _looked_at_in_part(where, rest)


def _looked_at_in_part(where: NDArray[np.void], size: int) -> int:
    """Return all elements of a small part, or those of stretches of which the last may be cut short by the grain."""
    length, grain, runs = int(where["length"]), int(where["grain"]), int(where["runs"])
    if size <= runs * length:
        return size
    last = -(-(size - length) // grain) * grain
    return (runs - 1) * length + size - last


def stretches(where: NDArray[np.void]) -> int:
    """Return how many stretches a block has."""
    return -(-int(where["block"]) // int(where["part"])) * int(where["runs"])


def found(
    case: Case, plan: Plan, rank: int, verdicts: NDArray[np.void], with_bits: bool, wire: Wire | None = None
) -> Mismatch | None:
    """Return the first wrong element of a rank in all calls.

    Args:
        case: What was carried out.
        plan: The calls.
        rank: Whose results were compared.
        verdicts: One for each piece of the rank's result.
        with_bits: Whether verdicts have the bits of the first wrong element.
        wire: The narrow format of the ranks, if there is one.

    Raises:
        CaseFailed: Not all elements were looked at: then nothing is known.

    """
    pieces = list(case.pieces(rank))
    expected = plan.calls * looked_at(probe(case, wire))
    wrong = []
    for piece, verdict in zip(pieces, verdicts, strict=True):
        checking.refuse_unseen(int(verdict["seen"]), expected)
        if verdict["wrong"]:
            wrong.append((int(verdict["first"]), piece, verdict))
    if not wrong:
        return None
    first, piece, verdict = min(wrong, key=lambda entry: entry[0])
    call, index = first >> _CALL_BITS, first % 2**_CALL_BITS
    total = sum(int(verdict["wrong"]) for _, _, verdict in wrong)
    got = verdict["got"].reshape(1).view(case.dtype.storage)[:1] if with_bits else None
    return checking.describe(case, plan.seed + call, rank, piece, (total, index), got, (call, plan.calls), wire)
