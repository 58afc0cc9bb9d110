"""What ranks compute between two synchronisations, and how that goes together with the collective that follows.

A step is a part of a Case: its matrix products make what the collective reduces.  Products are counted, not seconds:
the same step is the same work on any machine and on any number of ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from collbench.units import format_seconds, format_size

SEQUENTIAL, COMPUTE, COMMUNICATE = "sequential", "compute", "communicate"
WEAK, STRONG = "weak", "strong"
"""What stays the same on more ranks: the work of every rank, or that of all together."""


@dataclass(frozen=True)
class Step:
    """What every rank does in a step besides the collective of its case."""

    products: int  # of square matrices of float32, on every rank
    size: int  # rows of such a matrix
    schedule: str = SEQUENTIAL  # what goes on meanwhile: a name of collbench.schedules
    bucket: int = 0  # bytes of the array that are handed over at once; 0: all of it
    slow: tuple[tuple[int, float], ...] = ()  # ranks that compute so many times as much, on purpose
    seconds: float = 0.0  # of computing, where nothing is carried out and nobody counts products
    ctas: int = 0  # that NCCL may use at most while ranks compute, in blocks of a GPU; 0: as it likes
    mode: str = field(default="", compare=False)  # WEAK or STRONG in a scaling: the same work is the same step in both

    @property
    def flops(self) -> float:
        """Floating-point operations of a rank that is not slowed."""
        return flops_of(self.products, self.size)

    def products_of(self, rank: int) -> int:
        """What that rank computes, at least one product where the others have one."""
        return round(self.products * dict(self.slow).get(rank, 1.0))

    def shares(self, parts: int, rank: int) -> Iterator[int]:
        """The products of a rank in so many parts, one behind the other; none differs by more than one from another."""
        all_of_them = self.products_of(rank)
        for part in range(parts):
            yield all_of_them * (part + 1) // parts - all_of_them * part // parts

    @property
    def way(self) -> str:
        """How it is carried out, but for its buckets: `stream`, or `stream, 4 CTAs`."""
        return f"{self.schedule}, {self.ctas} CTA{'s' if self.ctas != 1 else ''}" if self.ctas else self.schedule

    @property
    def words(self) -> tuple[str, ...]:
        """What it is: the work, how it is carried out, and what is out of the ordinary."""
        work = f"{self.products} product{'s' if self.products != 1 else ''} of {self.size} x {self.size}"
        work = f"{format_seconds(self.seconds)} of computing" if self.seconds else work
        bucket = f"buckets of {format_size(self.bucket)}" if self.bucket else ""
        slow = (f"rank {rank} {factor:g} times as slow" for rank, factor in self.slow)
        return tuple(filter(None, (work, self.way, bucket, *slow)))


def flops_of(products: float, size: int) -> float:
    """A product of square matrices multiplies and adds size**3 times."""
    return 2.0 * products * size**3
