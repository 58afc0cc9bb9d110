"""Errors of narrow wire formats, measured on numbers like gradients.

They are measured once with feedback, which adds a round's error to the next round, and once without. See
kernels/errors.cu.
"""

import math
import time

import numpy as np
from numpy.typing import NDArray

from collbench.algorithms import narrow
from collbench.cases import Case
from collbench.collectives import find_collective
from collbench.datatypes import DATATYPES, LEARNT, REDUCTIONS, STATE_NBYTES, Lost, Study, Wire
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import WINDOW_HEAD, Region, buffers

ROUNDS, FEWEST = 1000, 20
_TRIED = 10  # trial rounds, to estimate the duration
_SECONDS = 0.4  # of the rounds with or without feedback
_SEED = 1
_KERNELS = "errors.cu"
_SUMS = np.dtype([(name, np.float64) for name in ("errors", "squares", "most", "exact")])
_LOSSES = STATE_NBYTES - _SUMS.itemsize  # bytes of an element

_KNOWN: dict[tuple[str, int, str], Study] = {}
"""Results by platform, number of ranks and wire; they depend on nothing else."""


def wire_errors(platform: Platform, wire: Wire) -> Study:
    """*Collective*: return the errors of a wire, measured once for these ranks; overwrites the buffers."""
    key = platform.name, platform.ranks, wire.name
    if key not in _KNOWN:
        dtype, redop = DATATYPES["float"], REDUCTIONS["sum"]
        case = Case(find_collective("allreduce"), LEARNT * dtype.itemsize, dtype, redop, 0, platform.ranks, False)

        # Without feedback and with it, on the same numbers.
        plain = _Rounds(platform, case, wire, narrow.prepare(wire, case, platform))
        fed = _Rounds(platform, case, wire, narrow.prepare(wire, case, platform, narrow.FEEDBACK))

        # Ranks that share a core need milliseconds a round, so run fewer.
        start = time.perf_counter()
        plain.run(_TRIED)
        slowest = max(platform.team.exchange((time.perf_counter() - start) / _TRIED))
        rounds = max(FEWEST, min(ROUNDS, int(_SECONDS / slowest)))
        _KNOWN[key] = Study(rounds, LEARNT, plain.run(rounds), fed.run(rounds))
    return _KNOWN[key]


class _Rounds:
    """Rounds with feedback or without."""

    def __init__(self, platform: Platform, case: Case, wire: Wire, prepared: Prepared) -> None:
        self._platform, self._case, self._prepared = platform, case, prepared
        entries = ("study_clear", "study_fill", "study_add")
        self._kernels = {entry: platform.launcher.kernel(_KERNELS, entry, case.dtype, case.redop) for entry in entries}
        private = WINDOW_HEAD + narrow.private(wire, case.ranks, platform)
        self._state = {rank: platform.memory.address(Region.WINDOW, rank) + private for rank in platform.local}

    def run(self, rounds: int) -> Lost:
        """*Collective*: return the errors of `rounds` rounds."""
        platform = self._platform
        for rank in platform.local:
            self._launch("study_clear", rank, np.uint64(self._state[rank]), np.uint64(STATE_NBYTES * LEARNT // 4))
        for number in range(rounds):
            self._round(number)

        # All ranks hold the same sums: rank 0 sends the errors to the others.
        errors = None
        if 0 in platform.local:
            sums = platform.launcher.fetch(0, self._state[0] + _LOSSES * LEARNT, LEARNT * _SUMS.itemsize)
            errors = lost(sums.view(_SUMS), rounds)
        answer: Lost = next(filter(None, platform.team.exchange(errors)))
        return answer

    def _round(self, number: int) -> None:
        count, seed, turn = np.uint64(LEARNT), np.uint32(_SEED), np.uint32(number)
        for rank in self._platform.local:
            send, _ = buffers(self._platform.memory, self._case, rank)
            self._launch("study_fill", rank, np.uint64(send), count, seed, np.uint32(rank), turn)
        self._platform.launcher.synchronize()
        self._prepared.launch(1)
        self._platform.launcher.synchronize()
        if 0 in self._platform.local:
            _, receive = buffers(self._platform.memory, self._case, 0)
            sums = np.uint64(self._state[0] + _LOSSES * LEARNT)
            self._launch("study_add", 0, np.uint64(receive), count, seed, np.uint32(self._case.ranks), turn, sums)

    def _launch(self, entry: str, rank: int, *arguments: np.generic) -> None:
        self._platform.launcher.bind_one(self._kernels[entry], rank, LEARNT, *arguments)()


def lost(sums: NDArray[np.void], rounds: int) -> Lost:
    """Return the errors of `rounds` rounds from the sums of all elements."""
    scale = math.sqrt(float(sums["exact"].mean()) / rounds)
    rms = math.sqrt(float(sums["squares"].mean()) / rounds)
    bias = math.sqrt(float(np.mean(np.square(sums["errors"] / rounds))))
    return Lost(float(sums["most"].max()) / scale, rms / scale, bias / scale)
