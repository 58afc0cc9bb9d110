"""Times of textbook algorithms in seconds, as functions of ranks, bytes, and Hockney's constants.

alpha: seconds of one message.  beta: seconds of one byte in one direction of a rank's link.  gamma: seconds to add one
byte.  Every function takes numbers or numpy arrays of bytes.  Sources: Thakur, Rabenseifner and Gropp 2005 for ring,
doubling, halving and binomial; Sanders, Speck and Traeff 2009 for the two trees; Li and others 2014 for the server.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = TypeVar("Bytes", float, NDArray[np.float64])


def _rounds(ranks: int) -> int:
    """Return the number of doublings until all ranks are reached."""
    return math.ceil(math.log2(ranks))


def ring_allreduce(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of a ring: the fewest bytes and the most messages."""
    share = (ranks - 1) / ranks
    return 2 * (ranks - 1) * alpha + 2 * share * nbytes * beta + share * nbytes * gamma


def ring_gather(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of a ring's all-gather of `nbytes` in all, or with gamma of a reduce-scatter."""
    return (ranks - 1) * alpha + (ranks - 1) / ranks * nbytes * (beta + gamma)


def recursive_doubling(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of recursive doubling: exchanges of whole arrays; ranks above a power of two fold in and out."""
    whole = 1 << (ranks.bit_length() - 1)
    fold = 0.0 * nbytes if whole == ranks else 2 * (alpha + nbytes * beta) + nbytes * gamma
    return fold + _rounds(whole) * (alpha + nbytes * beta + nbytes * gamma)


def halving_doubling(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of Rabenseifner's algorithm: a reduce-scatter by halving and an all-gather by doubling."""
    whole = 1 << (ranks.bit_length() - 1)
    fold = 0.0 * nbytes if whole == ranks else 2 * (alpha + nbytes * beta) + nbytes * gamma
    share = (whole - 1) / whole
    return fold + 2 * _rounds(whole) * alpha + share * nbytes * (2 * beta + gamma)


def binomial_broadcast(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    return _rounds(ranks) * (alpha + nbytes * beta + nbytes * gamma)


def binomial_allreduce(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of a reduction to one rank and a broadcast from it."""
    up = binomial_broadcast(ranks, nbytes, alpha, beta, gamma)
    return up + binomial_broadcast(ranks, nbytes, alpha, beta)


def best_chunks(hops: int, nbytes: float, alpha: float, beta: float) -> int:
    """Return the best number of chunks for `hops` consecutive links, where the derivative of `pipelined` is 0."""
    if alpha <= 0 or hops < 2:
        return 1
    return max(1, round(math.sqrt((hops - 1) * nbytes * beta / alpha)))


def pipelined(hops: int, nbytes: float, alpha: float, beta: float, chunks: int = 0) -> float:
    """Return the time of a message in equal chunks through `hops` links; 0 chunks stands for the best number.

    With the best number it is (sqrt((hops - 1) alpha) + sqrt(nbytes beta))^2, which contains the root of the size.
    """
    chunks = chunks or best_chunks(hops, nbytes, alpha, beta)
    return (hops + chunks - 1) * (alpha + nbytes * beta / chunks)


def chain_allreduce(ranks: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Return the time of a chain: a pipelined sum along a line, and a broadcast back, both directions at once."""
    return pipelined(2 * (ranks - 1), nbytes, alpha, beta + gamma)


def double_tree_allreduce(ranks: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Return the time of two trees with half the array each; an inner node of one is a leaf of the other.

    Chunks pass 2 log n links up and down, and a rank receives two bytes for every byte of the array.
    """
    return pipelined(2 * _rounds(ranks), nbytes, alpha, 2 * beta + gamma)


def parameter_server(workers: int, servers: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Return the time of servers that hold a part each: workers push to them and pull the sum."""
    port = nbytes * max(1.0, workers / servers)
    return 2 * (alpha + port * beta) + workers * nbytes / servers * gamma


def hierarchical(
    gpus: int, nodes: int, nbytes: Bytes, inside: tuple[float, float], between: tuple[float, float], gamma: float = 0.0
) -> Bytes:
    """Return the time of two dimensions: reduce-scatter in a node, a ring of each shard, all-gather in a node.

    `inside` and `between` are (alpha, beta); beta `between` is that of a GPU's own card.
    """
    scatter = ring_gather(gpus, nbytes, *inside, gamma)
    across = ring_allreduce(nodes, nbytes / gpus, *between, gamma)
    return scatter + across + ring_gather(gpus, nbytes, *inside)
