"""Formulas of communication, and of the seconds of a step.

Every formula is a function; its parameters name other formulas or inputs.  `search.evaluate` evaluates them in the
order of this file.  Arguments are numbers, or arrays with a number per layout; `network` is a curves.Network.

Sources: tensor parallelism and stages, Narayanan et al. 2021 (arXiv:2104.04473), section 3.  Sequence parallelism,
Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.2.  Sharded weights and gradients, Rajbhandari et al. 2020
(ZeRO, arXiv:1910.02054), section 7.
"""

from inspect import signature
from typing import Any

from numpy import maximum, minimum, where

V = Any  # a number, or an array with a number per layout


def stage_forward(own_layers: V, layer_forward: V) -> V:
    """Return the seconds of a micro-batch's forward computing in a stage."""
    return own_layers * layer_forward


def stage_backward(
    own_layers: V, layer_backward: V, layer_again: V, dense_parameters: V, gradient_bytes: V, bandwidth: V,
    efficiency: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch's backward computing in a stage, with recomputation and gradient traffic."""
    return own_layers * (layer_backward + layer_again) + 2 * gradient_bytes * dense_parameters / bandwidth / efficiency


def tensor_once(network: V, tokens: V, hidden: V, tensor: V, sequential: V, element: V) -> V:
    """Return the seconds of one tensor-parallel all-reduce of a micro-batch's activations.

    With sequence parallelism it is a reduce-scatter and an all-gather.
    """
    nbytes = element * tokens * hidden
    apart = network.time("reducescatter", nbytes, tensor, 1) + network.time("allgather", nbytes, tensor, 1)
    return where(sequential, apart, network.time("allreduce", nbytes, tensor, 1))


def tensor_exposed(own_layers: V, tensor_once: V, full: V, hidden_tensor: V, slowing: V, moe_share: V) -> V:
    """Return the exposed seconds of a micro-batch's tensor parallelism, and the slowdown of computing.

    2 all-reduces forward, 2 backward, 2 more with full recomputation; half as many in layers with experts.
    """
    return own_layers * (2 - moe_share) * (2 + where(full, 1, 0)) * tensor_once * (1 - hidden_tensor * (1 - slowing))


def context_exposed(
    network: V, own_layers: V, tokens: V, keys: V, context: V, tensor: V, attention_seconds: V, efficiency: V,
    slowing: V, element: V,
) -> V:  # fmt: skip
    """Return the exposed seconds of a micro-batch's context parallelism, and the slowdown of attention.

    In every layer, keys and values of all GPUs pass around a ring during attention, once forward and twice backward
    (Liu et al. 2023, arXiv:2310.01889).
    """
    nbytes = 2 * element * tokens * context * keys / tensor
    around, computed = network.time("allgather", nbytes, context, tensor), attention_seconds / efficiency
    return 3 * own_layers * (maximum(0, around - computed) + slowing * minimum(around, computed))


def expert_exposed(
    network: V, own_layers: V, moe_share: V, tokens: V, hidden: V, top_k: V, spread: V, expert: V, data_stride: V,
    full: V, element: V, tensor: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch's all-to-all between experts, which is fully exposed.

    Every token goes to its top-k experts, in dispatch and combine, forward and backward (Lepikhin et al. 2020,
    arXiv:2006.16668).  Bytes include the GPU's part for itself, as in nccl-tests.  If tensor parallelism splits
    experts, its GPUs gather arriving tokens and scatter leaving ones (Liu et al. 2025, arXiv:2504.14960, section 3.3).
    """
    nbytes = element * tokens * hidden * top_k
    once = network.time("alltoall", nbytes / spread, expert, data_stride) + network.time("allgather", nbytes, tensor, 1)
    return own_layers * moe_share * (4 + where(full, 2, 0)) * once


def stage_once(network: V, tokens: V, hidden: V, tensor: V, pipeline: V, stage_stride: V, element: V) -> V:
    """Return the seconds for a GPU to send its part of a micro-batch's activations to the furthest next stage."""
    return network.time("sendrecv", element * tokens * hidden / tensor, pipeline, stage_stride)


def stage_exposed(stage_once: V, chunks: V, hidden_pipeline: V) -> V:
    """Return the exposed seconds of a micro-batch's messages between stages, forward and backward."""
    return 2 * chunks * stage_once * (1 - hidden_pipeline)


def gather_once(
    network: V, layer_parameters: V, layer_experts: V, tensor: V, shards: V, expert_shards: V, expert: V,
    data_stride: V, shard: V, gather_rate: V, element: V,
) -> V:  # fmt: skip
    """Return the seconds of gathering a layer's weights; 0 if they are not sharded."""
    dense = layer_parameters / tensor
    layer = network.time("allgather", element * dense, shards, data_stride)
    experts = network.time("allgather", element * layer_experts, expert_shards, data_stride * expert)
    return where(shard >= 3, maximum(layer + experts, element * (dense + layer_experts) / gather_rate), 0)


def scatter_once(
    network: V, layer_parameters: V, layer_experts: V, tensor: V, gradient_bytes: V, shards: V, expert_shards: V,
    expert: V, data_stride: V, shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer's reduce-scatter of gradients; 0 if they are not sharded."""
    dense = layer_parameters / tensor
    layer = network.time("reducescatter", gradient_bytes * dense, shards, data_stride)
    experts = network.time("reducescatter", gradient_bytes * layer_experts, expert_shards, data_stride * expert)
    taken = gradient_bytes * (dense + layer_experts) / gather_rate
    return where(shard >= 2, maximum(layer + experts, taken), 0)


def shard_exposed(
    own_layers: V, gather_once: V, scatter_once: V, layer_forward: V, layer_backward: V, layer_again: V, slowing: V
) -> V:
    """Return the exposed seconds of a micro-batch's gathering and scattering, and the slowdown of computing.

    A layer is gathered during the computing of the previous layer; the first layer's gathering is fully exposed.
    """
    longest, both = layer_backward + layer_again, gather_once + scatter_once
    exposed = maximum(0, gather_once - layer_forward) + maximum(0, both - longest)
    slowed = minimum(gather_once, layer_forward) + minimum(both, longest)
    return (own_layers - 1) * (exposed + slowing * slowed) + both


def gradient_array(dense_parameters: V, end_parameters: V, gradient_bytes: V, shard: V, shards: V, replicas: V) -> V:
    """Return the bytes of gradients that replicas reduce after the last micro-batch.

    Excluded are gradients already reduced layer by layer across all replicas.
    """
    within_nodes = where(shards < replicas, dense_parameters / shards, 0)
    return gradient_bytes * (where(shard >= 2, within_nodes, dense_parameters) + end_parameters)


def weight_array(dense_parameters: V, end_parameters: V, shard: V, element: V) -> V:
    """Return the bytes of weights that replicas gather after a sharded optimiser."""
    return where(shard >= 1, element * (where(shard >= 3, 0, dense_parameters) + end_parameters), 0)


def gradient_seconds(
    network: V, gradient_array: V, weight_array: V, replicas: V, shard: V, data_stride: V, shards: V,
    replica_stride: V, bucket: V, own_layers: V, tensors: V,
) -> V:  # fmt: skip
    """Return the seconds of reducing gradients and gathering weights, in consecutive buckets."""
    buckets = maximum(1, maximum(gradient_array / bucket, where(shard >= 1, own_layers * tensors, 0)))
    gradients, weights = gradient_array / buckets, weight_array / buckets
    between_nodes = network.time("allreduce", gradients, replicas / shards, replica_stride)
    scattered = network.time("reducescatter", gradients, replicas, data_stride)
    scattered = scattered + network.time("allgather", weights, replicas, data_stride)
    whole = network.time("allreduce", gradients, replicas, data_stride)
    return buckets * where(shards < replicas, between_nodes, where(shard >= 1, scattered, whole))


def expert_gradient_seconds(
    network: V, expert_parameters: V, gradient_bytes: V, replicas: V, expert: V, data_stride: V, shard: V,
    expert_shards: V,
) -> V:  # fmt: skip
    """Return the seconds of reducing the gradients of experts, which have fewer replicas.

    With sharding within nodes, only the reduction between nodes remains.
    """
    nbytes, stride = gradient_bytes * expert_parameters, data_stride * expert
    nodes = maximum(1, replicas / (expert * expert_shards))
    sharded = network.time("allreduce", nbytes / expert_shards, nodes, stride * expert_shards)
    return where(shard >= 2, sharded, network.time("allreduce", nbytes, maximum(1, replicas / expert), stride))


def gradient_window(stage_backward: V, stage_forward: V, own_layers: V, overlapped: V, shard: V) -> V:
    """Return the seconds of computing that can hide the collectives of gradients.

    In the last micro-batch, a layer's gradients are sent during the computing of the next layer's.  A forward pass
    hides the gathering of weights.
    """
    return where(overlapped, (stage_backward + where(shard == 1, stage_forward, 0)) * (1 - 1 / own_layers), 0)


def gradient_exposed(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, own_layers: V) -> V:
    """Return the exposed seconds of gradient collectives: the time beyond the window, but at least the last layer's."""
    sent = gradient_seconds + expert_gradient_seconds
    return maximum(sent / own_layers, sent - gradient_window)


def contention(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, slowing: V) -> V:
    """Return the slowdown of computing in seconds while gradients are sent (as in Calculon)."""
    return slowing * minimum(gradient_seconds + expert_gradient_seconds, gradient_window)


def micro_seconds(
    stage_forward: V, stage_backward: V, tensor_exposed: V, context_exposed: V, expert_exposed: V, shard_exposed: V,
    stage_exposed: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch in a stage: computing and exposed communication."""
    exposed = tensor_exposed + context_exposed + expert_exposed + shard_exposed + stage_exposed
    return stage_forward + stage_backward + exposed


def left_out(micro_seconds: V, own_layers: V, layers: V, pipeline: V) -> V:
    """Return the seconds of the layers missing from shorter stages, compared with all stages as long as the fullest."""
    return micro_seconds * (pipeline - layers / own_layers)


def head_excess(head_seconds: V, left_out: V, micro_seconds: V) -> V:
    """Return the seconds by which the last stage with its head exceeds the fullest; it may have fewer layers."""
    return maximum(0, head_seconds - minimum(left_out, micro_seconds))


def bubble(
    pipeline: V, chunks: V, micro_seconds: V, zero_bubble: V, stage_backward: V, own_layers: V, layer_again: V,
    left_out: V, head_seconds: V,
) -> V:  # fmt: skip
    """Return the seconds of waiting while the pipeline fills and drains: a micro-batch in all stages but the fullest.

    Zero-bubble schedules fill them with gradients of weights (Qi et al. 2023, arXiv:2401.10241, table 1: ZB-H1).
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    without_weights = micro_seconds - (stage_backward - own_layers * layer_again)
    shorter = maximum(0, left_out - minimum(head_seconds, micro_seconds)) / micro_seconds
    return (pipeline - 1 - shorter) * where(zero_bubble, without_weights, micro_seconds / chunks)


def filling(pipeline: V, stage_once: V, hidden_pipeline: V) -> V:
    """Return the exposed seconds of sending the first micro-batch through all stages and back."""
    return 2 * (pipeline - 1) * stage_once * hidden_pipeline


def computing(micro_batches: V, stage_forward: V, stage_backward: V, head_excess: V) -> V:
    """Return the seconds of computing in a step."""
    return micro_batches * (stage_forward + stage_backward + head_excess)


def stragglers(computing: V, slowest: V) -> V:
    """Return the seconds of waiting for the slowest GPU in a step (Blom 1958: the slowest of n)."""
    return computing * slowest


def tensor_parallel(micro_batches: V, tensor_exposed: V) -> V:
    """Return the seconds of exposed communication of tensor parallelism in a step."""
    return micro_batches * tensor_exposed


def context_parallel(micro_batches: V, context_exposed: V) -> V:
    """Return the seconds of exposed communication of context parallelism in a step."""
    return micro_batches * context_exposed


def expert_parallel(micro_batches: V, expert_exposed: V) -> V:
    """Return the seconds of exposed communication of expert parallelism in a step."""
    return micro_batches * expert_exposed


def pipeline_parallel(micro_batches: V, stage_exposed: V, filling: V) -> V:
    """Return the seconds of exposed communication between stages in a step."""
    return micro_batches * stage_exposed + filling


def data_parallel(
    micro_batches: V, shard_exposed: V, gradient_exposed: V, contention: V, synced: V, pipeline: V, shard: V
) -> V:
    """Return the seconds of exposed communication of gradients and of sharded weights in a step."""
    times = where(synced & (pipeline > 1) & (shard < 1), micro_batches, 1)
    return micro_batches * shard_exposed + times * (gradient_exposed + contention)


def optimiser(
    shard: V, share: V, whole: V, state_traffic: V, gradient_bytes: V, bandwidth: V, offload: V, pcie_rate: V,
    host_rate: V, element: V,
) -> V:  # fmt: skip
    """Return the seconds of the optimiser in a step.

    On a GPU it counts all reads and writes of the optimiser, and three more passes over gradients: norm, clipping and
    zeroing.  Offloaded, gradients go to the CPU, weights come back, and all states pass through CPU memory.
    """
    on_cpu = (gradient_bytes + element) / pcie_rate + (state_traffic + gradient_bytes) / host_rate
    changed = where(shard >= 1, share, whole)
    return where(offload, changed * on_cpu, changed * (state_traffic + 4 * gradient_bytes + 4) / bandwidth)


def step(
    computing: V, tensor_parallel: V, context_parallel: V, expert_parallel: V, pipeline_parallel: V, data_parallel: V,
    bubble: V, optimiser: V, stragglers: V,
) -> V:  # fmt: skip
    """Return the seconds of a step."""
    active = computing + tensor_parallel + context_parallel + expert_parallel + pipeline_parallel + data_parallel
    return active + bubble + optimiser + stragglers


PARTS = tuple(signature(step).parameters)
"""The terms of `step`."""
