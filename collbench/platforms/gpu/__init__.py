"""GPUs, through CuPy: one process holds all ranks, or under an outside launcher one each."""

from typing import TYPE_CHECKING

from collbench.platforms import PlatformKind
from collbench.platforms.gpu import probe

if TYPE_CHECKING:
    from collbench.cases import Sweep
    from collbench.platforms.layout import Layout
    from collbench.platforms.processes import Team
    from collbench.platforms.roles import Platform
    from collbench.topology.topology import Topology


def _open(sweep: "Sweep", layout: "Layout", team: "Team") -> "Platform":
    from collbench.platforms.gpu.platform import open_platform

    return open_platform(sweep, layout, team)


def _discover(ranks: int | None) -> tuple["Topology", str]:
    from collbench.platforms.gpu.discover import discover

    return discover(ranks)


PLATFORM = PlatformKind(
    name="gpu",
    preference=1,
    process_per_rank=False,
    startup=probe.STARTUP,
    open=_open,
    discover=_discover,
    default_ranks=probe.default_ranks,
    refuse_too_large=probe.refuse_too_large,
    available=probe.available,
    installed=probe.installed,
    obstacle=probe.obstacle,
)
