"""Terms of memory: what a GPU keeps for its share of the weights, and for the micro-batches that are on their way.

Bytes of one GPU, of the stage that needs most.
"""

from typing import Any

from numpy import maximum, minimum, where

from collbench.planner.ledger import Section

V = Any  # a number, or an array of one for every layout

FOOTPRINT = Section("memory")
term = FOOTPRINT.term

_ZERO = "Rajbhandari et al. 2020, arXiv:1910.02054, section 3"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, section 4"


@term()
def dense_parameters(own_layers: V, layer_parameters: V, tensor: V) -> V:
    """Of the stage's layers without routed experts."""
    return own_layers * layer_parameters / tensor


@term()
def expert_parameters(own_layers: V, routed_parameters: V, tensor: V, expert: V) -> V:
    """Of the stage's routed experts."""
    return own_layers * routed_parameters / (tensor * expert)


@term()
def end_parameters(pipeline: V, embedding: V, output: V, tensor: V) -> V:
    """Of the embedding, and where one stage is first and last of the output too."""
    return where(pipeline > 1, maximum(embedding, output), embedding + output) / tensor


@term()
def replicas(data: V, context: V) -> V:
    """GPUs that hold the same weights, before any of it is sharded."""
    return data * context


@term()
def shards(hybrid: V, replicas: V, node_replicas: V) -> V:
    """GPUs that share what is sharded: all replicas, or those of a node."""
    return where(hybrid, node_replicas, replicas)


@term()
def sharded_parameters(dense_parameters: V, end_parameters: V, shards: V) -> V:
    """A GPU's share of what all replicas hold, if it is sharded."""
    return (dense_parameters + end_parameters) / shards


@term()
def sharded_experts(expert_parameters: V, shards: V, expert: V) -> V:
    """A GPU's share of its experts, of which there are fewer replicas, if they are sharded."""
    return expert_parameters / maximum(1, shards / expert)


@term()
def whole(dense_parameters: V, end_parameters: V, expert_parameters: V) -> V:
    """Parameters of a GPU if nothing is sharded."""
    return dense_parameters + end_parameters + expert_parameters


@term()
def share(sharded_parameters: V, sharded_experts: V) -> V:
    """Parameters of a GPU if all is sharded."""
    return sharded_parameters + sharded_experts


@term("bytes", _ZERO)
def weights(shard: V, share: V, whole: V) -> V:
    """Of the weights, 16 bits each."""
    return 2 * where(shard >= 3, share, whole)


@term("bytes", _ZERO)
def gradients(gradient_bytes: V, shard: V, share: V, whole: V) -> V:
    """Of their gradients."""
    return gradient_bytes * where(shard >= 2, share, whole)


@term("bytes", _ZERO)
def optimiser_states(state_bytes: V, shard: V, share: V, whole: V, offload: V) -> V:
    """Of the optimiser, unless they are in the memory of the CPU."""
    return where(offload, 0, state_bytes * where(shard >= 1, share, whole))


@term()
def in_flight(micro_batches: V, pipeline: V, chunks: V) -> V:
    """Micro-batches whose activations the first stage keeps at most; with chunks, parts of one more."""
    return minimum(micro_batches, pipeline + where(chunks > 1, (pipeline - 1) / chunks, 0))


@term("bytes", _KORTHIKANTI)
def layer_whole(tokens: V, hidden: V, dropout: V, routed: V, spread: V) -> V:
    """Of a layer's norms, of its two parts' inputs, of dropout's marks behind them, of tokens sent to experts."""
    return tokens * hidden * (8 + 2 * dropout + 2 * routed) / spread


@term("bytes", _KORTHIKANTI)
def layer_split(tokens: V, queries: V, keys: V, gated: V, width_worked: V, tensor: V) -> V:
    """Of queries, keys, values, the projection's input, and of the feed-forward part around its activation."""
    return tokens * (4 * queries + 4 * keys + where(gated, 6, 4) * width_worked) / tensor


@term("bytes", _KORTHIKANTI)
def layer_scores(tokens: V, sequence: V, heads: V, dropout: V, tensor: V, fused: V) -> V:
    """Of a layer's scores: behind softmax, and behind dropout with its marks."""
    return where(fused, 0, tokens * sequence * heads * (2 + 3 * dropout) / tensor)


@term("bytes")
def layer_remade(tokens: V, hidden: V, width_worked: V, tensor: V, spread: V, fused: V, layer_scores: V) -> V:
    """What selective recomputation leaves out: scores, or where they are fused norms' and activations' outputs."""
    return where(fused, tokens * (4 * hidden / spread + 2 * width_worked / tensor), layer_scores)


@term("bytes", _KORTHIKANTI)
def layer_kept(
    full: V, selective: V, tokens: V, hidden: V, spread: V, layer_whole: V, layer_split: V, layer_scores: V,
    layer_remade: V,
) -> V:  # fmt: skip
    """Of a layer's activations between its forward and its backward pass."""
    return where(
        full,
        2 * tokens * hidden / spread,
        layer_whole + layer_split + layer_scores - where(selective, layer_remade, 0),
    )


@term("bytes", _KORTHIKANTI)
def activations(
    in_flight: V, own_layers: V, layer_kept: V, full: V, layer_whole: V, layer_split: V, layer_scores: V
) -> V:
    """Of all micro-batches on their way, and of the layer that is being computed once more."""
    return in_flight * own_layers * layer_kept + where(full, layer_whole + layer_split + layer_scores, 0)


@term("bytes", _KORTHIKANTI)
def end_activations(
    tokens: V, hidden: V, vocabulary: V, tensor: V, spread: V, pipeline: V, dropout: V, in_flight: V
) -> V:
    """Behind the embedding: marks of its dropout; where it is the last stage too, norm, output and scores."""
    return tokens * (
        in_flight * dropout * hidden / spread + where(pipeline > 1, 0, 4 * hidden / spread + 4 * vocabulary / tensor)
    )


@term("bytes", "gathered weights and gradients of two layers; buckets of gradients; what stages and NCCL exchange")
def buffers(
    shard: V, dense_parameters: V, expert_parameters: V, own_layers: V, gradient_bytes: V, tokens: V, hidden: V,
    pipeline: V, gpus: V, process: V,
) -> V:  # fmt: skip
    """Of what is on its way to other GPUs."""
    return (
        where(shard >= 3, (4 + gradient_bytes) * (dense_parameters + expert_parameters) / own_layers, 0)
        + where(pipeline > 1, 4 * tokens * hidden, 0)
        + where(gpus > 1, process, 0)
    )


@term("bytes", "CUDA's context and its libraries: about 1 GiB; MPI's on a CPU: less")
def context_memory(process: V) -> V:
    """Of the process itself."""
    return process


@term("bytes")
def fragments(reserve: V, capacity: V) -> V:
    """Held back: pieces that are free and too small."""
    return reserve * capacity


@term("bytes")
def needed(
    weights: V, gradients: V, optimiser_states: V, activations: V, end_activations: V, buffers: V, context_memory: V,
    fragments: V,
) -> V:  # fmt: skip
    """All of it."""
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
