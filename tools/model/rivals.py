"""What else one could predict with: NCCL's own table as it is, and a line of a latency and a data sheet's rate.

Both as seconds for sizes that a sweep has, of a machine that is described and not measured.
"""

from collections.abc import Sequence

import numpy as np

from collbench.errors import Unsupported
from collbench.model.equation import Floats
from collbench.model.nccl_terms import terms
from collbench.model.nccl_tuner import options
from tools.model.systems import Published


def own_table(sweep: Published, sizes: Floats) -> Floats | None:
    """What NCCL's tuner thinks that its best option takes; None where it has no table, as for sends and receives."""
    try:
        usable = options(sweep.system, sweep.collective)
    except Unsupported:
        return None
    return np.stack([option.seconds(sizes) for option in usable]).min(axis=0)


def line(sweep: Published, sizes: Floats, others: Sequence[Published]) -> Floats:
    """Hockney's alpha + S / B: other machines' latency, in a node or between nodes, and the busiest link's rate."""
    alike = [other for other in others if (other.system.nodes > 1) == (sweep.system.nodes > 1)]
    alpha = float(np.median([other.rows[0][1] for other in alike if other.rows[0][0] <= 1024]))
    return alpha + sizes / terms(sweep.system, sweep.collective).limit[-1]
