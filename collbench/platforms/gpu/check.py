"""Inputs and verdicts on the GPUs: the kernels of kernels/check.cu, enqueued on every rank's stream."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array, Wire
from collbench.platforms import checking, kernels
from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.gpu.launch import KernelCache, Launcher
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.layout import GUARD, GUARDED, Region, buffers
from collbench.results import Mismatch, Overrun


class Checker:
    """Fills and compares the local ranks' buffers."""

    def __init__(
        self, cuda: Cuda, memory: RankMemory, compiled: KernelCache, launcher: Launcher, queues: Mapping[int, Queue]
    ) -> None:
        self._runtime = cuda.runtime
        self._memory, self._kernels, self._launcher = memory, compiled, launcher
        self._queues = queues

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """Enqueue a pattern that is no result over every receive buffer, and the input into every send buffer."""
        kernel = self._kernels.get(kernels.JUDGE, "fill", case.dtype, case.redop)
        how = checking.packed(case.recipe(seed, wire))
        count = max(case.send_count, case.receive_count) if case.in_place else case.receive_count
        for rank in self._memory.local:
            home, stream = self._memory.address(Region.RECEIVE, rank), self._queues[rank].enter()
            self._runtime.memsetAsync(home, checking.POISON, count * case.dtype.itemsize, stream.ptr)
            for guard in self._memory.layout.guards(case):
                beside = self._memory.address(guard.region, rank) + guard.start
                self._runtime.memsetAsync(beside, GUARDED, GUARD, stream.ptr)
            send, _ = buffers(self._memory, case, rank)
            arguments = np.uint64(send), np.uint64(case.send_count), how, np.uint32(rank), np.uint64(0)
            self._launcher.bind_one(kernel, rank, case.send_count, *arguments)()

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> tuple[Mismatch | None, dict[int, int]]:
        """The first mismatch of the local ranks: lowest rank, lowest index; and digests of what may be off."""
        receivers = [rank for rank in self._memory.local if any(case.pieces(rank))]
        held = [self._compare(case, seed, rank, wire) for rank in receivers]
        for queue in self._queues.values():
            queue.enter().synchronize()
        del held
        return next(self._mismatches(case, seed, receivers, wire), None), self._digests(receivers) if wire else {}

    def _digests(self, ranks: Sequence[int]) -> dict[int, int]:
        """By rank, of one piece each."""
        return {rank: self._digest(rank) for rank in ranks}

    def _digest(self, rank: int) -> int:
        verdicts = self._queues[rank].fetch(self._memory.verdicts(rank), np.zeros(1, checking.VERDICT))
        return int(verdicts.view(checking.VERDICT)["digest"][0])

    def overrun(self, case: Case) -> Overrun | None:
        """What was written beside the local ranks' buffers: lowest rank, first guard."""
        for rank in self._memory.local:
            for guard in self._memory.layout.guards(case):
                beside = self._memory.address(guard.region, rank) + guard.start
                held = self._queues[rank].fetch(beside, np.zeros(GUARD, np.uint8))
                if overrun := guard.overrun(rank, held.tobytes()):
                    return overrun
        return None

    def _compare(self, case: Case, seed: int, rank: int, wire: Wire | None) -> Array:
        """Enqueue the comparison of every piece; the array that it returns must live until that is done."""
        kernel = self._kernels.get(kernels.JUDGE, checking.entry("compare", wire), case.dtype, case.redop)
        pieces = list(case.pieces(rank))
        clean = np.full(len(pieces), checking.CLEAN, checking.VERDICT)
        stream, there = self._queues[rank].enter(), self._memory.verdicts(rank)
        runtime = self._runtime
        runtime.memcpyAsync(there, clean.ctypes.data, clean.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        for number, piece in enumerate(pieces):
            got = buffers(self._memory, case, rank)[1] + piece[0] * case.dtype.itemsize
            place = there + number * checking.VERDICT.itemsize
            arguments = checking.comparison(case, seed, piece, got, place, wire)
            self._launcher.bind_one(kernel, rank, case.block, *arguments)()
        return clean

    def _mismatches(self, case: Case, seed: int, ranks: Sequence[int], wire: Wire | None) -> Iterator[Mismatch]:
        for rank in ranks:
            queue, pieces = self._queues[rank], list(case.pieces(rank))
            verdicts = queue.fetch(self._memory.verdicts(rank), np.zeros(len(pieces), checking.VERDICT))
            for piece, (seen, wrong, index, *_) in zip(pieces, verdicts.tolist(), strict=True):
                checking.refuse_unseen(seen, case.block)
                if wrong:
                    got = buffers(self._memory, case, rank)[1] + (piece[0] + index) * case.dtype.itemsize
                    element = queue.fetch(got, np.zeros(1, case.dtype.storage))
                    yield checking.describe(case, seed, rank, piece, (wrong, index), element, wire=wire)
