"""Checks on CPUs: every rank fills and judges its own buffers, and the lowest rank with a failure names it.

The stress check is one call into C, in which this rank's calls follow each other within nanoseconds.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.datatypes import DATATYPES, NONE, Wire
from collbench.errors import TimedOut
from collbench.platforms import checking, compiler
from collbench.platforms.checking import StressPlan
from collbench.platforms.cpu.memory import CpuMemory
from collbench.platforms.interface import Launcher, Prepared
from collbench.platforms.layout import GUARD, GUARDED, Region, buffers, view
from collbench.platforms.processes import Team
from collbench.results.facts import CheckFailure, Mismatch, Overrun

_COPIES = 2**20  # bytes of results that are stored until they are compared
_LIST = np.dtype([("first", np.uint64), ("count", np.uint64)])  # `Probe::Stretch` of kernels/check.cu

_ADDRESSES = "operation arguments send receive send_blocks pieces piece_count stalls places copies verdicts"
_CHECK = np.dtype(
    [(name, np.uint64) for name in _ADDRESSES.split()]
    + [("probe", checking.PROBE), ("how", checking.RECIPE), ("wire", checking.WIRE)]
    + [(name, np.uint32) for name in ("rank", "calls", "capacity", "ulps", "in_place", "bounded")]
)
"""`struct Stress` of kernels/check.cu."""

_OPERATION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)


class _Operation:
    """What C calls for one operation: the kernel's own launches, or where Python makes them a way back into it."""

    def __init__(self, launch: Callable[[int], Any]) -> None:
        self.failure: BaseException | None = None
        self._launch = launch
        function: Any = launch.func if isinstance(launch, compiler.Loop) else _OPERATION(self._from_c)
        self._held = function
        self.address = ctypes.cast(function, ctypes.c_void_p).value
        self.arguments = ctypes.addressof(launch.args[0]) if isinstance(launch, compiler.Loop) else 0

    def _from_c(self, arguments: int, blocks: int, threads: int, launches: int) -> None:
        """Launch the operation, if none has failed before."""
        # C knows no exceptions: the first is stored, and raised once C has come back.
        if self.failure is None:
            try:
                self._launch(launches)
            except BaseException as failure:
                self.failure = failure


def singly(launch: Callable[[int], Any]) -> compiler.Loop | None:
    """Return a loop of this package around an operation, as fast to call; None where C cannot call the operation."""
    if not isinstance(launch, compiler.Loop):
        return None
    operation = _Operation(launch)
    what: Any = (ctypes.c_void_p * 2)(operation.address, operation.arguments)
    what.held = operation
    repeat = compiler.host_function(compiler.JUDGE, "repeat", compiler.defines(DATATYPES["float"], NONE))
    return compiler.Loop(repeat, what, 1, 1)


def _stress_rank(memory: CpuMemory, case: Case, prepared: Prepared, plan: StressPlan) -> Mismatch | None:
    """Make this rank's calls of a case, one after the other, and return what is wrong on this rank."""
    rank, wire = memory.rank, prepared.wire
    operation = _Operation(prepared.loop or prepared.launch)
    where = checking.probe(case, wire)
    pieces = np.array([(first, sent, source, 0) for first, source, sent in case.pieces(rank)], checking.PIECE)
    places = np.zeros(checking.stretches(where), _LIST)

    # Results are copied aside between calls and compared when the room is full: comparing takes longer than a call.
    room = max(1, len(pieces)) * len(places) * int(where["length"]) * case.dtype.itemsize
    capacity = min(plan.calls, max(1, _COPIES // room))
    arrays: dict[str, NDArray[Any]] = {
        "pieces": pieces,
        "stalls": plan.stalls(rank, case.ranks),
        "places": places,
        "copies": np.zeros(capacity * room, np.uint8),
        "verdicts": np.full(len(pieces), checking.CLEAN, checking.VERDICT),
    }

    # The arrays must live until C has come back, since it gets their addresses alone.
    check = np.zeros((), _CHECK)
    for name, array in arrays.items():
        check[name] = array.ctypes.data
    check["operation"], check["arguments"] = operation.address, operation.arguments
    check["send"], check["receive"] = buffers(memory, case, rank)
    check["send_blocks"], check["piece_count"] = case.send_count // case.block, len(pieces)
    check["probe"], check["how"] = where, checking.packed(case.recipe(plan.seed, wire))
    check["wire"], check["bounded"] = checking.packed_wire(wire), bool(wire)
    check["rank"], check["calls"], check["capacity"], check["in_place"] = rank, plan.calls, capacity, case.in_place
    check["ulps"] = case.redop.ulps(case.dtype)
    run = compiler.host_function(compiler.JUDGE, "stress", compiler.defines(case.dtype, case.redop))
    run(ctypes.c_void_p(check.ctypes.data))
    if operation.failure:
        raise operation.failure
    return checking.first_mismatch(case, plan, rank, arrays["verdicts"], with_bits=True, wire=wire)


class CpuChecker:
    """Every rank fills and checks its own buffers; the lowest rank with a failure names it."""

    def __init__(self, team: Team, memory: CpuMemory, launcher: Launcher) -> None:
        self._team, self._memory, self._launcher = team, memory, launcher
        self._rank = team.rank

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """Write this rank's buffers and their guards."""
        send, _ = buffers(self._memory, case, self._rank)
        count = max(case.receive_count, case.send_count * case.in_place)
        home = self._memory.address(Region.RECEIVE, self._rank) + case.misalignment
        ctypes.memset(home, checking.POISON, count * case.dtype.itemsize)
        for guard in self._memory.layout.guards(case):
            ctypes.memset(self._memory.address(guard.region, self._rank) + guard.start, GUARDED, GUARD)
        fill = self._launcher.kernel(compiler.JUDGE, "fill", case.dtype, case.redop)
        recipe = checking.packed(case.recipe(seed, wire))
        fill(np.uint64(send), np.uint64(case.send_count), recipe, np.uint32(self._rank), np.uint64(0))
        self._launcher.synchronize()

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """Compare this rank's result, and agree with the others."""
        self._launcher.synchronize()
        with self._team.agreeing():
            compared = [self._compare(case, seed, piece, wire) for piece in case.pieces(self._rank)]
            mismatch = next((mismatch for mismatch, _ in compared if mismatch), None)
            digest = sum(digest for _, digest in compared)
        mismatches, digests = zip(*self._team.exchange((mismatch, digest)), strict=True)
        return checking.agreed(mismatches, dict(enumerate(digests)))

    def stress(self, case: Case, prepared: Prepared, plan: StressPlan) -> Mismatch | None:
        """Make this rank's calls and judge them, and agree with the others."""
        self._launcher.synchronize()
        with self._team.agreeing():
            mismatch = _stress_rank(self._memory, case, prepared, plan)
            if self._memory.gave_up():
                raise TimedOut("a rank waited in vain for another's flag")
        return next(filter(None, self._team.exchange(mismatch)), None)

    def overrun(self, case: Case) -> Overrun | None:
        """Look at the guards of this rank's buffers, and agree with the others."""
        self._launcher.synchronize()
        overrun = None
        for guard in self._memory.layout.guards(case):
            held = ctypes.string_at(self._memory.address(guard.region, self._rank) + guard.start, GUARD)
            overrun = overrun or guard.overrun(self._rank, held)
        return next(filter(None, self._team.exchange(overrun)), None)

    def _compare(self, case: Case, seed: int, piece: checking.Piece, wire: Wire | None) -> tuple[Mismatch | None, int]:
        """Return the first mismatch of a piece, and the digest of a piece that may be off."""
        size = case.dtype.itemsize
        got = buffers(self._memory, case, self._rank)[1] + piece[0] * size
        verdict = checking.CLEAN.copy()
        compare = self._launcher.kernel(compiler.JUDGE, checking.entry("compare", wire), case.dtype, case.redop)
        compare(*checking.comparison(case, seed, piece, got, verdict.ctypes.data, wire))
        checking.refuse_unseen(int(verdict["seen"]), case.block)
        if not verdict["wrong"]:
            return None, int(verdict["digest"])
        where = int(verdict["wrong"]), int(verdict["first"])
        element = view(got + where[1] * size, size).copy().view(case.dtype.storage)
        return checking.describe(case, seed, self._rank, piece, where, element, wire=wire), 0
