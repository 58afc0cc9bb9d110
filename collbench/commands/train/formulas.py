"""Formulas without curves: the seconds of computing, and the bytes that a GPU keeps.

Every formula is a function whose parameters name other formulas and inputs (`search.evaluate` evaluates them, in the
order of this file).  Arguments are numbers, or arrays with a number for every layout.

Seconds are of a layer on a GPU with a micro-batch, from its FLOPs and its bytes through memory.  Bytes are of the GPU
that needs most: its share of the weights, and micro-batches in flight.  Sources: weights, gradients and states by
Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), section 3; activations by Korthikanti et al. 2022 (arXiv:2205.05198),
section 4.
"""

from inspect import signature
from typing import Any

from numpy import ceil, maximum, minimum, where

V = Any  # a number, or an array of one for every layout


def tokens(micro: V, sequence: V, context: V) -> V:
    """Return the tokens of a micro-batch that a GPU holds."""
    return micro * sequence / context


def micro_batches(batch: V, data: V, micro: V) -> V:
    """Return how many micro-batches a step has (Narayanan et al. 2021, arXiv:2104.04473)."""
    return batch / (data * micro)


def own_layers(layers: V, pipeline: V, chunks: V) -> V:
    """Return the layers of the stage that has most."""
    return ceil(layers / (pipeline * chunks)) * chunks


def product_flops(tokens: V, worked: V, grouped_worked: V, tensor: V) -> V:
    """Return the FLOPs of the matrix products of a layer without its routed experts, forward: 2 a weight and token."""
    return 2 * tokens * (worked - grouped_worked) / tensor


def grouped_flops(tokens: V, grouped_worked: V, tensor: V) -> V:
    """Return the FLOPs of the routed experts of a layer, forward: 2 a weight and token."""
    return 2 * tokens * grouped_worked / tensor


def product_seconds(product_flops: V, product_rate: V) -> V:
    """Return the seconds of the matrix products of a layer without its routed experts, forward."""
    return product_flops / product_rate


def layer_experts(routed_parameters: V, tensor: V, expert: V) -> V:
    """Return the parameters of the routed experts of a layer that a GPU holds."""
    return routed_parameters / (tensor * expert)


def grouped_efficiency(tokens: V, top_k: V, experts: V, expert: V, width: V, narrow: V, few: V) -> V:
    """Return the share of the products' rate that those of routed experts reach.

    Half of it for experts as wide as `narrow`, and for `few` tokens to each, where reading their weights takes as long.
    Source: fitted, docs/training.md.
    """
    return 1 / ((1 + narrow / width) * (1 + few * experts / (tokens * expert * top_k)))


def grouped_seconds(grouped_flops: V, product_rate: V, grouped_efficiency: V) -> V:
    """Return the seconds of the routed experts of a layer, forward."""
    return grouped_flops / (product_rate * grouped_efficiency)


def grouped_backward(grouped_seconds: V, layer_experts: V, gradient_bytes: V, bandwidth: V) -> V:
    """Return the seconds of the routed experts of a layer, backward.

    As much again for what goes on to the layer before, and for gradients, which are read, added to and written.
    """
    return grouped_seconds + maximum(grouped_seconds, 2 * gradient_bytes * layer_experts / bandwidth)


def attention_flops(tokens: V, sequence: V, queries: V, tensor: V, fused: V) -> V:
    """Return the FLOPs of a layer's attention scores and of the mean of its values, forward.

    Two products with the earlier tokens; fused attention leaves out the later ones.
    """
    return 4 * tokens * sequence * queries / tensor * where(fused, 0.5, 1)


def attention_efficiency(fused: V, fused_efficiency: V, fused_half: V, sequence: V, unfused_efficiency: V) -> V:
    """Return the share of the products' rate that attention reaches.

    Fused attention reaches less of it on short samples.  Source: fitted, docs/training.md.
    """
    return where(fused, fused_efficiency / (1 + fused_half / sequence), unfused_efficiency)


def attention_seconds(attention_flops: V, attention_efficiency: V, product_rate_16: V) -> V:
    """Return the seconds of a layer's attention, forward; its products are on 16 bits."""
    return attention_flops / (attention_efficiency * product_rate_16)


def score_bytes(tokens: V, sequence: V, heads: V, tensor: V, fused: V) -> V:
    """Return the bytes that a layer's scores take through memory, forward.

    13 bytes a score: written, masked, dropped and read; none where attention is fused.
    """
    return where(fused, 0, 13 * tokens * sequence * heads / tensor)


def pointwise_bytes(
    tokens: V, hidden: V, width_worked: V, matrices: V, queries: V, keys: V, tensor: V, spread: V, element: V,
    context: V,
) -> V:  # fmt: skip
    """Return the bytes that all else of a layer takes through memory, forward.

    2 norms and 2 sums are 10 reads and writes; then the activation, and the positions of the heads.  Every step of a
    ring of context parallelism adds to what attention gave so far, on 32 bits.
    """
    ring = where(context > 1, 4 * context * queries, 0)
    return element * tokens * (10 * hidden / spread + (matrices * width_worked + 2 * (queries + keys) + ring) / tensor)


def sorted_bytes(tokens: V, hidden: V, routed: V, spread: V, element: V) -> V:
    """Return the bytes that sorting tokens by expert takes through memory in a layer, forward, and as many backward.

    Dispatch and combine, before and after each all-to-all: 6 reads and writes a copy.
    """
    return 6 * element * tokens * hidden * routed / spread


def launched(launches: V, calls: V, tensor: V) -> V:
    """Return the seconds in which the host launches the kernels of a layer and its collectives, forward."""
    return launches + where(tensor > 1, calls, 0)


def layer_forward(
    product_seconds: V, grouped_seconds: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, sorted_bytes: V,
    bandwidth: V, efficiency: V, launched: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer, forward; no less than the host takes to launch its kernels."""
    products = product_seconds + grouped_seconds + attention_seconds
    return maximum((products + (score_bytes + pointwise_bytes + sorted_bytes) / bandwidth) / efficiency, launched)


def layer_backward(
    product_seconds: V, grouped_backward: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, sorted_bytes: V,
    bandwidth: V, fused: V, efficiency: V, launched: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer, backward.

    Twice the products and the launches, sorting as often; fused attention computes its scores once more.
    """
    products = 2 * product_seconds + grouped_backward + where(fused, 2.5, 2) * attention_seconds
    moved = (2 * score_bytes + 2 * pointwise_bytes + sorted_bytes) / bandwidth
    return maximum((products + moved) / efficiency, 2 * launched)


def layer_again(
    full: V, selective: V, layer_forward: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, bandwidth: V,
    fused: V, efficiency: V,
) -> V:  # fmt: skip
    """Return the seconds of what a layer computes once more in its backward pass.

    All of it, or the scores, or where these are fused the norms and activations (Korthikanti et al. 2022,
    arXiv:2205.05198).
    """
    some = where(fused, pointwise_bytes / bandwidth / 2, attention_seconds + score_bytes / bandwidth)
    return where(full, layer_forward, selective * some / efficiency)


def head_seconds(
    tokens: V, hidden: V, vocabulary: V, tensor: V, product_rate_16: V, bandwidth: V, efficiency: V
) -> V:  # fmt: skip
    """Return the seconds of the last stage's output matrix and loss, forward and backward.

    6 FLOPs a word, element and token; the scores of the words go through memory ten times in 32 bits.
    """
    word = 6 * hidden / product_rate_16 + 40 / bandwidth
    return word * tokens * vocabulary / tensor / efficiency


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
    """Return the number of GPUs among which weights are sharded: all replicas, or the replicas within a node."""
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
"""The parts that `needed` adds up."""
