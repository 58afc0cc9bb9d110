"""Formulas of communication, seconds of collectives in groups of GPUs, and of a step, with computing, in time.

Every formula is a function whose parameters name other formulas and inputs (`search.evaluate` evaluates them, in the
order of this file).  Arguments are numbers, or arrays with a number for every layout; `network` is a curves.Network.

Sources: tensor parallelism and stages by Narayanan et al. 2021 (arXiv:2104.04473), section 3, sequence parallelism by
Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.2; sharded weights and gradients by Rajbhandari et al. 2020
(ZeRO, arXiv:1910.02054), section 7.
"""

from inspect import signature
from typing import Any

from numpy import maximum, minimum, where

V = Any  # a number, or an array of one for every layout


def stage_forward(own_layers: V, layer_forward: V) -> V:
    """Return the seconds of computing a micro-batch in a stage, forward."""
    return own_layers * layer_forward


def stage_backward(
    own_layers: V, layer_backward: V, layer_again: V, dense_parameters: V, gradient_bytes: V, bandwidth: V,
    efficiency: V,
) -> V:  # fmt: skip
    """Return the seconds of computing a micro-batch in a stage, backward, with what is computed once more.

    Gradients of weights are read, added to and written.
    """
    return own_layers * (layer_backward + layer_again) + 2 * gradient_bytes * dense_parameters / bandwidth / efficiency


def tensor_once(network: V, tokens: V, hidden: V, tensor: V, sequential: V, element: V) -> V:
    """Return the seconds of one all-reduce of tensor parallelism: of the activations of a micro-batch.

    With sequence parallelism it is a reduce-scatter and an all-gather.
    """
    nbytes = element * tokens * hidden
    apart = network.time("reducescatter", nbytes, tensor, 1) + network.time("allgather", nbytes, tensor, 1)
    return where(sequential, apart, network.time("allreduce", nbytes, tensor, 1))


def tensor_exposed(own_layers: V, tensor_once: V, full: V, hidden_tensor: V, slowing: V, moe_share: V) -> V:
    """Return the seconds of a micro-batch's tensor parallelism that no computing hides, and by which it slows that.

    2 all-reduces forward, 2 backward, 2 more where everything is recomputed; half of it in front of experts.
    """
    return own_layers * (2 - moe_share) * (2 + where(full, 1, 0)) * tensor_once * (1 - hidden_tensor * (1 - slowing))


def context_exposed(
    network: V, own_layers: V, tokens: V, keys: V, context: V, tensor: V, attention_seconds: V, efficiency: V,
    slowing: V, element: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch's context parallelism that attention does not hide, or by which it is slowed.

    Keys and values of all its GPUs go around in a layer, once forward, twice backward, as a ring while attention is
    computed (Liu et al. 2023, arXiv:2310.01889).
    """
    nbytes = 2 * element * tokens * context * keys / tensor
    around, computed = network.time("allgather", nbytes, context, tensor), attention_seconds / efficiency
    return 3 * own_layers * (maximum(0, around - computed) + slowing * minimum(around, computed))


def expert_exposed(
    network: V, own_layers: V, moe_share: V, tokens: V, hidden: V, top_k: V, spread: V, expert: V, data_stride: V,
    full: V, element: V, tensor: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch's all-to-all of experts, which no computing hides.

    Every token to its top-k experts; as nccl-tests counts, with the GPU's part for itself.  Dispatch and combine,
    forward and backward (Lepikhin et al. 2020, arXiv:2006.16668).  Where tensor parallelism cuts experts, its GPUs
    gather arriving tokens and scatter leaving ones (Liu et al. 2025, arXiv:2504.14960, section 3.3).
    """
    nbytes = element * tokens * hidden * top_k
    once = network.time("alltoall", nbytes / spread, expert, data_stride) + network.time("allgather", nbytes, tensor, 1)
    return own_layers * moe_share * (4 + where(full, 2, 0)) * once


def stage_once(network: V, tokens: V, hidden: V, tensor: V, pipeline: V, stage_stride: V, element: V) -> V:
    """Return the seconds in which a GPU sends its part of a micro-batch's activations to the next stage.

    Of the two neighbouring stages that are furthest apart.
    """
    return network.time("sendrecv", element * tokens * hidden / tensor, pipeline, stage_stride)


def stage_exposed(stage_once: V, chunks: V, hidden_pipeline: V) -> V:
    """Return the seconds of what a micro-batch sends between stages, forward and backward, that no computing hides."""
    return 2 * chunks * stage_once * (1 - hidden_pipeline)


def layer_gathered(dense_parameters: V, own_layers: V, element: V) -> V:
    """Return the bytes of a layer's weights without experts."""
    return element * dense_parameters / own_layers


def experts_gathered(expert_parameters: V, own_layers: V, element: V) -> V:
    """Return the bytes of a layer's experts of a GPU."""
    return element * expert_parameters / own_layers


def gather_once(
    network: V, layer_gathered: V, experts_gathered: V, shards: V, expert_shards: V, expert: V, data_stride: V,
    shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Return the seconds of gathering a layer's weights; 0 where they are not sharded."""
    layer = network.time("allgather", layer_gathered, shards, data_stride)
    experts = network.time("allgather", experts_gathered, expert_shards, data_stride * expert)
    return where(shard >= 3, maximum(layer + experts, (layer_gathered + experts_gathered) / gather_rate), 0)


def scatter_once(
    network: V, layer_gathered: V, experts_gathered: V, gradient_bytes: V, shards: V, expert_shards: V, expert: V,
    data_stride: V, shard: V, gather_rate: V, element: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer's reduce-scatter of gradients; 0 where they are not sharded."""
    layer = network.time("reducescatter", layer_gathered * gradient_bytes / element, shards, data_stride)
    expert_bytes = experts_gathered * gradient_bytes / element
    experts = network.time("reducescatter", expert_bytes, expert_shards, data_stride * expert)
    taken = (layer_gathered + experts_gathered) * gradient_bytes / element / gather_rate
    return where(shard >= 2, maximum(layer + experts, taken), 0)


def shard_exposed(
    own_layers: V, gather_once: V, scatter_once: V, layer_forward: V, layer_backward: V, layer_again: V, slowing: V
) -> V:
    """Return the seconds of a micro-batch's gathering and scattering that no computing hides, or by which it is slowed.

    A layer is fetched while the layer before it is computed; nothing hides the first layer's.
    """
    longest, both = layer_backward + layer_again, gather_once + scatter_once
    exposed = maximum(0, gather_once - layer_forward) + maximum(0, both - longest)
    slowed = minimum(gather_once, layer_forward) + minimum(both, longest)
    return (own_layers - 1) * (exposed + slowing * slowed) + both


def gradient_array(dense_parameters: V, end_parameters: V, gradient_bytes: V, shard: V, shards: V, replicas: V) -> V:
    """Return the bytes of gradients that replicas add up after the last micro-batch.

    They were not added up layer by layer, or only within nodes.
    """
    within_nodes = where(shards < replicas, dense_parameters / shards, 0)
    return gradient_bytes * (where(shard >= 2, within_nodes, dense_parameters) + end_parameters)


def weight_array(dense_parameters: V, end_parameters: V, shard: V, element: V) -> V:
    """Return the bytes of weights that replicas gather after an optimiser whose states are sharded."""
    return where(shard >= 1, element * (where(shard >= 3, 0, dense_parameters) + end_parameters), 0)


def gradient_seconds(
    network: V, gradient_array: V, weight_array: V, replicas: V, shard: V, data_stride: V, shards: V,
    replica_stride: V, bucket: V, own_layers: V, tensors: V,
) -> V:  # fmt: skip
    """Return the seconds of adding up gradients and of gathering weights, in buckets that follow each other."""
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
    """Return the seconds of adding up the gradients of experts, which have fewer replicas.

    Where they are sharded within a node only, what is left to add up.
    """
    nbytes, stride = gradient_bytes * expert_parameters, data_stride * expert
    nodes = maximum(1, replicas / (expert * expert_shards))
    sharded = network.time("allreduce", nbytes / expert_shards, nodes, stride * expert_shards)
    return where(shard >= 2, sharded, network.time("allreduce", nbytes, maximum(1, replicas / expert), stride))


def gradient_window(stage_backward: V, stage_forward: V, own_layers: V, overlapped: V, shard: V) -> V:
    """Return the seconds of computing that may hide the collectives of gradients.

    A layer's gradients go out while the next layer's are computed, in the last micro-batch; a forward pass hides
    the gathering of weights.
    """
    return where(overlapped, (stage_backward + where(shard == 1, stage_forward, 0)) * (1 - 1 / own_layers), 0)


def gradient_exposed(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, own_layers: V) -> V:
    """Return the seconds of gradients' collectives beyond the window of computing, and of the last layer's."""
    return maximum(
        (gradient_seconds + expert_gradient_seconds) / own_layers,
        gradient_seconds + expert_gradient_seconds - gradient_window,
    )


def contention(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, slowing: V) -> V:
    """Return the seconds by which computing takes longer while gradients are sent (as Calculon models it)."""
    return slowing * minimum(gradient_seconds + expert_gradient_seconds, gradient_window)


def micro_seconds(
    stage_forward: V, stage_backward: V, tensor_exposed: V, context_exposed: V, expert_exposed: V, shard_exposed: V,
    stage_exposed: V,
) -> V:  # fmt: skip
    """Return the seconds of a micro-batch in a stage: computing, and communication that no computing hides."""
    exposed = tensor_exposed + context_exposed + expert_exposed + shard_exposed + stage_exposed
    return stage_forward + stage_backward + exposed


def left_out(micro_seconds: V, own_layers: V, layers: V, pipeline: V) -> V:
    """Return the seconds of the layers by which all stages together have fewer than if each were the fullest."""
    return micro_seconds * (pipeline - layers / own_layers)


def head_excess(head_seconds: V, left_out: V, micro_seconds: V) -> V:
    """Return the seconds by which the last stage takes longer than the fullest; it may have fewer layers, or none."""
    return maximum(0, head_seconds - minimum(left_out, micro_seconds))


def bubble(
    pipeline: V, chunks: V, micro_seconds: V, zero_bubble: V, stage_backward: V, own_layers: V, layer_again: V,
    left_out: V, head_seconds: V,
) -> V:  # fmt: skip
    """Return the seconds of waiting while the pipeline fills and drains: a micro-batch in all stages but the fullest.

    Zero-bubble schedules compute gradients of weights then (Qi et al. 2023, arXiv:2401.10241, table 1: ZB-H1).
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    without_weights = micro_seconds - (stage_backward - own_layers * layer_again)
    shorter = maximum(0, left_out - minimum(head_seconds, micro_seconds)) / micro_seconds
    return (pipeline - 1 - shorter) * where(zero_bubble, without_weights, micro_seconds / chunks)


def filling(pipeline: V, stage_once: V, hidden_pipeline: V) -> V:
    """Return the seconds of sending the first micro-batch through all stages and back, which nothing hides."""
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
    """Return the seconds of changing the weights in a step.

    On a GPU all that the optimiser reads and writes, once, and gradients three times more: for their norm, clipped, and
    set to zero.  On a CPU gradients go down, weights come up, and all states go through the CPU's memory.
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
"""The parts that `step` adds up."""
