"""Closed forms against executions of the algorithms, one message at a time."""

import math
from itertools import product

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


def times(ranks: int, rounds: list[list[tuple[int, int, float]]], adding: int) -> float:
    """When all are done with rounds of messages, whose receivers add up what the first rounds bring."""
    world = Ranks(ranks)
    for number, pairs in enumerate(rounds):
        world.round(pairs, GAMMA if number < adding else 0.0)
    return world.end


def test_a_ring_passes_chunks_to_its_neighbour_and_halving_doubling_sends_half_of_what_is_left() -> None:
    for ranks, nbytes in product((2, 3, 5, 8), SIZES):
        step = [(rank, (rank + 1) % ranks, nbytes / ranks) for rank in range(ranks)]
        found = times(ranks, [step] * 2 * (ranks - 1), ranks - 1)
        assert forms.ring_allreduce(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(found), (ranks, nbytes)
    for ranks, nbytes in product((2, 4, 16), SIZES):
        steps = range(1, int(math.log2(ranks)) + 1)
        halving = [[(rank, rank ^ (ranks >> step), nbytes / 2**step) for rank in range(ranks)] for step in steps]
        found = times(ranks, halving + halving[::-1], len(halving))
        assert forms.halving_doubling(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(found), (ranks, nbytes)


def test_recursive_doubling_folds_in_doubles_and_folds_out() -> None:
    for ranks, nbytes in product((2, 3, 4, 6, 13), SIZES):
        whole = 1 << (ranks.bit_length() - 1)
        fold = [[(rank, rank - whole, nbytes) for rank in range(whole, ranks)]] * (whole < ranks)
        doubling = [
            [(rank, rank ^ 1 << step, nbytes) for rank in range(whole)] for step in range(int(math.log2(whole)))
        ]
        back = [[(receiver, sender, nbytes) for sender, receiver, _ in pairs] for pairs in fold]
        found = times(ranks, fold + doubling + back, len(fold) + len(doubling))
        assert forms.recursive_doubling(ranks, nbytes, ALPHA, BETA, GAMMA) == pytest.approx(found), (ranks, nbytes)


def test_a_binomial_tree_doubles_who_knows_every_round() -> None:
    for ranks, nbytes in product((2, 3, 7, 8, 9), SIZES):
        knowing = [1 << step for step in range(math.ceil(math.log2(ranks)))]
        rounds = [[(rank, rank + most, nbytes) for rank in range(most) if rank + most < ranks] for most in knowing]
        end = times(ranks, rounds, 0)
        assert forms.binomial_broadcast(ranks, nbytes, ALPHA, BETA) == pytest.approx(end), (ranks, nbytes)
        up = forms.binomial_allreduce(ranks, nbytes, ALPHA, BETA, GAMMA) - end
        assert up == pytest.approx(forms.binomial_broadcast(ranks, nbytes, ALPHA, BETA, GAMMA)), (ranks, nbytes)


def test_a_parameter_server_is_as_slow_as_its_busiest_port_and_a_hierarchy_of_one_is_a_ring() -> None:
    for workers, servers in ((8, 1), (8, 8), (4, 8), (8, 3)):
        busiest = 2 * (ALPHA + max(workers, servers) * 512.0 / servers * BETA)
        found = forms.parameter_server(workers, servers, 512.0, ALPHA, BETA, GAMMA)
        assert found == pytest.approx(busiest + workers * 512.0 / servers * GAMMA), (workers, servers)
    for gpus, nodes in ((8, 1), (1, 8)):
        ring = forms.ring_allreduce(8, 512.0, ALPHA, BETA, GAMMA)
        assert forms.hierarchical(gpus, nodes, 512.0, (ALPHA, BETA), (ALPHA, BETA), GAMMA) == pytest.approx(ring), gpus


def line(hops: int, chunks: int, nbytes: float) -> float:
    """When the last chunk is out of the last link, each link taking one at a time, in order."""
    free = [0.0] * hops
    for _ in range(chunks):
        there = 0.0
        for hop in range(hops):
            free[hop] = there = max(there, free[hop]) + ALPHA + nbytes / chunks * BETA
    return free[-1]


def test_a_pipeline_overlaps_its_hops_and_the_best_number_of_chunks_is_best() -> None:
    for hops in (1, 2, 5, 14):
        for chunks in (1, 2, 7, 40):
            assert forms.pipelined(hops, 512.0, ALPHA, BETA, chunks) == pytest.approx(line(hops, chunks, 512.0)), hops
        for nbytes in SIZES:
            best = forms.pipelined(hops, nbytes, ALPHA, BETA)
            least = min(line(hops, chunks, nbytes) for chunks in range(1, 100))
            assert best == pytest.approx(least, rel=0.01), (hops, nbytes)
            bound = (math.sqrt((hops - 1) * ALPHA) + math.sqrt(nbytes * BETA)) ** 2
            assert best >= bound * (1 - 1e-12), (hops, nbytes)
