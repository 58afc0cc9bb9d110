"""Messages sent straight from rank to rank in a node, against published runs: channels, links, and ranks between."""

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.model.nccl_terms import terms
from collbench.topology import files
from collbench.topology.system import System

B200, H100, A100 = files.load("dgx-b200"), files.load("dgx-h100"), files.load("dgx-a100")
TO_ALL = ("alltoall", "gather", "scatter")
GIB = 1 << 30


def busbw(system: System, collective: str, ranks: int, nbytes: int) -> float:
    seconds = terms(system.part(ranks), collective).at(np.array([float(nbytes)]))[0]
    return float(COLLECTIVES[collective].bus_factor(ranks) * nbytes / seconds / 1e9)


def test_a_few_gpus_reach_with_large_messages_what_eight_reach_since_the_own_share_crosses_no_link() -> None:
    for collective in TO_ALL:
        for ranks in range(2, 9):
            assert 0.88 * 658 <= busbw(B200, collective, ranks, 8 * GIB) <= 710, (collective, ranks)
    for ranks, published in ((4, 356), (8, 346)):  # xxrjun, 8 GiB
        assert busbw(H100, "alltoall", ranks, 8 * GIB) == pytest.approx(published, rel=0.06), ranks


def test_smaller_messages_have_a_share_of_the_channels_so_a_few_gpus_reach_less() -> None:
    for system, nbytes, published in (
        (B200, 512 << 20, {2: 332, 4: 489, 8: 562}),
        (A100, 128 << 20, {2: 151, 4: 176, 8: 183}),
    ):
        for ranks, reached in published.items():
            assert busbw(system, "alltoall", ranks, nbytes) == pytest.approx(reached, rel=0.15), (ranks, nbytes)


def test_a_message_to_the_next_rank_alone_has_more_channels_the_larger_it_is_and_the_fewer_the_ranks_are() -> None:
    for ranks, published in ((8, {32: 79, 128: 163, 1024: 361}), (4, {32: 149, 128: 163, 1024: 361})):
        for size, reached in published.items():
            assert busbw(H100, "sendrecv", ranks, size << 20) == pytest.approx(reached, rel=0.25), (ranks, size)


def test_over_pcie_a_message_has_two_channels_at_most() -> None:
    server = files.load("pcie5-rtx-pro-6000-server")
    for nbytes in (16 << 20, 128 << 20, 512 << 20):
        assert busbw(server, "alltoall", 2, nbytes) == pytest.approx(26, rel=0.1), nbytes


def test_no_system_sends_more_than_its_links_carry_however_it_is_calibrated() -> None:
    for system in (B200, H100, A100):
        for collective in TO_ALL:
            parts = terms(system, collective)
            share = (system.gpus - 1) / system.gpus
            assert parts.limit[-1] == pytest.approx(system.gpu_rate / share), collective
