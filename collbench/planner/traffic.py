"""Terms of communication: what each kind of parallelism sends, and how much of it no computing hides.

Sizes are of the whole array, as nccl-tests counts it.  Groups are (GPUs, how far one is behind the other).
"""

from typing import Any

from numpy import maximum, minimum, where

from collbench.planner.ledger import Section

V = Any  # a number, or an array of one for every layout

TRAFFIC = Section("communication")
term = TRAFFIC.term

_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473, section 3"
_ZERO = "Rajbhandari et al. 2020, arXiv:1910.02054, section 7"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2"


@term("s")
def stage_forward(own_layers: V, layer_forward: V) -> V:
    """Of computing a micro-batch, forward."""
    return own_layers * layer_forward


@term("s")
def stage_backward(own_layers: V, layer_backward: V, layer_again: V) -> V:
    """Of computing it backward, with what is computed once more."""
    return own_layers * (layer_backward + layer_again)


@term("bytes", _MEGATRON)
def tensor_bytes(tokens: V, hidden: V) -> V:
    """That tensor parallelism adds up at once: a micro-batch's activations."""
    return 2 * tokens * hidden


@term("s", _KORTHIKANTI)
def tensor_once(network: V, tensor_bytes: V, tensor: V, sequential: V) -> V:
    """Of adding them up; with sequence parallelism in two halves, between which every GPU has its part alone."""
    return where(
        sequential,
        network.time("reducescatter", tensor_bytes, tensor, 1) + network.time("allgather", tensor_bytes, tensor, 1),
        network.time("allreduce", tensor_bytes, tensor, 1),
    )


@term("s", "2 forward, 2 backward, 2 once more where all is recomputed")
def tensor_exposed(own_layers: V, tensor_once: V, full: V, hidden_tensor: V) -> V:
    """Of a micro-batch's tensor parallelism that no computing hides."""
    return own_layers * (4 + where(full, 2, 0)) * tensor_once * (1 - hidden_tensor)


@term("bytes", "keys and values of a GPU's tokens, of all GPUs together")
def context_bytes(tokens: V, keys: V, tensor: V, context: V) -> V:
    """That context parallelism hands round in a layer."""
    return 4 * tokens * context * keys / tensor


@term("s", "Liu et al. 2023, arXiv:2310.01889: a ring, while attention is computed")
def context_exposed(
    network: V, own_layers: V, context_bytes: V, context: V, tensor: V, attention_seconds: V, efficiency: V
) -> V:
    """Of a micro-batch's context parallelism that attention does not hide: once forward, twice backward."""
    return (
        3
        * own_layers
        * maximum(0, network.time("allgather", context_bytes, context, tensor) - attention_seconds / efficiency)
    )


@term("bytes", "every token to top-k experts; nccl-tests counts what one GPU sends, its own part too")
def expert_bytes(tokens: V, hidden: V, top_k: V, spread: V) -> V:
    """That a GPU hands to experts' all-to-all in a layer."""
    return 2 * tokens * hidden * top_k / spread


@term("s", "Lepikhin et al. 2020, arXiv:2006.16668: there and back, forward and backward")
def expert_exposed(
    network: V, own_layers: V, moe_share: V, expert_bytes: V, expert: V, data_stride: V, hidden_expert: V, full: V
) -> V:
    """Of a micro-batch's all-to-all that no computing hides."""
    return (
        own_layers
        * moe_share
        * (4 + where(full, 2, 0))
        * network.time("alltoall", expert_bytes, expert, data_stride)
        * (1 - hidden_expert)
    )


@term("bytes", _MEGATRON)
def stage_bytes(tokens: V, hidden: V, tensor: V) -> V:
    """That a GPU sends to the next stage: its part of a micro-batch's activations."""
    return 2 * tokens * hidden / tensor


@term("s")
def stage_once(network: V, stage_bytes: V, pipeline: V, stage_stride: V) -> V:
    """Of sending them, as long as it takes between those stages that are furthest apart."""
    return network.time("sendrecv", stage_bytes, pipeline, stage_stride)


@term("s", "forward and backward, for every chunk")
def stage_exposed(stage_once: V, chunks: V, hidden_pipeline: V) -> V:
    """Of what a micro-batch's stages send that no computing hides."""
    return 2 * chunks * stage_once * (1 - hidden_pipeline)


@term("bytes", _ZERO)
def layer_gathered(dense_parameters: V, own_layers: V) -> V:
    """Of a layer's weights, 16 bits each."""
    return 2 * dense_parameters / own_layers


@term("bytes", _ZERO)
def experts_gathered(expert_parameters: V, own_layers: V) -> V:
    """Of a layer's experts of a GPU, 16 bits each."""
    return 2 * expert_parameters / own_layers


@term()
def expert_shards(shards: V, expert: V) -> V:
    """GPUs that share experts, if they are sharded."""
    return maximum(1, shards / expert)


@term("s", _ZERO)
def gather_once(
    network: V, layer_gathered: V, experts_gathered: V, shards: V, expert_shards: V, expert: V, data_stride: V,
    shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Of gathering a layer's weights, where they are sharded."""
    return where(
        shard >= 3,
        maximum(
            network.time("allgather", layer_gathered, shards, data_stride)
            + network.time("allgather", experts_gathered, expert_shards, data_stride * expert),
            (layer_gathered + experts_gathered) / gather_rate,
        ),
        0,
    )


@term("s", _ZERO)
def scatter_once(
    network: V, layer_gathered: V, experts_gathered: V, gradient_bytes: V, shards: V, expert_shards: V, expert: V,
    data_stride: V, shard: V, gather_rate: V,
) -> V:  # fmt: skip
    """Of adding up a layer's gradients, every GPU its part, where they are sharded."""
    return where(
        shard >= 2,
        maximum(
            network.time("reducescatter", layer_gathered * gradient_bytes / 2, shards, data_stride)
            + network.time("reducescatter", experts_gathered * gradient_bytes / 2, expert_shards, data_stride * expert),
            (layer_gathered + experts_gathered) * gradient_bytes / 2 / gather_rate,
        ),
        0,
    )


@term("s", "a layer is fetched while the one before it is computed")
def shard_exposed(
    own_layers: V, gather_once: V, scatter_once: V, layer_forward: V, layer_backward: V, layer_again: V
) -> V:
    """Of a micro-batch's gathering and scattering that no computing hides; the first layer's nothing does."""
    return (
        (own_layers - 1) * maximum(0, gather_once - layer_forward)
        + (own_layers - 1) * maximum(0, gather_once + scatter_once - layer_backward - layer_again)
        + gather_once
        + scatter_once
    )


@term("bytes", _ZERO)
def gradient_array(dense_parameters: V, end_parameters: V, gradient_bytes: V, shard: V, shards: V, replicas: V) -> V:
    """That replicas add up after the last micro-batch: what was not added up layer by layer, or only within nodes."""
    return gradient_bytes * (
        where(shard >= 2, where(shards < replicas, dense_parameters / shards, 0), dense_parameters) + end_parameters
    )


@term("bytes", _ZERO)
def weight_array(dense_parameters: V, end_parameters: V, shard: V) -> V:
    """That replicas gather after an optimiser whose states are sharded: weights that are not."""
    return where(shard >= 1, 2 * (where(shard >= 3, 0, dense_parameters) + end_parameters), 0)


@term("s", _ZERO)
def gradient_seconds(
    network: V, gradient_array: V, weight_array: V, replicas: V, shard: V, data_stride: V, shards: V,
    replica_stride: V,
) -> V:  # fmt: skip
    """Of both."""
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


@term("s", "gradients of experts, which have fewer replicas; sharded ones only within a node are left to add up")
def expert_gradient_seconds(
    network: V, expert_parameters: V, gradient_bytes: V, replicas: V, expert: V, data_stride: V, shard: V,
    expert_shards: V,
) -> V:  # fmt: skip
    """Of adding up experts' gradients."""
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


@term("s", "a layer's gradients go out while the next layer's are computed, in the last micro-batch")
def gradient_window(stage_backward: V, stage_forward: V, own_layers: V, overlapped: V, shard: V) -> V:
    """Of computing that may hide them: a backward pass, and a forward pass for gathered weights."""
    return where(overlapped, (stage_backward + where(shard == 1, stage_forward, 0)) * (1 - 1 / own_layers), 0)


@term("s")
def gradient_exposed(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, own_layers: V) -> V:
    """Of gradients that no computing hides: what is longer than the window, and the last layer's."""
    return maximum(
        (gradient_seconds + expert_gradient_seconds) / own_layers,
        gradient_seconds + expert_gradient_seconds - gradient_window,
    )


@term("s", "model/steps.py: Calculon's processor usage")
def contention(gradient_seconds: V, expert_gradient_seconds: V, gradient_window: V, slowing: V) -> V:
    """Of computing that takes longer since gradients are being sent."""
    return slowing * minimum(gradient_seconds + expert_gradient_seconds, gradient_window)
