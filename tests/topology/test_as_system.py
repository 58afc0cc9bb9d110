"""Machines that were discovered, as systems."""

from dataclasses import replace
from itertools import combinations

import pytest

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.as_system import from_topology
from collbench.topology.devices import SLICE, Gpu, Kind, Link, NvLink, Pcie, Socket
from collbench.topology.discover_gpu import discover
from collbench.topology.system import CUBE
from collbench.topology.topology import Topology, join, named


def assumed(system):
    return "; ".join(system.guesses)


def machine(count, joined):
    """V100s with so many NVLinks between each two (None: hidden, 0: PCIe)."""
    links = []
    for a, b in combinations(range(count), 2):
        number = joined(a, b)
        if number == 0:
            links.append(Link(a, b, Kind.PCIE, "between NUMA nodes", pcie=Pcie(3, 16, 3, 16), p2p="yes"))
        else:
            links.append(Link(a, b, Kind.NVLINK, nvlink=NvLink(2, number), p2p="yes"))
    gpu = Gpu("Tesla V100-SXM2-16GB", capability="7.0", nvlink=NvLink(2, 6), pcie=Pcie(3, 16, 3, 16))
    return Topology("gpu", count, (gpu,) * count, links=tuple(links))


def test_a_discovered_dgx_h100_is_the_preset(dgx_h100):
    found, preset = from_topology(discover(nvml=dgx_h100)), files.load("dgx-h100")
    same = ("arch", "gpus", "fabric", "nvlinks", "p2p", "multicast", "pcie_generation", "pcie_lanes", "per_socket")
    for fact in same:
        assert getattr(found, fact) == getattr(preset, fact), fact
    assert (found.gpu_rate, found.spec_rate) == pytest.approx((preset.gpu_rate, preset.spec_rate))
    assert (found.nodes, found.nics, found.gpu) == (1, None, "NVIDIA H100 80GB HBM3")
    assert assumed(found) == "CPUs by Intel"
    dgx_h100.gpus[3] = replace(dgx_h100.gpus[3], links=dgx_h100.gpus[3].links[:9])
    assert from_topology(discover(nvml=dgx_h100)).gpu_rate == pytest.approx(9 * 20.6e9), "the fewest links count"


def test_bridges_join_pairs_and_boxes_run_at_their_narrowest_slot(pairs, pcie_box):
    found = from_topology(discover(nvml=pairs))
    assert (found.fabric, found.gpus, found.nvlinks, found.arch) == ("nvlink-pairs", 4, 4, "sm86")
    assert found.gpu_rate == pytest.approx(48e9), "12 GB/s a link, as NCCL takes it"
    assert found.spec_rate == pytest.approx(4 * 14.062e9), "as the driver says"
    assert (found.nvlinks_between(0, 1), found.nvlinks_between(1, 2)) == (4, 0)
    found = from_topology(discover(nvml=pcie_box))
    assert (found.fabric, found.p2p, found.pcie_generation, found.pcie_lanes) == ("pcie", False, 4, 8)
    assert found.gpu_rate == pytest.approx(12e9)
    assert found.multicast is False


def test_the_fabric_is_recognised_by_how_many_links_lead_where(h200):
    one = from_topology(discover(nvml=h200))
    assert (one.fabric, one.gpus, one.arch) == ("nvswitch", 1, "sm90")
    for size in (4, 8):
        found, part = from_topology(machine(size, lambda a, b: CUBE[a].get(b, 0))), files.load("dgx-1v").part(size)
        assert (found.fabric, found.nvlinks) == (part.fabric, part.nvlinks), size
        assert (found.gpu_rate, found.spec_rate) == pytest.approx((part.gpu_rate, part.spec_rate)), size
    mesh = from_topology(machine(4, lambda a, b: 2))
    assert (mesh.fabric, mesh.nvlinks, mesh.gpu_rate) == ("mesh", 6, pytest.approx(120e9))
    none, odd = (from_topology(machine(4, lambda a, b, n=n: n * ((a, b) == (0, 3)))) for n in (0, 1))
    for found in (none, odd):
        assert (found.fabric, found.nvlinks, found.gpu_rate) == ("pcie", 0, pytest.approx(12e9))
    assert "in no known pattern" in assumed(odd)


def test_links_whose_ends_are_hidden_are_a_guess():
    for size, fabric in ((2, "nvlink-pairs"), (4, "mesh"), (8, "nvswitch")):
        found = from_topology(machine(size, lambda a, b: None))
        assert (found.fabric, found.nvlinks) == (fabric, 6)
        assert "is hidden" in assumed(found)
    some = from_topology(machine(4, lambda a, b: None if a == 0 else 0))
    assert (some.fabric, some.nvlinks) == ("pcie", 0)
    assert "only some GPUs are joined" in assumed(some)


def test_gpus_under_one_switch_are_grouped_and_only_consumer_cards_are_taken_to_refuse_peer_access():
    links = tuple(
        Link(a, b, Kind.PCIE, "through one PCIe switch" if a // 2 == b // 2 else "between NUMA nodes", p2p="yes")
        for a, b in combinations(range(4), 2)
    )
    gpus = tuple(Gpu("NVIDIA L40S", capability="8.9", numa=i // 2) for i in range(4))
    found = from_topology(Topology("gpu", 4, gpus, links=links))
    assert found.switches == ((0, 1), (2, 3))
    assert (found.per_socket, found.sockets, found.p2p) == (2, 2, True)
    assert "PCIe 4 x16, as sm89 has" in assumed(found)
    for name, able in (("NVIDIA GeForce RTX 4090", False), ("NVIDIA L40S", True)):
        untried = Topology("gpu", 2, (Gpu(name, capability="8.9"),) * 2, links=(Link(0, 1, Kind.PCIE),))
        found = from_topology(untried)
        assert found.p2p == able, name
        assert "since nobody has tried it" in assumed(found)


def test_a_name_tells_the_architecture_where_nothing_else_does():
    names = {
        "sm60": ("Tesla P100-SXM2-16GB",), "sm70": ("Tesla V100-SXM2-16GB",), "sm80": ("NVIDIA A100-SXM4-40GB",),
        "sm75": ("Quadro RTX 5000", "NVIDIA GeForce RTX 2080 Ti", "Tesla T4"), "sm86": ("NVIDIA RTX A6000", "A40"),
        "sm89": ("NVIDIA GeForce RTX 4090", "NVIDIA L40S", "NVIDIA RTX 5880 Ada Generation", "NVIDIA RTX 6000 Ada"),
        "sm90": ("NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB", "NVIDIA H200"),
        "sm100": ("NVIDIA B200", "NVIDIA GB200"), "sm103": ("NVIDIA GB300",),
        "sm120": ("NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    }  # fmt: skip
    for arch, products in names.items():
        for name in products:
            found = from_topology(Topology("gpu", 1, (Gpu(name),)))
            assert found.arch == arch, name
            assert f"{arch}, from the name {name}" in found.guesses


def test_what_no_system_describes_is_an_error_that_says_what_to_do():
    two = (Gpu("NVIDIA H100"),) * 2
    apart = [Topology("gpu", 1, (Gpu("NVIDIA H100", host=host),)) for host in "ab"]
    for topology, message in (
        (Topology("cpu", 2, sockets=(Socket("AMD EPYC"),)), "the cpu platform has no GPUs to make a system of"),
        (Topology("gpu", 4, (Gpu("NVIDIA H200", capability="9.0"),)), "several ranks on one GPU; give at most 1"),
        (Topology("gpu", 1, (Gpu("H100 MIG 1g.10gb", uuid=f"{SLICE}0"),)), "MIG slices, .*; measure on whole GPUs"),
        (Topology("gpu", 2, (Gpu("H100"),) * 2, links=(Link(0, 1, Kind.SAME_GPU),)), "no system has MIG slices"),
        (Topology("gpu", 1, (Gpu("Voodoo 2"),)), "what Voodoo 2 is cannot be told"),
        (Topology("gpu", 1, (Gpu("Jetson", capability="8.7"),)), "Jetson is sm87, which no system may be"),
        (Topology("gpu", 2, (two[0], Gpu("NVIDIA A100")), links=(Link(0, 1, Kind.PCIE),)), "the GPUs differ"),
        (named(list(two), "NVML is away"), "links and slots of the GPUs are not known: NVML is away; write"),
        (Topology("gpu", 2, two), "what joins the GPUs is not known; write a system's file"),
        (join(apart, [0, 1]), "the network between the nodes is not discovered"),
    ):
        with pytest.raises(UsageError, match=message):
            from_topology(topology)
