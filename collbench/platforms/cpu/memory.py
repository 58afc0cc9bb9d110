"""The memory of a rank on a CPU and, in the same window, of its neighbours on this machine."""

import copy
import ctypes
from typing import Any, Self

import numpy as np

from collbench.errors import Unsupported
from collbench.platforms.cpu.window import Window
from collbench.platforms.layout import MAX_RANKS, SHIFTED, WORLD, Layout, Region
from collbench.platforms.processes import Processes

_YIELDS = {"yield": 1, "busy": 0}
_RARELY = 256  # tries, a few microseconds: not noticed with a core to itself, saved by it when something else runs
_SPINS = 2**33  # tries before a wait gives up: minutes, since the supervisor's clock is the one that should ring


class CpuMemory:
    """The window of this machine's ranks."""

    def __init__(self, team: Processes, layout: Layout, spin: str) -> None:
        self.rank, self.ranks, self.layout = team.rank, team.size, layout
        self.window = Window(team.comm, layout.nbytes)
        self.nodes = len(set(team.exchange(min(self.window.bases))))
        self.crowded = len(self.window.bases) > len(self.window.cores)  # whether ranks of this machine share cores
        self._yield_after = _YIELDS.get(spin, 1 if self.crowded else _RARELY)
        self._offset = 0  # bytes by which buffers start later, see `shifted`

    def address(self, region: Region, rank: int) -> int:
        """Return where a region starts; Unsupported if that rank is on another node."""
        if rank not in self.window.bases:
            raise Unsupported(f"rank {rank} is on another node, whose memory cannot be loaded or stored")
        shift = self._offset if region in SHIFTED else 0
        return int(self.window.bases[rank] + self.layout.starts[region] + shift)

    def multicast(self, region: Region) -> int:
        """Raise Unsupported: CPUs have no multicast memory."""
        raise Unsupported("CPUs have no switch between them")

    def shifted(self, offset: int) -> Self:
        """Return the same memory with buffers that start so many bytes later."""
        other = copy.copy(self)
        other._offset = offset
        return other

    @property
    def by_flags(self) -> bool:
        """Whether every rank reaches all others and has a core, so that a hand-over by flags tells of the machine."""
        return 1 < self.ranks <= MAX_RANKS and self.nodes == 1 and not self.crowded

    def world(self, ranks: int) -> Any:
        """Return a World (kernels/world.cuh) without buffers."""
        world: Any = np.zeros((), WORLD)
        if ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        for rank in range(ranks):
            world["window"][rank] = self.address(Region.WINDOW, rank)
        world["ranks"], world["first"], world["stride"], world["blocks"] = ranks, self.rank, 1, 1
        world["spins"], world["yield_after"] = _SPINS, self._yield_after
        return world

    def gave_up(self) -> bool:
        """Return whether a kernel of this rank waited in vain: then it leaves a one in the first word of its window."""
        return bool(ctypes.c_uint32.from_address(self.address(Region.WINDOW, self.rank)).value)
