"""CPUs: a process for each rank, started by mpiexec."""

import shutil
from pathlib import Path

from collbench.errors import PlatformError
from collbench.platforms import Open, PlatformKind
from collbench.platforms.cpu.hardware import FITTED
from collbench.topology.discover_cpu import discover
from collbench.units import format_size

SHARED_MEMORY = "/dev/shm"  # where MPI puts a shared window on Linux


def _opener() -> Open:
    from collbench.platforms.cpu.platform import open_platform

    return open_platform


def available_memory() -> int:
    """Bytes that shared windows may take on this machine."""
    free = shutil.disk_usage(SHARED_MEMORY).free
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return min(free, int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        return free


def refuse_too_large(nbytes: int, ranks: int) -> None:
    """PlatformError if the windows of all ranks do not fit, before anything is started."""
    wanted, free = ranks * nbytes, available_memory()
    if wanted > free:
        raise PlatformError(
            f"{ranks} ranks need {format_size(wanted)} of shared memory and {SHARED_MEMORY} has {format_size(free)}: "
            "lower -e or --ranks, or enlarge it (docker: --shm-size)"
        )


PLATFORM = PlatformKind(
    name="cpu",
    preference=2,
    process_per_rank=True,
    startup=60.0,  # kernels are compiled once for each machine
    opener=_opener,
    discover=lambda ranks: (discover(ranks), ""),
    default_ranks=lambda: 2,  # the same on every machine, so that default sweeps compare; the fewest that communicate
    refuse_too_large=refuse_too_large,
    fitted=FITTED,
)
