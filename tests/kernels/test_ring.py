"""The ring kernel with real threads: several per block, several blocks, all ranks in one process."""

import time

import pytest

from collbench.collectives import chunk_elements
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.platforms.checking import WITH_DELAYS
from tests.conftest import case
from tools.kernels.grid import GRID, Ranks

LINE = 32  # words of a cache line
CHANNELS = 2 * LINE  # word of a window that they start at
SLOT = 64  # elements: small, so that a chunk takes several laps


def ring(ranks: int, count: int = 1003, dtype: str = "float", redop: str = "sum", in_place: bool = False) -> Ranks:
    chosen = DATATYPES[dtype]
    nbytes = count * chosen.itemsize
    of = case(nbytes=nbytes, ranks=ranks, dtype=chosen, redop=REDUCTIONS[redop], in_place=in_place)
    return Ranks(of, 2 * 2 * SLOT * chosen.itemsize)


def run(ranks: Ranks, seed: int, *more: str, blocks: int = 1, threads: int = 1, **fields: int) -> None:
    of = ranks.case
    ranks.fill(seed)
    numbers = (0, SLOT, SLOT, of.block, chunk_elements(of.block, of.ranks, of.dtype.itemsize))
    ranks.launch("ring.cu", "ring_allreduce", numbers, (*GRID, *more), blocks, threads, **fields)


def test_every_rank_holds_the_sum() -> None:
    for ranks in (1, 2, 3, 4):
        for count in (1, 31, 400, 1003):
            for blocks, threads in ((1, 1), (1, 3), (2, 2)):
                several = ring(ranks, count)
                for seed in range(3):
                    run(several, seed, blocks=blocks, threads=threads)
                    assert several.right(seed), (ranks, count, blocks, threads, seed)


def test_delayed_kernels_lose_time_and_are_right() -> None:
    both, lost, times = ring(2, 50), 0.05, []
    for seed in range(12):
        began = time.perf_counter()
        run(both, seed, WITH_DELAYS, trace=int(lost * 1e9))
        times.append(time.perf_counter() - began)
        assert both.right(seed), seed
    assert sum(times) >= 3 * lost
    assert max(times) >= lost


@pytest.mark.parametrize(
    ("dtypes", "redops"),
    [(("bfloat16", "uint8"), ("avg",)), pytest.param(("half", "double"), ("avg", "prod"), marks=pytest.mark.full)],
)
def test_packs_of_every_width_are_combined(dtypes: tuple[str, ...], redops: tuple[str, ...]) -> None:
    for dtype in dtypes:
        for redop in redops:
            three = ring(3, 777, dtype, redop)
            run(three, 1)
            assert three.right(1), (dtype, redop)


def test_a_sum_in_place_reads_each_part_before_it_is_overwritten() -> None:
    three = ring(3, in_place=True)
    run(three, 1, threads=2)
    assert three.right(1)


def test_counters_may_wrap() -> None:
    three = ring(3)
    for head in three.heads:  # arrived, room, then the rank's own two counters
        head[[CHANNELS, CHANNELS + LINE, CHANNELS + 2 * LINE, CHANNELS + 2 * LINE + 1]] = 2**32 - 20
    for seed in range(4):
        run(three, seed)
        assert three.right(seed), seed
    assert three.heads[0][CHANNELS + 2 * LINE] < 1000


def test_a_wait_in_vain_ends_and_says_so() -> None:
    two = ring(2, 100)
    run(two, 1, alone=True, spins=1000)
    assert [head[0] for head in two.heads] == [1, 0]
