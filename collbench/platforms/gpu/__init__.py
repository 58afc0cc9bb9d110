"""The GPU platform, through CuPy."""

from collbench.platforms import PlatformKind
from collbench.platforms.gpu import probe
from collbench.topology.discovered import Topology


def _discover(ranks: int | None) -> tuple[Topology, str]:
    from collbench.platforms.gpu.discover import discover

    return discover(ranks)


PLATFORM = PlatformKind(
    name="gpu",
    module=f"{__name__}.platform",
    matrix=4096,  # a product takes a millisecond or so: launches do not count
    preference=1,
    process_per_rank=False,
    startup=probe.STARTUP,
    cold_start=1.2 * probe.STARTUP,  # NCCL is given up after STARTUP, and is named then
    discover=_discover,
    default_ranks=probe.default_ranks,
    refuse_too_large=probe.refuse_too_large,
    available=probe.available,
    installed=probe.installed,
    obstacle=probe.obstacle,
    debug="NCCL_DEBUG",
    steadier="no other process on the GPUs, clocks that stay (`nvidia-smi -lgc`), persistence mode (`-pm 1`)",
    apart="a GPU for every rank, none slowed down by power or heat",
)
