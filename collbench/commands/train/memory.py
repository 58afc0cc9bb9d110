"""Formulas of memory: the bytes that a GPU keeps for its share of the weights and for micro-batches in flight.

Every formula is a function whose parameters name other formulas and inputs (`search.evaluate` evaluates them, in the
order of this file).  Of the GPU that needs most; arguments are numbers, or arrays with a number for every layout.

Sources: weights, gradients and states by Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), section 3; activations of
layers by Korthikanti et al. 2022 (arXiv:2205.05198), section 4.
"""

from inspect import signature
from typing import Any

from numpy import maximum, minimum, where

V = Any  # a number, or an array of one for every layout


def dense_parameters(own_layers: V, layer_parameters: V, tensor: V) -> V:
    """Return the parameters of the stage's layers on a GPU, without routed experts."""
    return own_layers * layer_parameters / tensor


def expert_parameters(own_layers: V, routed_parameters: V, tensor: V, expert: V) -> V:
    """Return the parameters of the stage's routed experts on a GPU."""
    return own_layers * routed_parameters / (tensor * expert)


def end_parameters(pipeline: V, embedding: V, output: V, tensor: V) -> V:
    """Return the parameters of the embedding on a GPU, and of the output where one stage is first and last."""
    return where(pipeline > 1, maximum(embedding, output), embedding + output) / tensor


def replicas(data: V, context: V) -> V:
    """Return the number of GPUs that hold the same weights before any of them is sharded."""
    return data * context


def shards(hybrid: V, replicas: V, node_replicas: V) -> V:
    """Return the number of GPUs that share what is sharded: all replicas, or those of a node."""
    return where(hybrid, node_replicas, replicas)


def expert_shards(shards: V, expert: V) -> V:
    """Return the number of GPUs that share experts, of which there are fewer replicas, if they are sharded."""
    return maximum(1, shards / expert)


def whole(dense_parameters: V, end_parameters: V, expert_parameters: V) -> V:
    """Return the parameters of a GPU if nothing is sharded."""
    return dense_parameters + end_parameters + expert_parameters


def share(dense_parameters: V, end_parameters: V, expert_parameters: V, shards: V, expert_shards: V) -> V:
    """Return the parameters of a GPU if everything is sharded."""
    return (dense_parameters + end_parameters) / shards + expert_parameters / expert_shards


def weights(shard: V, share: V, whole: V, element: V) -> V:
    """Return the bytes of the weights of a GPU."""
    return element * where(shard >= 3, share, whole)  # ZeRO-3


def gradients(gradient_bytes: V, shard: V, share: V, whole: V) -> V:
    """Return the bytes of the gradients of a GPU."""
    return gradient_bytes * where(shard >= 2, share, whole)  # ZeRO-2


def optimiser_states(state_bytes: V, shard: V, share: V, whole: V, offload: V) -> V:
    """Return the bytes of the optimiser's states on a GPU; 0 where the CPU's memory has them."""
    return where(offload, 0, state_bytes * where(shard >= 1, share, whole))  # ZeRO-1


def in_flight(micro_batches: V, pipeline: V, chunks: V) -> V:
    """Return the most micro-batches whose activations the first stage keeps; with chunks, parts of one more."""
    return minimum(micro_batches, pipeline + where(chunks > 1, (pipeline - 1) / chunks, 0))


def layer_scores(tokens: V, sequence: V, heads: V, dropout: V, tensor: V, fused: V) -> V:
    """Return the bytes of a layer's attention scores: after softmax, and after dropout with its marks."""
    return where(fused, 0, tokens * sequence * heads * (2 + 3 * dropout) / tensor)


def layer_activations(
    tokens: V, hidden: V, dropout: V, routed: V, spread: V, queries: V, keys: V, gated: V, width_worked: V, tensor: V,
    layer_scores: V, activation_factor: V, element: V,
) -> V:  # fmt: skip
    """Return the bytes of all activations of a layer.

    Tensor parallelism splits queries, keys, values, the input of the projection, and the feed-forward part around its
    activation; it does not split norms, inputs of attention and feed-forward, marks of dropout, tokens sent to experts.
    """
    whole = tokens * hidden * (element * (4 + routed) + 2 * dropout) / spread
    split = element * tokens * (2 * queries + 2 * keys + where(gated, 3, 2) * width_worked) / tensor
    return activation_factor * (whole + split) + layer_scores


def layer_remade(
    tokens: V, hidden: V, width_worked: V, tensor: V, spread: V, fused: V, layer_scores: V, element: V
) -> V:
    """Return the bytes that selective recomputation saves: scores, or where fused outputs of norms and activations."""
    return where(fused, element * tokens * (2 * hidden / spread + width_worked / tensor), layer_scores)


def layer_kept(
    full: V, selective: V, tokens: V, hidden: V, spread: V, layer_activations: V, layer_remade: V, element: V
) -> V:  # fmt: skip
    """Return the bytes of a layer's activations between its forward and its backward pass."""
    return where(full, element * tokens * hidden / spread, layer_activations - where(selective, layer_remade, 0))


def activations(in_flight: V, own_layers: V, layer_kept: V, full: V, layer_activations: V) -> V:
    """Return the bytes of all micro-batches in flight, and of the layer that is computed once more."""
    return in_flight * own_layers * layer_kept + where(full, layer_activations, 0)


def end_activations(
    tokens: V, hidden: V, vocabulary: V, tensor: V, spread: V, pipeline: V, dropout: V, in_flight: V, element: V
) -> V:
    """Return the bytes of activations outside the layers.

    Marks of the embedding's dropout; norm, output and scores where the stage is the last, too.
    """
    last = where(pipeline > 1, 0, 2 * element * hidden / spread + 4 * vocabulary / tensor)
    return tokens * (in_flight * dropout * hidden / spread + last)


def buffers(
    shard: V, dense_parameters: V, expert_parameters: V, own_layers: V, gradient_bytes: V, tokens: V, hidden: V,
    pipeline: V, gpus: V, process: V, element: V,
) -> V:  # fmt: skip
    """Return the bytes of what is on its way to other GPUs.

    Gathered weights and gradients of two layers, buckets of gradients, what stages and NCCL exchange.
    """
    return (
        where(shard >= 3, (2 * element + gradient_bytes) * (dense_parameters + expert_parameters) / own_layers, 0)
        + where(pipeline > 1, 2 * element * tokens * hidden, 0)
        + where(gpus > 1, process, 0)
    )


def context_memory(process: V) -> V:
    """Return the bytes of the process itself: CUDA's context and libraries."""
    return process


def fragments(reserve: V, capacity: V) -> V:
    """Return the bytes held back for free pieces that are too small to use."""
    return reserve * capacity


def needed(
    weights: V, gradients: V, optimiser_states: V, activations: V, end_activations: V, buffers: V, context_memory: V,
    fragments: V,
) -> V:  # fmt: skip
    """Return the bytes of memory that a GPU needs."""
    return weights + gradients + optimiser_states + activations + end_activations + buffers + context_memory + fragments


PARTS = tuple(signature(needed).parameters)
"""What `needed` is the sum of."""
