"""From sizes to cases, and what a case says must arrive."""

from dataclasses import replace

import numpy as np

from collbench.cases import Sampling, SizeRange, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from tests.conftest import case
from tools.kernels.buffers import received, sent


def sweep(*sizes: int, collective: str = "allreduce", dtype: str = "float", ranks: int = 2) -> Sweep:
    kinds = (COLLECTIVES[collective],), sizes, (DATATYPES[dtype],), (REDUCTIONS["sum"],)
    return Sweep(*kinds, ranks, ("mpi",), spin="auto", bind="core", sampling=Sampling())


def test_sizes_grow_by_the_factor_up_to_the_last_and_are_whole_elements_once_each() -> None:
    assert SizeRange(8, 128, 4).sizes == (8, 32, 128)
    assert SizeRange(1, 6, 1.5).sizes == (1, 2, 3, 4)
    assert SizeRange(8, 20, step=4).sizes == (8, 12, 16, 20)
    assert [one.nbytes for one in sweep(1, 4, 7, 49).cases()] == [4, 48]


def test_sizes_that_are_no_whole_elements_of_every_rank_are_told_once() -> None:
    sweep = Sweep(
        (COLLECTIVES["allreduce"],), (7, 28, 30, 64), (DATATYPES["float"],), (REDUCTIONS["sum"],), 3, ("mpi",)
    )
    told = sweep.rounded()
    assert "4 B instead of 7 B" in told
    assert "1 more" in told
    assert "12 B instead of 7 B" in replace(sweep, collectives=(COLLECTIVES["allgather"],)).rounded()
    for exact in (
        replace(sweep, sizes=(8, 64)),
        replace(sweep, collectives=(COLLECTIVES["barrier"],)),
        replace(sweep, sampling=Sampling(check_only=True)),
    ):
        assert exact.rounded() == ""


def test_blocks_of_ranks_are_whole_packs_unless_they_are_only_checked() -> None:
    odd = sweep(40, 1000, 4096, collective="allgather", ranks=3)
    assert [one.nbytes for one in odd.cases()] == [3 * 12, 3 * 320, 3 * 1360]
    assert [one.nbytes for one in sweep(1000, ranks=3).cases()] == [1000]
    checked = replace(odd, sampling=Sampling(check_only=True))
    assert [one.nbytes for one in checked.cases()] == [3 * 12, 3 * 332, 3 * 1364]
    (gathered,) = sweep(100, collective="allgather", ranks=3).cases()
    assert (gathered.nbytes, gathered.block) == (96, 8)


def test_a_collective_that_reduces_nothing_has_one_case_for_all_reductions() -> None:
    both = Sweep((COLLECTIVES["broadcast"],), (8,), (DATATYPES["float"],), tuple(REDUCTIONS.values()), 2, ("mpi",))
    assert [one.redop for one in both.cases()] == [NONE]


def test_a_case_computed_by_hand_is_what_it_expects() -> None:
    for name, ranks in ((name, ranks) for name in COLLECTIVES for ranks in (1, 3)):
        one = case(name, nbytes=ranks * 40, ranks=ranks, root=ranks - 1)
        inputs = [sent(one, rank, seed=9) for rank in range(ranks)]
        for rank in range(ranks):
            origins = {
                move[0] * one.block: move[1:] for move in reversed(list(one.collective.moves(rank, ranks, one.root)))
            }
            for first, wanted in received(one, rank, seed=9):
                source, origin = origins[first]
                part = slice(origin * one.block, (origin + 1) * one.block)
                got = inputs[source][part] if source >= 0 else np.sum([buffer[part] for buffer in inputs], axis=0)
                assert np.array_equal(got.astype(wanted.dtype), wanted), (name, ranks, rank, first)


def test_in_place_buffers_start_where_nccl_puts_them_and_equal_cases_are_one_key() -> None:
    one = case("allgather", nbytes=96, ranks=3, in_place=True)
    assert [one.places(rank) for rank in range(3)] == [(0, 0), (8, 0), (16, 0)]
    assert len({case(), case(), case(nbytes=8)}) == 2


def test_the_fewest_bytes_that_all_ranks_must_read_and_write() -> None:
    size = 2**20
    for collective, ranks, out_of_place, in_place in (
        ("allreduce", 4, (4, 4), (4, 4)),
        ("allreduce", 1, (1, 1), (0, 0)),
        ("broadcast", 4, (1, 4), (1, 3)),
        ("allgather", 4, (1, 4), (1, 3)),
        ("reducescatter", 4, (4, 1), (4, 1)),
        ("reduce", 4, (4, 1), (4, 1)),
        ("alltoall", 4, (4, 4), (3, 3)),
        ("gather", 4, (1, 1), (0.75, 0.75)),
        ("scatter", 4, (1, 1), (0.75, 0.75)),
        ("sendrecv", 4, (4, 4), None),
    ):
        one = case(collective, size, ranks=ranks)
        assert one.traffic == tuple(arrays * size for arrays in out_of_place), (collective, ranks)
        if in_place:
            assert replace(one, in_place=True).traffic == tuple(arrays * size for arrays in in_place), (
                collective,
                ranks,
            )
