"""Where the memory of every rank is: of this process's ranks, of other processes', and in the eyes of a switch."""

import copy
from contextlib import suppress
from typing import Self

from collbench.errors import Unsupported
from collbench.platforms import checking
from collbench.platforms.gpu import ipc, multicast
from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.layout import SHIFTED, Layout, Region
from collbench.platforms.processes import Team


class RankMemory:
    """The regions of every rank one after the other, and behind them the verdicts of a check.

    Making and closing it is *collective*; PlatformError if a GPU has too little free.
    """

    _offset = 0

    def __init__(self, cuda: Cuda, team: Team, places: Placement, layout: Layout) -> None:
        self._cuda, self.layout = cuda, layout
        self.ranks, self.local = len(places.places), places.local
        places.refuse_too_large(cuda, layout.nbytes)
        team.meet()  # all have looked at what is free before anyone takes of it
        nbytes = layout.nbytes + self.ranks * checking.VERDICT.itemsize
        devices = list(places.device.values())
        self._own, self._switch = multicast.allocate(cuda, devices, self.ranks, nbytes, layout.multicast)
        self._reach = ipc.reach(cuda, team, places, self._own.base)

    @property
    def refusal(self) -> str:
        """Why the memory of other processes is out of reach, or nothing."""
        return self._reach.refusal

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts; Unsupported if that rank's memory is out of reach."""
        return self._reach.at(rank) + self.layout.starts[region] + self._shift(region)

    def shifted(self, offset: int) -> Self:
        """The same memory with the buffers of a bucket, so many bytes behind those of the case."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def _shift(self, region: Region) -> int:
        return self._offset if region in SHIFTED else 0

    def multicast(self, region: Region) -> int:
        """Where a region of all ranks starts; Unsupported, with the reason, if no switch knows their memory."""
        if isinstance(self._switch, str):
            raise Unsupported(self._switch)
        return self._switch + self.layout.starts[region] + self._shift(region)

    def verdicts(self, rank: int) -> int:
        """Where a local rank has room for one verdict a piece."""
        return self._reach.at(rank) + self.layout.nbytes

    def close(self) -> None:
        """Give everything back, as far as CUDA still does that."""
        self._reach.close()
        with suppress(*self._cuda.errors):
            self._own.free()
