"""CPUs: a process for each rank, started by mpiexec."""

from collbench.errors import PlatformError
from collbench.platforms import PlatformKind
from collbench.platforms.cost import FITTED
from collbench.platforms.cpu import window
from collbench.platforms.cpu.binding import choose
from collbench.topology.discover_cpu import discover
from collbench.units import format_size


def refuse_too_large(nbytes: int, ranks: int) -> None:
    """PlatformError if the windows of all ranks do not fit, before anything is started."""
    needed, room = ranks * nbytes, window.room()
    if needed > room.free:
        raise PlatformError(
            f"{ranks} ranks need {format_size(needed)} of shared memory and {room.where} has {format_size(room.free)} "
            f"left: lower -e or --ranks, or {room.fix}"
        )


PLATFORM = PlatformKind(
    name="cpu",
    module=f"{__name__}.platform",
    preference=2,
    process_per_rank=True,
    startup=60.0,  # kernels are compiled once for each machine
    discover=lambda ranks: (discover(ranks), ""),
    default_ranks=lambda: 2,  # the same on every machine, so that default sweeps compare; the fewest that communicate
    refuse_too_large=refuse_too_large,
    cores=choose,
    spins=True,
    steadier="end other programs, fewer ranks than cores",
    apart="cores and memory of their own for all ranks",
    fitted=FITTED,
)
