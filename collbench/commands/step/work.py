"""The computing work of ranks: a step of matrix products, or a training job."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from msgspec import Meta

from collbench.cases import Case, Work
from collbench.units import Count, Duration, Factor, format_seconds, format_size

BUCKET_UNIT = 128  # bytes: buckets start at multiples of it, as buffers do
ITEM = 4  # bytes of a weight: float32

SEQUENTIAL, COMPUTE, COMMUNICATE = "sequential", "compute", "communicate"
WEAK, STRONG = "weak", "strong"
MODES = {
    WEAK: "constant work per rank",
    STRONG: "constant total work",
}
"""The modes of scaling: what stays constant on more ranks."""

SlowRanks = tuple[tuple[int, Factor], ...]
"""Deliberately slow ranks, each with its factor of computing."""


@dataclass(frozen=True)
class Step(Work):
    """Every rank's computing in a step; the collective of the case reduces its results.

    A step counts products, not seconds, so it is the same work on any machine and any number of ranks.
    """

    FIELD: ClassVar = "step"
    MODULE: ClassVar = "collbench.commands.step.measured"

    products: Count  # of square matrices of float32, on every rank
    size: Count  # rows of such a matrix
    schedule: str = SEQUENTIAL  # a name of SCHEDULES in schedules.py
    bucket: Count = 0  # bytes of the array per collective; 0: all of it
    slow: SlowRanks = ()
    seconds: Duration = 0.0  # of computing in a predicted step, which has no products
    mode: Annotated[str, Meta(pattern="^(weak|strong)?$")] = field(default="", compare=False)  # of a scaling

    def shares(self, parts: int, rank: int) -> Iterator[int]:
        """Yield a rank's products in `parts` consecutive parts; no two parts differ by more than one product."""
        products = round(self.products * dict(self.slow).get(rank, 1.0))
        for part in range(parts):
            yield products * (part + 1) // parts - products * part // parts

    def on(self, ranks: int, mode: str) -> "Step":
        """Return the step per rank on `ranks` ranks, from this step of one rank alone."""
        share = ranks if mode == STRONG else 1
        # Products are whole numbers; `share_of` corrects efficiencies for the rounding.
        return replace(
            self,
            products=max(1, round(self.products / share)) if self.products else 0,
            seconds=self.seconds / share,
            slow=tuple((rank, factor) for rank, factor in self.slow if rank < ranks),
            schedule=COMPUTE if ranks == 1 else self.schedule,
            mode=mode,
        )

    def communicators(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the implementations to measure it with: only the first if it does not communicate."""
        return names[:1] if self.schedule == COMPUTE else names

    @property
    def words(self) -> tuple[str, ...]:
        """The work, schedule, buckets and slow ranks."""
        work = f"{self.products} product{'s' if self.products != 1 else ''} of {self.size} x {self.size}"
        if self.seconds:
            work = f"{format_seconds(self.seconds)} of computing"
        bucket = f"buckets of {format_size(self.bucket)}" if self.bucket else ""
        return tuple(filter(None, (work, self.schedule, bucket, *_slow_words(self.slow))))


def _slow_words(slow: SlowRanks) -> Iterator[str]:
    return (f"rank {rank} {factor:g} times as slow" for rank, factor in slow)


@dataclass(frozen=True)
class SgdJob(Work):
    """A small training job by stochastic gradient descent, with a mean of `steps` steps per rank.

    A network of two layers learns another network, the teacher, from random inputs; every rank has its own samples.
    Work is counted, not timed, so it is the same on any machine.  `every` and `staleness` concern single strategies.
    """

    FIELD: ClassVar = "job"
    MODULE: ClassVar = "collbench.commands.step.training"

    seed: Count = 1  # of the initial weights and the order of samples; the samples are the same for all seeds
    steps: Count = 120  # mean per rank
    rate: Factor = 0.4  # learning rate: a joint step of all ranks subtracts it times their mean gradient
    inputs: Count = 16
    hidden: Count = 128  # units between the two layers
    outputs: Count = 8
    samples: Count = 384  # training samples per rank
    batch: Count = 192  # samples of a step of one rank
    every: Count = 8  # local SGD: steps between two averages of the weights
    staleness: Count = 256  # asynchronous: steps that a rank may be ahead of the slowest
    slow: SlowRanks = ()
    target: Duration = field(default=0.0, compare=False)  # loss to reach, not part of the work; 0: chosen by `ranking`

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: matrix and offsets of the first layer, then of the second."""
        return (self.inputs, self.hidden), (self.hidden,), (self.hidden, self.outputs), (self.outputs,)

    @property
    def weights(self) -> int:
        """Number of weights."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.outputs

    @property
    def nbytes(self) -> int:
        """Bytes of all weights, or of a gradient."""
        return self.weights * ITEM

    @property
    def words(self) -> tuple[str, ...]:
        """The steps, network, batches and slow ranks, without the seed."""
        network = f"{self.steps} steps of a network {self.inputs}-{self.hidden}-{self.outputs}"
        return network, f"batches of {self.batch}", *_slow_words(self.slow)


def step_of(case: Case) -> Step:
    """Return the step of a case; its work must be a Step."""
    assert isinstance(case.work, Step)
    return case.work


def job_of(case: Case) -> SgdJob:
    """Return the training job of a case; its work must be an SgdJob."""
    assert isinstance(case.work, SgdJob)
    return case.work


def buckets(case: Case) -> list[tuple[int, Case]]:
    """Return a step's buckets in order, as (byte offset, collective); sharded collectives have one bucket."""
    alone, bucket = replace(case, work=None), step_of(case).bucket
    if not bucket or case.collective.sharded:
        return [(0, alone)]
    whole = max(1, bucket // BUCKET_UNIT) * BUCKET_UNIT
    return [(start, replace(alone, nbytes=min(whole, case.nbytes - start))) for start in range(0, case.nbytes, whole)]
