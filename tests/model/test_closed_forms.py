"""Closed forms against executions of the algorithms, one message at a time."""

import math
from collections.abc import Iterator

import pytest

from tests.model import closed_forms as forms

ALPHA, BETA, GAMMA = 3.0, 0.25, 0.125
SIZES = (0.0, 16.0, 1024.0)


class Ranks:
    """Clocks of ranks that exchange whole messages: both sides wait for each other, a link takes one at a time."""

    def __init__(self, ranks: int) -> None:
        self.clock = [0.0] * ranks

    def round(self, pairs: list[tuple[int, int, float]], gamma: float = 0.0) -> None:
        """Messages (from, to, bytes) that start together; a rank's clock moves on to its last one's end."""
        before = list(self.clock)
        for sender, receiver, nbytes in pairs:
            end = max(before[sender], before[receiver]) + ALPHA + nbytes * BETA
            self.clock[sender] = max(self.clock[sender], end)
            self.clock[receiver] = max(self.clock[receiver], end + nbytes * gamma)

    @property
    def end(self) -> float:
        return max(self.clock)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_ring_passes_every_chunk_to_its_neighbour_in_every_step(ranks: int, nbytes: float) -> None:
    world = Ranks(ranks)
    for step in range(2 * (ranks - 1)):
        pairs = [(rank, (rank + 1) % ranks, nbytes / ranks) for rank in range(ranks)]
        world.round(pairs, GAMMA if step < ranks - 1 else 0.0)
    assert forms.ring_allreduce(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(world.end)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13])
@pytest.mark.parametrize("nbytes", SIZES)
def test_recursive_doubling_folds_in_doubles_and_folds_out(ranks: int, nbytes: float) -> None:
    world, whole = Ranks(ranks), 1 << (ranks.bit_length() - 1)
    if whole < ranks:
        world.round([(rank, rank - whole, nbytes) for rank in range(whole, ranks)], GAMMA)
    distance = 1
    while distance < whole:
        world.round([(rank, rank ^ distance, nbytes) for rank in range(whole)], GAMMA)
        distance *= 2
    if whole < ranks:
        world.round([(rank - whole, rank, nbytes) for rank in range(whole, ranks)])
    assert forms.recursive_doubling(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(world.end)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("nbytes", SIZES)
def test_halving_doubling_sends_half_of_what_is_left(ranks: int, nbytes: float) -> None:
    world, rounds = Ranks(ranks), int(math.log2(ranks))
    for step in range(rounds):
        pairs = [(rank, rank ^ (ranks >> step + 1), nbytes / 2 ** (step + 1)) for rank in range(ranks)]
        world.round(pairs, GAMMA)
    for step in reversed(range(rounds)):
        world.round([(rank, rank ^ (ranks >> step + 1), nbytes / 2 ** (step + 1)) for rank in range(ranks)])
    assert forms.halving_doubling(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(world.end)


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 9])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_binomial_tree_doubles_who_knows_every_round(ranks: int, nbytes: float) -> None:
    world, known = Ranks(ranks), 1
    while known < ranks:
        world.round([(rank, rank + known, nbytes) for rank in range(known) if rank + known < ranks])
        known *= 2
    assert forms.binomial_broadcast(ranks, nbytes, ALPHA, BETA) == pytest.approx(world.end)
    down = forms.binomial_allreduce(ranks, nbytes, ALPHA, BETA, GAMMA) - world.end
    assert down == pytest.approx(forms.binomial_broadcast(ranks, nbytes, ALPHA, BETA, GAMMA))


def line(hops: int, chunks: int, nbytes: float) -> float:
    """When the last chunk is out of the last link, each link taking one at a time, in order."""
    free = [0.0] * hops
    for _ in range(chunks):
        there = 0.0
        for hop in range(hops):
            free[hop] = there = max(there, free[hop]) + ALPHA + nbytes / chunks * BETA
    return free[-1]


@pytest.mark.parametrize("hops", [1, 2, 5, 14])
@pytest.mark.parametrize("chunks", [1, 2, 7, 40])
def test_a_pipeline_overlaps_its_hops(hops: int, chunks: int) -> None:
    assert forms.pipelined(hops, 512.0, ALPHA, BETA, chunks) == pytest.approx(line(hops, chunks, 512.0))


@pytest.mark.parametrize("hops", [1, 2, 5, 14])
@pytest.mark.parametrize("nbytes", SIZES)
def test_the_best_number_of_chunks_is_best_and_its_square_root_form_bounds_it(hops: int, nbytes: float) -> None:
    best = forms.pipelined(hops, nbytes, ALPHA, BETA)
    assert best == pytest.approx(min(line(hops, chunks, nbytes) for chunks in range(1, 200)), rel=0.01)
    assert best >= (math.sqrt((hops - 1) * ALPHA) + math.sqrt(nbytes * BETA)) ** 2 * (1 - 1e-12)


def served(workers: int, servers: int, nbytes: float) -> float:
    """Ports taken one byte run after another: pushes of every worker's parts, the sums, pulls of every part."""
    part = nbytes / servers
    server = max(workers * part for _ in range(servers)) * BETA
    worker = max(servers * part for _ in range(workers)) * BETA
    return 2 * (ALPHA + max(server, worker)) + workers * part * GAMMA


@pytest.mark.parametrize(("workers", "servers"), [(8, 1), (8, 8), (4, 8), (8, 3)])
def test_a_parameter_server_is_as_slow_as_its_busiest_port(workers: int, servers: int) -> None:
    assert forms.parameter_server(workers, servers, 512.0, ALPHA, BETA, GAMMA) == pytest.approx(
        served(workers, servers, 512.0)
    )


def every() -> Iterator[tuple[str, int, float]]:
    for name in ("ring_allreduce", "recursive_doubling", "halving_doubling", "binomial_allreduce", "chain_allreduce"):
        for ranks in (2, 4, 16):
            yield name, ranks, 2 * (ranks - 1) / ranks if name in ("ring_allreduce", "halving_doubling") else 1.0


@pytest.mark.parametrize(("name", "ranks", "fewest"), list(every()))
def test_no_algorithm_sends_less_than_it_must_nor_answers_in_no_time(name: str, ranks: int, fewest: float) -> None:
    form = getattr(forms, name)
    assert form(ranks, 0.0, ALPHA, BETA) >= math.ceil(math.log2(ranks)) * ALPHA
    assert form(ranks, 1e9, ALPHA, BETA) >= fewest * 1e9 * BETA


def test_one_node_of_a_hierarchy_is_a_ring_and_so_is_one_gpu_a_node() -> None:
    inside, between = (ALPHA, BETA), (5 * ALPHA, 8 * BETA)
    ring = forms.ring_allreduce(8, 512.0, *inside, GAMMA)
    assert forms.hierarchical(8, 1, 512.0, inside, between, GAMMA) == pytest.approx(ring)
    ring = forms.ring_allreduce(8, 512.0, *between, GAMMA)
    assert forms.hierarchical(1, 8, 512.0, inside, between, GAMMA) == pytest.approx(ring)


def test_two_trees_beat_a_ring_at_many_ranks_and_small_sizes_only() -> None:
    assert forms.double_tree_allreduce(1024, 1e3, ALPHA, BETA) < forms.ring_allreduce(1024, 1e3, ALPHA, BETA)
    assert forms.double_tree_allreduce(4, 1e7, ALPHA, BETA) > forms.ring_allreduce(4, 1e7, ALPHA, BETA)
