"""What is between nodes: which options vendors leave, how far a share goes, what sockets, trees and pipelines carry."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.model.constants import CONSTANTS
from collbench.model.equation import SIZES
from collbench.model.nccl_terms import choose, rate, terms, terms_by
from collbench.model.nccl_tuner import options
from collbench.topology import files
from collbench.topology.system import Nics, System

H100, ALPS = files.load("dgx-h100"), files.load("alps-gh200")


def over(transport: str, nodes: int = 2, rate: float = 25e9) -> System:
    return replace(H100, nodes=nodes, nics=Nics(8, rate, transport))


def taken(system: System, collective: str = "allreduce") -> set[tuple[str, str]]:
    return {(option.algorithm, option.protocol) for option in options(system, collective)}


def test_google_s_profiles_leave_simple_without_sums_in_the_switch_and_ll128_passes_no_host_bridge() -> None:
    assert taken(over("tcpx")) == {("ring", "simple"), ("tree", "simple")}
    assert ("nvlstree", "simple") in taken(over("ib"))
    assert ("nvls", "simple") in taken(replace(over("tcpx"), nodes=1))
    assert {protocol for _, protocol in taken(ALPS.of(4))} == {"ll", "simple"}
    assert "ll128" in {protocol for _, protocol in taken(ALPS.of(1))}


def test_a_share_of_an_all_gather_passes_every_node_and_a_lone_gpu_s_one_fewer() -> None:
    pinned = replace(over("efa"), algorithm="ring", protocol="ll")

    def between(gpus: int, nodes: int) -> float:
        return float(terms(replace(pinned, gpus=gpus, nodes=nodes), "allgather").network[0])

    assert between(8, 4) / between(8, 2) == pytest.approx(2)
    assert between(1, 4) / between(1, 2) == pytest.approx(3)


def test_a_ring_s_latency_rises_where_nccl_says_so() -> None:
    ring = replace(over("ib"), algorithm="ring", protocol="simple")
    (option,) = options(ring, "allreduce")
    risen = choose(ring, "allreduce").risen
    assert risen[option.plateau_from > SIZES].max() == 0
    assert risen.max() == pytest.approx(0.4 * (option.base + option.intra + option.inter))


def test_sockets_are_filled_before_the_card_sends() -> None:
    for card in (1.25e9, 25e9):
        system = replace(over("tcp", nodes=4, rate=card), algorithm="ring", protocol="simple")
        (option,) = options(system, "allreduce")
        slow, fast = (rate(system, "allreduce", option, dict(CONSTANTS) | {"socket": s}) for s in (card, 1e6 * card))
        assert slow / fast == pytest.approx(0.5, rel=0.05)


def test_two_trees_load_the_cards_of_three_nodes_three_quarters_as_much_as_of_more() -> None:
    def of(nodes: int) -> float:
        system = replace(files.load("dgx-b200").of(nodes), algorithm="tree", protocol="simple")
        (option,) = options(system, "allreduce")
        return rate(system, "allreduce", option)

    assert of(3) == pytest.approx(253e9, rel=0.1)
    assert of(3) > 1.2 * of(4)
    assert of(4) == pytest.approx(of(8))


def test_filling_between_nodes_is_bounded_and_within_a_node_not() -> None:
    tree = replace(over("ib", nodes=4), algorithm="tree", protocol="simple")
    for system, bounded in ((tree, True), (replace(tree, nodes=1), False)):
        parts, free = (terms_by(known, system, "allreduce") for known in (CONSTANTS, dict(CONSTANTS) | {"full": 1e9}))
        saved = free.seconds() - parts.seconds()
        assert (saved[-1] > 0.001) == bounded
        assert abs(saved[SIZES < 1024]).max() < 1e-6


def test_racks_leave_through_the_cards_of_few_gpus() -> None:
    rack = files.load("gb200-nvl72").of(4)
    assert rack.nics
    tree = replace(rack, algorithm="tree", protocol="simple")
    (option,) = options(tree, "allreduce")
    few = rate(tree, "allreduce", option)
    assert few <= CONSTANTS["gpus_rack"] * rack.nics.rate / 2
    more = replace(tree, nics=replace(rack.nics, per_node=2 * rack.nics.per_node))
    assert rate(more, "allreduce", option) == pytest.approx(2 * few, rel=0.1)


def test_small_shares_of_a_large_array_do_not_wait_for_their_receivers() -> None:
    for algorithm, first in (("tree", 4096), ("ring", 4096 * 32)):
        network = terms(replace(ALPS.of(8), algorithm=algorithm, protocol="ll"), "allreduce").network
        assert SIZES[np.argmax(network > network[0])] == first
