"""The topologies of several nodes as one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise

from collbench.topology.links import Kind, Link
from collbench.topology.topology import Topology


def join(nodes: Sequence[Topology], places: Sequence[int]) -> Topology:
    """All nodes' GPUs one after the other, a network between them; `places` is each rank's GPU in that order."""
    starts = [sum(len(each.gpus) for each in nodes[:index]) for index in range(len(nodes) + 1)]
    inside = (
        replace(link, a=start + link.a, b=start + link.b)
        for start, node in zip(starts, nodes, strict=False)
        for link in node.links
    )
    across = (
        Link(a, b, Kind.NETWORK, p2p="no", reason="they are on two nodes")
        for first, then in pairwise(starts)
        for a in range(first, then)
        for b in range(then, starts[-1])
    )
    gpus = tuple(chain.from_iterable(node.gpus for node in nodes))
    in_turn = all(place == rank % len(gpus) for rank, place in enumerate(places))
    return Topology(
        "gpu",
        len(places),
        gpus,
        links=(*inside, *across),
        driver=nodes[0].driver,
        places=() if in_turn else tuple(places),
    )
