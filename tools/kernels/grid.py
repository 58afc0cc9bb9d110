"""All ranks of a kernel in this process, with real threads: their memory, and launches of one grid for all ranks."""

from collections.abc import Sequence

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array
from collbench.platforms import compiler
from collbench.platforms.layout import WINDOW_HEAD, WORLD
from tools.kernels.buffers import received, sent

GRID = ("-DHOST_GRID", "-O1")  # not for measurements; threads and pieces are the same
MARGIN = 64  # elements after every buffer that nobody may write
UNTOUCHED = 0xEE


def aligned(nbytes: int) -> Array:
    raw = np.zeros(nbytes + 128, np.uint8)
    return raw[-raw.ctypes.data % 128 :][:nbytes]


class Ranks:
    """Inputs and results of all ranks, each at an offset from an aligned address, and their windows."""

    def __init__(self, of: Case, fifo: int = 0, starts: Sequence[tuple[int, int]] = ()) -> None:
        self.case, self.starts = of, starts or [(0, 0)] * of.ranks
        self.windows = [aligned(WINDOW_HEAD + fifo) for _ in range(of.ranks)]
        self.heads = [window[:WINDOW_HEAD].view(np.uint32) for window in self.windows]
        sends = [self._array() for _ in range(of.ranks)]
        self._arrays = sends, sends if of.in_place else [self._array() for _ in range(of.ranks)]

    def _array(self) -> Array:
        array = aligned(self.case.nbytes + MARGIN * self.case.dtype.itemsize)
        array[:] = UNTOUCHED
        return array.view(self.case.dtype.storage)

    def part(self, which: int, rank: int) -> Array:
        """Return the input (0) or the result (1) of a rank."""
        return self._arrays[which][rank][self.starts[rank][which] :][: self.case.nbytes // self.case.dtype.itemsize]

    def fill(self, seed: int) -> None:
        for rank in range(self.case.ranks):
            self.part(1, rank)[:] = 0
            self.part(0, rank)[:] = sent(self.case, rank, seed)

    def launch(
        self,
        file: str,
        entry: str,
        numbers: Sequence[int],
        options: Sequence[str] = GRID,
        blocks: int = 1,
        threads: int = 1,
        alone: bool = False,
        **fields: int,
    ) -> None:
        """Launch a kernel once, for all ranks or for the first alone."""
        world, ranks = np.zeros((), WORLD), self.case.ranks
        for rank, window in enumerate(self.windows):
            world["window"][rank] = window.ctypes.data
            world["send"][rank], world["receive"][rank] = (self.part(which, rank).ctypes.data for which in (0, 1))
        fields = {"ranks": ranks, "stride": 1, "blocks": blocks, "spins": 2**40, "yield_after": 1} | fields
        for name, value in fields.items():
            world[name] = value
        kernel = compiler.host_kernel(file, entry, (*compiler.defines(self.case.dtype, self.case.redop), *options))
        kernel(world, *map(np.uint64, numbers), blocks=blocks * (1 if alone else ranks), threads=threads)

    def results(self) -> set[bytes]:
        """Return the results of all ranks; AssertionError if a rank wrote outside of its result."""
        for rank, array in enumerate(self._arrays[1]):
            start, count = self.starts[rank][1], len(self.part(1, rank))
            beside = np.delete(array, np.s_[start : start + count])
            assert (beside.view(np.uint8) == UNTOUCHED).all(), rank
        return {self.part(1, rank).tobytes() for rank in range(self.case.ranks)}

    def right(self, seed: int) -> bool:
        return self.results() == {received(self.case, 0, seed)[0][1].tobytes()}
