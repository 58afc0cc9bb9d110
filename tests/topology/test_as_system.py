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


def machine(count, joined, name="Tesla V100-SXM2-16GB", capability="7.0", **facts):
    """GPUs with so many NVLinks between each two (None: hidden, 0: PCIe)."""
    links = []
    for a, b in combinations(range(count), 2):
        number = joined(a, b)
        if number == 0:
            links.append(Link(a, b, Kind.PCIE, "between NUMA nodes", pcie=Pcie(3, 16, 3, 16), p2p="yes"))
        else:
            links.append(Link(a, b, Kind.NVLINK, nvlink=NvLink(2, number), p2p="yes"))
    gpu = Gpu(name, capability=capability, nvlink=NvLink(2, 6), pcie=Pcie(3, 16, 3, 16))
    return Topology("gpu", count, (replace(gpu, **facts),) * count, links=tuple(links))


def test_a_dgx_h100_is_one(dgx_h100):
    """The machine that NVML shows is the preset, as far as NVML shows it."""
    found, preset = from_topology(discover(nvml=dgx_h100)), files.load("dgx-h100")
    for fact in (
        "arch",
        "gpus",
        "fabric",
        "nvlinks",
        "p2p",
        "multicast",
        "pcie_generation",
        "pcie_lanes",
        "per_socket",
    ):
        assert getattr(found, fact) == getattr(preset, fact), fact
    assert found.gpu_rate == pytest.approx(preset.gpu_rate)
    assert found.spec_rate == pytest.approx(preset.spec_rate)
    assert (found.nodes, found.nics) == (1, None)
    assert found.gpu == "NVIDIA H100 80GB HBM3"
    assert assumed(found) == "CPUs by Intel"


def test_a_link_that_is_down_counts(dgx_h100):
    """The GPU with the fewest sets the pace."""
    dgx_h100.gpus[3] = replace(dgx_h100.gpus[3], links=dgx_h100.gpus[3].links[:9])
    assert from_topology(discover(nvml=dgx_h100)).gpu_rate == pytest.approx(9 * 20.6e9)


def test_bridges_join_pairs(pairs):
    """At what NCCL takes for that architecture's links, 12 GB/s; the data sheet's is what the driver says."""
    found = from_topology(discover(nvml=pairs))
    assert (found.fabric, found.gpus, found.nvlinks, found.arch) == ("nvlink-pairs", 4, 4, "sm86")
    assert found.gpu_rate == pytest.approx(48e9)
    assert found.spec_rate == pytest.approx(4 * 14.062e9)
    assert found.nvlinks_between(0, 1) == 4
    assert found.nvlinks_between(1, 2) == 0


def test_a_box_without_peer_access_runs_at_its_narrowest_slot(pcie_box):
    """Eight lanes of generation 4."""
    found = from_topology(discover(nvml=pcie_box))
    assert (found.fabric, found.p2p, found.pcie_generation, found.pcie_lanes) == ("pcie", False, 4, 8)
    assert found.gpu_rate == pytest.approx(12e9)
    assert found.multicast is False


def test_one_gpu_of_a_switched_machine(h200):
    """There is nobody to talk to, but what it hangs on is known."""
    found = from_topology(discover(nvml=h200))
    assert (found.fabric, found.gpus, found.arch) == ("nvswitch", 1, "sm90")


@pytest.mark.parametrize("size", [4, 8])
def test_the_cube_is_recognised(size):
    """By how many links lead where; its quad is the part of the whole."""
    found = from_topology(machine(size, lambda a, b: CUBE[a].get(b, 0)))
    part = files.load("dgx-1v").part(size)
    assert (found.fabric, found.nvlinks, found.gpu_rate) == (part.fabric, part.nvlinks, pytest.approx(part.gpu_rate))
    assert found.spec_rate == pytest.approx(part.spec_rate)


def test_a_mesh_is_recognised():
    """Two links to each of three."""
    found = from_topology(machine(4, lambda a, b: 2))
    assert (found.fabric, found.nvlinks, found.gpu_rate) == ("mesh", 6, pytest.approx(120e9))


def test_links_in_no_pattern_are_not_counted_on():
    """NCCL finds no ring there; the guess is said."""
    found = from_topology(machine(4, lambda a, b: 1 if (a, b) == (0, 3) else 0))
    assert (found.fabric, found.gpu_rate) == ("pcie", pytest.approx(12e9))
    assert "in no known pattern" in assumed(found)


@pytest.mark.parametrize(("size", "fabric"), [(2, "nvlink-pairs"), (4, "mesh"), (8, "nvswitch")])
def test_links_whose_ends_are_hidden_are_a_guess(size, fabric):
    """As in virtual machines."""
    found = from_topology(machine(size, lambda a, b: None))
    assert (found.fabric, found.nvlinks) == (fabric, 6)
    assert "is hidden" in assumed(found)


def test_gpus_under_one_switch_are_grouped():
    """From the paths between them."""
    links = tuple(
        Link(a, b, Kind.PCIE, "through one PCIe switch" if a // 2 == b // 2 else "between NUMA nodes", p2p="yes")
        for a, b in combinations(range(4), 2)
    )
    gpus = tuple(Gpu("NVIDIA L40S", capability="8.9", numa=i // 2) for i in range(4))
    found = from_topology(Topology("gpu", 4, gpus, links=links))
    assert found.switches == ((0, 1), (2, 3))
    assert (found.per_socket, found.sockets, found.p2p) == (2, 2, True)
    assert "PCIe 4 x16, as sm89 has" in assumed(found)


@pytest.mark.parametrize(("name", "able"), [("NVIDIA GeForce RTX 4090", False), ("NVIDIA L40S", True)])
def test_peer_access_that_nobody_tried_is_a_guess(name, able):
    """Consumer cards refuse it."""
    link = Link(0, 1, Kind.PCIE)
    found = from_topology(Topology("gpu", 2, (Gpu(name, capability="8.9"),) * 2, links=(link,)))
    assert found.p2p == able
    assert "since nobody has tried it" in assumed(found)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("NVIDIA H100 80GB HBM3", "sm90"),
        ("NVIDIA GH200 480GB", "sm90"),
        ("NVIDIA H200", "sm90"),
        ("NVIDIA A100-SXM4-40GB", "sm80"),
        ("NVIDIA B200", "sm100"),
        ("NVIDIA GB200", "sm100"),
        ("NVIDIA GB300", "sm103"),
        ("NVIDIA GeForce RTX 5090", "sm120"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120"),
        ("NVIDIA GeForce RTX 4090", "sm89"),
        ("NVIDIA L40S", "sm89"),
        ("NVIDIA RTX 5880 Ada Generation", "sm89"),
        ("NVIDIA RTX 5000 Ada Generation", "sm89"),
        ("Quadro RTX 5000", "sm75"),
        ("NVIDIA RTX 6000 Ada Generation", "sm89"),
        ("NVIDIA RTX A6000", "sm86"),
        ("NVIDIA A40", "sm86"),
        ("NVIDIA GeForce RTX 2080 Ti", "sm75"),
        ("Tesla T4", "sm75"),
        ("Tesla V100-SXM2-16GB", "sm70"),
        ("Tesla P100-SXM2-16GB", "sm60"),
    ],
)
def test_a_name_tells_the_architecture_where_nothing_else_does(name, arch):
    """And it is said that it was the name."""
    found = from_topology(Topology("gpu", 1, (Gpu(name),)))
    assert found.arch == arch
    assert f"{arch}, from the name {name}" in found.guesses


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (Topology("cpu", 2, sockets=(Socket("AMD EPYC"),)), "the cpu platform has no GPUs to make a system of"),
        (Topology("gpu", 4, (Gpu("NVIDIA H200", capability="9.0"),)), "several ranks on one GPU; give at most 1"),
        (Topology("gpu", 1, (Gpu("H100 MIG 1g.10gb", uuid=f"{SLICE}0"),)), "MIG slices, .*; measure on whole GPUs"),
        (Topology("gpu", 2, (Gpu("H100"),) * 2, links=(Link(0, 1, Kind.SAME_GPU),)), "no system has MIG slices"),
        (Topology("gpu", 1, (Gpu("Voodoo 2"),)), "what Voodoo 2 is cannot be told"),
        (Topology("gpu", 1, (Gpu("Jetson", capability="8.7"),)), "Jetson is sm87, which no system may be"),
        (
            Topology("gpu", 2, (Gpu("NVIDIA H100"), Gpu("NVIDIA A100")), links=(Link(0, 1, Kind.PCIE),)),
            "the GPUs differ",
        ),
        (
            named([Gpu("NVIDIA H100")] * 2, "NVML is away"),
            "links and slots of the GPUs are not known: NVML is away; write",
        ),
        (Topology("gpu", 2, (Gpu("NVIDIA H100"),) * 2), "what joins the GPUs is not known; write a system's file"),
        (
            join([Topology("gpu", 1, (Gpu("NVIDIA H100", host=host),)) for host in "ab"], [0, 1]),
            "the network between the nodes is not discovered",
        ),
    ],
)
def test_what_no_system_describes_is_an_error(topology, message):
    """With what to do instead."""
    with pytest.raises(UsageError, match=message):
        from_topology(topology)
