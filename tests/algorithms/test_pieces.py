"""How much of a message goes where: threads and blocks of a launch, slots and pieces of a FIFO."""

from types import SimpleNamespace
from typing import Any

from collbench.algorithms import ring_ll
from collbench.algorithms.ring import BLOCKS, FIFO_BYTES, PIECE, ROUND, TILE, Pipe, pipe
from collbench.platforms.layout import LINE, grid

CACHES = {"H200": 60 * 2**20, "H100": 50 * 2**20, "A100": 40 * 2**20, "V100": 6 * 2**20, "T4": 4 * 2**20}


def gpu(cache: int) -> Any:
    """A platform of whose cache each rank may count on so many bytes."""
    return SimpleNamespace(name="gpu", cache=cache)


def test_a_grid_has_no_more_threads_and_blocks_than_there_is_work() -> None:
    for units, threads, blocks in [
        *((0, 32, 1), (1, 32, 1), (33, 64, 1), (512, 512, 1)),
        *((513, 512, 2), (4096, 512, 8), (10**9, 512, 8)),
    ]:
        assert grid(units, threads=512, blocks=8) == (threads, blocks), units


def test_slots_are_whole_lines_and_fit_into_the_fifo_whatever_the_number_of_blocks() -> None:
    """Multiprocessors divided by ranks give any number; a slot that is no whole pack would be read across packs."""
    for blocks in range(1, BLOCKS + 1):
        for cache in CACHES.values():
            for ranks in (1, 2, 4, 8):
                own = pipe(gpu(cache // ranks), blocks)
                assert own.slot % LINE == 0, (blocks, cache, ranks)
                assert own.slots & (own.slots - 1) == 0, (blocks, cache, ranks)
                assert own.slots * own.slot * blocks <= FIFO_BYTES["gpu"], (blocks, cache, ranks)
        assert ring_ll.slot_bytes(min(blocks, ring_ll.BLOCKS)) % LINE == 0, blocks
        assert ring_ll.slot_bytes(min(blocks, ring_ll.BLOCKS)) > 0, blocks


def test_fifos_that_fit_stay_within_half_of_the_cache_that_ranks_share() -> None:
    """So what passes through them need not go to memory; where nothing fits, the smallest piece is taken."""
    for name, cache in CACHES.items():
        for ranks in (1, 2, 4, 8):
            blocks = min(BLOCKS, 132 // ranks)
            own = pipe(gpu(cache // ranks), blocks)
            assert own.slot == ROUND or ranks * blocks * own.slots * own.slot <= cache // 2, (name, ranks)
            assert name not in ("H100", "H200") or own.slot == PIECE, (name, ranks)
    own = pipe(gpu(CACHES["H100"]), BLOCKS)
    assert BLOCKS * own.piece(BLOCKS, 2**28) >= 2 * 2**20, "a rank with a GPU for itself"
    assert own.slots == 4


def test_pieces_give_every_block_of_a_chunk_its_share() -> None:
    """As many blocks as a thread's accesses fill have some of it; none gets more than fits into a slot."""
    own = Pipe(2, PIECE)
    for chunk in (1, 128, 4096, 2**16, 2**20, 2**20 + 128, 2**28):
        for blocks in (1, 5, 16, 33, 64):
            piece = own.piece(blocks, chunk)
            assert piece % LINE == 0, (chunk, blocks)
            assert 0 < piece <= own.slot, (chunk, blocks)
            busy = min(blocks, -(-chunk // piece))
            assert busy >= min(blocks, -(-chunk // TILE)) // 2, (chunk, blocks)
            assert busy == 1 or piece >= ROUND, (chunk, blocks)


def test_a_cpu_has_the_fifo_that_was_measured_to_be_best_there() -> None:
    """256 KiB a piece, eight of them, one load at a time: docs/log.md."""
    cpu: Any = SimpleNamespace(name="cpu", cache=None)
    assert pipe(cpu, 1) == Pipe(slots=8, slot=256 * 1024, in_flight=1)
    assert pipe(cpu, 1).piece(1, 2**28) == 256 * 1024
