"""What each library does in each phase of a communicator's life."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collbench.algorithms.mpi import communicator, library
from collbench.cases import Case
from collbench.commands.init.rows import COLLECTIVE, COMMUNICATOR, DESTROY, IDENTITY
from collbench.platforms.interface import Platform
from collbench.platforms.layout import buffers, view
from collbench.results.facts import NO_NOTE, Note

_FLOAT = 7  # ncclFloat, by its number in ncclDataType_t


@dataclass(frozen=True)
class Lifecycle:
    """The phases of a communicator in order; once they have been carried out, they may be again."""

    phases: Mapping[str, Callable[[], Any]]
    library: str  # and its version
    note: Note = NO_NOTE


def _mpi(case: Case, platform: Platform) -> Lifecycle:
    """Return the life of a duplicate of MPI's communicator of all ranks; Unsupported without MPI."""
    world = communicator(platform)
    (rank,) = platform.local
    addresses = buffers(platform.memory, case, rank)
    sent, received = (view(address, case.nbytes).view(np.float32) for address in addresses)
    made: list[Any] = []
    phases = {
        COMMUNICATOR: lambda: made.append(world.Dup()),
        COLLECTIVE: lambda: made[0].Allreduce(sent, received),
        DESTROY: lambda: made.pop().Free(),
    }
    return Lifecycle(phases, library())


def _nccl(case: Case, platform: Platform) -> Lifecycle:
    """*Collective*: return the life of NCCL's communicators; Unsupported where NCCL cannot be had for these ranks."""
    comm = platform.comm
    with platform.team.agreeing():
        comm.refuse()

    def collect() -> None:
        calls = []
        for rank in platform.local:
            sent, received = buffers(platform.memory, case, rank)
            call = partial(comm.ranks[rank].allReduce, sent, received, case.block, _FLOAT, case.redop.code)
            calls.append(partial(call, comm.stream(rank)))
        comm.first(partial(comm.launch, [calls], platform.local))

    phases = {
        IDENTITY: lambda: comm.identity,
        COMMUNICATOR: lambda: comm.ranks,
        COLLECTIVE: collect,
        DESTROY: comm.end,
    }
    return Lifecycle(phases, comm.library, comm.note)


LIFECYCLES: Mapping[str, Callable[[Case, Platform], Lifecycle]] = {"mpi": _mpi, "nccl": _nccl}
"""By the implementation that is the library."""
