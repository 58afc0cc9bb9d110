"""The arguments of a check by kernels/check.cu, and its verdicts.

In the stress check calls follow each other without barriers. Each call has its own inputs and is checked in a few
stretches of every block, so that checking adds little time even for large arrays. Each rank is delayed in turn, so
that a rank that does not wait for it reads unwritten data.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.collectives import REDUCED, chunk_elements
from collbench.datatypes import GROUP, Array, Recipe, Wire, bound, inputs, reduced
from collbench.errors import CaseFailed
from collbench.results import CheckFailure, Mismatch
from collbench.results.facts import Disagreement

RECIPE = np.dtype([(name, np.uint32) for name in ("seed", "ranks", "bits", "stride", "grades")])
"""`struct Recipe` of kernels/recipe.cuh."""

WIRE = np.dtype([("relative", np.float32), ("absolute", np.float32), ("top_k", np.uint32)])
"""`struct Wire` of kernels/bound.cuh."""

VERDICT = np.dtype([(name, np.uint64) for name in ("seen", "wrong", "first", "got", "digest")])
"""`struct Verdict` of kernels/check.cu: elements that were looked at, those that differ, the first one, its bits; and a
digest of all where they may be off."""

CLEAN = np.array((0, 0, 2**64 - 1, 0, 0), VERDICT)
"""Contents of a verdict before a comparison."""

PROBE = np.dtype(
    [("block", np.uint64), ("part", np.uint64)]
    + [(name, np.uint32) for name in ("runs", "length", "grain", "reserved")]
)
"""`struct Probe` of kernels/check.cu."""

PIECE = np.dtype([("received", np.uint64), ("sent", np.uint64), ("source", np.int32), ("reserved", np.uint32)])
"""`struct Piece` of kernels/host/stress.hpp."""

Piece = tuple[int, int, int]
"""First received element, source rank or REDUCED, first element sent: Case.pieces."""

POISON = 0xA5  # the byte that receive buffers are filled with beforehand
INPUT, OUTPUT = 0xC3C3C3C3, 0xA5A5A5A5
"""Value written over inputs after a call, and over results before the next; as in kernels/check.cu."""

LOOKED_AT = 2**16  # bytes of a buffer in each call, or somewhat less; all of a smaller one
STRETCH = 128  # bytes: what a stretch holds at most
_FEWEST = 2  # stretches of a part: its start and its end
_CALL_BITS = 48
_RARE, _LONG = 8, 8  # one delay of _RARE is _LONG times as long

WITH_DELAYS = "-DWITH_DELAYS"
"""The compiler's option for kernels that are delayed once in a call, at the end of a phase drawn by lot (trace.cuh)."""


def packed(how: Recipe) -> Array:
    """Return a recipe as the kernels take it, shape ()."""
    return np.array((how.seed, how.ranks, how.bits, how.stride, how.grades), RECIPE)


def packed_wire(wire: Wire | None) -> Array:
    """Return the bound of results as the kernels take it, shape (); zeros where results are exact."""
    numbers = (wire.relative, wire.absolute, wire.top_k) if wire else (0, 0, 0)
    return np.array(numbers, WIRE)


def entry(name: str, wire: Wire | None) -> str:
    """Return the kernel that compares: if there is a wire, the one that knows bounds."""
    return f"{name}_bounded" if wire else name


def comparison(
    case: Case, seed: int, piece: Piece, got: int, verdict: int, wire: Wire | None = None
) -> tuple[Array | np.generic, ...]:
    """Return the arguments of `compare`: what should lie at the address `got`, and where the verdict goes.

    With a wire those of `compare_bounded`; its result is one block of sums.
    """
    _, source, sent = piece
    start = np.uint64(got), np.uint64(case.block), packed(case.recipe(seed, wire))
    if wire:
        return (*start, packed_wire(wire), np.uint64(verdict))
    ulps = np.uint32(case.redop.ulps(case.dtype))
    return (*start, np.int32(source), np.uint64(sent), ulps, np.uint64(verdict))


def describe(
    case: Case,
    seed: int,
    rank: int,
    piece: Piece,
    verdict: tuple[int, int],
    got: Array | None,
    call: tuple[int, int] | None = None,
    wire: Wire | None = None,
) -> Mismatch:
    """Return the first wrong element of a piece: how many are wrong and which is the first, and that one as it is.

    `call`: of calls that followed each other, which one and of how many.
    """
    first, source, sent = piece
    wrong, index = verdict
    how = case.recipe(seed, wire)
    if source == REDUCED:
        expected = reduced(case.dtype, case.redop, how, sent + index, 1)
    else:
        expected = inputs(case.dtype, case.redop, how, source, sent + index, 1)
    number, calls = call or (None, None)
    return Mismatch(
        rank=rank,
        index=first + index,
        chunk=(first + index) // chunk_elements(case.receive_count, case.ranks, case.dtype.itemsize),
        got="" if got is None else str(case.dtype.decode(got)[0]),
        expected=str(case.dtype.decode(expected)[0]),
        wrong=wrong,
        call=number,
        calls=calls,
        bound=f"{_allowed(case, how, wire, index):.4g}" if wire else None,
    )


def _allowed(case: Case, how: Recipe, wire: Wire, index: int) -> float:
    """Return how far an element of the sum may be off."""
    first = index // GROUP * GROUP
    count = min(GROUP, case.block - first)
    terms = [inputs(case.dtype, case.redop, how, rank, first, count).astype(np.float64) for rank in range(case.ranks)]
    return float(bound(wire, np.array(terms))[index - first])


def agreed(failures: Iterable[CheckFailure | None], digests: Mapping[int, int]) -> CheckFailure | None:
    """Return the first failure, or ranks whose bits differ from the first rank's though all are within bounds.

    `digests`: by rank; all 0 where results are exact.
    """
    for failure in failures:
        if failure:
            return failure
    for rank, digest in sorted(digests.items()):
        if digest != digests[min(digests)]:
            return Disagreement(rank)
    return None


def refuse_unseen(seen: int, expected: int) -> None:
    """CaseFailed if a comparison did not look at all elements: then nothing is known, and least that all is well."""
    if seen != expected:
        raise CaseFailed(f"the check looked at {seen} elements of {expected}: the result is unverified")


@dataclass(frozen=True)
class StressPlan:
    """A number of calls, with seeds from `seed` on; in each, one rank in turn is at least `late` seconds late."""

    calls: int
    late: float
    seed: int

    def stalls(self, rank: int, ranks: int, longest: float = 0.02) -> NDArray[np.uint64]:
        """Return the nanoseconds by which a rank is late in each call, shape (calls,)."""
        numbers = np.arange(self.calls)

        # Turns go round all ranks and, if there are enough calls, once more for nobody.  They are shifted from round to
        # round, so that no rank is late in odd calls only.
        period = min(ranks + 1, self.calls)
        turn = (numbers + numbers // period) % period == rank % period

        # In one call of eight the rank is very late, so that others may get several calls ahead; and now and then a
        # rank is a little late out of turn.
        draws = np.random.default_rng((self.seed, rank)).random((3, self.calls))
        in_turn = np.where(draws[0] < 1 / _RARE, _LONG, 1.0)
        out_of_turn = np.where(draws[1] < 1 / _RARE, draws[2], 0.0)
        seconds = np.minimum(self.late * np.where(turn, in_turn, out_of_turn), longest)
        return (seconds * 1e9).astype(np.uint64)


def lost(seconds: float) -> int:
    """Return the nanoseconds that kernels with WITH_DELAYS lose in an operation of `seconds`.

    Four operations, within which the other ranks come to their end; but no more than these would wait.
    """
    return int(1e9 * min(max(4 * seconds, 5e-5), 5e-3))


def probe(case: Case, wire: Wire | None = None) -> NDArray[np.void]:
    """Return where calls are looked at, shape (): PROBE.  With a wire these are whole groups."""
    size = case.dtype.itemsize
    blocks = max(case.send_count, case.receive_count) // case.block
    part = chunk_elements(case.block, 1 if case.collective.sharded else case.ranks, size)
    parts = -(-case.block // part)

    # As many stretches as fit into what a call may look at, spread over all parts, but both ends of each.
    length = STRETCH // size
    runs = max(_FEWEST, LOOKED_AT // STRETCH // (blocks * parts))
    grain = GROUP if wire else 1
    return np.array((case.block, part, min(runs, -(-part // length)), length, grain, 0), PROBE)


def looked_at(where: NDArray[np.void]) -> int:
    """Return how many elements of a block are looked at in a call."""
    length, grain, runs, part = (int(where[name]) for name in ("length", "grain", "runs", "part"))

    def of_part(size: int) -> int:
        """Return all elements of a small part, or stretches of a large one; the grain may shorten the last stretch."""
        if size <= runs * length:
            return size
        return (runs - 1) * length + size - -(-(size - length) // grain) * grain

    whole, rest = divmod(int(where["block"]), part)
    return whole * of_part(part) + of_part(rest)


def stretches(where: NDArray[np.void]) -> int:
    """Return how many stretches a block has."""
    return -(-int(where["block"]) // int(where["part"])) * int(where["runs"])


def first_mismatch(
    case: Case, plan: StressPlan, rank: int, verdicts: NDArray[np.void], with_bits: bool, wire: Wire | None = None
) -> Mismatch | None:
    """Return the first wrong element of a rank in all calls, `with_bits` if asked, from a verdict for each piece.

    CaseFailed if not all elements were looked at: then nothing is known.
    """
    expected = plan.calls * looked_at(probe(case, wire))

    # A verdict's first wrong element has the number of its call in the upper bits, so the least is the first in time.
    wrong = []
    for piece, verdict in zip(case.pieces(rank), verdicts, strict=True):
        refuse_unseen(int(verdict["seen"]), expected)
        if verdict["wrong"]:
            wrong.append((int(verdict["first"]), piece, verdict))
    if not wrong:
        return None
    first, piece, verdict = min(wrong, key=lambda entry: entry[0])
    call, index = first >> _CALL_BITS, first % 2**_CALL_BITS
    total = sum(int(verdict["wrong"]) for _, _, verdict in wrong)
    got = verdict["got"].reshape(1).view(case.dtype.storage)[:1] if with_bits else None
    return describe(case, plan.seed + call, rank, piece, (total, index), got, (call, plan.calls), wire)
