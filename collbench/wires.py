"""Formats that an array takes on its way, narrower than its elements, and how far a result may be off by each.

`bound` is the definition; `kernels/bound.cuh` computes the same on the device, and shares no line with the kernels that
it judges.  How the bound follows stands there and in docs/kernels.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PREFIX = "narrow-"  # of the names of implementations
GROUP = 32  # elements that share a scale, as in the OCP's microscaling formats
GRADES = 5  # the same as a power of two: recipes that are graded give each group a magnitude of its own
ROUNDING = 2.0**-24  # of an addition in fp32, relative to its result
SLACK = 1.0 + 2.0**-10  # the bound itself is computed in fp32

LEARNT = 2**12  # elements of the message that a wire's errors are studied with
KEPT = 2 * 4 + 4 * 8  # bytes of each: what was lost of an input and of a sum, and what is summed up

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Wire:
    """A format of kernels/wires.cuh: what it takes of a link, and what one passage through it may lose of an element.

    That is `relative` times its magnitude, or if that is less `absolute` times the power of two below the largest
    magnitude of its group.  A format that keeps the `kept` largest of a group as they are loses all else.
    """

    name: str
    summary: str
    code: str  # the struct in kernels/wires.cuh
    codes: int  # bytes of a group
    side: int  # bytes beside them: a scale, or places
    relative: float = 0.0
    absolute: float = 0.0
    kept: int = 0

    @property
    def group(self) -> int:
        """Bytes of a group with what stands beside it."""
        return self.codes + self.side

    @property
    def nbytes(self) -> float:
        """Bytes on the wire for each element."""
        return self.group / GROUP

    def lost(self, sizes: Numbers | float, most: float, next_: float) -> Numbers:
        """What elements of such magnitudes may lose in a group; its largest is `most`, `next_` the largest not kept."""
        if self.kept:
            return np.where(sizes <= next_ * SLACK, sizes, 0.0)
        return np.maximum(self.relative * sizes, self.absolute * below(most))

    def behind(self, sizes: Numbers) -> float:
        """The largest magnitude of a group that is not kept; 0 where all are."""
        return float(np.sort(sizes)[-self.kept - 1]) if 0 < self.kept < len(sizes) else 0.0


@dataclass(frozen=True)
class Lost:
    """Errors of many rounds, relative to the root mean square of the exact sums."""

    most: float  # the largest of all
    rms: float  # of all
    bias: float  # the root mean square of the elements' means over the rounds: what averaging does not take away


@dataclass(frozen=True)
class Study:
    """What a wire makes of gradients whose means stay and whose noise does not; `fed` where losses are made up for."""

    rounds: int
    elements: int
    plain: Lost
    fed: Lost


def below(size: float) -> float:
    """The power of two that is no larger; 0 of 0."""
    return float(2.0 ** np.floor(np.log2(size))) if size else 0.0


def bound(wire: Wire, terms: Numbers) -> Numbers:
    """How far sums of a group's terms may be off, shape (elements,); `terms`: shape (ranks, elements), one group's.

    All inputs but the owner's own pass through the wire, are added in fp32, and the sum passes through it again.
    """
    ranks, sizes = len(terms), np.abs(terms)
    most, behind = sizes.max(axis=1), [wire.behind(row) for row in sizes]
    errors = np.array([wire.lost(*row) for row in zip(sizes, most, behind, strict=True)])
    noise = sum(behind) if wire.kept else sum(float(wire.lost(top, top, 0.0)) for top in most)
    off = errors.sum(axis=0) - errors.min(axis=0) + ranks * ROUNDING * (sizes + errors).sum(axis=0)
    noise += ranks * ROUNDING * 2 * most.sum()
    exact = np.abs(terms.sum(axis=0))
    if wire.kept:
        dropped = exact - off <= (wire.behind(exact) + noise) * SLACK
        off = np.where(dropped, np.maximum(off, exact), off)
    else:
        off += wire.lost(exact + off, float(exact.max()) + noise, 0.0)
    widened: Numbers = off * SLACK
    return widened


WIRES = {
    wire.name: wire
    for wire in (
        Wire("bfloat16", "bfloat16: half the bytes, the range of fp32", "Bfloat", 2 * GROUP, 0, relative=2.0**-8),
        Wire(
            "e4m3",
            "fp8 (e4m3) with a scale for 32 elements: a quarter of the bytes",
            "E4m3",
            GROUP,
            1,
            relative=2.0**-4,
            absolute=2.0**-17,
        ),
        Wire("topk", "the 4 largest of 32 elements, with their places: a sixth of the bytes", "TopK", 16, 4, kept=4),
    )
}

EARLIER = {"half": 2 + 1 / GROUP, "int8": 1 + 1 / GROUP}
"""Bytes for each element of formats that only run files of earlier releases have."""


def wire_nbytes(implementation: str) -> float | None:
    """Return the bytes for each element that a narrow implementation sends; None for one that is exact."""
    _, found, name = implementation.partition(PREFIX)
    if not found:
        return None
    return WIRES[name].nbytes if name in WIRES else EARLIER.get(name)
