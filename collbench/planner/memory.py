"""Formulas of memory: the bytes that a GPU keeps for its share of the weights and for micro-batches in flight.

Every formula is a function whose parameters name other formulas and inputs (`step.evaluate` evaluates them).  Of the
GPU that needs most; arguments are numbers, or arrays with a number for every layout.
"""

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


def sharded_parameters(dense_parameters: V, end_parameters: V, shards: V) -> V:
    """Return the share of a GPU of what all replicas hold, if it is sharded."""
    return (dense_parameters + end_parameters) / shards


def sharded_experts(expert_parameters: V, shards: V, expert: V) -> V:
    """Return the share of a GPU of its experts, of which there are fewer replicas, if they are sharded."""
    return expert_parameters / maximum(1, shards / expert)


def whole(dense_parameters: V, end_parameters: V, expert_parameters: V) -> V:
    """Return the parameters of a GPU if nothing is sharded."""
    return dense_parameters + end_parameters + expert_parameters


def share(sharded_parameters: V, sharded_experts: V) -> V:
    """Return the parameters of a GPU if everything is sharded."""
    return sharded_parameters + sharded_experts


def weights(shard: V, share: V, whole: V) -> V:
    """Return the bytes of the weights of a GPU, 16 bits each.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3.
    """
    return 2 * where(shard >= 3, share, whole)


def gradients(gradient_bytes: V, shard: V, share: V, whole: V) -> V:
    """Return the bytes of the gradients of a GPU.  Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3."""
    return gradient_bytes * where(shard >= 2, share, whole)


def optimiser_states(state_bytes: V, shard: V, share: V, whole: V, offload: V) -> V:
    """Return the bytes of the optimiser's states on a GPU; 0 where the CPU's memory has them.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3.
    """
    return where(offload, 0, state_bytes * where(shard >= 1, share, whole))


def in_flight(micro_batches: V, pipeline: V, chunks: V) -> V:
    """Return the most micro-batches whose activations the first stage keeps; with chunks, parts of one more."""
    return minimum(micro_batches, pipeline + where(chunks > 1, (pipeline - 1) / chunks, 0))


def layer_whole(tokens: V, hidden: V, dropout: V, routed: V, spread: V) -> V:
    """Return the bytes of a layer's activations that tensor parallelism does not split.

    Norms, inputs of attention and feed-forward, marks of dropout, tokens sent to experts.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return tokens * hidden * (8 + 2 * dropout + 2 * routed) / spread


def layer_split(tokens: V, queries: V, keys: V, gated: V, width_worked: V, tensor: V) -> V:
    """Return the bytes of a layer's activations that tensor parallelism splits.

    Queries, keys, values, input of the projection, feed-forward around its activation.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return tokens * (4 * queries + 4 * keys + where(gated, 6, 4) * width_worked) / tensor


def layer_scores(tokens: V, sequence: V, heads: V, dropout: V, tensor: V, fused: V) -> V:
    """Return the bytes of a layer's attention scores: after softmax, and after dropout with its marks.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return where(fused, 0, tokens * sequence * heads * (2 + 3 * dropout) / tensor)


def layer_remade(tokens: V, hidden: V, width_worked: V, tensor: V, spread: V, fused: V, layer_scores: V) -> V:
    """Return the bytes that selective recomputation saves: scores, or where fused outputs of norms and activations."""
    return where(fused, tokens * (4 * hidden / spread + 2 * width_worked / tensor), layer_scores)


def layer_kept(
    full: V, selective: V, tokens: V, hidden: V, spread: V, layer_whole: V, layer_split: V, layer_scores: V,
    layer_remade: V,
) -> V:  # fmt: skip
    """Return the bytes of a layer's activations between its forward and its backward pass.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return where(
        full,
        2 * tokens * hidden / spread,
        layer_whole + layer_split + layer_scores - where(selective, layer_remade, 0),
    )


def activations(
    in_flight: V, own_layers: V, layer_kept: V, full: V, layer_whole: V, layer_split: V, layer_scores: V
) -> V:
    """Return the bytes of all micro-batches in flight, and of the layer that is computed once more.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return in_flight * own_layers * layer_kept + where(full, layer_whole + layer_split + layer_scores, 0)


def end_activations(
    tokens: V, hidden: V, vocabulary: V, tensor: V, spread: V, pipeline: V, dropout: V, in_flight: V
) -> V:
    """Return the bytes of activations outside the layers.

    Marks of the embedding's dropout; norm, output and scores where the stage is the last, too.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return tokens * (
        in_flight * dropout * hidden / spread + where(pipeline > 1, 0, 4 * hidden / spread + 4 * vocabulary / tensor)
    )


def buffers(
    shard: V, dense_parameters: V, expert_parameters: V, own_layers: V, gradient_bytes: V, tokens: V, hidden: V,
    pipeline: V, gpus: V, process: V,
) -> V:  # fmt: skip
    """Return the bytes of what is on its way to other GPUs.

    Gathered weights and gradients of two layers, buckets of gradients, what stages and NCCL exchange.
    """
    return (
        where(shard >= 3, (4 + gradient_bytes) * (dense_parameters + expert_parameters) / own_layers, 0)
        + where(pipeline > 1, 4 * tokens * hidden, 0)
        + where(gpus > 1, process, 0)
    )


def context_memory(process: V) -> V:
    """Return the bytes of the process itself: CUDA's context and libraries, about 1 GiB; MPI's on a CPU, less."""
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


PARTS = (
    "weights",
    "gradients",
    "optimiser_states",
    "activations",
    "end_activations",
    "buffers",
    "context_memory",
    "fragments",
)
"""What `needed` is the sum of."""


TERMS = (
    dense_parameters,
    expert_parameters,
    end_parameters,
    replicas,
    shards,
    sharded_parameters,
    sharded_experts,
    whole,
    share,
    weights,
    gradients,
    optimiser_states,
    in_flight,
    layer_whole,
    layer_split,
    layer_scores,
    layer_remade,
    layer_kept,
    activations,
    end_activations,
    buffers,
    context_memory,
    fragments,
    needed,
)
"""Formulas of this module, in an order in which they can be evaluated."""
