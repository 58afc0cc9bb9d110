"""Fabrics: what their links carry, which ones a transfer takes, and closed forms that the flows must meet."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.model.network import (
    PATTERNS,
    Clos,
    Fault,
    Integers,
    Reals,
    Scenario,
    avoid_dead_nics,
    double_tree,
    max_min,
    median_drawing,
    on_nics,
    solve,
)
from collbench.topology.system import Nics, System, Tier

RATE = 50e9
LEAF_SPINE = (Tier("leaf", 32), Tier("spine", paths=16, radix=0))
THREE = (Tier("leaf", 4), Tier("spine", 3, paths=4), Tier("core", 0, paths=6))


def system(nodes: int, tiers: tuple[Tier, ...] = LEAF_SPINE, nics: int = 8) -> System:
    return System("test", "sm90", 8, "nvswitch", 370e9, nics=Nics(nics, RATE, "roce"), tiers=tiers, nodes=nodes)


def first_tier(tiers: tuple[Tier, ...], **changes: object) -> tuple[Tier, ...]:
    return (replace(tiers[0], **changes), *tiers[1:])  # type: ignore[arg-type]


def hashed(whole: System, flows: int = 1) -> System:
    return replace(whole, tiers=tuple(replace(tier, routing="ecmp", flows=flows) for tier in whole.tiers))


def oversubscribed(whole: System, ratio: float) -> System:
    return replace(whole, tiers=first_tier(whole.tiers, oversubscription=ratio))


def shifted(random: np.random.Generator) -> Integers:
    """Whom each of 256 nodes sends to, when all nodes of a leaf of 32 send to the same other leaf."""
    return (np.arange(256) + 32 * random.integers(1, 8)) % 256


def strewn(random: np.random.Generator) -> Integers:
    target = random.permutation(256)
    while len(same := np.flatnonzero(target // 32 == np.arange(256) // 32)):
        other = random.integers(256)
        target[[same[0], other]] = target[[other, same[0]]]
    return target


def shares(flows: int, seed: int, order: Callable[[np.random.Generator], Integers]) -> Reals:
    """Of its NIC's rate, for each queue pair of 2,048 GPUs whose traffic all crosses one of 16 spines."""
    random, clos = np.random.default_rng(seed), Clos(hashed(system(256)), 8)
    source = np.repeat(np.arange(2048), flows)
    target = np.repeat(np.array([order(random) for _ in range(8)]).T * 8 + np.arange(8), flows)
    rates = max_min(clos.route(source, target, random), clos.capacity).rates
    return rates.reshape(-1, flows) / RATE * flows


def test_static_hashing_costs_what_simulations_say() -> None:
    for flows, mean, slowest, of_more in ((1, 0.74, 0.26, 0.22), (4, 0.94, 0.42, 0.39)):
        several = [shares(flows, seed, shifted).mean() for seed in range(5)]
        assert np.mean(several) == pytest.approx(mean, abs=0.012), flows
        several = [shares(flows, seed, strewn).min() for seed in range(10)]
        assert np.mean(several) == pytest.approx(slowest, abs=0.03), flows
        found = solve(Scenario(hashed(system(2048), flows)), "ring").share  # 16,384 GPUs in random order
        assert found == pytest.approx(of_more, abs=0.03), flows
    drawings = [solve(Scenario(hashed(system(64))), "ring", seed) for seed in range(5)]
    assert median_drawing(drawings).share == pytest.approx(np.median([drawing.share for drawing in drawings]))
    assert solve(Scenario(hashed(system(64))), "ring", 1) == drawings[1] != drawings[2]


def test_adaptive_routing_without_oversubscription_slows_nobody() -> None:
    for tiers, first, pattern in product((LEAF_SPINE, THREE), ("leaf", "tor"), PATTERNS):
        found = solve(Scenario(system(48, first_tier(tiers, name=first))), pattern, 3)
        assert found.share == pytest.approx(1), (len(tiers), first, pattern)


def test_what_goes_up_from_a_tier_is_what_comes_from_below_over_its_oversubscription() -> None:
    for routing, first in (("adaptive", "tor"), ("ecmp", "leaf")):
        ratios = zip(THREE, (2, 3, 1), strict=True)
        tiers = tuple(replace(tier, routing=routing, oversubscription=ratio) for tier, ratio in ratios)
        clos = Clos(system(48, first_tier(tiers, name=first)), 8)
        for level, ratio in zip(clos.levels, (2, 6), strict=True):
            links = level.groups * level.lanes
            for way in (0, 1):
                carried = clos.capacity[level.first + way * links :][:links].sum()
                assert carried == pytest.approx(48 * 8 * RATE / ratio), (routing, first, ratio, way)


def test_a_hashed_flow_comes_down_from_the_switch_that_it_went_up_to() -> None:
    for first in ("leaf", "tor"):
        whole = hashed(system(48, first_tier(THREE, name=first), nics=2))
        clos, random = Clos(whole, 2), np.random.default_rng(0)
        source, target = random.integers(48, size=(2, 500)) * 2 + random.integers(2, size=500)
        way = clos.route(source, target, random)
        lanes = []
        for level, up, down in zip(clos.levels, way[2::2], way[3::2], strict=True):
            crosses = source // 2 // level.span != target // 2 // level.span
            assert ((up >= 0) == crosses).all(), first
            assert ((down >= 0) == crosses).all(), first
            offset = level.first + np.array([[0], [level.groups * level.lanes]])
            group, lane = np.divmod((np.array([up, down]) - offset)[:, crosses], level.lanes)
            rail = 0 if first == "tor" else source % 2
            for nic, found in zip((source, target), group, strict=True):
                assert (found == (rail * level.per_rail + nic // 2 // level.span)[crosses]).all(), first
            assert (lane[0] == lane[1]).all(), first
            lanes.append(np.where(crosses, (up - level.first) % level.lanes, -1))
        both = lanes[1] >= 0
        assert (lanes[1][both] // clos.levels[1].paths == lanes[0][both]).all(), first
        assert len(np.unique(lanes[1][both])) == 24, first  # all of them are used


def test_an_all_to_all_falls_by_the_oversubscription_of_what_leaves_a_leaf() -> None:
    for ratio, first, nodes in ((1.0, "tor", 128), (2.0, "leaf", 64), (4.0, "tor", 64), (8.0, "leaf", 128)):
        tiers = (Tier(first, 32, ratio), Tier("spine", paths=16, radix=0))
        crossing = (nodes - 32) / (nodes - 1)
        found = solve(Scenario(system(nodes, tiers)), "alltoall").share
        assert found == pytest.approx(min(1, 1 / (ratio * crossing))), (ratio, first, nodes)
    for nodes in (256, 12500):  # too large to follow: part of the distances, or hashing taken as even
        for whole in (oversubscribed(system(nodes), 4), hashed(oversubscribed(system(nodes), 4), 16)):
            share = solve(Scenario(whole, in_order=True), "alltoall").share
            assert share == pytest.approx((nodes - 1) / (4 * (nodes - 32)), rel=0.02), nodes


def test_a_failed_uplink_takes_its_share_and_static_hashing_avoids_it_but_not_a_slow_one() -> None:
    for paths in (4, 16):
        whole = system(4096, (Tier("leaf", 32), Tier("spine", 0, paths=paths)), nics=1)
        ring = [solve(Scenario(whole, (Fault("leaf3:spine1", left),)), "ring", 2) for left in (0.0, 0.5)]
        assert ring[0].share == pytest.approx(32 * (1 - 1 / paths) / ring[0].flows), paths
        assert ring[0].bottleneck == f"{32 * (1 - 1 / paths):g} uplinks of leaf 3", paths
        assert ring[1].share >= (1 - 0.5 / paths) - 1e-9, paths
    whole = hashed(system(64, nics=1), 64)
    down, half = (solve(Scenario(whole, (Fault("leaf1:spine1", left),)), "alltoall") for left in (0.0, 0.5))
    assert "leaf 1 - spine 1, which carries " in half.bottleneck
    assert half.share < 0.97
    assert down.share > 0.99
    for left, share in ((0.0, 15 / 16), (0.5, 0.5)):
        slowest = solve(Scenario(hashed(system(1000)), (Fault("leaf3:spine1", left),)), "alltoall")
        assert slowest.share == pytest.approx(share * 999 / 968, rel=0.02), left


def test_a_slow_nic_is_slow_both_ways_and_a_dead_one_doubles_what_its_neighbour_carries() -> None:
    capacity = Clos(system(8), 8, (Fault("nic:3.7", 0.5),)).capacity
    assert np.flatnonzero(capacity[:128] == RATE / 2).tolist() == [31, 64 + 31]
    for pattern in PATTERNS:
        for fault, link in ((Fault("nic:3.7"), "NIC 0 of node 3"), (Fault("nic:3.7", 0.5), "NIC 7 of node 3")):
            slowest = solve(Scenario(system(8), (fault,)), pattern)
            assert slowest.share == pytest.approx(0.5), pattern
            assert slowest.bottleneck.startswith(f"{link}, which carries "), pattern
    faults = tuple(Fault(f"leaf0:spine{path}") for path in range(16))
    for whole in (system(64, nics=1), hashed(system(64, nics=1))):
        with pytest.raises(UsageError, match="cut off"):
            solve(Scenario(whole, faults), "ring")
    with pytest.raises(UsageError, match="node 3 is cut off"):
        solve(Scenario(system(8, nics=1), (Fault("nic:3.0"),)), "ring")
    with pytest.raises(UsageError, match="cut off"):
        avoid_dead_nics((np.array([0, 1]), np.array([2, 3])), 2, np.array([0, 3]))


def test_all_rails_are_like_one_where_nothing_is_hashed() -> None:
    for pattern, first in product(PATTERNS, ("leaf", "tor")):
        now = system(96, first_tier(LEAF_SPINE, name=first, oversubscription=4))
        one, every = (solve(Scenario(now, faults), pattern, 5) for faults in ((), (Fault("nic:0.0", 1.0),)))
        assert (one.rails, every.rails) == (1, 8), (pattern, first)
        assert (one.share, one.mean) == pytest.approx((every.share, every.mean)), (pattern, first)


def test_two_trees_have_two_children_a_node_an_all_to_all_every_pair_and_transfers_their_rail() -> None:
    for nodes in range(2, 40):
        sender, receiver = double_tree(nodes, 0)
        assert sorted(zip(sender, receiver, strict=True)) == sorted(zip(receiver, sender, strict=True)), nodes
        assert np.bincount(sender).max() <= 4 + nodes % 2, nodes
        assert len(sender) == 4 * (nodes - 1), nodes
        assert (sender != receiver).all(), nodes
        parents = dict(zip(sender[: nodes - 1].tolist(), receiver[: nodes - 1].tolist(), strict=True))
        place, depth = nodes - 1, 0
        while place:
            place, depth = parents[place], depth + 1
        assert depth == nodes.bit_length() - 1, nodes
    sender, receiver = PATTERNS["alltoall"].pairs(9, 1000)
    assert sorted(zip(sender, receiver, strict=True)) == [(a, b) for a in range(9) for b in range(9) if a != b]
    assert len(PATTERNS["alltoall"].pairs(1000, 5000)[0]) == 5000
    sender, receiver = on_nics(PATTERNS["ring"].pairs(5, 0), np.array([3, 1, 4, 0, 2]), 4)
    assert (sender % 4 == receiver % 4).all()
    assert len(np.unique(sender)) == len(np.unique(receiver)) == 20


def test_a_link_that_is_not_there_is_refused_with_the_choices_in_one_line() -> None:
    for tiers, link, words in (
        (LEAF_SPINE, "leaf3:core1", "leafI:spineJ or nic:NODE.NIC"),
        (LEAF_SPINE, "leaf3", "leafI:spineJ"),
        (LEAF_SPINE, "leaf99:spine1", "there are leaf0 to leaf15"),
        (LEAF_SPINE, "leaf3:spine16", "spine0 to spine15"),
        (LEAF_SPINE, "nic:64.0", "nodes are 0 to 63"),
        (LEAF_SPINE, "nic:0.8", "NICs 0 to 7"),
        ((Tier("leaf", 32),), "leaf0:spine0", "write nic:NODE.NIC"),
    ):
        with pytest.raises(UsageError, match=words):
            solve(Scenario(system(64, tiers), (Fault(link),)), "ring")
