"""Formulas of a GPU's computing time and memory.

Every formula is a function; its parameters name other formulas or inputs.  `search.evaluate` evaluates them in the
order of this file.  Arguments are numbers, or arrays with a number per layout.

Seconds are for one layer and micro-batch on a GPU, from its FLOPs and its memory traffic.  Bytes are for the GPU with
the largest need: its share of the weights, and micro-batches in flight.  Sources: weights, gradients and states,
Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), section 3; activations, Korthikanti et al. 2022 (arXiv:2205.05198),
section 4.
"""

from inspect import signature
from typing import Any

from numpy import ceil, maximum, minimum, where

V = Any  # a number, or an array with a number per layout


def tokens(micro: V, sequence: V, context: V) -> V:
    """Return the tokens of a micro-batch on a GPU."""
    return micro * sequence / context


def micro_batches(batch: V, data: V, micro: V) -> V:
    """Return the micro-batches of a step (Narayanan et al. 2021, arXiv:2104.04473)."""
    return batch / (data * micro)


def own_layers(layers: V, pipeline: V, chunks: V) -> V:
    """Return the layers of the fullest stage."""
    return ceil(layers / (pipeline * chunks)) * chunks


def product_flops(tokens: V, worked: V, grouped_worked: V, tensor: V) -> V:
    """Return the forward FLOPs of a layer's matrix products without routed experts: 2 per weight and token."""
    return 2 * tokens * (worked - grouped_worked) / tensor


def grouped_flops(tokens: V, grouped_worked: V, tensor: V) -> V:
    """Return the forward FLOPs of a layer's routed experts: 2 per weight and token."""
    return 2 * tokens * grouped_worked / tensor


def product_seconds(product_flops: V, product_rate: V) -> V:
    """Return the forward seconds of a layer's matrix products without routed experts."""
    return product_flops / product_rate


def layer_experts(routed_parameters: V, tensor: V, expert: V) -> V:
    """Return the parameters of a layer's routed experts on a GPU."""
    return routed_parameters / (tensor * expert)


def grouped_efficiency(tokens: V, top_k: V, experts: V, expert: V, width: V, narrow: V, few: V) -> V:
    """Return the rate of routed experts' products as a share of that of other products.

    It is halved for experts of width `narrow`, and for `few` tokens per expert, where reading weights takes as long.
    Source: fitted, docs/training.md.
    """
    return 1 / ((1 + narrow / width) * (1 + few * experts / (tokens * expert * top_k)))


def grouped_seconds(grouped_flops: V, product_rate: V, grouped_efficiency: V) -> V:
    """Return the forward seconds of a layer's routed experts."""
    return grouped_flops / (product_rate * grouped_efficiency)


def grouped_backward(grouped_seconds: V, layer_experts: V, gradient_bytes: V, bandwidth: V) -> V:
    """Return the backward seconds of a layer's routed experts.

    Input gradients take as long as the forward pass, and weight gradients at least as long as their memory traffic.
    """
    return grouped_seconds + maximum(grouped_seconds, 2 * gradient_bytes * layer_experts / bandwidth)


def attention_flops(tokens: V, sequence: V, queries: V, tensor: V, fused: V) -> V:
    """Return the forward FLOPs of a layer's attention scores and weighted values.

    Only fused attention skips the masked half.
    """
    return 4 * tokens * sequence * queries / tensor * where(fused, 0.5, 1)


def attention_efficiency(fused: V, fused_efficiency: V, fused_half: V, sequence: V, unfused_efficiency: V) -> V:
    """Return the rate of attention as a share of that of other products.

    Fused attention is slower on short samples.  Source: fitted, docs/training.md.
    """
    return where(fused, fused_efficiency / (1 + fused_half / sequence), unfused_efficiency)


def attention_seconds(attention_flops: V, attention_efficiency: V, product_rate_16: V) -> V:
    """Return the forward seconds of a layer's attention, with 16-bit products."""
    return attention_flops / (attention_efficiency * product_rate_16)


def score_bytes(tokens: V, sequence: V, heads: V, tensor: V, fused: V) -> V:
    """Return the forward memory traffic of a layer's scores in bytes.

    13 bytes per score for writing, masking, dropout and reading; none if attention is fused.
    """
    return where(fused, 0, 13 * tokens * sequence * heads / tensor)


def pointwise_bytes(
    tokens: V, hidden: V, width_worked: V, matrices: V, queries: V, keys: V, tensor: V, spread: V, element: V,
    context: V,
) -> V:  # fmt: skip
    """Return the forward memory traffic of the rest of a layer in bytes.

    2 norms and 2 sums are 10 reads and writes; then the activation, and the positions of the heads.  Every step of a
    context-parallel ring adds to the 32-bit output of attention.
    """
    ring = where(context > 1, 4 * context * queries, 0)
    return element * tokens * (10 * hidden / spread + (matrices * width_worked + 2 * (queries + keys) + ring) / tensor)


def sorted_bytes(tokens: V, hidden: V, routed: V, spread: V, element: V) -> V:
    """Return the memory traffic of sorting a layer's tokens by expert in bytes, in each direction.

    Dispatch and combine, before and after each all-to-all: 6 reads and writes per copy.
    """
    return 6 * element * tokens * hidden * routed / spread


def launched(launches: V, calls: V, tensor: V) -> V:
    """Return the host's seconds for the forward launches of a layer's kernels and collectives."""
    return launches + where(tensor > 1, calls, 0)


def layer_forward(
    product_seconds: V, grouped_seconds: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, sorted_bytes: V,
    bandwidth: V, efficiency: V, launched: V,
) -> V:  # fmt: skip
    """Return the forward seconds of a layer, at least those of the host's launches."""
    products = product_seconds + grouped_seconds + attention_seconds
    return maximum((products + (score_bytes + pointwise_bytes + sorted_bytes) / bandwidth) / efficiency, launched)


def layer_backward(
    product_seconds: V, grouped_backward: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, sorted_bytes: V,
    bandwidth: V, fused: V, efficiency: V, launched: V,
) -> V:  # fmt: skip
    """Return the backward seconds of a layer.

    Twice the products and launches, and sorting once; fused attention recomputes its scores.
    """
    products = 2 * product_seconds + grouped_backward + where(fused, 2.5, 2) * attention_seconds
    moved = (2 * score_bytes + 2 * pointwise_bytes + sorted_bytes) / bandwidth
    return maximum((products + moved) / efficiency, 2 * launched)


def layer_again(
    full: V, selective: V, layer_forward: V, attention_seconds: V, score_bytes: V, pointwise_bytes: V, bandwidth: V,
    fused: V, efficiency: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer's recomputation in the backward pass.

    Full recomputation repeats the layer; selective repeats the scores, or with fused attention the norms and
    activations (Korthikanti et al. 2022, arXiv:2205.05198).
    """
    some = where(fused, pointwise_bytes / bandwidth / 2, attention_seconds + score_bytes / bandwidth)
    return where(full, layer_forward, selective * some / efficiency)


def head_seconds(
    tokens: V, hidden: V, vocabulary: V, tensor: V, product_rate_16: V, bandwidth: V, efficiency: V
) -> V:  # fmt: skip
    """Return the seconds of the last stage's output matrix and loss, forward and backward.

    6 FLOPs per word, element and token; the 32-bit logits pass through memory ten times.
    """
    word = 6 * hidden / product_rate_16 + 40 / bandwidth
    return word * tokens * vocabulary / tensor / efficiency


def dense_parameters(own_layers: V, layer_parameters: V, tensor: V) -> V:
    """Return the parameters of the stage's layers on a GPU, without routed experts."""
    return own_layers * layer_parameters / tensor


def expert_parameters(own_layers: V, layer_experts: V) -> V:
    """Return the parameters of the stage's routed experts on a GPU."""
    return own_layers * layer_experts


def end_parameters(pipeline: V, embedding: V, output: V, tensor: V) -> V:
    """Return the parameters of embedding and output on a GPU: the larger one, or both if there is one stage."""
    return where(pipeline > 1, maximum(embedding, output), embedding + output) / tensor


def shards(hybrid: V, replicas: V, node_replicas: V) -> V:
    """Return the number of GPUs that share weights: all replicas, or the replicas within a node."""
    return where(hybrid, node_replicas, replicas)


def expert_shards(shards: V, expert: V) -> V:
    """Return the number of GPUs that share the weights of experts, which have fewer replicas."""
    return maximum(1, shards / expert)


def whole(dense_parameters: V, end_parameters: V, expert_parameters: V) -> V:
    """Return the parameters of a GPU without sharding."""
    return dense_parameters + end_parameters + expert_parameters


def share(dense_parameters: V, end_parameters: V, expert_parameters: V, shards: V, expert_shards: V) -> V:
    """Return the parameters of a GPU with everything sharded."""
    return (dense_parameters + end_parameters) / shards + expert_parameters / expert_shards


def weights(shard: V, share: V, whole: V, element: V) -> V:
    """Return the bytes of the weights of a GPU."""
    return element * where(shard >= 3, share, whole)  # ZeRO-3


def gradients(gradient_bytes: V, shard: V, share: V, whole: V) -> V:
    """Return the bytes of the gradients of a GPU."""
    return gradient_bytes * where(shard >= 2, share, whole)  # ZeRO-2


def optimiser_states(state_bytes: V, shard: V, share: V, whole: V, offload: V) -> V:
    """Return the bytes of the optimiser's states on a GPU; 0 if offloaded."""
    return where(offload, 0, state_bytes * where(shard >= 1, share, whole))  # ZeRO-1


def in_flight(micro_batches: V, pipeline: V, chunks: V) -> V:
    """Return the maximum number of micro-batches with activations in the first stage; chunks add a fraction of one."""
    return minimum(micro_batches, pipeline + where(chunks > 1, (pipeline - 1) / chunks, 0))


def layer_scores(tokens: V, sequence: V, heads: V, dropout: V, tensor: V, fused: V) -> V:
    """Return the bytes of a layer's attention scores: after softmax, and after dropout with its mask."""
    return where(fused, 0, tokens * sequence * heads * (2 + 3 * dropout) / tensor)


def layer_activations(
    tokens: V, hidden: V, dropout: V, routed: V, spread: V, queries: V, keys: V, gated: V, width_worked: V, tensor: V,
    layer_scores: V, activation_factor: V, element: V,
) -> V:  # fmt: skip
    """Return the bytes of all activations of a layer.

    Tensor parallelism splits queries, keys, values, the input of the projection, and the feed-forward part around its
    activation.  It does not split norms, inputs of attention and feed-forward, dropout masks, or tokens for experts.
    """
    whole = tokens * hidden * (element * (4 + routed) + 2 * dropout) / spread
    split = element * tokens * (2 * queries + 2 * keys + where(gated, 3, 2) * width_worked) / tensor
    return activation_factor * (whole + split) + layer_scores


def layer_remade(
    tokens: V, hidden: V, width_worked: V, tensor: V, spread: V, fused: V, layer_scores: V, element: V
) -> V:
    """Return the bytes saved by selective recomputation: scores, or if fused the outputs of norms and activations."""
    return where(fused, element * tokens * (2 * hidden / spread + width_worked / tensor), layer_scores)


def layer_kept(
    full: V, selective: V, tokens: V, hidden: V, spread: V, layer_activations: V, layer_remade: V, element: V
) -> V:  # fmt: skip
    """Return the bytes of a layer's activations that are kept until its backward pass."""
    return where(full, element * tokens * hidden / spread, layer_activations - where(selective, layer_remade, 0))


def activations(in_flight: V, own_layers: V, layer_kept: V, full: V, layer_activations: V) -> V:
    """Return the bytes of activations of all micro-batches in flight, and of the layer in recomputation."""
    return in_flight * own_layers * layer_kept + where(full, layer_activations, 0)


def end_activations(
    tokens: V, hidden: V, vocabulary: V, tensor: V, spread: V, pipeline: V, dropout: V, in_flight: V, element: V
) -> V:
    """Return the bytes of activations outside the layers.

    The dropout mask of the embedding; with one stage also norm, output and logits.
    """
    last = where(pipeline > 1, 0, 2 * element * hidden / spread + 4 * vocabulary / tensor)
    return tokens * (in_flight * dropout * hidden / spread + last)


def buffers(
    shard: V, dense_parameters: V, expert_parameters: V, own_layers: V, gradient_bytes: V, tokens: V, hidden: V,
    pipeline: V, gpus: V, process: V, element: V,
) -> V:  # fmt: skip
    """Return the bytes of communication buffers.

    Gathered weights and gradients of two layers, messages between stages, and NCCL's buffers.
    """
    return (
        where(shard >= 3, (2 * element + gradient_bytes) * (dense_parameters + expert_parameters) / own_layers, 0)
        + where(pipeline > 1, 2 * element * tokens * hidden, 0)
        + where(gpus > 1, process, 0)
    )


def needed(
    weights: V, gradients: V, optimiser_states: V, activations: V, end_activations: V, buffers: V, context_memory: V,
    fragments: V,
) -> V:  # fmt: skip
    """Return the bytes of memory that a GPU needs."""
    return weights + gradients + optimiser_states + activations + end_activations + buffers + context_memory + fragments


PARTS = tuple(signature(needed).parameters)
"""The terms of `needed`."""
