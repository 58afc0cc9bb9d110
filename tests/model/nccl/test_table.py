"""NCCL's cost table against what NCCL logged and what it is known to choose."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES as ALL_COLLECTIVES
from collbench.errors import Unsupported, UsageError
from collbench.model.nccl.constants import RELEASES, TREE_CORRECTION, release
from collbench.model.nccl.option import Option
from collbench.model.nccl.search import search
from collbench.model.nccl.table import options, table
from collbench.model.schedule import TABLED
from collbench.topology import files
from collbench.topology.system import Nics, System

LOGGED = json.loads((Path(__file__).parent / "nccl_2_29_2_h100.json").read_text())["tables"]
CELLS = [
    (int(ranks), collective, algorithm, protocol, *cell)
    for ranks, of_ranks in LOGGED.items()
    for collective, of_collective in of_ranks.items()
    for algorithm, cells in of_collective.items()
    for protocol, cell in zip(("ll", "ll128", "simple"), cells, strict=True)
]
DGX_H100 = System("DGX H100", "sm90", 8, "nvswitch", 370.8e9, multicast=True, nics=Nics(8, 50e9, "ib"))
DGX_A100 = System("DGX A100", "sm80", 8, "nvswitch", 240e9, nics=Nics(8, 25e9, "ib"))
FOUR_CARDS = replace(DGX_A100, nics=Nics(4, 12.5e9, "ib"))  # its nodes are faster than their network
DGX_B200 = System("DGX B200", "sm100", 8, "nvswitch", 721.8e9, multicast=True, nics=Nics(8, 50e9, "ib"), nccl="2.30")
NVL72 = replace(DGX_B200, name="NVL72", gpus=72, cpu="arm", nics=Nics(72, 50e9, "ib"))
TWO_SOCKETS = System(
    *("two sockets", "sm89", 4, "pcie", 24e9), switches=((0, 1), (2, 3)), per_socket=2, socket_rate=100e9
)
ALONE = replace(DGX_H100, name="single GPUs", gpus=1, nics=Nics(1, 50e9, "ib")).of(8)
GB = 1e9
DOUBLINGS = 2.0 ** np.arange(0, 40)
RINGS = {("ring", "ll"), ("ring", "ll128"), ("ring", "simple")}
VERSIONS = [f"{major}.{minor}" for major, minor in RELEASES]
SYSTEMS = [files.load(name) for name in files.names()]
SYSTEMS += [system.of(nodes) for system in SYSTEMS if system.nics for nodes in (2, 4, 12_500)]


def named(system: System, collective: str = "allreduce") -> dict[tuple[str, str], Option]:
    """All cells by algorithm and protocol."""
    return {(option.algorithm, option.protocol): option for option in table(system, collective)}


def select(choices: Sequence[Option], nbytes: float) -> Option:
    """The one that NCCL takes: of the least estimate, the first of equals."""
    return min(choices, key=lambda option: option.seconds(nbytes))


def busbw(system: System, algorithm: str) -> float:
    """GB/s of the links that NCCL expects of an all-reduce's large arrays."""
    return named(system)[algorithm, "simple"].busbw / GB


def in_words(value: object) -> str:
    """A parameter in the name of its test: the same in every process."""
    if isinstance(value, System):
        return value.title
    return f"{len(value)} cells" if isinstance(value, set) else str(value)


def test_every_cell_that_nccl_logged_is_computed_exactly() -> None:
    """All collectives on 2, 4 and 6 H100, to the one decimal that NCCL prints; no cell where it logged no rate."""
    logged, computed = {}, {}
    for ranks, collective, algorithm, protocol, microseconds, rate in CELLS:
        cell = ranks, collective, algorithm, protocol
        option = named(DGX_H100.part(ranks), collective).get((algorithm, protocol))
        logged[cell] = (f"{microseconds:.1f}", f"{rate:.1f}") if rate else None
        computed[cell] = (f"{option.seconds(0) * 1e6:.1f}", f"{option.rate / GB:.1f}") if option else None
    assert computed == logged


def test_the_log_has_all_that_is_modelled() -> None:
    """14 cells of an all-reduce with a rate, for each number of ranks: 6 of rings and trees and one of NVLS, twice."""
    assert {ranks: len(options(DGX_H100.part(ranks), "allreduce")) for ranks in (2, 4, 6)} == {2: 6, 4: 7, 6: 7}
    assert sum(cell[5] > 0 for cell in CELLS if cell[1] == "allreduce") == 3 * 7


@pytest.mark.parametrize(
    ("system", "algorithm", "expected"),
    [
        (DGX_A100, "ring", 240),
        (DGX_H100, "ring", 360),
        (DGX_H100, "nvls", 476),
        (DGX_B200, "ring", 720),
        (DGX_B200, "nvls", 720),
        (NVL72, "nvls", 917.6),
        (DGX_H100.of(4), "ring", 384),
        (DGX_A100.of(4), "ring", 192),
    ],
    ids=in_words,
)
def test_known_systems_have_their_known_bandwidth(system: System, algorithm: str, expected: float) -> None:
    """What NCCL's own search ends with there."""
    assert busbw(system, algorithm) == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(
    ("system", "channels", "speed"),
    [(DGX_A100, 12, 20), (DGX_H100, 12, 30), (DGX_B200, 16, 45), (DGX_H100.of(2), 8, 48), (DGX_A100.of(2), 8, 24)],
    ids=in_words,
)
def test_the_search_ends_with_so_many_channels_of_a_speed(system: System, channels: int, speed: float) -> None:
    """Rings, as NCCL logs them (before it doubles the channels in use)."""
    ring = search(system, release(system.nccl)).ring
    assert (ring.channels, ring.intra, ring.inter) == (channels, speed, speed)


def test_a_tree_of_two_nodes_moves_more_than_a_ring_and_of_more_nodes_less() -> None:
    """Its channels may be wider within the node: the "2-node tree" that doubles what a card does."""
    tree = search(FOUR_CARDS.of(2), release("2.29")).tree
    assert tree.intra == 2 * tree.inter
    assert busbw(FOUR_CARDS.of(2), "tree") > 1.5 * busbw(FOUR_CARDS.of(2), "ring")
    assert busbw(FOUR_CARDS.of(4), "tree") < busbw(FOUR_CARDS.of(4), "ring")


@pytest.mark.parametrize(
    ("system", "nbytes", "expected"),
    [
        (DGX_H100, 8, "ring/ll"),
        (DGX_H100, 2**33, "nvls/simple"),
        (DGX_H100.part(4), 2**33, "ring/simple"),
        (DGX_H100.part(2), 2**33, "ring/simple"),
        (DGX_A100, 2**33, "ring/simple"),
        (DGX_H100.of(16), 8, "tree/ll"),
        (DGX_H100.of(2), 2**33, "nvlstree/simple"),
        (DGX_H100.of(4), 2**33, "ring/simple"),
        (NVL72, 2**30, "nvls/simple"),
    ],
    ids=in_words,
)
def test_nccl_selects_as_it_is_known_to(system: System, nbytes: int, expected: str) -> None:
    """Rings for 4 H100 though NVLS measures faster; NVLS for 8; trees where latency counts and nodes are many."""
    option = select(options(system, "allreduce"), nbytes)
    assert f"{option.algorithm}/{option.protocol}" == expected


def test_on_every_preset_the_estimate_is_that_of_the_least_option_and_grows() -> None:
    """Also for 100,000 GPUs; doubling a size never makes any option faster, nor what is selected."""
    wrong = []
    for system, collective in product(SYSTEMS, TABLED):
        choices = options(system, collective)
        estimates = np.array([choice.seconds(DOUBLINGS) for choice in choices])
        least = estimates.min(axis=0)
        selected = [select(choices, nbytes).seconds(nbytes) for nbytes in DOUBLINGS]
        right = (np.diff(estimates) >= 0).all() and (least > 0).all() and selected == least.tolist()
        if not (right and all(choice.busbw <= 2 * choice.bound for choice in choices)):
            wrong.append((system.title, collective))
    assert wrong == []


def test_the_parts_of_an_option_are_those_of_its_estimate() -> None:
    """An empty array takes the base and all steps; there are steps between nodes only where there are nodes."""
    for system, collective in product(SYSTEMS, TABLED):
        for option in options(system, collective):
            place = system.title, collective, option
            assert option.seconds(0) == pytest.approx(option.base + option.intra + option.inter), place
            assert (option.hops > 0) == (option.inter > 0) == (system.nodes > 1), place
            assert option.channels >= 1, place


def test_an_estimate_is_the_same_alone_and_in_an_array() -> None:
    """Scalars in, floats out."""
    for option in options(DGX_H100.of(4), "allreduce"):
        alone = [option.seconds(float(nbytes)) for nbytes in DOUBLINGS]
        assert all(isinstance(value, float) for value in alone)
        np.testing.assert_array_equal(option.seconds(DOUBLINGS), alone)


def test_a_tree_is_corrected_by_the_logarithm_of_its_size() -> None:
    """Below 64 bytes and from 512 MiB on it is not; each power of two has its own factor, up to the last byte."""
    tree = replace(named(DGX_H100)["tree", "simple"], base=0.0, intra=0.0)
    for place, factor in enumerate(TREE_CORRECTION["simple"]):
        for nbytes in (64 * 2**place, 128 * 2**place - 1):
            assert tree.seconds(nbytes) == pytest.approx(nbytes / (tree.rate * factor))
    for nbytes in (63, 64 * 2**23):
        assert tree.seconds(nbytes) == pytest.approx(nbytes / tree.rate)


def test_a_ring_over_nodes_waits_longer_from_its_plateau_on() -> None:
    """64 bytes for every rank and running channel; 1.4 times, before Ampere 1.9 times."""
    ring = named(DGX_H100.of(2))["ring", "simple"]
    assert ring.plateau_from == 64 * 16 * 16
    assert ring.seconds(ring.plateau_from) - ring.seconds(ring.plateau_from - 1) > 0.39 * ring.seconds(0)
    assert named(files.load("dgx-2").of(2))["ring", "simple"].plateau == 1.9
    assert named(DGX_H100)["ring", "simple"].plateau == 1


@pytest.mark.parametrize(
    ("algorithm", "protocol", "channels"),
    [
        ("ring", "ll", (1, 2, 16, 24)),  # 512 threads of 8 bytes for each of 8 ranks
        ("ring", "simple", (1, 2, 16, 24)),  # of 64 bytes
        ("ring", "ll128", (1, 12, 24, 24)),  # 640 threads of 8 bytes
        ("tree", "ll", (1, 16, 24, 24)),
    ],
)
def test_small_messages_have_few_channels(algorithm: str, protocol: str, channels: tuple[int, ...]) -> None:
    """As `topoGetAlgoInfo` takes them away, down to one, until every thread has enough to do."""
    cells = {(cell.algorithm, cell.protocol): cell for cell in table(DGX_A100, "allreduce")}
    one = cells[algorithm, protocol]
    assert tuple(one.channels_at(np.array([8, 64 << 10, 512 << 10, 1 << 30], np.float64))) == channels
    assert one.running == 2 * one.channels


def test_sums_in_the_switch_use_all_their_channels_whatever_the_size() -> None:
    (one,) = (cell for cell in table(DGX_H100, "allreduce") if cell.algorithm == "nvls")
    assert set(one.channels_at(DOUBLINGS)) == {one.channels}


def test_ll128_needs_nvlink_and_no_host_bridge() -> None:
    """Elsewhere its 128 bytes may arrive in pieces; who asks for it gets it."""
    pcie = System("box", "sm89", 4, "pcie", 24e9, nics=Nics(1, 12.5e9, "ib"))
    assert ("ring", "ll128") in named(DGX_H100.of(2))
    assert ("ring", "ll128") not in named(pcie)
    assert ("ring", "ll128") not in named(replace(DGX_A100, nics=Nics(1, 12.5e9, "tcp")).of(2))
    assert {option.protocol for option in options(replace(pcie, protocol="ll128"), "allreduce")} == {"ll128"}


@pytest.mark.parametrize(
    ("system", "protocols"),
    [
        (replace(DGX_A100, nics=Nics(4, 12.5e9, "efa")), {"simple"}),
        (replace(DGX_H100, nics=Nics(32, 12.5e9, "efa")), {"ll", "ll128", "simple"}),
        (replace(DGX_H100, nics=Nics(32, 12.5e9, "efa", gdr=False)), {"simple"}),
        (replace(DGX_A100, nics=Nics(4, 12.5e9, "ib", gdr=False)), {"ll", "ll128", "simple"}),
        (replace(DGX_A100, nics=Nics(4, 12.5e9, "efa"), protocol="ll"), {"ll"}),
    ],
)
def test_efa_before_hopper_or_without_gpudirect_knows_simple_alone(system: System, protocols: set[str]) -> None:
    """Among nodes: within one all are there.  Who asks for another gets it."""
    assert {option.protocol for option in options(system.of(2), "allreduce")} == protocols
    if system.protocol == "auto":
        assert {option.protocol for option in options(system, "allreduce")} == {"ll", "ll128", "simple"}


def test_algorithms_are_there_where_they_can_be() -> None:
    """NVLS with multicast within a node, NVLSTree over nodes, PAT for single GPUs, trees for all-reduce alone."""

    def algorithms(system: System, collective: str = "allreduce") -> set[str]:
        return {option.algorithm for option in options(system, collective)}

    assert algorithms(DGX_H100) == {"ring", "tree", "nvls"}
    assert algorithms(DGX_H100.of(2)) == {"ring", "tree", "nvlstree"}
    assert algorithms(replace(DGX_H100, multicast=False)) == {"ring", "tree"}
    assert algorithms(replace(DGX_H100, nvls=False)) == {"ring", "tree"}
    assert algorithms(DGX_H100.part(2)) == {"ring", "tree"}
    assert algorithms(replace(DGX_H100, nics=Nics(1, 50e9, "ib")).of(2)) == {"ring", "tree"}
    assert algorithms(ALONE, "allgather") == {"ring", "pat"}
    assert algorithms(ALONE) == {"ring", "tree"}
    assert algorithms(DGX_H100, "broadcast") == {"ring"}


@pytest.mark.parametrize("name", sorted(set(ALL_COLLECTIVES) - set(TABLED)))
def test_collectives_of_sends_and_receives_have_no_table(name: str) -> None:
    """NCCL estimates none of them."""
    with pytest.raises(Unsupported, match=name):
        options(DGX_H100, name)


def test_what_nccl_is_told_to_use_is_all_it_chooses_from() -> None:
    """NCCL_ALGO and NCCL_PROTO; one line where that leaves nothing."""
    assert [option.algorithm for option in options(replace(DGX_H100, algorithm="tree"), "allreduce")] == ["tree"] * 3
    with pytest.raises(Unsupported, match="broadcast has no tree"):
        options(replace(DGX_H100, algorithm="tree"), "broadcast")


def changed(system: System, collective: str, older: str, newer: str) -> set[tuple[str, str]]:
    """Cells that differ between two releases."""
    one, two = (named(replace(system, nccl=version), collective) for version in (older, newer))
    return {cell for cell in one.keys() | two.keys() if one.get(cell) != two.get(cell)}


@pytest.mark.parametrize(
    ("older", "newer", "system", "collective", "expected"),
    [
        ("2.18", "2.19", DGX_A100, "allreduce", {("tree", "simple")}),
        ("2.19", "2.20", DGX_A100.of(4), "allreduce", set()),
        ("2.20", "2.21", DGX_A100, "allreduce", {("ring", "ll")}),
        ("2.20", "2.21", DGX_H100, "allreduce", {("ring", "ll"), ("nvls", "simple")}),
        ("2.21", "2.23", DGX_A100, "allreduce", {("tree", "simple")}),
        ("2.21", "2.23", DGX_H100.of(2), "allreduce", {("tree", "simple"), *RINGS}),
        ("2.23", "2.24", ALONE, "allgather", {("pat", "simple")}),
        ("2.24", "2.25", DGX_H100.of(2), "allreduce", set()),
        ("2.25", "2.26", DGX_B200.of(2), "allreduce", set()),
        ("2.26", "2.27", DGX_H100, "allreduce", set()),
        ("2.26", "2.27", DGX_H100, "allgather", {("nvls", "simple")}),
        ("2.27", "2.28", DGX_H100.of(2), "allreduce", {("nvlstree", "simple")}),
        ("2.27", "2.28", DGX_B200.of(2), "allreduce", {("nvlstree", "simple"), ("tree", "ll128"), ("tree", "simple")}),
        ("2.28", "2.29", DGX_H100, "allreduce", set()),
        ("2.28", "2.29", DGX_H100.of(2), "allreduce", {("nvlstree", "simple")}),
        ("2.29", "2.30", DGX_H100.of(2), "allreduce", set()),
        ("2.29", "2.30", DGX_B200, "allreduce", {("ring", "ll128")}),
        ("2.29", "2.30", DGX_B200.of(4), "allreduce", {("ring", "ll128"), ("nvlstree", "simple")}),
        ("2.30", "2.31", DGX_B200, "allreduce", set()),
        ("2.30", "2.31", DGX_B200, "allgather", {("ring", "simple"), ("nvls", "simple")}),
        ("2.30", "2.31", FOUR_CARDS.of(2), "allreduce", {("tree", "simple"), ("tree", "ll"), ("tree", "ll128")}),
        ("2.30", "2.31", DGX_A100.of(4), "allreduce", set()),
    ],
    ids=in_words,
)
def test_a_release_changes_what_its_notes_say_and_nothing_else(
    older: str, newer: str, system: System, collective: str, expected: set[tuple[str, str]]
) -> None:
    """Steps of rings and trees in 2.23, NVLS and Blackwell's trees in 2.28, NVLSTree in 2.29, trees in 2.31."""
    assert changed(system, collective, older, newer) == expected


def test_a_version_between_two_kept_ones_is_the_older_of_them() -> None:
    """So are patch releases; before the first, the first; after the last, the last; words are refused."""
    assert release("2.22.3") is release("2.21")
    assert release("2.29.2") is release("2.29")
    assert release("2.18") is release("1.0") is not release("2.21")
    assert release("3.0") is release("2.31")
    with pytest.raises(UsageError, match=r"'new'.*2\.29"):
        release("new")


def test_every_release_has_an_estimate_for_every_system() -> None:
    """Older ones take newer GPUs for the newest that they know."""
    for system, version in product(SYSTEMS[::3], VERSIONS):
        assert select(options(replace(system, nccl=version), "allreduce"), 2**20).rate > 0, (system.title, version)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (files.load("dgx-1v"), 120),
        (files.load("dgx-1v").part(4), 80),
        (files.load("gh200-quad"), 360),
        (files.load("gh200-quad").part(2), 120),
        (files.load("h100-nvl").part(2), 240),
        (System("one socket", "sm89", 4, "pcie", 24e9, cpu="amd"), 24),
        (System("one socket", "sm89", 4, "pcie", 24e9, cpu="intel"), 20),
        (System("switch", "sm89", 4, "pcie", 24e9, cpu="intel", switches=((0, 1, 2, 3),)), 24),
        (System("host", "sm89", 4, "pcie", 24e9, p2p=False, cpu="amd", switches=((0, 1), (2, 3))), 12),
        (System("uneven", "sm89", 5, "pcie", 24e9, p2p=False, cpu="amd", switches=((0, 1, 2, 3), (4,))), 6),
        (TWO_SOCKETS, 20),
        (replace(TWO_SOCKETS, cpu="amd"), 15),
        (replace(TWO_SOCKETS, cpu="amd", socket_rate=64e9), 15),  # NCCL does not know what the link carries
        (replace(TWO_SOCKETS, p2p=False), 10),
    ],
    ids=in_words,
)
def test_other_fabrics_carry_what_their_links_add_up_to(system: System, expected: float) -> None:
    """Derived from NCCL's rules: rings over single links, a sixth more load at Intel's bridges, shared switches."""
    assert busbw(system, "ring") == pytest.approx(expected)


def test_a_box_on_pcie_among_others_shares_its_slots_between_tree_and_network() -> None:
    """A tree's first GPU sends to the next one and half to the network through one slot."""
    box = System("box", "sm89", 4, "pcie", 24e9, cpu="amd", nics=Nics(1, 25e9, "ib")).of(2)
    graphs = search(box, release("2.29"))
    assert (graphs.ring.intra, graphs.tree.intra, graphs.tree.inter) == (24, 15, 15)


def test_network_cards_are_counted_as_nccl_sees_them() -> None:
    """EFA's plugin shows one a GPU, NCCL merges two ports since 2.20, and a GPU's slot is no wider for many cards."""

    def ring(nics: Nics, version: str = "2.29", base: System = DGX_H100) -> tuple[int, float]:
        found = search(replace(base, nics=nics).of(2), release(version)).ring
        return found.channels, found.inter

    assert ring(Nics(32, 12.5e9, "efa")) == (8, 48)
    assert ring(Nics(16, 25e9, "roce")) == (8, 48)
    assert ring(Nics(16, 25e9, "roce"), "2.18") == (16, 24)
    assert ring(Nics(24, 50e9, "ib"), base=DGX_B200) == (8, 48)


def test_latencies_over_nodes_are_those_of_steps_within_and_between() -> None:
    """Worked out by hand from NCCL's constants: posting to the network is the least that a step of a ring takes."""

    def microseconds(system: System, algorithm: str, protocol: str, collective: str = "allreduce") -> float:
        return named(system, collective)[algorithm, protocol].seconds(0) * 1e6

    two = DGX_H100.of(2)
    assert microseconds(two, "ring", "ll") == pytest.approx(6.6 + 28 * 1.0 + 2 * 2.7)
    assert microseconds(replace(two, cpu="amd"), "ring", "ll") == pytest.approx(6.6 + 28 * 2.0 + 2 * 2.7)
    assert microseconds(replace(two, cpu="amd"), "ring", "simple") == pytest.approx(8.4 + 28 * 6.0 + 2 * 14)
    assert microseconds(DGX_H100.of(16), "tree", "ll") == pytest.approx(6.8 + 2 * (7 * 0.6 + 4 * 5.0))
    assert microseconds(DGX_H100.of(5), "nvlstree", "simple") == pytest.approx(25 + 2 * 2 * 20.9)
    assert microseconds(two, "ring", "simple", "broadcast") == pytest.approx(8.4 + 14)
    assert microseconds(ALONE, "ring", "ll") == pytest.approx(6.6 + 14 * 5.0)
    assert microseconds(ALONE, "pat", "simple", "allgather") == pytest.approx(8 + 3 * 14 / 3.5 + 8 * 2.8)
    power = System("POWER", "sm70", 4, "pcie", 12e9, cpu="power")
    assert microseconds(power, "tree", "simple") == pytest.approx(8.4 + 6 * 5.7)


def test_rings_in_different_orders_cannot_pipeline_a_broadcast() -> None:
    """On the cube, NCCL counts a step of every rank, and of LL128 and LL those of rings."""
    cube = named(files.load("dgx-1v"), "broadcast")
    assert cube["ring", "simple"].seconds(0) * 1e6 == pytest.approx(8.4 + 8 * 4.0)
    assert cube["ring", "ll"].seconds(0) * 1e6 == pytest.approx(6.6 + 8 * 0.6)


def test_rates_over_nodes_are_those_of_the_slower_side() -> None:
    """Worked out by hand: NVLSTree's two sides and its cap, a single GPU's plain tree, PAT, LL by the CPU's maker."""
    half = replace(DGX_H100, nics=Nics(8, 25e9, "ib"))
    assert busbw(half.of(2), "nvlstree") == pytest.approx(8 * 24 * 0.85 * 7 / 8 * 2)
    assert busbw(half.of(4), "nvlstree") == pytest.approx(8 * 24)
    assert busbw(DGX_H100.of(2), "nvlstree") == pytest.approx(8 * 57.7)
    assert busbw(DGX_H100.of(4), "nvlstree") == pytest.approx(8 * 45.5)
    assert busbw(ALONE.of(2), "tree") == pytest.approx(2 * 41.4 * 0.85)
    assert named(ALONE, "allgather")["pat", "simple"].rate == pytest.approx(0.75 * 48e9)
    assert named(DGX_H100.of(2))["ring", "ll"].busbw == pytest.approx(39.0e9)
    assert named(replace(DGX_H100, cpu="amd").of(2))["ring", "ll"].busbw == pytest.approx(22.5e9)
    assert named(replace(DGX_H100, cpu="amd").of(3))["ring", "ll"].busbw == pytest.approx(19.0e9)


def test_nvlstree_is_corrected_as_trees_are_where_that_was_measured() -> None:
    """Blackwell from 2.29 on: x86; from 2.31 on also Arm with 4 GPUs and the fastest cards."""

    def corrected(system: System, version: str) -> bool:
        return bool(named(replace(system.of(2), nccl=version))["nvlstree", "simple"].correction)

    quad = replace(DGX_B200, gpus=4, cpu="arm", nics=Nics(4, 100e9, "ib"))
    assert [corrected(DGX_B200, version) for version in ("2.27", "2.29", "2.31")] == [False, True, True]
    assert [corrected(quad, version) for version in ("2.29", "2.31")] == [False, True]
    assert not corrected(replace(quad, nics=Nics(4, 50e9, "ib")), "2.31")
    assert not corrected(DGX_H100, "2.31")


def test_more_gpus_than_a_multicast_has_heads_gather_by_rings() -> None:
    """All-reduce still sums in the switch."""
    assert {option.algorithm for option in options(NVL72, "allgather")} == {"ring"}
    assert {option.algorithm for option in options(NVL72.part(32), "allgather")} == {"ring", "nvls"}


def test_links_too_slow_for_every_speed_that_nccl_tries_have_a_placeholder() -> None:
    """Its ladder for one node of Blackwells ends at 18 GB/s; what the links carry is told all the same."""
    slow = System("5090s", "sm120", 4, "pcie", 24e9, cpu="amd", per_socket=2, socket_rate=16e9)
    for option in options(slow, "allreduce"):
        assert option.placeholder
        assert option.busbw <= 0.1 * GB
        assert option.bound == pytest.approx(16 * GB)
    assert not any(option.placeholder for option in options(DGX_B200, "allreduce"))


def test_a_mesh_among_others_has_chains_over_all_its_links() -> None:
    """Trees of 4 GH200 are raised to twice their cards, as behind a switch."""
    tree = search(files.load("gh200-quad").of(2), release("2.29")).tree
    assert (tree.channels, tree.intra, tree.inter) == (4, 48, 24)


def test_two_pairs_have_two_rings() -> None:
    """NCCL wants two channels for trees across the slower link, so one of 20 GB/s gives way to two of 10."""
    pairs = System("A40 pairs", "sm86", 4, "nvlink-pairs", 48e9)
    ring = search(pairs, release("2.29")).ring
    assert (ring.channels, ring.intra) == (2, 10)


def test_a_node_sums_in_its_switch_only_if_all_gpus_can_share_that_evenly() -> None:
    """32 heads at the least speed of the ladder must fit a port."""
    assert ("nvls", "simple") in named(NVL72)
    assert ("nvls", "simple") not in named(replace(NVL72, gpu_rate=400e9))
