"""Closed forms against executions of the algorithms, one message at a time."""

import math
from collections.abc import Iterator
from itertools import product

import pytest

from tools.model import closed_forms as forms

ALPHA, BETA, GAMMA = 3.0, 0.25, 0.125
SIZES = (0.0, 16.0, 1024.0)
Rounds = list[list[tuple[int, int, float]]]  # of messages (from, to, bytes) that start together


def seconds(ranks: int, rounds: Rounds, adding: int) -> float:
    """When the last rank is done: both sides wait for each other; receivers add up what the first rounds bring."""
    clock = [0.0] * ranks
    for number, pairs in enumerate(rounds):
        before = list(clock)
        for sender, receiver, nbytes in pairs:
            end = max(before[sender], before[receiver]) + ALPHA + nbytes * BETA
            clock[sender] = max(clock[sender], end)
            clock[receiver] = max(clock[receiver], end + (nbytes * GAMMA if number < adding else 0.0))
    return max(clock)


def algorithms(ranks: int, nbytes: float) -> Iterator[tuple[str, Rounds, int]]:
    """Every round of each, and in how many of them receivers add up."""
    yield "ring", [[(rank, (rank + 1) % ranks, nbytes / ranks) for rank in range(ranks)]] * 2 * (ranks - 1), ranks - 1
    whole, steps = 1 << (ranks.bit_length() - 1), range(1, ranks.bit_length())
    fold: Rounds = [[(rank, rank - whole, nbytes) for rank in range(whole, ranks)]] * (whole < ranks)
    back: Rounds = [[(receiver, sender, size) for sender, receiver, size in pairs] for pairs in fold]
    doubling: Rounds = [[(rank, rank ^ (whole >> step), nbytes) for rank in range(whole)] for step in steps]
    halving = [[(rank, rank ^ (whole >> step), nbytes / 2**step) for rank in range(whole)] for step in steps]
    yield "doubling", [*fold, *doubling, *back], len(fold) + len(doubling)
    yield "halving", [*fold, *halving, *halving[::-1], *back], len(fold) + len(halving)
    knowing = [1 << step for step in range((ranks - 1).bit_length())]
    yield "tree", [[(rank, rank + most, nbytes) for rank in range(most) if rank + most < ranks] for most in knowing], 0


def test_the_forms_are_what_the_messages_of_the_algorithms_take() -> None:
    for ranks, nbytes in product((2, 3, 4, 6, 7, 8, 13), SIZES):
        found = {name: seconds(ranks, rounds, adding) for name, rounds, adding in algorithms(ranks, nbytes)}
        args, up = (ranks, nbytes, ALPHA, BETA), forms.binomial_broadcast(ranks, nbytes, ALPHA, BETA, GAMMA)
        assert forms.ring_allreduce(*args, GAMMA) == pytest.approx(found["ring"]), (ranks, nbytes)
        assert forms.recursive_doubling(*args, GAMMA) == pytest.approx(found["doubling"]), (ranks, nbytes)
        assert forms.halving_doubling(*args, GAMMA) == pytest.approx(found["halving"]), (ranks, nbytes)
        assert forms.binomial_broadcast(*args) == pytest.approx(found["tree"]), (ranks, nbytes)
        assert forms.binomial_allreduce(*args, GAMMA) == pytest.approx(found["tree"] + up), (ranks, nbytes)
    for gpus, nodes in ((8, 1), (1, 8)):
        ring = forms.ring_allreduce(8, 512.0, ALPHA, BETA, GAMMA)
        assert forms.hierarchical(gpus, nodes, 512.0, (ALPHA, BETA), (ALPHA, BETA), GAMMA) == pytest.approx(ring), gpus
    for workers, servers in ((8, 1), (8, 8), (4, 8), (8, 3)):
        port = 2 * (ALPHA + max(workers, servers) * 512.0 / servers * BETA)  # the busiest
        found_of = forms.parameter_server(workers, servers, 512.0, ALPHA, BETA, GAMMA)
        assert found_of == pytest.approx(port + workers * 512.0 / servers * GAMMA), (workers, servers)


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
            least = min(line(hops, chunks, nbytes) for chunks in range(1, 100))
            assert forms.pipelined(hops, nbytes, ALPHA, BETA) == pytest.approx(least, rel=0.01), (hops, nbytes)
            bound = (math.sqrt((hops - 1) * ALPHA) + math.sqrt(nbytes * BETA)) ** 2
            assert forms.pipelined(hops, nbytes, ALPHA, BETA) >= bound * (1 - 1e-12), (hops, nbytes)
