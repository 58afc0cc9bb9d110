"""The platforms, one folder for each kind of hardware that defines PLATFORM.

A record needs neither CuPy, MPI nor NumPy, and is available before ranks start. `interface.py` defines an open
platform.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from collbench.errors import unknown
from collbench.platforms.cost import Hardware
from collbench.topology.discovered import Topology

if TYPE_CHECKING:
    from collbench.cases import Sweep
    from collbench.platforms.interface import Platform
    from collbench.platforms.layout import Needs
    from collbench.platforms.processes import Team


@dataclass(frozen=True)
class PlatformKind:
    """A kind of hardware for ranks, with the facts that are available before ranks start."""

    name: str
    preference: int  # `auto` takes the lowest usable one
    process_per_rank: bool  # whether mpiexec starts a process for each rank; else one process holds all of them
    startup: float  # seconds that ranks may take to get ready
    module: str  # imported only by processes with ranks
    """*Collective*: its `open_platform(sweep, layout, team)` allocates every rank's memory."""
    discover: Callable[[int | None], tuple[Topology, str]]
    """The devices of the ranks on this machine, and a remark for the user."""
    default_ranks: Callable[[], int]
    refuse_too_large: Callable[[int, int], None]
    """Raises PlatformError if memory is too small for (bytes per rank, ranks), before ranks start."""
    most_ranks: Callable[[], tuple[int, str]] = lambda: (128, "kernels take at most 128 ranks")
    """The largest number of ranks on this machine, and the limit in words."""
    available: Callable[[], bool] = lambda: True  # whether the driver shows usable hardware
    installed: Callable[[], bool] = lambda: True  # whether a driver is installed
    obstacle: Callable[[], str] = lambda: ""
    """Why it cannot be used although its driver is installed, in one line; "" if usable or without a driver."""
    cold_start: float = 0.0  # seconds for the first start of driver, compiler and library
    largest: int = 128 * 2**20  # bytes: the largest message of a default sweep
    cores: Callable[[int], tuple[int, ...]] = lambda ranks: ()
    """A core of this machine for each rank; empty if ranks need none or cores are too few."""
    spins: bool = False  # whether waiting ranks occupy cores, so that --spin applies
    debug: str = ""  # the variable that enables the library's messages; NAME_FILE redirects them
    steadier: str = ""  # advice against scatter of the times, in words
    apart: str = ""  # the shared resource that slows ranks computing together, in words
    matrix: int = 256  # rows of the square matrices that steps multiply
    fitted: Hardware | None = None  # constants of the cost model, fitted to measured hand-written implementations


@cache
def platforms() -> dict[str, PlatformKind]:
    """Return every kind of platform by name, the preferred kind first."""
    kinds: list[PlatformKind] = [
        importlib.import_module(f"{__name__}.{module.name}").PLATFORM
        for module in pkgutil.iter_modules(__path__)
        if module.ispkg
    ]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.preference)}


def find_platform(name: str) -> PlatformKind:
    """Return the platform of that name; UsageError lists the choices."""
    if name not in platforms():
        raise unknown("platform", name, platforms())
    return platforms()[name]


def on_auto() -> str:
    """Return the first platform that is usable on this machine."""
    return next(name for name, kind in platforms().items() if not kind.obstacle() and kind.available())


def open_platform(sweep: "Sweep", needs: "Needs", name: str, team: "Team") -> "Platform":
    """*Collective*: open the platform, with memory for the sweep's cases and `needs` on every local rank."""
    from collbench.platforms.layout import MemoryLayout

    module = importlib.import_module(find_platform(name).module)
    platform: Platform = module.open_platform(sweep, MemoryLayout.of(sweep, needs), team)
    return platform
