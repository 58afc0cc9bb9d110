"""Measure communicators from start to end: the first of a process, then more within the budget.

Every process of the run executes the same steps, as in collbench/measure/sampling.py.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from collbench.algorithms.mpi import communicator, library
from collbench.cases import Case, Sampling
from collbench.commands.startup.rows import COLLECTIVE, COMMUNICATOR, DESTROY, ID, InitTimes, Life
from collbench.errors import CaseFailed, Unsupported
from collbench.measure.sampling import Heartbeat
from collbench.platforms.gpu.nccl.communicators import init_timings, logging
from collbench.platforms.interface import Platform
from collbench.platforms.layout import buffers, view
from collbench.results import CheckFailure, Note, Result, Skipped

MOST = 64  # communicators of a process after its first
_FLOAT = 7  # in ncclDataType_t

Phases = Mapping[str, Callable[[], object]]
Remarks = list[str]  # the phases add to it


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield a result of each library; CaseFailed if a phase fails or takes too long."""
    for name in names:
        try:
            phases, version, remarks = LIBRARIES[name](case, platform)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))
            continue
        lives: list[Life] = []
        end = time.perf_counter() + sampling.budget
        for number in range(1 + MOST):
            life, failure = _carry_out(phases, case, platform, number + 1, partial(heartbeat, name))
            lives.append(life)
            over = platform.team.any_of(time.perf_counter() >= end)
            if failure or (over and number):
                break
        first, again = ((), ()) if failure else (tuple(lives[:1]), tuple(lives[1:]))
        note = platform.note | Note.of(*remarks)
        yield InitTimes(case, name, platform.name, first, again, note=note, library=version, mismatch=failure)


def _carry_out(
    phases: Phases, case: Case, platform: Platform, seed: int, begin: Callable[[str], None]
) -> tuple[Life, CheckFailure | None]:
    """*Collective*: return the times of a communicator's phases, and a failed check of its collective or None."""
    platform.checker.fill(case, seed)
    platform.launcher.synchronize()
    life: dict[str, float] = {}
    failure = None
    for phase, action in phases.items():
        begin(phase)
        platform.team.meet()  # lateness counts in the previous phase
        with platform.team.agreeing():
            begun = time.perf_counter()
            try:
                action()
            except Unsupported as reason:  # unexpected, since the library was found before
                raise CaseFailed(str(reason)) from None
            seconds = time.perf_counter() - begun
        life[phase] = max(platform.team.exchange(seconds))
        if phase == COLLECTIVE:
            failure = platform.checker.check(case, seed) or platform.checker.overrun(case)
    return life, failure


def _mpi(case: Case, platform: Platform) -> tuple[Phases, str, Remarks]:
    """Return the phases of a duplicate of MPI's communicator of all ranks; Unsupported without MPI."""
    world = communicator(platform)
    sent, received = (view(at, case.nbytes).view(np.float32) for at in buffers(platform.memory, case, world.rank))
    made: list[Any] = []
    phases = {
        COMMUNICATOR: lambda: made.append(world.Dup()),
        COLLECTIVE: lambda: made[0].Allreduce(sent, received),
        DESTROY: lambda: made.pop().Free(),
    }
    return phases, library(), []


def _nccl(case: Case, platform: Platform) -> tuple[Phases, str, Remarks]:
    """*Collective*: return the phases of NCCL's communicators; Unsupported if NCCL cannot connect these ranks."""
    comm = platform.comm
    with platform.team.agreeing():
        comm.refuse()

    def call(rank: int) -> None:
        sent, received = buffers(platform.memory, case, rank)
        comm.ranks[rank].allReduce(sent, received, case.block, _FLOAT, case.redop.code, comm.stream(rank))

    def collect() -> None:
        calls = [partial(call, rank) for rank in platform.local]
        comm.first(partial(comm.launch, [calls], platform.local))

    def start() -> None:
        """Make the communicators, the first ones with NCCL's log, which costs little."""
        with nullcontext() if remarks else logging(comm.functions, "INIT") as log:
            _ = comm.ranks
        if log:
            remarks.append(init_timings(log.getvalue()))

    remarks: Remarks = []
    phases = {ID: lambda: comm.identity, COMMUNICATOR: start, COLLECTIVE: collect, DESTROY: comm.end}
    return phases, comm.library, remarks


LIBRARIES: Mapping[str, Callable[[Case, Platform], tuple[Phases, str, Remarks]]] = {"mpi": _mpi, "nccl": _nccl}
