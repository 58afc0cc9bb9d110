"""What-ifs as a user writes them, and what switches, routing and what-ifs make of a prediction."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from collbench.cases import Case, SizeRange
from collbench.errors import UsageError
from collbench.model.network import PATTERNS
from collbench.model.predict import WHAT_IFS, curve, effect, network_curve, network_effect, pattern_of, scenario
from collbench.topology.files import NicTable, load, names
from collbench.topology.system import Nics, System, Tier
from tests.conftest import case

TIERS = (Tier("leaf", 32), Tier("spine", 0, paths=16))
SYSTEM = System("eight", "sm90", 8, "nvswitch", 370e9, nics=Nics(8, 50e9, "ib"), tiers=TIERS, nodes=256)
VALUES = {"link-down": "=leaf3:spine1", "link-half": "=nic:3.2", "oversubscription": "=4"}
VALUES |= {"nic.per_node": "=4", "nic.rate": "=25", "nic.transport": "=tcp", "nic.gdr": "=false", "sharp": "=1"}
RACKS = replace(load("gb200-nvl72"), nodes=2)


def factor(system: System, *what_ifs: str, pattern: str = "ring") -> float:
    return effect(system, pattern, what_ifs).factor


def test_every_what_if_has_an_effect_between_nothing_and_all() -> None:
    for word in WHAT_IFS:
        for pattern in PATTERNS:
            system = RACKS if word == "mnnvl" else replace(SYSTEM, nodes=64)
            found = effect(system, pattern, [word + VALUES.get(word, "=0" if word == "mnnvl" else "")])
            assert 0 < found.factor <= 1, (word, pattern)
            assert "\n" not in found.explanation, (word, pattern)


def test_a_preset_is_as_fast_as_its_nics_unless_it_says_otherwise() -> None:
    for preset in names():
        described = load(preset)
        plain = all(tier.routing == "adaptive" and tier.oversubscription == 1 for tier in described.tiers)
        assert (1 - 1e-9 if plain else 1e-9) < factor(described.of(33)) < 1 + 1e-9, preset


def test_the_slowest_nic_is_explained_and_what_the_system_suffers_as_described_told_apart() -> None:
    found = effect(SYSTEM, "ring", ["ecmp"])
    assert found.factor == 0.25
    assert re.search(r"the slowest NIC \(NIC \d+ of node \d+\) gets 25% of its rate", found.explanation)
    assert "gets 25% of its rate: 8 flows share leaf " in found.explanation
    assert "which carries 2 at full rate; all get 7" in found.explanation
    assert "flows share 8 uplinks of leaf " in effect(SYSTEM, "ring", ["oversubscription=4"]).explanation
    assert "2 of 8 rails followed" in effect(replace(SYSTEM, nodes=12500), "ring", ["ecmp=16"]).explanation
    for alike in ("ecmp", "oversubscription=4"):
        assert "rails" not in effect(replace(SYSTEM, nodes=12500), "ring", [alike]).explanation, alike
    described = scenario(SYSTEM, ["ecmp=4", "oversubscription=2"]).system
    worse = effect(described, "ring", ["link-half=leaf0:spine0"])
    assert f"; {factor(described):.0%} as the system is described" in worse.explanation
    assert factor(described) < 1
    assert factor(described, "adaptive", "oversubscription=1") == pytest.approx(1)


def test_several_are_taken_together_and_the_last_word_holds() -> None:
    now = scenario(SYSTEM, ["ecmp=4", "oversubscription=4", "adaptive", "link-down=nic:0.1", "link-half=nic:1.1"])
    assert [tier.routing for tier in now.system.tiers] == ["adaptive", "adaptive"]
    assert now.system.tiers[0].oversubscription == 4
    assert [(fault.link, fault.left) for fault in now.faults] == [("nic:0.1", 0.0), ("nic:1.1", 0.5)]
    # A fat tree has all NICs of a node on one switch, so its leaves are fewer and wider.
    assert factor(SYSTEM, "fat-tree", "link-half=tor0:spine0") > 0.95
    with pytest.raises(UsageError, match="tor0 to tor7"):
        effect(SYSTEM, "ring", ["fat-tree", "link-half=tor8:spine0"])
    with pytest.raises(UsageError, match="leaf0 to leaf63"):
        effect(SYSTEM, "ring", ["fat-tree", "rail", "link-half=leaf64:spine0"])


def test_queue_pairs_oversubscription_and_the_order_of_nodes_change_the_factor() -> None:
    shares = [factor(SYSTEM, f"ecmp={flows}") for flows in (1, 4, 16)]
    assert shares == sorted(set(shares))
    assert factor(SYSTEM, "ecmp=4", "oversubscription=4") < 0.5 * shares[1]
    assert factor(SYSTEM, "oversubscription=4", "in-order") == pytest.approx(1)
    assert factor(SYSTEM, "oversubscription=4") < 0.3
    assert factor(replace(SYSTEM, nodes=12500), "fat-tree", "ecmp") < 1
    assert [pattern_of("allreduce", name) for name in ("ring", "tree", "nvlstree")] == ["ring", "tree", "tree"]
    assert pattern_of("alltoall") == "alltoall"


def test_a_what_if_that_cannot_be_is_refused_in_one_line_with_the_choices() -> None:
    for text, words in (
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
    ):
        with pytest.raises(UsageError, match=words):
            effect(SYSTEM, "ring", [text])
    for text in ("ecmp", "oversubscription=2", "fat-tree"):
        with pytest.raises(UsageError, match="needs two tiers"):
            effect(replace(SYSTEM, tiers=TIERS[:1]), "ring", [text])
    for single in (replace(SYSTEM, nodes=1), replace(SYSTEM, nics=None)):
        with pytest.raises(UsageError, match="2 nodes or more"):
            effect(single, "ring", ["ecmp"])


SIZES = SizeRange(8, 2**36, 1.7).sizes


def cases(collective: str, ranks: int) -> list[Case]:
    return [case(collective, nbytes=nbytes, ranks=ranks) for nbytes in SIZES]


def test_a_network_that_slows_nothing_changes_nothing_and_a_size_is_predicted_alike_alone() -> None:
    system = load("dgx-h100").of(16)
    wanted = cases("allreduce", system.ranks)
    assert network_curve(system, wanted) == curve(system, wanted)
    together = network_curve(system, wanted, what_ifs=("ecmp",))
    for each, among_others in list(zip(wanted, together, strict=True))[::7]:
        (alone,) = network_curve(system, [each], what_ifs=("ecmp",))
        assert alone.seconds == pytest.approx(among_others.seconds), each.nbytes


def test_a_narrow_network_slows_in_bounds_and_never_less_for_more_bytes() -> None:
    for name, what_ifs, collective in (
        ("dgx-h100", ("oversubscription=4",), "allreduce"),
        ("gcp-a4", (), "allgather"),
        ("dgx-b200", ("ecmp",), "broadcast"),
    ):
        place, system = (name, collective), load(name).of(64)
        wanted = cases(collective, system.ranks)
        before, after = curve(system, wanted), network_curve(system, wanted, what_ifs=what_ifs)
        factors = [network_effect(system, collective, guess.algorithm, what_ifs).factor for guess in before]
        assert min(factors) < 1, place
        ratios = [slow.seconds / fast.seconds for fast, slow in zip(before, after, strict=True)]
        assert all(0.999999 <= ratio <= 1.000001 / min(factors) for ratio in ratios), place
        assert ratios[-1] > 1.01, place
        assert all(small.seconds <= large.seconds * (1 + 1e-9) for small, large in pairwise(after)), place
        for fast, slow in zip(before, after, strict=True):
            assert (slow.algorithm, slow.protocol) == (fast.algorithm, fast.protocol), place
            assert slow.low / slow.seconds == pytest.approx(fast.low / fast.seconds), place
        assert str(after[-1].note) == f"NICs at {factors[-1]:.0%}", place
        assert all(ratio > 1.004 for ratio, slow in zip(ratios, after, strict=True) if slow.note.remarks), place


def test_cards_are_changed_by_the_keys_of_a_system_s_file() -> None:
    system = load("dgx-h100").of(4)
    assert WHAT_IFS.keys() >= {"sharp"} | {f"nic.{key}" for key in NicTable.__struct_fields__ if key != "sharp"}
    large = [replace(case(), nbytes=2**33, ranks=32)]
    (before,) = network_curve(system, large)
    for what_if, least in (
        ("nic.rate=25", 1.5),
        ("nic.per_node=4", 1.5),
        ("nic.transport=tcp", 3),
        ("nic.gdr=false", 2),
    ):
        (after,) = network_curve(system, large, what_ifs=(what_if,))
        assert after.seconds > least * before.seconds, what_if
        (described,) = network_curve(scenario(system, [what_if]).system, large)
        assert described.seconds == after.seconds, "as if a file said so"
    for what_if, message in (
        ("nic.rate=400G", "it must be a number from 0.001 to 125 in GB/s"),
        ("nic.per_node=0", "it must be a whole number from 1"),
        ("nic.per_node=33", "at most 4 for each"),
        ("nic.transport=pigeon", "must be one of: ib, roce"),
        ("sharp=maybe", "must be true or false"),
        ("nic.rate=100", "100 GB/s of cards for a GPU, whose PCIe slot carries 48; give fewer or slower"),
        ("nic.per_node=16", "100 GB/s of cards for a GPU"),
    ):
        with pytest.raises(UsageError, match=message):
            network_curve(system, large, what_ifs=(what_if,))
    with pytest.raises(UsageError, match="SHARP needs InfiniBand"):
        network_curve(system, large, what_ifs=("nic.transport=roce", "sharp=1"))
    with pytest.raises(UsageError, match="has no network cards"):
        scenario(replace(system, nics=None), ["nic.rate=25"])


def test_nvlinks_between_hosts_are_those_of_racks_of_whole_trays() -> None:
    trays = scenario(RACKS, ["mnnvl=0"]).system
    assert (trays.nodes, trays.gpus, trays.ranks) == (36, 4, RACKS.ranks)
    assert trays.nics
    assert RACKS.nics
    assert trays.nics.per_node * trays.nodes == RACKS.nics.per_node * RACKS.nodes
    assert trays.tiers[0].radix == 18 * RACKS.tiers[0].radix
    assert scenario(trays, ["mnnvl=0"]).system == trays
    for system, text in ((SYSTEM, "mnnvl=0"), (RACKS, "mnnvl=2"), (RACKS.part(6), "mnnvl=0")):
        with pytest.raises(UsageError, match="mnnvl"):
            scenario(system, [text])
