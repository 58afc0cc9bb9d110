"""NCCL's cost table against what NCCL logged and what it is known to choose."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.errors import Unsupported, UsageError
from collbench.model.nccl_channels import Graph, search
from collbench.model.nccl_releases import RELEASES, TREE_CORRECTION, release
from collbench.model.nccl_tuner import Option, options, table
from collbench.model.schedule import TABLED
from collbench.topology import files
from collbench.topology.system import Nics, System

LOGGED = json.loads((Path(__file__).parent / "nccl_2_29_2_h100.json").read_text())["tables"]
DGX_H100 = System("DGX H100", "sm90", 8, "nvswitch", 370.8e9, multicast=True, nics=Nics(8, 50e9, "ib"))
DGX_A100 = System("DGX A100", "sm80", 8, "nvswitch", 240e9, nics=Nics(8, 25e9, "ib"))
FOUR_CARDS = replace(DGX_A100, nics=Nics(4, 12.5e9, "ib"))  # its nodes are faster than their network
DGX_B200 = System("DGX B200", "sm100", 8, "nvswitch", 721.8e9, multicast=True, nics=Nics(8, 50e9, "ib"), nccl="2.30")
NVL72 = replace(DGX_B200, name="NVL72", gpus=72, cpu="arm", nics=Nics(72, 50e9, "ib"))
CUBE, QUAD = files.load("dgx-1v"), files.load("gh200-quad")
TWO_SOCKETS = System(
    *("two sockets", "sm89", 4, "pcie", 24e9), switches=((0, 1), (2, 3)), per_socket=2, socket_rate=100e9
)
ALONE = replace(DGX_H100, name="single GPUs", gpus=1, nics=Nics(1, 50e9, "ib")).of(8)
PAIRS = System("A40 pairs", "sm86", 4, "nvlink-pairs", 48e9)
GB = 1e9
DOUBLINGS = 2.0 ** np.arange(0, 40)
SYSTEMS = [files.load(name) for name in ("dgx-h100", "gb200-nvl72", "pcie4-4090", "aws-p4d", "gh200-quad", "dgx-1v")]
SYSTEMS += [system.of(nodes) for system in SYSTEMS if system.nics for nodes in (2, 12_500)]


def named(system: System, collective: str = "allreduce") -> dict[tuple[str, str], Option]:
    return {(option.algorithm, option.protocol): option for option in table(system, collective)}


def select(system: System, nbytes: float, collective: str = "allreduce") -> Option:
    """The one that NCCL takes: of the least estimate, the first of equals."""
    return min(options(system, collective), key=lambda option: option.seconds(nbytes))


def busbw(system: System, algorithm: str) -> float:
    """GB/s of the links that NCCL expects of an all-reduce's large arrays."""
    return named(system)[algorithm, "simple"].busbw / GB


def protocols(system: System) -> set[str]:
    return {option.protocol for option in options(system, "allreduce")}


def test_every_cell_that_nccl_logged_is_computed_exactly() -> None:
    rated = 0
    for ranks, of_ranks in LOGGED.items():
        for collective, of_collective in of_ranks.items():
            cells = named(DGX_H100.part(int(ranks)), collective)
            for algorithm, logged in of_collective.items():
                for protocol, (latency, rate) in zip(("ll", "ll128", "simple"), logged, strict=True):
                    option = cells.get((algorithm, protocol))
                    computed = (f"{option.seconds(0) * 1e6:.1f}", f"{option.rate / GB:.1f}") if option else None
                    place = ranks, collective, algorithm, protocol
                    assert computed == ((f"{latency:.1f}", f"{rate:.1f}") if rate else None), place
                    rated += bool(rate)
    assert rated > 3 * 7
    assert {ranks: len(options(DGX_H100.part(ranks), "allreduce")) for ranks in (2, 4, 6)} == {2: 6, 4: 7, 6: 7}


def test_known_systems_have_their_known_bandwidth() -> None:
    box = System("box", "sm89", 4, "pcie", 24e9, cpu="amd")
    for system, algorithm, expected in (
        (DGX_A100, "ring", 240),
        (DGX_H100, "ring", 360),
        (DGX_H100, "nvls", 476),
        (DGX_B200, "ring", 720),
        (DGX_B200, "nvls", 720),
        (NVL72, "nvls", 917.6),
        (DGX_H100.of(4), "ring", 384),
        (DGX_A100.of(4), "ring", 192),
        (CUBE, "ring", 120),
        (CUBE.part(4), "ring", 80),
        (QUAD, "ring", 360),
        (QUAD.part(2), "ring", 120),
        (files.load("h100-nvl").part(2), "ring", 240),
        (box, "ring", 24),
        (replace(box, cpu="intel"), "ring", 20),
        (replace(box, cpu="intel", switches=((0, 1, 2, 3),)), "ring", 24),
        (replace(box, p2p=False, switches=((0, 1), (2, 3))), "ring", 12),
        (TWO_SOCKETS, "ring", 20),
        (replace(TWO_SOCKETS, cpu="amd", socket_rate=64e9), "ring", 15),  # NCCL does not know what the link carries
        # Links too slow for every speed that NCCL tries have a placeholder: for Blackwell it stops at 18 GB/s.
        (replace(TWO_SOCKETS, arch="sm120", cpu="amd", socket_rate=16e9), "ring", 0.1),
        (replace(TWO_SOCKETS, p2p=False), "ring", 10),
    ):
        assert busbw(system, algorithm) == pytest.approx(expected, abs=0.15), (system.title, algorithm, expected)
    assert busbw(FOUR_CARDS.of(2), "tree") > 1.5 * busbw(FOUR_CARDS.of(2), "ring")
    assert busbw(FOUR_CARDS.of(4), "tree") < busbw(FOUR_CARDS.of(4), "ring")


def test_the_search_ends_with_so_many_channels_of_a_speed() -> None:
    for system, channels, speed in ((DGX_A100, 12, 20), (DGX_B200, 16, 45), (DGX_H100.of(2), 8, 48)):
        assert search(system, release(system.nccl)).ring == Graph(channels, speed, speed), system.title
    newest = release("2.29")
    assert search(FOUR_CARDS.of(2), newest).tree.intra == 2 * search(FOUR_CARDS.of(2), newest).tree.inter
    assert search(QUAD.of(2), newest).tree == Graph(4, 48, 24)
    assert (search(PAIRS, newest).ring.channels, search(PAIRS, newest).ring.intra) == (2, 10)
    # A tree's first GPU sends to the next one and half to the network through one slot.
    box = search(System("box", "sm89", 4, "pcie", 24e9, cpu="amd", nics=Nics(1, 25e9, "ib")).of(2), newest)
    assert (box.ring.intra, box.tree.intra, box.tree.inter) == (24, 15, 15)
    for base, nics, version, expected in (
        (DGX_H100, Nics(32, 12.5e9, "efa"), "2.29", (8, 48)),
        (DGX_H100, Nics(16, 25e9, "roce"), "2.29", (8, 48)),
        (DGX_H100, Nics(16, 25e9, "roce"), "2.18", (16, 24)),
        (DGX_B200, Nics(24, 50e9, "ib"), "2.29", (8, 48)),
    ):
        ring = search(replace(base, nics=nics).of(2), release(version)).ring
        assert (ring.channels, ring.inter) == expected, (nics, version)


def test_nccl_selects_as_it_is_known_to() -> None:
    for system, nbytes, expected in (
        (DGX_H100, 8, "ring/ll"),
        (DGX_H100, 2**33, "nvls/simple"),
        (DGX_H100.part(4), 2**33, "ring/simple"),
        (DGX_H100.of(16), 8, "tree/ll"),
        (DGX_H100.of(2), 2**33, "nvlstree/simple"),
        (DGX_H100.of(4), 2**33, "ring/simple"),
        (NVL72, 2**30, "nvls/simple"),
    ):
        option = select(system, nbytes)
        assert f"{option.algorithm}/{option.protocol}" == expected, (system.title, nbytes)


def test_options_grow_with_their_size_and_are_the_sum_of_their_parts() -> None:
    for system, collective in product(SYSTEMS, TABLED):
        choices = options(system, collective)
        assert choices, (system.title, collective)
        for option in choices:
            place = system.title, collective, option
            estimates = option.seconds(DOUBLINGS)
            assert (np.diff(estimates) >= 0).all(), place
            assert estimates[0] > 0, place
            assert [option.seconds(float(nbytes)) for nbytes in DOUBLINGS[::13]] == estimates[::13].tolist(), place
            assert isinstance(option.seconds(8.0), float), place
            assert option.seconds(0) == pytest.approx(option.base + option.intra + option.inter), place
            assert option.busbw <= 2.3 * system.gpu_rate, place
            assert (option.hops > 0) == (option.inter > 0) == (system.nodes > 1), place
            assert option.channels >= 1, place


def test_a_tree_is_corrected_by_the_logarithm_of_its_size() -> None:
    tree = replace(named(DGX_H100)["tree", "simple"], base=0.0, intra=0.0)
    for place, factor in enumerate(TREE_CORRECTION["simple"]):
        for nbytes in (64 * 2**place, 128 * 2**place - 1):
            assert tree.seconds(nbytes) == pytest.approx(nbytes / (tree.rate * factor)), nbytes
    for nbytes in (63, 64 * 2**23):
        assert tree.seconds(nbytes) == pytest.approx(nbytes / tree.rate), nbytes
    quad = replace(DGX_B200, gpus=4, cpu="arm", nics=Nics(4, 100e9, "ib"))
    for system, version, corrected in (
        (DGX_B200, "2.27", False),
        (DGX_B200, "2.29", True),
        (DGX_B200, "2.31", True),
        (quad, "2.29", False),
        (quad, "2.31", True),
        (replace(quad, nics=Nics(4, 50e9, "ib")), "2.31", False),
        (DGX_H100, "2.31", False),
    ):
        found = named(replace(system.of(2), nccl=version))["nvlstree", "simple"].correction
        assert bool(found) is corrected, (system.title, version)


def test_a_ring_over_nodes_waits_longer_from_its_plateau_on() -> None:
    ring = named(DGX_H100.of(2))["ring", "simple"]
    assert ring.plateau_from == 64 * 16 * 16
    step = ring.seconds(ring.plateau_from) - ring.seconds(ring.plateau_from - 1)
    assert step == pytest.approx(0.4 * ring.seconds(0), rel=1e-3)
    assert named(files.load("dgx-2").of(2))["ring", "simple"].plateau == 1.9
    assert named(DGX_H100)["ring", "simple"].plateau == 1


def test_small_messages_have_few_channels() -> None:
    for cell, channels in (
        (("ring", "ll"), (1, 2, 16, 24)),  # 512 threads of 8 bytes for each of 8 ranks
        (("ring", "simple"), (1, 2, 16, 24)),  # of 64 bytes
        (("ring", "ll128"), (1, 12, 24, 24)),  # 640 threads of 8 bytes
        (("tree", "ll"), (1, 16, 24, 24)),
    ):
        one = named(DGX_A100)[cell]
        assert tuple(one.channels_at(np.array([8, 64 << 10, 512 << 10, 1 << 30], np.float64))) == channels, cell
        assert one.running == 2 * one.channels, cell
    nvls = named(DGX_H100)["nvls", "simple"]
    assert set(nvls.channels_at(DOUBLINGS)) == {nvls.channels}


def test_ll128_needs_nvlink_and_no_host_bridge_and_efa_knows_simple_alone_before_hopper_or_without_gpudirect() -> None:
    pcie = System("box", "sm89", 4, "pcie", 24e9, nics=Nics(1, 12.5e9, "ib"))
    assert ("ring", "ll128") in named(DGX_H100.of(2))
    assert ("ring", "ll128") not in named(pcie)
    assert ("ring", "ll128") not in named(replace(DGX_A100, nics=Nics(1, 12.5e9, "tcp")).of(2))
    assert protocols(replace(pcie, protocol="ll128")) == {"ll128"}
    every, efa = {"ll", "ll128", "simple"}, Nics(4, 12.5e9, "efa")
    for base, nics, found in (
        (DGX_A100, efa, {"simple"}),
        (DGX_H100, Nics(32, 12.5e9, "efa"), every),
        (DGX_H100, Nics(32, 12.5e9, "efa", gdr=False), {"simple"}),
        (DGX_A100, Nics(4, 12.5e9, "ib", gdr=False), every),
    ):
        assert protocols(replace(base, nics=nics).of(2)) == found, nics
        assert protocols(replace(base, nics=nics)) == every, nics
    assert protocols(replace(DGX_A100, nics=efa, protocol="ll").of(2)) == {"ll"}


def test_algorithms_are_there_where_they_can_be_and_what_nccl_is_told_to_use_is_all() -> None:
    for system, collective, expected in (
        (DGX_H100.of(2), "allreduce", {"ring", "tree", "nvlstree"}),
        (replace(DGX_H100, multicast=False), "allreduce", {"ring", "tree"}),
        (replace(DGX_H100, nvls=False), "allreduce", {"ring", "tree"}),
        (DGX_H100.part(2), "allreduce", {"ring", "tree"}),
        (replace(DGX_H100, nics=Nics(1, 50e9, "ib")).of(2), "allreduce", {"ring", "tree"}),
        (ALONE, "allgather", {"ring", "pat"}),
        (ALONE, "allreduce", {"ring", "tree"}),
        (DGX_H100, "broadcast", {"ring"}),
        (NVL72, "allreduce", {"ring", "tree", "nvls"}),
        (replace(NVL72, gpu_rate=400e9), "allreduce", {"ring", "tree"}),  # 32 heads at the least speed must fit a port
        (NVL72, "allgather", {"ring"}),  # more GPUs than a multicast has heads
        (NVL72.part(32), "allgather", {"ring", "nvls"}),
        (replace(DGX_H100, algorithm="tree"), "allreduce", {"tree"}),
    ):
        found = {option.algorithm for option in options(system, collective)}
        assert found == expected, (system.title, collective)
    with pytest.raises(Unsupported, match="broadcast has no tree"):
        options(replace(DGX_H100, algorithm="tree"), "broadcast")
    for name in set(COLLECTIVES) - set(TABLED):  # of sends and receives, which NCCL does not estimate
        with pytest.raises(Unsupported, match=name):
            options(DGX_H100, name)


def test_latencies_over_nodes_are_those_of_steps_within_and_between() -> None:
    """Worked out by hand from NCCL's constants: posting to the network is the least that a step of a ring takes.

    On the cube, whose rings have different orders and cannot pipeline a broadcast, a step of every rank is counted.
    """
    two = DGX_H100.of(2)
    amd, power = replace(two, cpu="amd"), System("POWER", "sm70", 4, "pcie", 12e9, cpu="power")
    for system, algorithm, protocol, collective, expected in (
        (two, "ring", "ll", "allreduce", 6.6 + 28 * 1.0 + 2 * 2.7),
        (amd, "ring", "ll", "allreduce", 6.6 + 28 * 2.0 + 2 * 2.7),
        (amd, "ring", "simple", "allreduce", 8.4 + 28 * 6.0 + 2 * 14),
        (DGX_H100.of(16), "tree", "ll", "allreduce", 6.8 + 2 * (7 * 0.6 + 4 * 5.0)),
        (DGX_H100.of(5), "nvlstree", "simple", "allreduce", 25 + 2 * 2 * 20.9),
        (two, "ring", "simple", "broadcast", 8.4 + 14),
        (ALONE, "ring", "ll", "allreduce", 6.6 + 14 * 5.0),
        (ALONE, "pat", "simple", "allgather", 8 + 3 * 14 / 3.5 + 8 * 2.8),
        (power, "tree", "simple", "allreduce", 8.4 + 6 * 5.7),
        (CUBE, "ring", "simple", "broadcast", 8.4 + 8 * 4.0),
        (CUBE, "ring", "ll", "broadcast", 6.6 + 8 * 0.6),
    ):
        place = system.title, algorithm, protocol, collective
        assert named(system, collective)[algorithm, protocol].seconds(0) * 1e6 == pytest.approx(expected), place


def test_rates_over_nodes_are_those_of_the_slower_side() -> None:
    half, amd = replace(DGX_H100, nics=Nics(8, 25e9, "ib")), replace(DGX_H100, cpu="amd")
    for system, expected in (
        (half.of(2), 8 * 24 * 0.85 * 7 / 8 * 2),
        (half.of(4), 8 * 24),
        (DGX_H100.of(2), 8 * 57.7),
        (DGX_H100.of(4), 8 * 45.5),
    ):
        assert busbw(system, "nvlstree") == pytest.approx(expected), system.title
    assert busbw(ALONE.of(2), "tree") == pytest.approx(2 * 41.4 * 0.85)
    assert named(ALONE, "allgather")["pat", "simple"].rate == pytest.approx(0.75 * 48e9)
    for system, expected in ((DGX_H100.of(2), 39.0e9), (amd.of(2), 22.5e9), (amd.of(3), 19.0e9)):
        assert named(system)["ring", "ll"].busbw == pytest.approx(expected), system.title


def test_a_release_changes_what_its_notes_say_and_nothing_else() -> None:
    nvlstree, trees = ("nvlstree", "simple"), {("tree", "simple"), ("tree", "ll"), ("tree", "ll128")}
    for older, newer, system, collective, expected in (
        ("2.25", "2.26", DGX_B200.of(2), "allreduce", set()),
        ("2.27", "2.28", DGX_B200.of(2), "allreduce", {nvlstree, ("tree", "ll128"), ("tree", "simple")}),
        ("2.29", "2.30", DGX_H100.of(2), "allreduce", set()),
        ("2.29", "2.30", DGX_B200.of(4), "allreduce", {("ring", "ll128"), nvlstree}),
        ("2.30", "2.31", DGX_B200, "allreduce", set()),
        ("2.30", "2.31", DGX_B200, "allgather", {("ring", "simple"), ("nvls", "simple")}),
        ("2.30", "2.31", FOUR_CARDS.of(2), "allreduce", trees),
        ("2.30", "2.31", DGX_A100.of(4), "allreduce", set()),
    ):
        one, two = (named(replace(system, nccl=version), collective) for version in (older, newer))
        changed = {cell for cell in one.keys() | two.keys() if one.get(cell) != two.get(cell)}
        assert changed == expected, (older, newer, system.title, collective)


def test_a_version_between_two_kept_ones_is_the_older_of_them() -> None:
    assert release("2.22.3") is release("2.21")
    assert release("2.29.2") is release("2.29")
    assert release("2.18") is release("1.0") is not release("2.21")
    assert release("3.0") is release("2.31")
    with pytest.raises(UsageError, match=r"'new'.*2\.29"):
        release("new")
    assert release("2.29.9") is release("2.29.7") is not release("2.29")
    assert release("2.30.2") is release("2.30.0") is not release("2.30")
    for system, numbers in product(SYSTEMS, RELEASES):
        version = ".".join(map(str, numbers))
        assert select(replace(system, nccl=version), 2**20).rate > 0, (system.title, version)
