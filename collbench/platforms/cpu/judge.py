"""Inputs and verdicts on CPUs: every rank fills and judges its own buffers, and the lowest one with a flaw speaks."""

import ctypes
from typing import Any, Protocol

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array, Datatype, Reduction, Wire
from collbench.errors import CaseFailed
from collbench.platforms import checking, kernels
from collbench.platforms.cpu import stress
from collbench.platforms.layout import GUARD, GUARDED, Layout, Region, buffers, view
from collbench.platforms.processes import Team
from collbench.platforms.roles import Prepared
from collbench.platforms.stress import Plan
from collbench.results import CheckFailure, Mismatch, Note, Overrun


class Judged(Protocol):
    """What a platform must have besides, to be judged: a rank of its own among others."""

    rank: int
    comm: Any
    team: Team
    layout: Layout
    note: Note

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts."""

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> kernels.HostKernel:
        """A kernel compiled as C++."""

    def synchronize(self) -> None:
        """Wait for the other ranks."""

    def gave_up(self) -> bool:
        """Whether a kernel of this rank waited in vain."""


class Judge:
    """The part of a platform that says whether results are right (roles.Checking)."""

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """A CPU has no queue."""
        return view(address, nbytes).copy()

    def fill(self: Judged, case: Case, seed: int, wire: Wire | None = None) -> None:
        """Each rank writes its own buffers."""
        send, _ = buffers(self, case, self.rank)
        home = self.address(Region.RECEIVE, self.rank)
        ctypes.memset(
            home, checking.POISON, max(case.receive_count, case.send_count * case.in_place) * case.dtype.itemsize
        )
        for guard in self.layout.guards(case):
            ctypes.memset(self.address(guard.region, self.rank) + guard.start, GUARDED, GUARD)
        fill = self.kernel(kernels.JUDGE, "fill", case.dtype, case.redop)
        how = checking.packed(case.recipe(seed, wire))
        fill(np.uint64(send), np.uint64(case.send_count), how, np.uint32(self.rank), np.uint64(0))
        self.synchronize()

    def check(self: Judged, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """Each rank checks its own result; the lowest rank with a mismatch speaks."""
        self.synchronize()
        with self.team.agreeing():
            compared = [_compare(self, case, seed, piece, wire) for piece in case.pieces(self.rank)]
            own = next((flaw for flaw, _ in compared if flaw), None), sum(digest for _, digest in compared)
        every = self.team.exchange(own)
        return checking.agreed((flaw for flaw, _ in every), {rank: digest for rank, (_, digest) in enumerate(every)})

    def stress(self: Judged, case: Case, prepared: Prepared, plan: Plan) -> Mismatch | None:
        """Each rank makes its calls and judges them; the lowest rank with a mismatch speaks."""
        self.comm.Barrier()
        with self.team.agreeing():
            own = stress.carry_out(self, case, self.rank, prepared.loop or prepared.launch, plan, prepared.wire)
            if self.gave_up():
                raise CaseFailed("a rank waited in vain for another's flag")
        return next(filter(None, self.team.exchange(own)), None)

    def hesitant(self, seconds: float) -> None:
        """None: a timer halts ranks within the kernels that are measured (kernels/host/halt.hpp)."""

    def singly(self: Judged, prepared: Prepared) -> Prepared | None:
        """One call after the other, of what C can call."""
        loop = None if self.note.oversubscribed else stress.singly(prepared.loop or prepared.launch)
        return Prepared(loop) if loop else None

    def overrun(self: Judged, case: Case) -> Overrun | None:
        """Each rank looks at its own guards; the lowest rank speaks."""
        self.synchronize()
        held = ((guard, self.address(guard.region, self.rank) + guard.start) for guard in self.layout.guards(case))
        own = (guard.overrun(self.rank, ctypes.string_at(address, GUARD)) for guard, address in held)
        return next(filter(None, self.team.exchange(next(filter(None, own), None))), None)


def _compare(
    ranks: Judged, case: Case, seed: int, piece: checking.Piece, wire: Wire | None
) -> tuple[Mismatch | None, int]:
    """The first mismatch, and the digest of a piece that may be off."""
    size = case.dtype.itemsize
    got = buffers(ranks, case, ranks.rank)[1] + piece[0] * size
    verdict = checking.CLEAN.copy()
    compare = ranks.kernel(kernels.JUDGE, checking.entry("compare", wire), case.dtype, case.redop)
    compare(*checking.comparison(case, seed, piece, got, verdict.ctypes.data, wire))
    checking.refuse_unseen(int(verdict["seen"]), case.block)
    if not verdict["wrong"]:
        return None, int(verdict["digest"])
    where = int(verdict["wrong"]), int(verdict["first"])
    element = view(got + where[1] * size, size).copy().view(case.dtype.storage)
    return checking.describe(case, seed, ranks.rank, piece, where, element, wire=wire), 0
