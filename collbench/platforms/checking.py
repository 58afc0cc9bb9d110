"""From the verdict that a device wrote to the first mismatch in words."""

from collections.abc import Iterable, Mapping

import numpy as np

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
"""What a verdict holds before a comparison."""

Piece = tuple[int, int, int]
"""First received element, source rank or REDUCED, first element sent: Case.pieces."""

POISON = 0xA5  # the byte that receive buffers are filled with beforehand


def packed(how: Recipe) -> Array:
    """Return a recipe as the kernels take it, shape ()."""
    return np.array((how.seed, how.ranks, how.bits, how.stride, how.grades), RECIPE)


def packed_wire(wire: Wire | None) -> Array:
    """Return the bound of results as the kernels take it, shape (); zeros where results are exact."""
    numbers = (wire.relative, wire.absolute, wire.top_k) if wire else (0, 0, 0)
    return np.array(numbers, WIRE)


def entry(name: str, wire: Wire | None) -> str:
    """The kernel that compares: the one that knows bounds, if there is a wire."""
    return f"{name}_bounded" if wire else name


def comparison(
    case: Case, seed: int, piece: Piece, got: int, verdict: int, wire: Wire | None = None
) -> tuple[Array | np.generic, ...]:
    """Arguments of the kernel `compare`: what should lie at the address `got`, and where the verdict goes.

    With a wire those of `compare_bounded`; its result is one block of sums.
    """
    _, source, sent = piece
    start = np.uint64(got), np.uint64(case.block), packed(case.recipe(seed, wire))
    if wire:
        return (*start, packed_wire(wire), np.uint64(verdict))
    return (
        *start,
        np.int32(source),
        np.uint64(sent),
        np.uint32(case.redop.ulps(case.dtype)),
        np.uint64(verdict),
    )


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
    """The first wrong element of a piece: how many are wrong and which is the first, and that one as it is stored.

    `call`: of calls that followed each other, which one and of how many.
    """
    first, source, sent = piece
    wrong, index = verdict
    how = case.recipe(seed, wire)
    expected = (
        reduced(case.dtype, case.redop, how, sent + index, 1)
        if source == REDUCED
        else inputs(case.dtype, case.redop, how, source, sent + index, 1)
    )
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
        bound=f"{allowed(case, how, wire, index):.4g}" if wire else None,
    )


def agreed(failures: Iterable[CheckFailure | None], digests: Mapping[int, int]) -> CheckFailure | None:
    """Return the first failure, or ranks whose bits differ from the first rank's though all are within bounds.

    `digests`: by rank; all 0 where results are exact.
    """
    other = next((rank for rank, digest in sorted(digests.items()) if digest != digests[min(digests)]), None)
    return next(filter(None, failures), None) or (Disagreement(other) if other is not None else None)


def allowed(case: Case, how: Recipe, wire: Wire, index: int) -> float:
    """How far an element of the sum may be off."""
    first = index // GROUP * GROUP
    count = min(GROUP, case.block - first)
    terms = [inputs(case.dtype, case.redop, how, rank, first, count).astype(np.float64) for rank in range(case.ranks)]
    return float(bound(wire, np.array(terms))[index - first])


def refuse_unseen(seen: int, expected: int) -> None:
    """CaseFailed if a comparison did not look at all elements: then nothing is known, and least that all is well."""
    if seen != expected:
        raise CaseFailed(f"the check looked at {seen} elements of {expected}: nothing is known of the result")
