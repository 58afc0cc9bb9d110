"""What a wire is wrong by, found by the ranks: the same rung, round after round, on numbers like gradients.

With feedback, where what a round loses is added to the next, and without.  kernels/errors.cu has the numbers.
"""

import math
import time

import numpy as np
from numpy.typing import NDArray

from collbench.algorithms import narrow
from collbench.cases import Case
from collbench.collectives import find_collective
from collbench.datatypes import DATATYPES, KEPT, LEARNT, REDUCTIONS, Lost, Study, Wire
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import WINDOW_HEAD, Region, buffers

ROUNDS, FEWEST = 1000, 20
_TRIED = 10  # rounds that tell how many there is time for: where ranks take turns on a core each takes milliseconds
_SECONDS = 0.4  # for the rounds of one kind
_SEED = 1
_KERNELS = "errors.cu"
_SUMS = np.dtype([(name, np.float64) for name in ("errors", "squares", "most", "exact")])
_LOSSES = KEPT - _SUMS.itemsize  # bytes of an element


_KNOWN: dict[tuple[str, int, str], Study] = {}
"""By platform, ranks and wire; nothing else matters to it."""


def study(platform: Platform, wire: Wire) -> Study:
    """*Collective*: both kinds of rounds, once for these ranks and a wire; what lies in the buffers is spoilt."""
    key = platform.name, platform.ranks, wire.name
    if key not in _KNOWN:
        _KNOWN[key] = _studied(platform, wire)
    return _KNOWN[key]


def _studied(platform: Platform, wire: Wire) -> Study:
    size, dtype = LEARNT * 4, DATATYPES["float"]
    case = Case(find_collective("allreduce"), size, dtype, REDUCTIONS["sum"], 0, platform.ranks, False)
    plain, fed = (
        _Rounds(platform, case, wire, narrow.prepare(wire, case, platform, *options))
        for options in ((), (narrow.FEEDBACK,))
    )
    start = time.perf_counter()
    plain.carry_out(_TRIED)
    slowest = max(platform.team.exchange((time.perf_counter() - start) / _TRIED))
    rounds = max(FEWEST, min(ROUNDS, int(_SECONDS / slowest)))
    return Study(rounds, LEARNT, plain.carry_out(rounds), fed.carry_out(rounds))


class _Rounds:
    """Rounds of one kind, and what they come to."""

    def __init__(self, platform: Platform, case: Case, wire: Wire, prepared: Prepared) -> None:
        self._platform, self._case, self._prepared = platform, case, prepared
        entries = ("study_clear", "study_fill", "study_add")
        self._kernels = {entry: platform.launcher.kernel(_KERNELS, entry, case.dtype, case.redop) for entry in entries}
        self._private = WINDOW_HEAD + narrow.private(wire, case.ranks, platform)

    def carry_out(self, rounds: int) -> Lost:
        """*Collective*: from no losses on; what the first rank holds, as all do, is held against what is exact."""
        platform = self._platform
        for rank in platform.local:
            words = np.uint64(self._own(rank)), np.uint64(KEPT * LEARNT // 4)
            self._run("study_clear", rank, *words)
        for number in range(rounds):
            self._round(number)
        own = self._sums(rounds) if 0 in platform.local else None
        found: Lost = next(filter(None, platform.team.exchange(own)))
        return found

    def _round(self, number: int) -> None:
        count, seed, turn = np.uint64(LEARNT), np.uint32(_SEED), np.uint32(number)
        for rank in self._platform.local:
            send, _ = buffers(self._platform.memory, self._case, rank)
            self._run("study_fill", rank, np.uint64(send), count, seed, np.uint32(rank), turn)
        self._platform.launcher.synchronize()
        self._prepared.launch(1)
        self._platform.launcher.synchronize()
        if 0 in self._platform.local:
            _, receive = buffers(self._platform.memory, self._case, 0)
            sums = np.uint64(self._own(0) + _LOSSES * LEARNT)
            self._run("study_add", 0, np.uint64(receive), count, seed, np.uint32(self._case.ranks), turn, sums)

    def _sums(self, rounds: int) -> Lost:
        place = self._own(0) + _LOSSES * LEARNT
        return lost(self._platform.launcher.fetch(0, place, LEARNT * _SUMS.itemsize).view(_SUMS), rounds)

    def _own(self, rank: int) -> int:
        """Where a rank's private memory starts."""
        return self._platform.memory.address(Region.WINDOW, rank) + self._private

    def _run(self, entry: str, rank: int, *arguments: np.generic) -> None:
        self._platform.launcher.bind_one(self._kernels[entry], rank, LEARNT, *arguments)()


def lost(sums: NDArray[np.void], rounds: int) -> Lost:
    """What the sums of all elements come to after so many rounds."""
    scale = math.sqrt(float(sums["exact"].mean()) / rounds)
    rms = math.sqrt(float(sums["squares"].mean()) / rounds)
    bias = math.sqrt(float(np.mean(np.square(sums["errors"] / rounds))))
    return Lost(float(sums["most"].max()) / scale, rms / scale, bias / scale)
