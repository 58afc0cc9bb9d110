"""What-ifs as a user writes them."""

import time
from dataclasses import replace

import pytest

from collbench.errors import UsageError
from collbench.model.network.patterns import PATTERNS
from collbench.model.network.what_if import WHAT_IFS, effect, pattern_of, scenario, slowed
from collbench.topology.files import load, names
from collbench.topology.system import Nics, System, Tier

TIERS = (Tier("leaf", 32), Tier("spine", 0, paths=16))
SYSTEM = System("eight", "sm90", 8, "nvswitch", 370e9, nics=Nics(8, 50e9, "ib"), tiers=TIERS, nodes=256)
EXAMPLES = {
    "link-down": "link-down=leaf3:spine1",
    "link-half": "link-half=nic:3.2",
    "oversubscription": "oversubscription=4",
    "ecmp": "ecmp",
    "adaptive": "adaptive",
    "job": "job=0.5",
    "scattered": "scattered",
    "in-order": "in-order",
    "rail": "rail",
    "fat-tree": "fat-tree",
    "torus": "torus=8x32",
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("word", WHAT_IFS)
def test_every_what_if_has_an_effect_between_nothing_and_all(word: str, pattern: str) -> None:
    """On every pattern, in one line of words."""
    found = effect(replace(SYSTEM, nodes=64) if word != "torus" else SYSTEM, pattern, [EXAMPLES[word]])
    assert 0 < found.factor <= 1 + 1e-9
    assert found.factor <= found.mean + 1e-9
    assert found.before == pytest.approx(1)
    assert "\n" not in found.explanation


@pytest.mark.parametrize("preset", names())
def test_a_preset_is_as_fast_as_its_nics_unless_it_says_otherwise(preset: str) -> None:
    """Adaptive routing, nothing oversubscribed; one node, and one without network cards, have no effect to speak of."""
    if not load(preset).nics:
        with pytest.raises(UsageError, match="network cards"):
            effect(replace(load(preset), nodes=2), "ring")
        return
    for nodes in (2, 33, 500):
        system = load(preset).of(nodes)
        plain = all(tier.routing == "adaptive" and tier.oversubscription == 1 for tier in system.tiers)
        factor = effect(system, "ring").factor
        assert factor == pytest.approx(1) if plain else 0 < factor <= 1 + 1e-9


def test_the_slowest_nic_is_explained() -> None:
    """Who, how much, how many flows meet where, and what that link has room for: all numbers fit together."""
    found = effect(SYSTEM, "ring", ["ecmp"])
    assert found.factor == 0.25
    assert found.slowest in found.explanation
    assert "gets 25% of its rate: 8 flows meet on leaf " in found.explanation
    assert "with room for 2; all get 7" in found.explanation


def test_rails_that_were_not_followed_are_admitted() -> None:
    """Where hashing makes each another; not where they are alike."""
    large = replace(SYSTEM, nodes=12500)
    assert "2 of 8 rails followed" in effect(large, "ring", ["ecmp=16"]).explanation
    assert "rails" not in effect(large, "ring", ["ecmp"]).explanation
    assert "rails" not in effect(large, "ring", ["oversubscription=4"]).explanation


def test_what_the_system_suffers_as_described_is_told_apart() -> None:
    """The factor holds against healthy NICs; `before` says what was there already."""
    described = scenario(SYSTEM, ["ecmp=4", "oversubscription=2"]).system
    worse = effect(described, "ring", ["link-half=leaf0:spine0"])
    assert worse.before == effect(described, "ring").factor < 1
    assert "as the system is described" in worse.explanation
    assert effect(described, "ring", ["adaptive", "oversubscription=1"]).factor == pytest.approx(1)


def test_several_are_taken_together_in_order() -> None:
    """The last word on routing holds."""
    now = scenario(SYSTEM, ["ecmp=4", "oversubscription=4", "adaptive", "job=0.5", "link-down=nic:0.1", "in-order"])
    assert [tier.routing for tier in now.system.tiers] == ["adaptive", "adaptive"]
    assert now.system.tiers[0].oversubscription == 4
    assert scenario(SYSTEM, ["link-half=nic:0.1"]).faults[0].left == 0.5
    assert (now.job, now.in_order, now.faults[0].link, now.faults[0].left) == (0.5, True, "nic:0.1", 0.0)


def test_a_fat_tree_has_all_nics_of_a_node_on_one_switch() -> None:
    """So its leaves are fewer and wider, and the last word on the form holds."""
    assert effect(SYSTEM, "ring", ["fat-tree", "link-half=tor0:spine0"]).factor > 0.95
    with pytest.raises(UsageError, match="tor0 to tor7"):
        effect(SYSTEM, "ring", ["fat-tree", "link-half=tor8:spine0"])
    with pytest.raises(UsageError, match="leaf0 to leaf63"):
        effect(SYSTEM, "ring", ["fat-tree", "rail", "link-half=leaf64:spine0"])


def test_more_queue_pairs_make_static_hashing_better() -> None:
    """And oversubscription makes it worse."""
    shares = [effect(SYSTEM, "ring", [f"ecmp={flows}"]).factor for flows in (1, 2, 4, 16, 64)]
    assert shares == sorted(set(shares))
    assert effect(SYSTEM, "ring", ["ecmp=4", "oversubscription=4"]).factor < 0.5 * shares[2]


def test_the_order_of_nodes_decides_whether_a_ring_meets_anything() -> None:
    """In order one NIC of 32 leaves its leaf; in random order nearly all do."""
    assert effect(SYSTEM, "ring", ["oversubscription=4", "in-order"]).factor == pytest.approx(1)
    assert effect(SYSTEM, "ring", ["oversubscription=4", "scattered"]).factor < 0.3
    assert (
        effect(SYSTEM, "ring", ["torus=16x16"]).factor > 2 * effect(SYSTEM, "ring", ["torus=16x16", "scattered"]).factor
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ecpm", "unknown what-if 'ecpm'; choose from: link-down="),
        ("link-down", "write link-down=leaf3:spine1"),
        ("link-down=", "write link-down=leaf3:spine1"),
        ("ecmp=", "write ecmp"),
        ("ecmp=0", "write ecmp or ecmp=1"),
        ("ecmp=x", "write ecmp or ecmp=1"),
        ("adaptive=1", "write adaptive"),
        ("oversubscription=0.5", "from 1 to 1000"),
        ("oversubscription=four", "from 1 to 1000"),
        ("oversubscription=nan", "from 1 to 1000"),
        ("job=1", "from 0.01 to 0.99"),
        ("torus=16", "write torus=4x4"),
        ("torus=16x17", "272 nodes, not 256"),
        ("link-down=leaf3", "write leafI:spineJ or nic:NODE.NIC"),
    ],
)
def test_a_what_if_that_cannot_be_is_refused_in_one_line(text: str, words: str) -> None:
    """Naming the choices."""
    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as refused:
        effect(SYSTEM, "ring", [text])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["ecmp", "oversubscription=2", "fat-tree"])
def test_what_needs_two_tiers_says_so(text: str) -> None:
    """One tier has no paths to choose from, a torus no switches."""
    for tiers in ((), TIERS[:1], (Tier("torus", 16), Tier("torus", 16))):
        with pytest.raises(UsageError, match="needs two tiers"):
            effect(replace(SYSTEM, tiers=tiers), "ring", [text])


def test_a_single_node_has_no_network() -> None:
    """Nor has one without network cards."""
    for single in (replace(SYSTEM, nodes=1), replace(SYSTEM, nics=None)):
        with pytest.raises(UsageError, match="2 nodes or more"):
            effect(single, "ring", ["ecmp"])
    with pytest.raises(UsageError, match="choose from: ring, tree, alltoall"):
        effect(SYSTEM, "star", [])


def test_a_slowed_system_has_slower_nics_and_nothing_else() -> None:
    """So that closed forms hold for it."""
    slower = slowed(SYSTEM, 0.25)
    assert slower.nics == Nics(8, 12.5e9, "ib")
    assert replace(slower, nics=SYSTEM.nics) == SYSTEM
    assert slowed(replace(SYSTEM, nics=None), 0.5) == replace(SYSTEM, nics=None)


def test_collectives_have_patterns() -> None:
    """By algorithm where NCCL has several."""
    assert [pattern_of("allreduce", name) for name in ("ring", "tree", "nvlstree")] == ["ring", "tree", "tree"]
    assert pattern_of("alltoall", "ring") == "alltoall"
    assert pattern_of("allgather") == "ring"


@pytest.mark.parametrize(
    "what_ifs", [["ecmp"], ["oversubscription=4"], ["link-down=leaf3:spine1"], ["fat-tree", "ecmp"]]
)
def test_a_hundred_thousand_gpus_are_answered_at_once(what_ifs: list[str]) -> None:
    """Every NIC's flow solved, or one rail where all are alike; 0.1 to 0.3 s where this was written."""
    start = time.process_time()
    assert effect(replace(SYSTEM, nodes=12500), "ring", what_ifs).factor < 1
    assert time.process_time() - start < 2
