"""The stress check on GPUs: every call's inputs, operation, spoiling and comparison, enqueued one after the other.

Nothing waits for the host, and streams of different devices meet only where the operation has them meet.  Ranks that
share a device run hand-written kernels as one grid on the stream of the first, so there their own streams meet before
and after each operation, and no one of them comes late.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array, Wire
from collbench.platforms import checking, kernels, stress
from collbench.platforms.gpu.cuda import Cuda, GpuKernel, Queue
from collbench.platforms.gpu.launch import KernelCache, Launcher
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.layout import buffers
from collbench.platforms.roles import Prepared
from collbench.results import Mismatch

_LONGEST = 0.002  # seconds that a rank comes late; a device that spins for longer is near to giving up


class Stress:
    """Calls of the local ranks; kernels are loaded before the first of them, which CUDA would else do between them."""

    def __init__(
        self, cuda: Cuda, memory: RankMemory, compiled: KernelCache, launcher: Launcher, queues: Mapping[int, Queue]
    ) -> None:
        self._runtime = cuda.runtime
        self._memory, self._compiled, self._launcher = memory, compiled, launcher
        self._queues = queues

    def carry_out(self, case: Case, prepared: Prepared, plan: stress.Plan) -> Mismatch | None:
        """Enqueue all calls and wait for them; the first mismatch of the local ranks."""
        calls = _Calls(case, plan, self._kernels(case, prepared.wire), self._memory, self._launcher, prepared.wire)
        held = [self._clear(case, rank) for rank in self._memory.local]
        self._wait()
        del held
        devices = _by_device(self._queues)
        for number in range(plan.calls):
            for rank in self._memory.local:
                calls.enter(number, rank)
            self._meet(devices)
            prepared.launch(1)
            self._meet(devices)
            for rank in self._memory.local:
                calls.leave(number, rank)
        self._wait()
        return next(filter(None, (self._found(case, plan, rank, prepared.wire) for rank in self._memory.local)), None)

    def _kernels(self, case: Case, wire: Wire | None) -> Mapping[str, GpuKernel]:
        entries = ("probe_fill", "probe_spoil", checking.entry("probe_compare", wire), "stall")
        return {entry: self._compiled.get(kernels.JUDGE, entry, case.dtype, case.redop) for entry in entries}

    def _clear(self, case: Case, rank: int) -> Array:
        """Enqueue clean verdicts; the array that it returns must live until that is done."""
        clean = np.full(len(list(case.pieces(rank))), checking.CLEAN, checking.VERDICT)
        if clean.size:
            stream, there = self._queues[rank].enter(), self._memory.verdicts(rank)
            to_device = self._runtime.memcpyHostToDevice
            self._runtime.memcpyAsync(there, clean.ctypes.data, clean.nbytes, to_device, stream.ptr)
        return clean

    def _found(self, case: Case, plan: stress.Plan, rank: int, wire: Wire | None) -> Mismatch | None:
        verdicts = np.zeros(len(list(case.pieces(rank))), checking.VERDICT)
        if verdicts.size:
            self._queues[rank].fetch(self._memory.verdicts(rank), verdicts)
        return stress.found(case, plan, rank, verdicts, kept=False, wire=wire)

    def _meet(self, devices: Iterable[Sequence[Queue]]) -> None:
        """Streams of a device that has several: what comes next on any is behind all that came before."""
        for queues in devices:
            events = [queue.mark() for queue in queues]
            for queue in queues:
                for event in events:
                    queue.enter().wait_event(event)

    def _wait(self) -> None:
        for queue in self._queues.values():
            queue.enter().synchronize()


def _by_device(queues: Mapping[int, Queue]) -> list[list[Queue]]:
    """The streams of those devices that have several."""
    devices: dict[int, list[Queue]] = {}
    for queue in queues.values():
        devices.setdefault(queue.device, []).append(queue)
    return [shared for shared in devices.values() if len(shared) > 1]


class _Calls:
    """What is enqueued for a rank before and after each operation."""

    def __init__(
        self,
        case: Case,
        plan: stress.Plan,
        loaded: Mapping[str, GpuKernel],
        memory: RankMemory,
        launcher: Launcher,
        wire: Wire | None,
    ) -> None:
        self._case, self._plan, self._kernels = case, plan, loaded
        self._memory, self._launcher, self._wire = memory, launcher, wire
        self._where = stress.probe(case, wire)
        self._stalls = {rank: plan.stalls(rank, case.ranks, _LONGEST) for rank in memory.local}
        self._elements = stress.stretches(self._where) * int(self._where["length"])

    def enter(self, number: int, rank: int) -> None:
        """Come late if it is this rank's turn; then what lies in the result is none, and the inputs are new."""
        if wait := self._stalls[rank][number]:
            self._run("stall", rank, 1, wait)
        send, receive = self._buffers(rank)
        for first, _, _ in self._case.pieces(rank):
            self._spoil(number, rank, receive + first * self._size, stress.OUTPUT)
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
        got = self._buffers(rank)[1] + piece[0] * self._size
        verdict = self._memory.verdicts(rank) + place * checking.VERDICT.itemsize
        at, _, *wanted, there = checking.comparison(
            self._case, self._plan.seed + number, piece, got, verdict, self._wire
        )
        arguments = at, self._where, *wanted, np.uint64(number), there
        self._run(checking.entry("probe_compare", self._wire), rank, self._elements, *arguments)

    def _spoil_inputs(self, number: int, rank: int) -> None:
        send, _ = self._buffers(rank)
        for first in range(0, self._case.send_count, self._case.block):
            self._spoil(number, rank, send + first * self._size, stress.INPUT)

    def _spoil(self, number: int, rank: int, target: int, pattern: int) -> None:
        seed = np.uint32(self._plan.seed + number)
        self._run("probe_spoil", rank, self._elements, np.uint64(target), self._where, seed, np.uint32(pattern))

    def _run(self, entry: str, rank: int, count: int, *arguments: Array | np.generic) -> None:
        self._launcher.bind_one(self._kernels[entry], rank, count, *arguments)()

    def _buffers(self, rank: int) -> tuple[int, int]:
        return buffers(self._memory, self._case, rank)

    @property
    def _size(self) -> int:
        return self._case.dtype.itemsize
