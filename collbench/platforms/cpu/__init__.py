"""CPUs: a process for each rank, started by mpiexec."""

from dataclasses import replace

from collbench.cost import Hardware, Wait
from collbench.errors import PlatformError
from collbench.platforms import Open, PlatformKind
from collbench.platforms.cpu import window
from collbench.platforms.cpu.binding import choose
from collbench.topology.discover_cpu import discover
from collbench.units import format_size

FITTED = Hardware(
    launch=0.0,  # part of the waits: operations follow each other inside one call into C
    waits={Wait.HOST: 3.70e-6, Wait.FLAG: 76.8e-9, Wait.PACKET: 77.1e-9, Wait.BARRIER: 57.7e-9},
    memory=36.6e9,
    packets=1.737e9,
)
"""Least squares of the relative errors over all hand-written rows of results/cpu-2-ranks-epyc (tests/test_cost.py): two
cores of an AMD EPYC that share a cache.  On another machine times are others, but `auto` only compares them: by these
constants it also chooses well on two cores that share none (results/cpu-2-ranks)."""

_TURN = 21.2
"""How much longer a wait takes where ranks share cores, and the awaited one must first get its turn: a hop of
`ring-flags` in results/cpu-4-ranks-yield against the one above."""


def cpus(crowded: bool) -> Hardware:
    """Ranks with a core each, or fewer."""
    factor = _TURN if crowded else 1.0
    return replace(FITTED, waits={wait: seconds * factor for wait, seconds in FITTED.waits.items()})


def _opener() -> Open:
    from collbench.platforms.cpu.platform import open_platform

    return open_platform


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
    preference=2,
    process_per_rank=True,
    startup=60.0,  # kernels are compiled once for each machine
    opener=_opener,
    discover=lambda ranks: (discover(ranks), ""),
    default_ranks=lambda: 2,  # the same on every machine, so that default sweeps compare; the fewest that communicate
    refuse_too_large=refuse_too_large,
    cores=choose,
    spins=True,
    steadier="end other programs, fewer ranks than cores",
    apart="cores and memory of their own for all ranks",
    fitted=FITTED,
)
