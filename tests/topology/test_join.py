from dataclasses import replace

from collbench.topology.devices import Gpu, Kind, Link
from collbench.topology.topology import Topology, join


def node(host: str, gpus: int = 2) -> Topology:
    every = tuple(Gpu("NVIDIA H100", f"0000:0{i}:00.0", host=host) for i in range(gpus))
    links = (Link(0, 1, Kind.NVSWITCH, p2p="yes"),) if gpus == 2 else ()
    return Topology("gpu", gpus, every, links=links)


def test_one_node_stays_what_it_is():
    """In turn on its GPUs, as ranks of one process are."""
    assert join([node("a")], [0, 1, 0]) == replace(node("a"), ranks=3)


def test_between_nodes_there_is_a_network():
    """Pairs within a node keep their link, numbered on."""
    found = join([node("a"), node("b"), node("c", 1)], [0, 1, 2, 3, 4])
    kinds = {(link.a, link.b): link.kind for link in found.links}
    assert len(found.links) == len(kinds) == 10
    assert [pair for pair, kind in kinds.items() if kind == Kind.NVSWITCH] == [(0, 1), (2, 3)]
    assert set(kinds.values()) == {Kind.NVSWITCH, Kind.NETWORK}
    assert found.name == "5 x NVIDIA H100, NVSwitch + network, 3 nodes"


def test_ranks_that_share_gpus_node_by_node_keep_their_places():
    """Rank 1 is on the first node's GPU here, not on the second's."""
    found = join([node("a", 1), node("b", 1)], [0, 0, 1, 1])
    assert [found.place(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert found.link(0, 1).kind == Kind.SAME_GPU
    assert found.link(1, 2).kind == Kind.NETWORK
    assert Topology.from_json(found.to_json()) == found
