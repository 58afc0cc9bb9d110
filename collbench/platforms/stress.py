"""What the stress check of a case does, whichever platform carries it out; kernels/check.cu has the other half.

Calls follow each other without a meeting of the ranks.  Each has inputs of its own, and is looked at in a few stretches
of every block, so that a call costs little more than its operation however large the array is.  One rank in turn comes
late, so that whoever does not wait for it works on what it has not written yet.
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
"""`struct Piece` of kernels/check.cu."""

INPUT, OUTPUT = 0xC3C3C3C3, 0xA5A5A5A5
"""What is written over inputs once a call has returned, and over results before the next; as in kernels/check.cu."""

LOOKED_AT = 2**16  # bytes of a buffer in each call, or somewhat less; all of a smaller one
STRETCH = 128  # bytes: what a stretch holds at most
_FEWEST = 2  # stretches of a part: its start and its end
_CALL_BITS = 48
_OFTEN, _LONG = 8, 8  # of so many lateness draws one is so many times as long
_HALT = 1  # of an operation's time that a halt lasts
_EARLY = 0.5, 4  # so many are early, by that power of a lot: on a busy machine operations seem longer than they are
_HALTS = 2e-5, 5e-3  # seconds: at least, since nothing is interrupted more finely, and at most, past a slice of a core

HESITATES = "-DHESITATES"
"""The compiler's option for kernels that lose time once in a call, at the end of a phase drawn by lot (trace.cuh)."""

_LOST = 4.0, (5e-5, 5e-3)  # operations that they lose, and seconds: others do not get there before, nor wait for ever


@dataclass(frozen=True)
class Plan:
    """So many calls with seeds from `seed` on; the rank whose turn it is comes `late` by so many seconds or more.

    `within` is the length of an operation in seconds, in the middle of which that rank halts too; 0 for no halts.
    """

    calls: int
    late: float
    seed: int
    within: float = 0.0

    def stalls(self, rank: int, ranks: int, longest: float = 0.02) -> NDArray[np.uint64]:
        """Nanoseconds by which a rank is late in each call, shape (calls,).

        Turns go round all ranks and, if there are enough calls, once more for nobody; they are shifted from round to
        round, so that no rank is late in odd calls only.  In one call of eight the rank is very late, so that others
        may get several calls ahead; and now and then one is a little late out of turn.
        """
        turn = self._turn(rank, ranks)
        draws = np.random.default_rng((self.seed, rank)).random((3, self.calls))
        own = np.where(draws[0] < 1 / _OFTEN, _LONG, 1.0)
        other = np.where(draws[1] < 1 / _OFTEN, draws[2], 0.0)
        seconds = np.minimum(self.late * np.where(turn, own, other), longest)
        return (seconds * 1e9).astype(np.uint64)

    def halts(self, rank: int, ranks: int) -> NDArray[np.uint64]:
        """When a rank halts within each call and for how long, in nanoseconds, shape (calls, 2); zeros for not at all.

        Once whoever is late has come all are equally fast, and end together.  So it then halts at a random moment of
        the operation, and the others end before it has read what is theirs, or look for what it has not written.
        """
        turn = self._turn(rank, ranks) & (self.within > 0)
        draws = np.random.default_rng((self.seed, rank, 1)).random((2, self.calls))
        moments = self.within * draws[0] ** np.where(draws[1] < _EARLY[0], _EARLY[1], 1)
        length = min(max(self.within * _HALT, _HALTS[0]), _HALTS[1])
        return np.stack([np.maximum(1e9 * moments, 1) * turn, 1e9 * length * turn], axis=1).astype(np.uint64)

    def _turn(self, rank: int, ranks: int) -> NDArray[np.bool_]:
        """In which calls it is that rank's turn, shape (calls,)."""
        numbers = np.arange(self.calls)
        period = min(ranks + 1, self.calls)
        mine: NDArray[np.bool_] = (numbers + numbers // period) % period == rank % period
        return mine


def lost(seconds: float) -> int:
    """Nanoseconds that kernels lose which hesitate in operations of so many seconds: the others end meanwhile."""
    times, (least, most) = _LOST
    return int(1e9 * min(max(times * seconds, least), most))


def probe(case: Case, wire: Wire | None = None) -> NDArray[np.void]:
    """Where calls are looked at, shape (): PROBE.  With a wire in whole groups."""
    size = case.dtype.itemsize
    blocks = max(case.send_count, case.receive_count) // case.block
    part = chunk_elements(case.block, 1 if case.collective.sharded else case.ranks, size)
    parts = -(-case.block // part)
    length = STRETCH // size
    runs = max(_FEWEST, LOOKED_AT // STRETCH // (blocks * parts))
    grain = GROUP if wire else 1
    return np.array((case.block, part, min(runs, -(-part // length)), length, grain, 0), PROBE)


def looked_at(where: NDArray[np.void]) -> int:
    """Elements of a block that are looked at in a call."""
    whole, rest = divmod(int(where["block"]), int(where["part"]))
    return whole * _of_part(where, int(where["part"])) + _of_part(where, rest)


def _of_part(where: NDArray[np.void], size: int) -> int:
    """Elements of a part of so many: all of them, or stretches of which the last may be cut short by the grain."""
    length, grain, runs = int(where["length"]), int(where["grain"]), int(where["runs"])
    if size <= runs * length:
        return size
    last = -(-(size - length) // grain) * grain
    return (runs - 1) * length + size - last


def stretches(where: NDArray[np.void]) -> int:
    """How many a block has."""
    return -(-int(where["block"]) // int(where["part"])) * int(where["runs"])


def found(
    case: Case, plan: Plan, rank: int, verdicts: NDArray[np.void], kept: bool, wire: Wire | None = None
) -> Mismatch | None:
    """The first wrong element of a rank in all calls, from one verdict for each of its pieces; `kept`: with its bits.

    CaseFailed if not all elements were looked at: then nothing is known.
    """
    pieces = list(case.pieces(rank))
    wanted = plan.calls * looked_at(probe(case, wire))
    for verdict in verdicts:
        checking.refuse_unseen(int(verdict["seen"]), wanted)
    wrong = [(int(verdict["first"]), piece, verdict) for piece, verdict in zip(pieces, verdicts, strict=True)]
    wrong = [one for one in wrong if one[2]["wrong"]]
    if not wrong:
        return None
    first, piece, verdict = min(wrong, key=lambda one: one[0])
    call, index = first >> _CALL_BITS, first % 2**_CALL_BITS
    total = sum(int(one["wrong"]) for _, _, one in wrong)
    got = verdict["got"].reshape(1).view(case.dtype.storage)[:1] if kept else None
    return checking.describe(case, plan.seed + call, rank, piece, (total, index), got, (call, plan.calls), wire)
