"""A small training job as a part of a case: what every rank learns from, for how long, and what is out of the ordinary.

A network of two layers learns what another one, the teacher, makes of random inputs; every rank has samples of its own.
Work is counted, not timed: the same job is the same work on any machine.
"""

from dataclasses import dataclass, field

ITEM = 4  # bytes of a weight: float32


@dataclass(frozen=True)
class Job:
    """Training by stochastic gradient descent, until the ranks together have made `steps` times their number of steps.

    What only one style of synchronisation needs (`every`, `staleness`, `group`) stands here too: the case says all.
    """

    seed: int = 1  # of the first weights and the order of the samples; the samples are the same for all
    steps: int = 120  # of each rank, if all make as many
    rate: float = 0.4  # of learning: what a step of all ranks together subtracts is that times their mean gradient
    inputs: int = 16
    hidden: int = 128  # units between the two layers
    outputs: int = 8
    samples: int = 384  # to learn from, of every rank
    batch: int = 192  # samples of a step of one rank
    every: int = 8  # steps between two averages, where weights are averaged and not gradients
    staleness: int = 256  # steps that a rank may be ahead of the slowest, where nobody waits otherwise
    group: int = 2  # ranks that reduce among themselves first, where there are groups
    slow: tuple[tuple[int, float], ...] = ()  # ranks that compute so many times as much, on purpose
    target: float = field(default=0.0, compare=False)  # loss to race to; 0: the lowest that all get to.  No work of it

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of what the weights are made: matrix and offsets of the first layer, then of the second."""
        return (self.inputs, self.hidden), (self.hidden,), (self.hidden, self.outputs), (self.outputs,)

    @property
    def weights(self) -> int:
        """How many there are."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.outputs

    @property
    def nbytes(self) -> int:
        """Of all weights, or of a gradient."""
        return self.weights * ITEM

    def slowness(self, rank: int) -> float:
        """How many times that rank does what the others do once."""
        return dict(self.slow).get(rank, 1.0)

    @property
    def words(self) -> tuple[str, ...]:
        """What it is, and what is out of the ordinary; not the seed."""
        network = f"{self.steps} steps of a network {self.inputs}-{self.hidden}-{self.outputs}"
        slow = (f"rank {rank} {factor:g} times as slow" for rank, factor in self.slow)
        return network, f"batches of {self.batch}", *slow
