"""CPUs: a process for each rank, started by mpiexec."""

import os

from collbench.errors import PlatformError
from collbench.platforms import PlatformKind
from collbench.platforms.cost import FITTED
from collbench.platforms.cpu import window
from collbench.platforms.cpu.binding import choose
from collbench.topology.discover_cpu import discover
from collbench.units import format_size

_RANKS_OF_A_CORE = 64  # each takes a third of a second of a core to start
_PROCESS = 48 * 2**20  # bytes of a rank without any message


def refuse_too_large(nbytes: int, ranks: int) -> None:
    """PlatformError if the windows of all ranks do not fit, before anything is started."""
    needed, room = ranks * nbytes, window.room()
    if needed > room.free:
        raise PlatformError(
            f"{ranks} ranks need {format_size(needed)} of shared memory and {room.where} has {format_size(room.free)} "
            f"left: lower -e or --ranks, or {room.fix}"
        )


def most_ranks() -> tuple[int, str]:
    """Return how many ranks this process's cores start in time and its memory holds."""
    cores, room = len(os.sched_getaffinity(0)), window.room()
    each = f"a rank takes {format_size(_PROCESS)}, and {room.where} has {format_size(room.free)} left"
    return min(
        (_RANKS_OF_A_CORE * cores, f"{cores} cores start {_RANKS_OF_A_CORE} ranks each in time"),
        (max(2, room.free // _PROCESS), each),
    )


PLATFORM = PlatformKind(
    name="cpu",
    module=f"{__name__}.platform",
    preference=2,
    process_per_rank=True,
    startup=60.0,  # kernels are compiled once for each machine
    discover=lambda ranks: (discover(ranks), ""),
    default_ranks=lambda: 2,  # the same on every machine, so that default sweeps compare; the fewest that communicate
    most_ranks=most_ranks,
    refuse_too_large=refuse_too_large,
    cores=choose,
    spins=True,
    steadier="end other programs, fewer ranks than cores",
    apart="cores and memory of their own for all ranks",
    fitted=FITTED,
)
