"""The platforms, one folder for each kind of hardware that defines PLATFORM.

A record is known without CuPy, MPI or NumPy, and before any rank is started; `interface.py` has what an open
platform must bring.
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
    """A kind of hardware that ranks run on: what is known of it before any rank is started."""

    name: str
    preference: int  # `auto` takes the lowest that can be used
    process_per_rank: bool  # whether mpiexec starts a process for each rank; else one process holds all of them
    startup: float  # seconds that ranks may take to get ready
    module: str  # that only processes which hold ranks import
    """*Collective*: its `open_platform(sweep, layout, team)` gives every rank memory of that layout."""
    discover: Callable[[int | None], tuple[Topology, str]]
    """The devices of the ranks on this machine, and a remark for the user."""
    default_ranks: Callable[[], int]
    refuse_too_large: Callable[[int, int], None]
    """PlatformError if so many bytes on each of so many ranks cannot be; as early as that can be known."""
    most_ranks: Callable[[], tuple[int, str]] = lambda: (128, "kernels take at most 128 ranks")
    """How many ranks may be started here, and what limits them, in words."""
    available: Callable[[], bool] = lambda: True  # whether the hardware is there and its driver shows it
    installed: Callable[[], bool] = lambda: True  # whether there is a driver at all
    obstacle: Callable[[], str] = lambda: ""
    """Why it cannot be used although its driver is installed, in one line; nothing if it can be, or has no driver."""
    cold_start: float = 0.0  # seconds that a driver, a compiler or a library may take at first, however many processes
    largest: int = 128 * 2**20  # bytes: the largest message of a default sweep
    cores: Callable[[int], tuple[int, ...]] = lambda ranks: ()
    """A core of this machine for each of so many ranks; empty where ranks need none, or there are not enough."""
    spins: bool = False  # whether a rank that waits takes a core, so that there is a choice how (--spin)
    debug: str = ""  # the variable by which a user has the library's messages; NAME_FILE sends them elsewhere
    steadier: str = ""  # advice against scatter of the times, in words
    apart: str = ""  # the resource that ranks lack if they compute more slowly together than alone, in words
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
    """The kind of that name; UsageError with the choices if there is none."""
    if name not in platforms():
        raise unknown("platform", name, platforms())
    return platforms()[name]


def on_auto() -> str:
    """The first platform that this machine has and that can be used."""
    return next(name for name, kind in platforms().items() if not kind.obstacle() and kind.available())


def open_platform(sweep: "Sweep", needs: "Needs", name: str, team: "Team") -> "Platform":
    """*Collective*: that platform, with memory for the sweep's cases and `needs` on every rank this process holds."""
    from collbench.platforms.layout import MemoryLayout

    module = importlib.import_module(find_platform(name).module)
    platform: Platform = module.open_platform(sweep, MemoryLayout.of(sweep, needs), team)
    return platform
