"""Topologies of ranks: rates of links, names, what a run file keeps, probes, and nodes that are joined."""

import json
from dataclasses import replace

import pytest

from collbench.runfile.schema import TopologyPart
from collbench.topology import discovered
from collbench.topology.discovered import Gpu, Host, Link, LinkKind, NvLink, Pcie, Socket, Topology, join
from collbench.topology.products import pcie_spec

PCIE, FABRIC = Pcie(1, 16, 5, 16), discovered.FabricInfo("completed", "00", 1)
H100 = Gpu("NVIDIA H100 80GB HBM3", "0000:0a:00.0", pcie=PCIE, nvlink=NvLink(4, 18, 26.562e9), fabric=FABRIC)
SWITCHED = Link(0, 1, LinkKind.NVSWITCH, nvlink=NvLink(4, 18), reason="the driver claims it")
DRIVER = discovered.DriverInfo("570.86.15", "12.8")
TWO_GPUS = Topology("gpu", 2, gpus=(H100, H100), links=(SWITCHED,), driver=DRIVER)
CACHE, NODE = discovered.Cache("L2", 2**20, 2, 1), discovered.NumaNode(0, (0, 1), 2**30)
HOST = Host((0, 1), 1.5, (CACHE,), (NODE,), 2**30, 2**26)
ONE_SOCKET = Topology("cpu", 2, sockets=(Socket("AMD EPYC", 2, 2),), host=HOST)


def test_links_carry_the_data_sheets_rate_unless_they_are_slower():
    rates = {
        NvLink(4, 18): 450e9,
        NvLink(4, 18, line_rate=26.562e9): 450e9,  # the surplus is encoding
        NvLink(3, 4, line_rate=14.0625e9): 56.25e9,  # RTX A6000
        **dict.fromkeys((NvLink(4), NvLink(count=2), NvLink(99, 2), Pcie())),
    }
    for link, rate in rates.items():
        assert link.rate == rate, link
    assert Pcie(1, 16, 5, 16).rate == pytest.approx(63.0e9, rel=1e-3), "an idle GPU drops to generation 1"
    sheets = {1: 4e9, 2: 8e9, 3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
    assert {generation: pcie_spec(generation, 16) for generation in sheets} == pytest.approx(sheets, rel=1e-3)
    half, full = Pcie(4, 8, 4, 16), Pcie(4, 16, 4, 16)
    assert (half.narrow, full.narrow, half.rate) == (True, False, full.rate / 2)
    links = (SWITCHED, Link(0, 1, LinkKind.PCIE, pcie=full), Link(0, 1, LinkKind.SHARED_MEMORY))
    assert [link.rate for link in links] == [450e9, full.rate, None]


def test_a_run_file_brings_back_the_topology():
    for topology in (TWO_GPUS, ONE_SOCKET):
        record = topology.to_json()
        assert json.loads(json.dumps(record)) == record
        assert Topology.from_json(record) == topology
    newer = TWO_GPUS.to_json() | {"nodes": 2}
    newer["gpus"][0]["colour"] = "green"
    assert Topology.from_json(newer) == TWO_GPUS
    shared = replace(TWO_GPUS, ranks=4).to_json()
    assert (shared["name"], shared["shared"]) == ("4 ranks sharing 2 x NVIDIA H100 80GB HBM3, NVSwitch", True)
    with pytest.raises(ValueError, match="field 'sockets': expected array, got int"):
        Topology.from_json({"platform": "cpu", "ranks": 2, "sockets": 3})


def test_of_several_nodes_with_cpus_the_first_is_described():
    two = Topology("cpu", 4, sockets=(Socket("Intel Xeon", cores=2),))
    names = [TopologyPart.of(two, nodes).name for nodes in (1, 2)]
    assert names == [two.name, "4 ranks on 2 nodes, the first with 1 x Intel Xeon, 2 cores"]


def test_the_name_counts_ranks_devices_and_what_joins_them():
    names = {
        TWO_GPUS: "2 x NVIDIA H100 80GB HBM3, NVSwitch",
        Topology("gpu", 4, gpus=(Gpu("NVIDIA H200"),)): "4 ranks sharing 1 x NVIDIA H200",
        Topology("gpu", 1, gpus=(Gpu("NVIDIA H200"),)): "1 x NVIDIA H200",
        ONE_SOCKET: "2 ranks on 1 x AMD EPYC, 2 cores",
        Topology("cpu", 1, sockets=(Socket("arm64", threads=8),)): "1 rank on 1 x arm64, 8 CPUs",
    }
    for topology, name in names.items():
        assert topology.name == name


def test_peer_access_needs_a_probe_that_worked_in_both_directions():
    worked, failed = (True, "loads and copies"), (False, "read back zeros")
    for there, back, verdict in (
        (worked, worked, ("yes", "loads and copies")),
        (worked, failed, ("no", "read back zeros")),
        (failed, worked, ("no", "read back zeros")),
    ):
        (link,) = TWO_GPUS.probed({(0, 1): there, (1, 0): back}).links
        assert (link.p2p, link.reason) == verdict
    (link,) = TWO_GPUS.probed({}, otherwise="needs CuPy").links
    assert (link.p2p, link.reason) == ("unprobed", "needs CuPy")
    refused = replace(TWO_GPUS, links=(replace(TWO_GPUS.links[0], p2p="no", reason="the driver says: no"),))
    assert refused.probed({}, otherwise="needs CuPy") == refused


def node(host: str, gpus: int = 2) -> Topology:
    every = tuple(Gpu("NVIDIA H100", f"0000:0{i}:00.0", host=host) for i in range(gpus))
    links = (Link(0, 1, LinkKind.NVSWITCH, p2p="yes"),) if gpus == 2 else ()
    return Topology("gpu", gpus, every, links=links)


def test_joined_nodes_keep_their_links_and_have_a_network_between_them():
    assert join([node("a")], [0, 1, 0]) == replace(node("a"), ranks=3)
    found = join([node("a"), node("b"), node("c", 1)], [0, 1, 2, 3, 4])
    kinds = {(link.a, link.b): link.kind for link in found.links}
    assert len(found.links) == len(kinds) == 10
    assert [pair for pair, kind in kinds.items() if kind == LinkKind.NVSWITCH] == [(0, 1), (2, 3)]
    assert set(kinds.values()) == {LinkKind.NVSWITCH, LinkKind.NETWORK}
    assert found.name == "5 x NVIDIA H100, NVSwitch + network, 3 nodes"


def test_ranks_that_share_gpus_node_by_node_keep_their_places():
    topology = replace(TWO_GPUS, ranks=4)
    assert (topology.link(0, 2).kind, topology.link(2, 1)) == (LinkKind.SAME_GPU, TWO_GPUS.links[0]), "in turn"
    assert ONE_SOCKET.link(0, 1).kind == LinkKind.SHARED_MEMORY
    found = join([node("a", 1), node("b", 1)], [0, 0, 1, 1])
    assert [found.place(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert found.link(0, 1).kind == LinkKind.SAME_GPU
    assert found.link(1, 2).kind == LinkKind.NETWORK
    assert Topology.from_json(found.to_json()) == found
