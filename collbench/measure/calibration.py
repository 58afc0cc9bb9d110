"""How many matrix products last as long as a step should compute: measured, by one rank that has the machine to itself.

The number is then the same on any number of ranks, so that what neighbours cost shows in the times.
"""

from dataclasses import dataclass

from collbench.algorithms import implementations
from collbench.cases import COMPUTE, Sampling, Step, Sweep, flops_of
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import PlatformError
from collbench.measure.supervisor import Supervisor
from collbench.results import StepTimes, Untimed

_TRIED = 16  # products of a trial step
_SAMPLING = Sampling(budget=0.3)


@dataclass(frozen=True)
class Work:
    """How much a step is to compute, as the user says it: one of the two is set."""

    seconds: float = 0.0
    flops: float = 0.0

    def products(self, platform: str, size: int) -> int:
        """So many products of square matrices of that many rows; at least one.  PlatformError if no rank can be had."""
        if self.flops:
            return max(1, round(self.flops / flops_of(1, size)))
        return max(1, round(self.seconds / seconds_of_a_product(platform, size)))


def seconds_of_a_product(platform: str, size: int) -> float:
    """On one rank of that platform, alone on the machine; PlatformError if it cannot be measured."""
    names = [name for name, way in implementations().items() if platform in way.platforms]
    sweep = Sweep(
        collectives=(COLLECTIVES["allreduce"],),
        sizes=(4,),
        dtypes=(DATATYPES["float"],),
        redops=(REDUCTIONS["sum"],),
        ranks=1,
        implementations=tuple(names[:1]),
        sampling=_SAMPLING,
        steps=(Step(_TRIED, size, COMPUTE),),
    )
    with Supervisor(platform, sweep) as ranks:
        for result in ranks.run():
            if isinstance(result, StepTimes) and result.right:
                return result.percentile(50) / _TRIED
            reason = result.reason if isinstance(result, Untimed) else result.wrong
            raise PlatformError(
                f"matrix products of {size} x {size} could not be timed: {reason}; try another --matrix"
            )
    raise PlatformError(f"matrix products of {size} x {size} could not be timed; try another --matrix")
