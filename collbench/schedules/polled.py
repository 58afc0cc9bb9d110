"""`polled`: as `nonblocking`, and between two matrix products the library is asked whether it is done (MPI_Test).

That is what has a library go on that has no thread of its own; what it does then is not computed meanwhile.
"""

from collections.abc import Sequence

from collbench.platforms.interface import Pending
from collbench.platforms.products import Products
from collbench.schedules import Schedule
from collbench.schedules.nonblocking import prepare


def _one_by_one(products: Products, rank: int, count: int, pending: Sequence[Pending]) -> None:
    for _ in range(count):
        products.enqueue(rank, 1)
        for operation in pending:
            operation.poll()


SCHEDULE = Schedule(
    "polled",
    "MPI_Iallreduce for every bucket, and MPI_Test between matrix products",
    lambda parts: prepare(parts, _one_by_one),
    platforms=("cpu",),
    overlaps=True,
)
