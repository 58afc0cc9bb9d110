"""What computing reaches of what data sheets promise: the planner's fitted numbers, all of them.

`make train-report` fits them, with whole tables left out, and says how far plans are off (docs/training.md).
"""

from dataclasses import dataclass

from collbench.topology.products import capability


@dataclass(frozen=True)
class Constants:
    """Shares of a data sheet's rates."""

    products: float  # that matrix products reach
    fused: float = 0.547  # of that: what fused attention reaches of long samples
    half: float = 2795  # tokens of a sample at which it reaches half of that
    fp8: float = 0.97  # of that: what products on 8 bits reach, each of their own peak
    grouped: float = 0.383  # of that: what products of routed experts reach, each on some of the tokens
    unfused: float = 1.0  # the same of attention's batched products; the scores' way through memory is apart
    memory: float = 1.0  # of the memory's rate: what all else reaches
    generation: int = 0  # the compute capability that they were fitted to
    spread: float = 0.14  # of computing's time, up and down: what nine of ten published steps lie within
    spread_experts: float = 0.23  # the same where there are experts


FITTED = {
    80: Constants(products=0.669, generation=80),
    90: Constants(products=0.589, generation=90),
}


def constants_of(arch: str) -> Constants:
    """Those of the newest generation known that is not newer than the architecture; of the oldest for older ones."""
    known = [one for one in FITTED if one <= capability(arch)] or [min(FITTED)]
    return FITTED[max(known)]
