"""Formulas of communication: seconds of collectives in groups of GPUs, and what of them no computing hides.

Every formula is a function whose parameters name other formulas and inputs (`step.evaluate` evaluates them).
Arguments are numbers, or arrays with a number for every layout; `network` is a curves.Network.
"""

from typing import Any

from numpy import maximum, minimum, where

V = Any  # a number, or an array of one for every layout


def stage_forward(own_layers: V, layer_forward: V) -> V:
    """Return the seconds of computing a micro-batch in a stage, forward."""
    return own_layers * layer_forward


def stage_backward(own_layers: V, layer_backward: V, layer_again: V) -> V:
    """Return the seconds of computing a micro-batch in a stage, backward, with what is computed once more."""
    return own_layers * (layer_backward + layer_again)


def tensor_bytes(tokens: V, hidden: V) -> V:
    """Return the bytes of one all-reduce of tensor parallelism: activations of a micro-batch.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 3.
    """
    return 2 * tokens * hidden


def tensor_once(network: V, tensor_bytes: V, tensor: V, sequential: V) -> V:
    """Return the seconds of one all-reduce of tensor parallelism.

    With sequence parallelism it is a reduce-scatter and an all-gather.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
    """
    return where(
        sequential,
        network.time("reducescatter", tensor_bytes, tensor, 1) + network.time("allgather", tensor_bytes, tensor, 1),
        network.time("allreduce", tensor_bytes, tensor, 1),
    )


def tensor_exposed(own_layers: V, tensor_once: V, full: V, hidden_tensor: V) -> V:
    """Return the seconds of a micro-batch's tensor parallelism that no computing hides.

    2 all-reduces forward, 2 backward, 2 more where everything is recomputed.
    """
    return own_layers * (4 + where(full, 2, 0)) * tensor_once * (1 - hidden_tensor)


def context_bytes(tokens: V, keys: V, tensor: V, context: V) -> V:
    """Return the bytes that context parallelism passes on in a layer: keys and values of all its GPUs."""
    return 4 * tokens * context * keys / tensor


def context_exposed(
    network: V, own_layers: V, context_bytes: V, context: V, tensor: V, attention_seconds: V, efficiency: V
) -> V:
    """Return the seconds of a micro-batch's context parallelism that attention does not hide.

    Once forward, twice backward, as a ring while attention is computed (Liu et al. 2023, arXiv:2310.01889).
    """
    return (
        3
        * own_layers
        * maximum(0, network.time("allgather", context_bytes, context, tensor) - attention_seconds / efficiency)
    )


def expert_bytes(tokens: V, hidden: V, top_k: V, spread: V) -> V:
    """Return the bytes that a GPU puts into the all-to-all of experts in a layer.

    Every token to its top-k experts; as nccl-tests counts, with the GPU's part for itself.
    """
    return 2 * tokens * hidden * top_k / spread


def expert_exposed(
    network: V, own_layers: V, moe_share: V, expert_bytes: V, expert: V, data_stride: V, hidden_expert: V, full: V
) -> V:
    """Return the seconds of a micro-batch's all-to-all that no computing hides.

    There and back, forward and backward (Lepikhin et al. 2020, arXiv:2006.16668).
    """
    return (
        own_layers
        * moe_share
        * (4 + where(full, 2, 0))
        * network.time("alltoall", expert_bytes, expert, data_stride)
        * (1 - hidden_expert)
    )


def stage_bytes(tokens: V, hidden: V, tensor: V) -> V:
    """Return the bytes that a GPU sends to the next stage: its part of a micro-batch's activations.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 3.
    """
    return 2 * tokens * hidden / tensor


def stage_once(network: V, stage_bytes: V, pipeline: V, stage_stride: V) -> V:
    """Return the seconds of sending them between the two neighbouring stages that are furthest apart."""
    return network.time("sendrecv", stage_bytes, pipeline, stage_stride)


def stage_exposed(stage_once: V, chunks: V, hidden_pipeline: V) -> V:
    """Return the seconds of what a micro-batch sends between stages, forward and backward, that no computing hides."""
    return 2 * chunks * stage_once * (1 - hidden_pipeline)


def layer_gathered(dense_parameters: V, own_layers: V) -> V:
    """Return the bytes of a layer's weights without experts, 16 bits each.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return 2 * dense_parameters / own_layers


def experts_gathered(expert_parameters: V, own_layers: V) -> V:
    """Return the bytes of a layer's experts of a GPU, 16 bits each.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return 2 * expert_parameters / own_layers


def expert_shards(shards: V, expert: V) -> V:
    """Return the number of GPUs that share experts, if they are sharded."""
    return maximum(1, shards / expert)


def gather_once(
    network: V, layer_gathered: V, experts_gathered: V, shards: V, expert_shards: V, expert: V, data_stride: V,
    shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Return the seconds of gathering a layer's weights; 0 where they are not sharded.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return where(
        shard >= 3,
        maximum(
            network.time("allgather", layer_gathered, shards, data_stride)
            + network.time("allgather", experts_gathered, expert_shards, data_stride * expert),
            (layer_gathered + experts_gathered) / gather_rate,
        ),
        0,
    )


def scatter_once(
    network: V, layer_gathered: V, experts_gathered: V, gradient_bytes: V, shards: V, expert_shards: V, expert: V,
    data_stride: V, shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Return the seconds of a layer's reduce-scatter of gradients; 0 where they are not sharded.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return where(
        shard >= 2,
        maximum(
            network.time("reducescatter", layer_gathered * gradient_bytes / 2, shards, data_stride)
            + network.time("reducescatter", experts_gathered * gradient_bytes / 2, expert_shards, data_stride * expert),
            (layer_gathered + experts_gathered) * gradient_bytes / 2 / gather_rate,
        ),
        0,
    )


def shard_exposed(
    own_layers: V, gather_once: V, scatter_once: V, layer_forward: V, layer_backward: V, layer_again: V
) -> V:
    """Return the seconds of a micro-batch's gathering and scattering that no computing hides.

    A layer is fetched while the layer before it is computed; nothing hides the first layer's.
    """
    return (
        (own_layers - 1) * maximum(0, gather_once - layer_forward)
        + (own_layers - 1) * maximum(0, gather_once + scatter_once - layer_backward - layer_again)
        + gather_once
        + scatter_once
    )


def gradient_array(dense_parameters: V, end_parameters: V, gradient_bytes: V, shard: V, shards: V, replicas: V) -> V:
    """Return the bytes of gradients that replicas add up after the last micro-batch.

    What was not added up layer by layer, or only within nodes.
    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return gradient_bytes * (
        where(shard >= 2, where(shards < replicas, dense_parameters / shards, 0), dense_parameters) + end_parameters
    )


def weight_array(dense_parameters: V, end_parameters: V, shard: V) -> V:
    """Return the bytes of weights that replicas gather after an optimiser whose states are sharded.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return where(shard >= 1, 2 * (where(shard >= 3, 0, dense_parameters) + end_parameters), 0)


def gradient_seconds(
    network: V, gradient_array: V, weight_array: V, replicas: V, shard: V, data_stride: V, shards: V,
    replica_stride: V,
) -> V:  # fmt: skip
    """Return the seconds of adding up gradients and of gathering weights.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    return where(
        shards < replicas,
        network.time("allreduce", gradient_array, replicas / shards, replica_stride),
        where(
            shard >= 1,
            network.time("reducescatter", gradient_array, replicas, data_stride)
            + network.time("allgather", weight_array, replicas, data_stride),
            network.time("allreduce", gradient_array, replicas, data_stride),
        ),
    )


def expert_gradient_seconds(
    network: V, expert_parameters: V, gradient_bytes: V, replicas: V, expert: V, data_stride: V, shard: V,
    expert_shards: V,
) -> V:  # fmt: skip
    """Return the seconds of adding up the gradients of experts, which have fewer replicas.

    Where they are sharded within a node only, what is left to add up.
    """
    return where(
        shard >= 2,
        network.time(
            "allreduce",
            gradient_bytes * expert_parameters / expert_shards,
            maximum(1, replicas / (expert * expert_shards)),
            data_stride * expert * expert_shards,
        ),
        network.time(
            "allreduce", gradient_bytes * expert_parameters, maximum(1, replicas / expert), data_stride * expert
        ),
    )


def gradient_window(stage_backward: V, stage_forward: V, own_layers: V, overlapped: V, shard: V) -> V:
    """Return the seconds of computing that may hide the collectives of gradients.

    A layer's gradients go out while the next layer's are computed, in the last micro-batch; a forward pass hides
    the gathering of weights.
    """
    return where(overlapped, (stage_backward + where(shard == 1, stage_forward, 0)) * (1 - 1 / own_layers), 0)


def gradient_exposed(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, own_layers: V) -> V:
    """Return the seconds of the collectives of gradients that no computing hides.

    What is longer than the window, and the last layer's.
    """
    return maximum(
        (gradient_seconds + expert_gradient_seconds) / own_layers,
        gradient_seconds + expert_gradient_seconds - gradient_window,
    )


def contention(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, slowing: V) -> V:
    """Return the seconds by which computing takes longer while gradients are sent (as Calculon models it)."""
    return slowing * minimum(gradient_seconds + expert_gradient_seconds, gradient_window)


TERMS = (
    stage_forward,
    stage_backward,
    tensor_bytes,
    tensor_once,
    tensor_exposed,
    context_bytes,
    context_exposed,
    expert_bytes,
    expert_exposed,
    stage_bytes,
    stage_once,
    stage_exposed,
    layer_gathered,
    experts_gathered,
    expert_shards,
    gather_once,
    scatter_once,
    shard_exposed,
    gradient_array,
    weight_array,
    gradient_seconds,
    expert_gradient_seconds,
    gradient_window,
    gradient_exposed,
    contention,
)
"""Formulas of this module, in an order in which they can be evaluated."""
