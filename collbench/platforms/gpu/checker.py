"""Known inputs and checks of results on GPUs (kernels/check.cu).

In the stress check no call waits for the host, and streams of different devices synchronise only inside the
operation. Ranks that share a device run as one grid on the first one's stream: their streams meet before and after
each operation, and no rank is delayed.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.datatypes import Array, Wire
from collbench.errors import CaseFailed
from collbench.platforms import checking, compiler
from collbench.platforms.gpu.cuda import GpuKernel
from collbench.platforms.gpu.launch import GpuLauncher
from collbench.platforms.interface import Prepared
from collbench.platforms.layout import GUARD, GUARDED, Region, buffers
from collbench.results import Mismatch
from collbench.results.facts import CheckFailure, Overrun

_LONGEST = 0.002  # seconds that a rank comes late; a device that spins for longer is near to giving up


class GpuChecker:
    """Fills and compares the local ranks' buffers; over all processes, the lowest rank with a failure names it."""

    def __init__(self, launcher: GpuLauncher) -> None:
        self._launcher, self._memory, self._compiled = launcher, launcher.memory, launcher.kernels
        self._cuda, self._runtime, self._team = launcher.cuda, launcher.cuda.runtime, launcher.team
        self._streams, self._clock = launcher.streams, launcher.clock

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """Fill every rank's buffers on its stream, and wait for all."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while the buffers were filled"):
            for rank in self._memory.local:
                self._fill(case, seed, rank, wire)
            self._clock.wait()

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """Compare every rank's result on its own stream."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while the result was checked"):
            every = self._team.exchange(self._check(case, seed, wire))
        digests: dict[int, int] = {}
        for _, of_process in every:
            digests |= of_process
        return checking.agreed((failure for failure, _ in every), digests)

    def stress(self, case: Case, prepared: Prepared, plan: checking.StressPlan) -> Mismatch | None:
        """Make every rank's calls and judge them on its own stream."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while calls followed each other"):
            self._team.meet()
            self._clock.doing = f"{plan.calls} calls back to back, without a graph"
            mismatch = self._stress(case, prepared, plan)
            self._clock.refuse_given_up()
            mismatches = self._team.exchange(mismatch)
        return next(filter(None, mismatches), None)

    def overrun(self, case: Case) -> Overrun | None:
        """Look at the guards of every rank's buffers."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while the guards of buffers were read"):
            self._clock.wait()
            overruns = self._team.exchange(next(self._overruns(case), None))
        return next(filter(None, overruns), None)

    def _fill(self, case: Case, seed: int, rank: int, wire: Wire | None) -> None:
        """Enqueue a pattern that is no result over the receive buffer and the guards, and the input."""
        kernel = self._compiled.get(compiler.JUDGE, "fill", case.dtype, case.redop)
        count = max(case.send_count, case.receive_count) if case.in_place else case.receive_count
        home, stream = self._memory.address(Region.RECEIVE, rank) + case.misalignment, self._streams[rank].enter()
        self._runtime.memsetAsync(home, checking.POISON, count * case.dtype.itemsize, stream.ptr)
        for guard in self._memory.layout.guards(case):
            guard_start = self._memory.address(guard.region, rank) + guard.start
            self._runtime.memsetAsync(guard_start, GUARDED, GUARD, stream.ptr)
        send, _ = buffers(self._memory, case, rank)
        recipe = checking.packed(case.recipe(seed, wire))
        arguments = np.uint64(send), np.uint64(case.send_count), recipe, np.uint32(rank), np.uint64(0)
        self._launcher.bind_one(kernel, rank, case.send_count, *arguments)()

    def _check(self, case: Case, seed: int, wire: Wire | None) -> tuple[Mismatch | None, dict[int, int]]:
        """Return the first mismatch of the local ranks: lowest rank, lowest index; and digests of what may be off."""
        receivers = [rank for rank in self._memory.local if any(case.pieces(rank))]

        # All ranks compare at once; the clean verdicts must live until they are copied to the devices.
        clean = [self._compare(case, seed, rank, wire) for rank in receivers]
        self._clock.wait()
        del clean
        mismatches = (self._mismatch(case, seed, rank, wire) for rank in receivers)
        mismatch = next(filter(None, mismatches), None)
        if not wire:
            return mismatch, {}
        return mismatch, {rank: int(self._verdicts(rank, 1)["digest"][0]) for rank in receivers}

    def _clear(self, rank: int, pieces: int) -> Array:
        """Enqueue clean verdicts; the array that it returns must live until that is done."""
        clean = np.full(pieces, checking.CLEAN, checking.VERDICT)
        if pieces:
            stream, target, runtime = self._streams[rank].enter(), self._memory.verdicts(rank), self._runtime
            runtime.memcpyAsync(target, clean.ctypes.data, clean.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        return clean

    def _verdicts(self, rank: int, pieces: int) -> NDArray[np.void]:
        verdicts = np.zeros(pieces, checking.VERDICT)
        if pieces:
            self._streams[rank].fetch(self._memory.verdicts(rank), verdicts)
        return verdicts

    def _compare(self, case: Case, seed: int, rank: int, wire: Wire | None) -> Array:
        """Enqueue the comparison of every piece; the array that it returns must live until that is done."""
        kernel = self._compiled.get(compiler.JUDGE, checking.entry("compare", wire), case.dtype, case.redop)
        pieces = list(case.pieces(rank))
        clean = self._clear(rank, len(pieces))
        for number, piece in enumerate(pieces):
            got = buffers(self._memory, case, rank)[1] + piece[0] * case.dtype.itemsize
            verdict = self._memory.verdicts(rank) + number * checking.VERDICT.itemsize
            arguments = checking.comparison(case, seed, piece, got, verdict, wire)
            self._launcher.bind_one(kernel, rank, case.block, *arguments)()
        return clean

    def _mismatch(self, case: Case, seed: int, rank: int, wire: Wire | None) -> Mismatch | None:
        pieces = list(case.pieces(rank))
        for piece, verdict in zip(pieces, self._verdicts(rank, len(pieces)).tolist(), strict=True):
            seen, wrong, index, *_ = verdict
            checking.refuse_unseen(seen, case.block)
            if wrong:
                got = buffers(self._memory, case, rank)[1] + (piece[0] + index) * case.dtype.itemsize
                element = self._streams[rank].fetch(got, np.zeros(1, case.dtype.storage))
                return checking.describe(case, seed, rank, piece, (wrong, index), element, wire=wire)
        return None

    def _overruns(self, case: Case) -> Iterator[Overrun]:
        for rank in self._memory.local:
            for guard in self._memory.layout.guards(case):
                guard_start = self._memory.address(guard.region, rank) + guard.start
                held = self._streams[rank].fetch(guard_start, np.zeros(GUARD, np.uint8))
                if overrun := guard.overrun(rank, held.tobytes()):
                    yield overrun

    def _stress(self, case: Case, prepared: Prepared, plan: checking.StressPlan) -> Mismatch | None:
        """Enqueue all calls and wait for them; return the first mismatch of the local ranks."""
        # Kernels are loaded before the first call, which CUDA would else do between calls.
        entries = ("probe_fill", "probe_spoil", checking.entry("probe_compare", prepared.wire), "stall")
        loaded = {entry: self._compiled.get(compiler.JUDGE, entry, case.dtype, case.redop) for entry in entries}
        calls = _Calls(case, plan, loaded, self._launcher, prepared.wire)
        clean = [self._clear(rank, len(list(case.pieces(rank)))) for rank in self._memory.local]
        self._clock.wait()
        del clean

        # Nothing waits for the host from here on; ranks that share a device meet before and after each operation.
        for number in range(plan.calls):
            for rank in self._memory.local:
                calls.enter(number, rank)
            self._launcher.join_streams()
            prepared.launch(1)
            self._launcher.join_streams()
            for rank in self._memory.local:
                calls.leave(number, rank)
        self._clock.wait()
        for rank in self._memory.local:
            verdicts = self._verdicts(rank, len(list(case.pieces(rank))))
            if mismatch := checking.first_mismatch(case, plan, rank, verdicts, with_bits=False, wire=prepared.wire):
                return mismatch
        return None


class _Calls:
    """The calls for a rank before and after each operation."""

    def __init__(
        self,
        case: Case,
        plan: checking.StressPlan,
        loaded: Mapping[str, GpuKernel],
        launcher: GpuLauncher,
        wire: Wire | None,
    ) -> None:
        self._case, self._plan, self._kernels = case, plan, loaded
        self._memory, self._launcher, self._wire = launcher.memory, launcher, wire
        self._where = checking.probe(case, wire)
        self._stalls = {rank: plan.stalls(rank, case.ranks, _LONGEST) for rank in launcher.memory.local}
        self._elements = checking.stretches(self._where) * int(self._where["length"])
        self._size = case.dtype.itemsize

    def enter(self, number: int, rank: int) -> None:
        """Come late if it is this rank's turn; then what lies in the result is none, and the inputs are new."""
        if wait := self._stalls[rank][number]:
            self._run("stall", rank, 1, wait)
        send, receive = buffers(self._memory, self._case, rank)
        for first, _, _ in self._case.pieces(rank):
            self._spoil(number, rank, receive + first * self._size, checking.OUTPUT)
        for first in range(0, self._case.send_count, self._case.block):
            how = checking.packed(self._case.recipe(self._plan.seed + number, self._wire))
            target = np.uint64(send + first * self._size)
            self._run("probe_fill", rank, self._elements, target, self._where, how, np.uint32(rank), np.uint64(first))

    def leave(self, number: int, rank: int) -> None:
        """Look at the result and spoil the inputs, in either order; in place they are the same."""
        if not self._case.in_place and number % 2 == 0:
            self._spoil_inputs(number, rank)
        for place, piece in enumerate(self._case.pieces(rank)):
            self._compare(number, rank, place, piece)
        if self._case.in_place or number % 2:
            self._spoil_inputs(number, rank)

    def _compare(self, number: int, rank: int, place: int, piece: checking.Piece) -> None:
        got = buffers(self._memory, self._case, rank)[1] + piece[0] * self._size
        address = self._memory.verdicts(rank) + place * checking.VERDICT.itemsize
        seed = self._plan.seed + number

        # As `compare`, but with where it looks in place of how many elements, and with the number of the call.
        result, _, *expected, verdict = checking.comparison(self._case, seed, piece, got, address, self._wire)
        arguments = result, self._where, *expected, np.uint64(number), verdict
        self._run(checking.entry("probe_compare", self._wire), rank, self._elements, *arguments)

    def _spoil_inputs(self, number: int, rank: int) -> None:
        send, _ = buffers(self._memory, self._case, rank)
        for first in range(0, self._case.send_count, self._case.block):
            self._spoil(number, rank, send + first * self._size, checking.INPUT)

    def _spoil(self, number: int, rank: int, target: int, pattern: int) -> None:
        seed = np.uint32(self._plan.seed + number)
        self._run("probe_spoil", rank, self._elements, np.uint64(target), self._where, seed, np.uint32(pattern))

    def _run(self, entry: str, rank: int, count: int, *arguments: Array | np.generic) -> None:
        self._launcher.bind_one(self._kernels[entry], rank, count, *arguments)()
