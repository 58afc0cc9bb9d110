"""How much of a message goes where: threads and blocks of a launch, slots and pieces of a FIFO."""

from itertools import product
from types import SimpleNamespace
from typing import Any

from collbench.algorithms import implementations, ring_ll
from collbench.algorithms.ring import BLOCKS, IN_FLIGHT, PIECE, THREADS, Pipe, pipe
from collbench.cases import PACK
from collbench.platforms.layout import LINE, grid

CACHES = {"H200": 60 * 2**20, "H100": 50 * 2**20, "A100": 40 * 2**20, "V100": 6 * 2**20, "T4": 4 * 2**20}


def gpu(cache: int, ranks: int = 1, multiprocessors: int = 132) -> Any:
    """A platform with so many ranks on a GPU with such a cache."""
    launcher = SimpleNamespace(blocks=lambda most: min(most, multiprocessors // ranks))
    return SimpleNamespace(name="gpu", cache=cache // ranks, launcher=launcher)


CPU: Any = SimpleNamespace(name="cpu", cache=None, launcher=SimpleNamespace(blocks=lambda most: 1))


def test_a_grid_has_no_more_threads_and_blocks_than_there_is_work() -> None:
    for units, threads, blocks in [
        *((0, 32, 1), (1, 32, 1), (33, 64, 1), (512, 512, 1)),
        *((513, 512, 2), (4096, 512, 8), (10**9, 512, 8)),
    ]:
        assert grid(units, threads=512, blocks=8) == (threads, blocks), units


def test_a_rank_that_shares_a_gpu_has_two_blocks_of_half_the_threads_on_each_multiprocessor() -> None:
    crews = {1: (64, 512), 2: (64, 512), 4: (64, 256), 8: (32, 256), 132: (1, 512)}
    assert {ranks: pipe(gpu(CACHES["H100"], ranks))[:2] for ranks in crews} == crews
    assert pipe(CPU)[:2] == (1, 512)


def test_slots_are_whole_lines_and_fit_into_the_fifo_whatever_the_number_of_blocks() -> None:
    room = {name: implementations()[name].fifo for name in ("ring-flags", "ring-pipelined", "ring-ll")}
    for multiprocessors in range(1, 2 * BLOCKS):
        for cache in CACHES.values():
            for ranks in (1, 2, 4, 8):
                own = pipe(gpu(cache, ranks, max(multiprocessors, ranks)))
                blocks, threads = own.blocks, own.threads
                assert own.slot % LINE == 0, (blocks, cache, ranks)
                assert own.slots & (own.slots - 1) == 0, (blocks, cache, ranks)
                assert own.slots * own.slot * blocks <= room["ring-pipelined"](ranks, "gpu"), (blocks, cache, ranks)
                assert 2 * own.slot * blocks <= room["ring-flags"](ranks, "gpu"), (blocks, cache, ranks)
        for ranks in (2, 3, 8, 72, 128):
            for chunk in (8, 4096, 2**16, 2**26):
                slot, piece = ring_ll.pieces(ranks, "gpu", blocks, threads, chunk)
                assert slot % LINE == 0, (blocks, ranks)
                assert 0 < piece <= slot, (blocks, ranks, chunk)
                assert 2 * ring_ll.slots(ranks) * slot * blocks <= room["ring-ll"](ranks, "gpu"), (blocks, ranks)


def test_fifos_that_fit_stay_within_half_of_the_cache_that_ranks_share() -> None:
    for name, cache in CACHES.items():
        for ranks in (1, 2, 4, 8):
            own = pipe(gpu(cache, ranks))
            least = own.slot == own.threads * PACK
            assert least or ranks * own.blocks * own.slots * own.slot <= cache // 2, (name, ranks)
            assert name not in ("H100", "H200") or own.slot == own.threads * PIECE, (name, ranks)
    own = pipe(gpu(CACHES["H100"]))
    assert BLOCKS * own.piece(2**28) >= 2 * 2**20, "a rank with a GPU for itself"
    assert own.slots == 4


def test_pieces_give_every_block_of_a_chunk_its_share() -> None:
    for threads, blocks in product((THREADS, THREADS // 2), (1, 5, 16, 33, 64)):
        own, least = Pipe(blocks, threads, slots=2, slot=threads * PIECE), threads * PACK
        for chunk in (1, 128, 4096, 2**16, 2**20, 2**20 + 128, 2**28):
            piece = own.piece(chunk)
            assert piece % LINE == 0, (chunk, blocks)
            assert 0 < piece <= own.slot, (chunk, blocks)
            busy = min(blocks, -(-chunk // piece))
            assert busy >= min(blocks, -(-chunk // (least * IN_FLIGHT))) // 2, (chunk, blocks)
            assert busy == 1 or piece >= least, (chunk, blocks)
