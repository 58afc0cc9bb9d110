"""Systems: parts of them, rates between their GPUs, and machines that were discovered as systems."""

import math
from dataclasses import replace
from itertools import chain, combinations, combinations_with_replacement, permutations

import pytest

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.discover_gpu import discover
from collbench.topology.discovered import SLICE, Gpu, Link, LinkKind, NvLink, Pcie, Socket, Topology, join, named
from collbench.topology.products import pcie_rate, pcie_spec, socket_rate
from collbench.topology.system import CUBE, CUBE_RINGS, System, as_system

SYSTEMS = {name: files.load(name) for name in files.names()}


def links(system: System, gpu: int) -> int:
    return sum(system.nvlinks_between(gpu, other) for other in range(system.gpus))


def test_a_part_has_so_many_ranks_and_nothing_gained():
    for whole in (system.of(3) for system in SYSTEMS.values()):
        for ranks in (*range(1, whole.gpus + 1), 2 * whole.gpus, 3 * whole.gpus):
            part = whole.part(ranks)
            assert (part.ranks, part.nodes) == (ranks, max(1, ranks // whole.gpus)), part.title
            assert 0 < part.gpu_rate <= whole.gpu_rate, part.title
            assert part.spec_rate <= whole.spec_rate, part.title
            share = part.gpus * whole.nics.per_node / whole.gpus
            assert part.nics == replace(whole.nics, per_node=math.ceil(share)), part.title
            every = sorted(chain(*part.switches))
            assert every == (list(range(part.gpus)) if part.switches else []), part.title
            assert [part.socket(gpu) for gpu in range(part.gpus)] == [whole.socket(gpu) for gpu in range(part.gpus)]
            assert part.sockets == part.socket(part.gpus - 1) + 1, part.title
            again, once = part.part(min(2, ranks)), whole.part(min(2, ranks))
            assert part.fabric != whole.fabric or again.gpu_rate == pytest.approx(once.gpu_rate), part.title
        uneven = (ranks for ranks in (whole.gpus + 1, 3 * whole.gpus - 1) if ranks % whole.gpus)
        for ranks in (-1, 0, *uneven, 4 * whole.gpus):
            with pytest.raises(UsageError, match=f"has no part of {ranks} ranks"):
                whole.part(ranks)
        if whole.fabric in ("mesh", "hybrid-cube", "nvlink-pairs"):
            assert {links(whole, gpu) for gpu in range(whole.gpus)} == {whole.nvlinks}, whole.title
    alone = replace(SYSTEMS["dgx-h100"], nics=None)
    assert alone.of(1) == alone
    for nodes, message in ((2, "no network cards to join 2 nodes"), (0, "cannot have 0 nodes")):
        with pytest.raises(UsageError, match=message):
            alone.of(nodes)


def test_parts_of_each_fabric_keep_the_links_that_stay_inside():
    rack = SYSTEMS["gb200-nvl72"]
    assert rack.of(3).part(8) == replace(rack, gpus=8, nics=replace(rack.nics, per_node=8))
    assert rack.of(3).part(144) == rack.of(2)
    pair = SYSTEMS["h100-nvl"].part(2)
    assert (pair.nvlinks_between(0, 1), pair.gpu_rate, pair.sockets) == (12, SYSTEMS["h100-nvl"].gpu_rate, 1)
    quad = SYSTEMS["dgx-1v"].part(4)
    assert all(quad.nvlinks_between(a, b) for a, b in combinations(range(4), 2))
    assert quad.nvlinks == 4 == min(links(quad, gpu) for gpu in range(4))
    assert quad.gpu_rate == pytest.approx(80e9)
    assert quad.switches == ((0, 1), (2, 3))
    third = SYSTEMS["gh200-quad"].part(2)
    assert third.nvlinks == third.nvlinks_between(0, 1) == 6
    assert (third.gpu_rate, third.spec_rate) == pytest.approx((6 * 20.6e9, 150e9))


def test_where_no_ring_of_nvlinks_goes_through_all_pcie_is_left():
    for name in ("gh200-quad", "dgx-1v", "h100-nvl"):
        alone = SYSTEMS[name].part(1)
        assert (alone.fabric, alone.nvlinks, alone.gpu_rate) == ("pcie", 0, SYSTEMS[name].pcie_rate), name
    five = SYSTEMS["dgx-1v"].part(5)  # GPU 4 hangs on GPU 0 alone
    assert (five.fabric, five.nvlinks, five.gpu_rate) == ("pcie", 0, 12e9)


def test_the_rings_of_the_cube_are_as_many_as_fit():
    for size, rings in CUBE_RINGS.items():
        spare = {(a, b): CUBE[a].get(b, 0) for a, b in combinations(range(size), 2)}
        if size <= 2:
            assert rings == sum(spare.values())
            continue
        orders = [(0, *rest) for rest in permutations(range(1, size)) if rest[0] < rest[-1]]
        cycles = [[tuple(sorted((order[i - 1], order[i]))) for i in range(size)] for order in orders]
        cycles = [cycle for cycle in cycles if all(spare[pair] for pair in cycle)]
        sets = (list(chain(*chosen)) for n in range(1, 4) for chosen in combinations_with_replacement(cycles, n))
        fits = [len(used) // size for used in sets if all(used.count(pair) <= spare[pair] for pair in set(used))]
        assert rings == 2 * max(fits, default=0), size


def test_rates_of_a_whole_node_depend_on_what_its_gpus_meet_over():
    nvl, cube, quad, box = (SYSTEMS[name] for name in ("h100-nvl", "dgx-1v", "gh200-quad", "pcie4-4090"))
    assert (nvl.pace, nvl.meets_over_pcie, nvl.part(2).meets_over_pcie) == (nvl.pcie_rate, True, False)
    assert nvl.part(2).pace == nvl.gpu_rate
    assert nvl.promised == pcie_spec(nvl.pcie_generation, nvl.pcie_lanes)
    assert (cube.to_next, quad.to_next) == pytest.approx((120e9 / 6, 370.8e9 / 3))
    assert (box.to_next, box.promised, box.meets_over_pcie) == (24e9, box.spec_rate, True)
    assert (cube.sharing, box.sharing, cube.part(1).sharing) == (2, 1, 1)
    assert (pcie_rate(3), pcie_rate(5, 8), SYSTEMS["gb200-nvl72"].is_rack, cube.is_rack) == (12e9, 24e9, True, False)
    assert (socket_rate("intel", 4), socket_rate("intel", 5), socket_rate("amd", 5)) == (10e9, 22e9, 16e9)
    assert replace(box, pcie_generation=0).pcie_rate == pcie_rate(4), "a slot of the architecture's time"


def assumed(system):
    return "; ".join(system.guesses)


def machine(count, joined):
    """V100s with so many NVLinks between each two (None: hidden, 0: PCIe)."""
    links = []
    for a, b in combinations(range(count), 2):
        number = joined(a, b)
        if number == 0:
            links.append(Link(a, b, LinkKind.PCIE, "between NUMA nodes", pcie=Pcie(3, 16, 3, 16), p2p="yes"))
        else:
            links.append(Link(a, b, LinkKind.NVLINK, nvlink=NvLink(2, number), p2p="yes"))
    gpu = Gpu("Tesla V100-SXM2-16GB", capability="7.0", nvlink=NvLink(2, 6), pcie=Pcie(3, 16, 3, 16))
    return Topology("gpu", count, (gpu,) * count, links=tuple(links))


def test_a_discovered_dgx_h100_is_the_preset(dgx_h100):
    found, preset = as_system(discover(nvml=dgx_h100)), files.load("dgx-h100")
    for fact in ("gpus", "fabric", "nvlinks", "p2p", "multicast", "pcie_generation", "pcie_lanes", "per_socket"):
        assert getattr(found, fact) == getattr(preset, fact), fact
    assert (found.gpu_rate, found.spec_rate) == pytest.approx((preset.gpu_rate, preset.spec_rate))
    assert (found.nodes, found.nics, found.gpu) == (1, None, "NVIDIA H100 80GB HBM3")
    assert assumed(found) == "CPUs by Intel"
    dgx_h100.gpus[3] = replace(dgx_h100.gpus[3], links=dgx_h100.gpus[3].links[:9])
    assert as_system(discover(nvml=dgx_h100)).gpu_rate == pytest.approx(9 * 20.6e9), "the fewest links count"


def test_bridges_join_pairs_and_boxes_run_at_their_narrowest_slot(pairs, pcie_box):
    found = as_system(discover(nvml=pairs))
    assert (found.fabric, found.gpus, found.nvlinks, found.arch) == ("nvlink-pairs", 4, 4, "sm86")
    assert found.gpu_rate == pytest.approx(48e9), "12 GB/s a link, as NCCL takes it"
    assert found.spec_rate == pytest.approx(4 * 14.062e9), "as the driver says"
    assert (found.nvlinks_between(0, 1), found.nvlinks_between(1, 2)) == (4, 0)
    found = as_system(discover(nvml=pcie_box))
    assert (found.fabric, found.p2p, found.pcie_generation, found.pcie_lanes) == ("pcie", False, 4, 8)
    assert found.gpu_rate == pytest.approx(12e9)
    assert found.multicast is False


def test_the_fabric_is_recognised_by_how_many_links_lead_where(h200):
    one = as_system(discover(nvml=h200))
    assert (one.fabric, one.gpus, one.arch) == ("nvswitch", 1, "sm90")
    for size in (4, 8):
        found, part = as_system(machine(size, lambda a, b: CUBE[a].get(b, 0))), files.load("dgx-1v").part(size)
        assert (found.fabric, found.nvlinks) == (part.fabric, part.nvlinks), size
        assert (found.gpu_rate, found.spec_rate) == pytest.approx((part.gpu_rate, part.spec_rate)), size
    mesh = as_system(machine(4, lambda a, b: 2))
    assert (mesh.fabric, mesh.nvlinks, mesh.gpu_rate) == ("mesh", 6, pytest.approx(120e9))
    none, odd = (as_system(machine(4, lambda a, b, n=n: n * ((a, b) == (0, 3)))) for n in (0, 1))
    for found in (none, odd):
        assert (found.fabric, found.nvlinks, found.gpu_rate) == ("pcie", 0, pytest.approx(12e9))
    assert "in no known pattern" in assumed(odd)


def test_links_whose_ends_are_hidden_are_a_guess():
    for size, fabric in ((2, "nvlink-pairs"), (4, "mesh"), (8, "nvswitch")):
        found = as_system(machine(size, lambda a, b: None))
        assert (found.fabric, found.nvlinks) == (fabric, 6)
        assert "is hidden" in assumed(found)
    some = as_system(machine(4, lambda a, b: None if a == 0 else 0))
    assert (some.fabric, some.nvlinks) == ("pcie", 0)
    assert "only some GPUs are joined" in assumed(some)


def test_gpus_under_one_switch_are_grouped_and_only_consumer_cards_are_taken_to_refuse_peer_access():
    links = tuple(
        Link(a, b, LinkKind.PCIE, "through one PCIe switch" if a // 3 == b // 3 else "between NUMA nodes", p2p="yes")
        for a, b in combinations(range(6), 2)
    )
    gpus = tuple(Gpu("NVIDIA L40S", capability="8.9", numa=i // 3) for i in range(6))
    found = as_system(Topology("gpu", 6, gpus, links=links))
    assert found.switches == ((0, 1, 2), (3, 4, 5))
    assert (found.per_socket, found.sockets, found.p2p) == (3, 2, True)
    assert "PCIe 4 x16, as sm89 has" in assumed(found)
    for name, able in (("NVIDIA GeForce RTX 4090", False), ("NVIDIA L40S", True)):
        untried = Topology("gpu", 2, (Gpu(name, capability="8.9"),) * 2, links=(Link(0, 1, LinkKind.PCIE),))
        found = as_system(untried)
        assert found.p2p == able, name
        assert "since nobody has tried it" in assumed(found)


def test_a_name_tells_the_architecture_where_nothing_else_does():
    for name, arch in (
        ("Tesla P100-SXM2-16GB", "sm60"), ("Tesla V100-SXM2-16GB", "sm70"), ("Quadro RTX 5000", "sm75"),
        ("NVIDIA A100-SXM4-40GB", "sm80"), ("NVIDIA RTX A6000", "sm86"), ("A40", "sm86"), ("NVIDIA L40S", "sm89"),
        ("NVIDIA RTX 5880 Ada Generation", "sm89"), ("NVIDIA RTX 6000 Ada", "sm89"), ("NVIDIA GH200 480GB", "sm90"),
        ("NVIDIA GB200", "sm100"), ("NVIDIA GB300", "sm103"), ("NVIDIA GeForce RTX 5090", "sm120"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120"), ("NVIDIA GB10", "sm121"),
    ):  # fmt: skip
        found = as_system(Topology("gpu", 1, (Gpu(name),)))
        assert found.arch == arch, name
        assert f"{arch}, from the name {name}" in found.guesses


def test_what_no_system_describes_is_an_error_that_says_what_to_do():
    two = (Gpu("NVIDIA H100"),) * 2
    apart = [Topology("gpu", 1, (Gpu("NVIDIA H100", host=host),)) for host in "ab"]
    for topology, message in (
        (Topology("cpu", 2, sockets=(Socket("AMD EPYC"),)), "the model knows GPUs only"),
        (
            Topology("gpu", 4, (Gpu("NVIDIA H200", capability="9.0"),)),
            "4 ranks share 1 GPU. The model knows one rank per GPU, .*; give 1 rank, or name a system",
        ),
        (Topology("gpu", 1, (Gpu("H100 MIG 1g.10gb", uuid=f"{SLICE}0"),)), "MIG slices, .*; measure on whole GPUs"),
        (Topology("gpu", 2, (Gpu("H100"),) * 2, links=(Link(0, 1, LinkKind.SAME_GPU),)), "no system has MIG slices"),
        (Topology("gpu", 1, (Gpu("Voodoo 2"),)), "the architecture of Voodoo 2 is unknown"),
        (Topology("gpu", 1, (Gpu("Jetson", capability="8.7"),)), "Jetson is sm87, which no system may be"),
        (Topology("gpu", 2, (two[0], Gpu("NVIDIA A100")), links=(Link(0, 1, LinkKind.PCIE),)), "the GPUs differ"),
        (named(list(two), "NVML is away"), "links and slots of the GPUs are not known: NVML is away; write"),
        (Topology("gpu", 2, two), "what joins the GPUs is not known; write a system's file"),
        (join(apart, [0, 1]), "the network between the nodes is not discovered"),
    ):
        with pytest.raises(UsageError, match=message):
            as_system(topology)
