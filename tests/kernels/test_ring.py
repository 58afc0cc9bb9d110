"""The ring kernel with real threads: several per block, several blocks, all ranks in one process."""

import time

import numpy as np
import pytest

from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.datatypes import DATATYPES, REDUCTIONS, Array
from collbench.platforms import kernels
from collbench.platforms.layout import WINDOW_HEAD, WORLD
from collbench.platforms.stress import HESITATES
from tests.conftest import case

GRID = ("-DHOST_GRID", "-O1")  # no build that anybody measures; threads and pieces are the same
LINE, CHANNEL = 32, 3 * 32  # words of a cache line, and of the flags of one block
CHANNELS = 2 * LINE  # word of a window that they start at
SLOT = 64  # elements: small, so that a chunk takes several laps


class Ranks:
    """Memory of all ranks in this process, as kernels see it."""

    def __init__(self, of: Case, blocks: int = 1, spins: int = 2**40, start: int = 0) -> None:
        self.case, self.blocks, self.spins = of, blocks, spins
        fifo = blocks * 2 * SLOT * of.dtype.itemsize
        self.windows = [_aligned(WINDOW_HEAD + fifo) for _ in range(of.ranks)]
        for window in self.windows:
            words = window[:WINDOW_HEAD].view(np.uint32)
            for block in range(blocks):
                first = CHANNELS + block * CHANNEL  # arrived, room, then the rank's own two counters
                words[[first, first + LINE, first + 2 * LINE, first + 2 * LINE + 1]] = start
        self.sends = [_aligned(of.nbytes) for _ in range(of.ranks)]
        self.receives = self.sends if of.in_place else [_aligned(of.nbytes) for _ in range(of.ranks)]

    def world(self) -> Array:
        """The structure that the kernel gets."""
        world = np.zeros((), WORLD)
        for name, buffers in (("window", self.windows), ("send", self.sends), ("receive", self.receives)):
            world[name][: len(buffers)] = [buffer.ctypes.data for buffer in buffers]
        world["ranks"], world["stride"], world["blocks"] = self.case.ranks, 1, self.blocks
        world["spins"], world["yield_after"] = self.spins, 1
        return world

    def run(self, seed: int, threads: int = 1, *more: str, trace: int = 0) -> float:
        """Fill, and launch one grid of all ranks; the seconds that the launch took."""
        for rank in range(self.case.ranks):
            self.receives[rank][:] = 0xA5
            self.sends[rank][:] = self.case.input(rank, seed).view(np.uint8)
        options = (*kernels.defines(self.case.dtype, self.case.redop), *GRID, *more)
        kernel = kernels.host_kernel("ring.cu", "ring_allreduce", options)
        chunk = chunk_elements(self.case.block, self.case.ranks, self.case.dtype.itemsize)
        world = self.world()
        world["trace"] = trace
        began = time.perf_counter()
        kernel(
            world,
            np.uint64(0),
            np.uint64(SLOT),
            np.uint64(SLOT),
            np.uint64(self.case.block),
            np.uint64(chunk),
            blocks=self.blocks * self.case.ranks,
            threads=threads,
        )
        return time.perf_counter() - began

    def right(self, seed: int) -> bool:
        """Every rank holds the result."""
        ((_, wanted),) = self.case.expected(0, seed)
        return all(receive.tobytes() == wanted.tobytes() for receive in self.receives)


def _aligned(nbytes: int) -> Array:
    raw = np.zeros(nbytes + 128, np.uint8)
    first = -raw.ctypes.data % 128
    return raw[first : first + nbytes]


def test_every_rank_holds_the_sum() -> None:
    """Whatever the grid, at lengths that fill no chunk, no slot and no pack; call after call with other data."""
    for ranks in (1, 2, 3, 4):
        for count in (1, 31, 400, 1003):
            for blocks, threads in ((1, 1), (1, 3), (2, 2)):
                both = Ranks(case(nbytes=4 * count, ranks=ranks), blocks)
                for seed in range(3):
                    both.run(seed, threads)
                    assert both.right(seed), (ranks, count, blocks, threads, seed)


def test_kernels_that_hesitate_lose_time_and_are_right() -> None:
    """In some calls, or the phase drawn by lot is later than the last one."""
    lost = 0.05
    both = Ranks(case(nbytes=4 * 50, ranks=2))
    times = []
    for seed in range(12):
        times.append(both.run(seed, 1, HESITATES, trace=int(lost * 1e9)))
        assert both.right(seed), seed
    assert sum(times) >= 3 * lost
    assert max(times) >= lost


def test_a_sum_in_place_reads_each_part_before_it_is_overwritten() -> None:
    both = Ranks(case(nbytes=4 * 1003, ranks=3, in_place=True))
    both.run(1, threads=2)
    assert both.right(1)


@pytest.mark.parametrize(
    "pairs",
    [
        [("bfloat16", "avg"), ("uint8", "prod"), ("double", "avg")],
        pytest.param(
            [(dtype, redop) for dtype in ("half", "bfloat16", "uint8", "double") for redop in ("avg", "prod")],
            marks=pytest.mark.full,
        ),
    ],
    ids=["some", "every"],
)
def test_packs_of_every_width_are_combined(pairs: list[tuple[str, str]]) -> None:
    """Two, eight and sixteen elements to a pack, with a division at the end."""
    for dtype, redop in pairs:
        chosen = DATATYPES[dtype]
        both = Ranks(case(nbytes=chosen.itemsize * 777, dtype=chosen, redop=REDUCTIONS[redop], ranks=3))
        both.run(1)
        assert both.right(1), (dtype, redop)


def test_counters_may_wrap() -> None:
    """Pieces are counted modulo 2**32: calls across the wrap are like any other."""
    both = Ranks(case(nbytes=4 * 1003, ranks=3), start=2**32 - 20)
    for seed in range(4):
        both.run(seed)
        assert both.right(seed), seed
    assert both.windows[0][:WINDOW_HEAD].view(np.uint32)[CHANNELS + 2 * LINE] < 1000


def test_a_wait_in_vain_ends_and_says_so() -> None:
    """A neighbour that never comes costs a flag in the window, not the device."""
    alone = Ranks(case(nbytes=4 * 100, ranks=2), spins=1000)
    world = alone.world()
    options = (*kernels.defines(alone.case.dtype, alone.case.redop), *GRID)
    ring = kernels.host_kernel("ring.cu", "ring_allreduce", options)
    ring(world, np.uint64(0), np.uint64(SLOT), np.uint64(SLOT), np.uint64(100), np.uint64(64), blocks=1)  # rank 0 only

    assert alone.windows[0].view(np.uint32)[0] == 1
    assert alone.windows[1].view(np.uint32)[0] == 0


def test_kernel_sources_are_one_text_with_every_header_once() -> None:
    """It is the key of every cache, so an edited header must change it."""
    text = kernels.source("ring.cu")
    assert '#include "' not in text
    assert text.count("struct World {") == 1
    assert "ring_allreduce" in kernels.entries("ring.cu")
