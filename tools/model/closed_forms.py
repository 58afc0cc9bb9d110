"""What textbook algorithms take: seconds, of counts of ranks, bytes, and Hockney's constants.

alpha: seconds of one message.  beta: seconds of one byte of one direction of a rank's link.  gamma: seconds to add one
byte.  Every function takes numbers or numpy arrays of bytes.  Sources: Thakur, Rabenseifner and Gropp 2005 for ring,
doubling, halving and binomial; Sanders, Speck and Traeff 2009 for the two trees; Li and others 2014 for the server.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = TypeVar("Bytes", float, NDArray[np.float64])


def _rounds(ranks: int) -> int:
    """Doublings until all are reached."""
    return math.ceil(math.log2(ranks))


def ring_allreduce(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Every chunk goes round once to be added up and once more to be told: the fewest bytes, the most messages."""
    share = (ranks - 1) / ranks
    return 2 * (ranks - 1) * alpha + 2 * share * nbytes * beta + share * nbytes * gamma


def ring_gather(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """All-gather of `nbytes` in all, or with gamma a reduce-scatter: half a ring's all-reduce."""
    return (ranks - 1) * alpha + (ranks - 1) / ranks * nbytes * (beta + gamma)


def recursive_doubling(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Whole arrays are exchanged with a partner twice as far each round; ranks above a power of two fold in and out."""
    whole = 1 << (ranks.bit_length() - 1)
    fold = 0.0 * nbytes if whole == ranks else 2 * (alpha + nbytes * beta) + nbytes * gamma
    return fold + _rounds(whole) * (alpha + nbytes * beta + nbytes * gamma)


def halving_doubling(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Rabenseifner's: halves, quarters, ... are added up, then gathered the same way back; others fold in and out."""
    whole = 1 << (ranks.bit_length() - 1)
    fold = 0.0 * nbytes if whole == ranks else 2 * (alpha + nbytes * beta) + nbytes * gamma
    share = (whole - 1) / whole
    return fold + 2 * _rounds(whole) * alpha + share * nbytes * (2 * beta + gamma)


def binomial_broadcast(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """All who have the array send it to one who has not; with gamma a reduction, the same way back."""
    return _rounds(ranks) * (alpha + nbytes * beta + nbytes * gamma)


def binomial_allreduce(ranks: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """A reduction to one rank, and a broadcast from it."""
    up = binomial_broadcast(ranks, nbytes, alpha, beta, gamma)
    return up + binomial_broadcast(ranks, nbytes, alpha, beta)


def best_chunks(hops: int, nbytes: float, alpha: float, beta: float) -> int:
    """Pieces to cut a message into that goes through `hops` links one after the other: d/dc of `pipelined` is 0."""
    if alpha <= 0 or hops < 2:
        return 1
    return max(1, round(math.sqrt((hops - 1) * nbytes * beta / alpha)))


def pipelined(hops: int, nbytes: float, alpha: float, beta: float, chunks: int = 0) -> float:
    """A message in equal chunks through `hops` links; 0 chunks: as many as are best.

    With the best number it is (sqrt((hops - 1) alpha) + sqrt(nbytes beta))^2: so a square root of the size comes in.
    """
    chunks = chunks or best_chunks(hops, nbytes, alpha, beta)
    return (hops + chunks - 1) * (alpha + nbytes * beta / chunks)


def chain_allreduce(ranks: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Added up along a line to its last rank, then told back along it, in chunks; both directions at work at once."""
    return pipelined(2 * (ranks - 1), nbytes, alpha, beta + gamma)


def double_tree_allreduce(ranks: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Two trees with half the array each; who is inside one is a leaf of the other, so that every link is used fully.

    Chunks go up and down 2 log n links; a rank takes two bytes in for every byte of the array.
    """
    return pipelined(2 * _rounds(ranks), nbytes, alpha, 2 * beta + gamma)


def parameter_server(workers: int, servers: int, nbytes: Bytes, alpha: float, beta: float, gamma: float = 0.0) -> Bytes:
    """Workers push to servers that hold a part each, and pull the sum: a server's link takes what all workers send."""
    port = nbytes * max(1.0, workers / servers)
    return 2 * (alpha + port * beta) + workers * nbytes / servers * gamma


def hierarchical(
    gpus: int, nodes: int, nbytes: Bytes, inside: tuple[float, float], between: tuple[float, float], gamma: float = 0.0
) -> Bytes:
    """Two dimensions: reduce-scatter in the node, a ring for each GPU's shard across nodes, all-gather in the node.

    `inside` and `between` are (alpha, beta); beta `between` is that of a GPU's own card.
    """
    scatter = ring_gather(gpus, nbytes, *inside, gamma)
    across = ring_allreduce(nodes, nbytes / gpus, *between, gamma)
    return scatter + across + ring_gather(gpus, nbytes, *inside)
