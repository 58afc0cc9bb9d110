"""Who sends to whom between nodes: ring, tree and all-to-all, in the order in which a job has its nodes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collbench.errors import UsageError
from collbench.model.network.max_min import Integers

Pairs = tuple[Integers, Integers]  # senders and receivers, as places 0 .. n-1 in the job's order


def ring(nodes: int, most: int) -> Pairs:
    """Each to the next, the last to the first."""
    place = np.arange(nodes)
    return place, (place + 1) % nodes


def tree(nodes: int, most: int) -> Pairs:
    """Two binary trees, up and down at once; whoever has children in one is a leaf of the other (with even `nodes`)."""
    child = np.arange(1, nodes)
    parent = (child - 1) // 2
    mirrored = nodes - 1 - child, nodes - 1 - parent
    return (
        np.concatenate([child, parent, mirrored[0], mirrored[1]]),
        np.concatenate([parent, child, mirrored[1], mirrored[0]]),
    )


def alltoall(nodes: int, most: int) -> Pairs:
    """Each to every other at once; where that is more than `most` pairs, to those at as many distances as fit."""
    kept = max(1, min(nodes - 1, most // nodes))
    distance = 1 + ((np.arange(kept) + 0.5) * (nodes - 1) / kept).astype(np.int64)
    place = np.arange(nodes)
    return np.tile(place, len(distance)), np.add.outer(distance, place).ravel() % nodes


class Pattern(NamedTuple):
    """Who sends to whom, given how many nodes there are and how many pairs may be followed at most."""

    pairs: Callable[[int, int], Pairs]
    count: Callable[[int], int]  # of all pairs
    even: bool = False  # whether the pairs of many nodes load equal paths evenly


PATTERNS = {
    "ring": Pattern(ring, lambda nodes: nodes),
    "tree": Pattern(tree, lambda nodes: 4 * (nodes - 1)),
    "alltoall": Pattern(alltoall, lambda nodes: nodes * (nodes - 1), even=True),
}


def on_nics(pairs: Pairs, order: Integers, nics: int) -> Pairs:
    """Pairs of NICs of one rail, numbered node * nics + NIC; `order` has the node at each place of the job."""
    sender, receiver = (np.add.outer(order[place] * nics, np.arange(nics)).ravel() for place in pairs)
    return sender, receiver


def around(pairs: Pairs, nics: int, dead: Integers) -> Pairs:
    """What a dead NIC would carry goes through the node's next one, and at the other end through the same rail.

    That is how NCCL stays on a rail: a GPU hands its data to another GPU of the node (PXN).  UsageError if a node has
    no NIC left that works at both ends.
    """
    if not len(dead):
        return pairs
    sender, receiver = pairs
    for _ in range(nics):
        hit = np.isin(sender, dead) | np.isin(receiver, dead)
        sender, receiver = (np.where(hit, nic // nics * nics + (nic + 1) % nics, nic) for nic in (sender, receiver))
    hit = np.isin(sender, dead) | np.isin(receiver, dead)
    if hit.any():
        node = int(dead[0]) // nics
        raise UsageError(f"node {node} is cut off: no NIC is left that works there and at its neighbour")
    return sender, receiver
