"""The part of a platform that computes in steps (roles.Computing), for a rank that is a process."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

from collbench.errors import CaseFailed
from collbench.platforms.cpu.products import CpuProducts
from collbench.platforms.processes import Team


class Waiting(Protocol):
    """What a platform must have besides."""

    def gave_up(self) -> bool:
        """Whether a kernel of this rank waited in vain."""


class CpuComputing:
    """What is enqueued is done at once, so that nothing has to be ordered."""

    rank: int
    local: Sequence[int]
    team: Team
    _offset = 0  # bytes behind the case's buffers

    queued = False

    def products(self, size: int) -> CpuProducts:
        """Of this process's rank."""
        return CpuProducts(self.team, self.rank, size)

    def shifted(self, offset: int) -> Self:
        """Itself, but for what kernels and libraries are told."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Logs go by the clock of moments."""
        return {tuple(self.local): 0.0}

    def set_clocks(self) -> float:
        """A rank has no clock but its process's."""
        return 0.0

    def gather_queues(self) -> None:
        """There are none."""

    def spread_queues(self) -> None:
        """There are none."""

    def stepping(self) -> AbstractContextManager[None]:
        """There is nothing that would have to be translated."""
        return nullcontext()

    def refuse_given_up(self: Waiting) -> None:
        """CaseFailed if a kernel of this rank waited in vain."""
        if self.gave_up():
            raise CaseFailed("a rank waited in vain for another's flag")
