"""Terms of computing: what a GPU does for a micro-batch in one of its layers, forward, backward and once more.

Lengths and counts are of one GPU; a layer stands for the mean of all layers.
"""

from typing import Any

from numpy import ceil, maximum, where

from collbench.planner.ledger import Section

V = Any  # a number, or an array of one for every layout

WORK = Section("computing")
term = WORK.term

_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198"


@term()
def tokens(micro: V, sequence: V, context: V) -> V:
    """Of a micro-batch."""
    return micro * sequence / context


@term(source=_MEGATRON)
def micro_batches(batch: V, data: V, micro: V) -> V:
    """In a step."""
    return batch / (data * micro)


@term()
def own_layers(layers: V, pipeline: V, chunks: V) -> V:
    """Of the fullest stage."""
    return ceil(layers / (pipeline * chunks)) * chunks


@term("FLOP", "2 FLOP a weight and token")
def product_flops(tokens: V, worked: V, grouped_worked: V, tensor: V) -> V:
    """Of a layer's matrices without routed experts, forward."""
    return 2 * tokens * (worked - grouped_worked) / tensor


@term("FLOP", "2 FLOP a weight and token")
def grouped_flops(tokens: V, grouped_worked: V, tensor: V) -> V:
    """Of a layer's routed experts, forward."""
    return 2 * tokens * grouped_worked / tensor


@term("FLOP/s", "docs/training.md: fitted")
def product_rate(peak: V, product_efficiency: V) -> V:
    """Of matrix products."""
    return peak * product_efficiency


@term("s")
def product_seconds(product_flops: V, product_rate: V) -> V:
    """Of a layer's matrices without routed experts, forward."""
    return product_flops / product_rate


@term()
def layer_experts(routed_parameters: V, tensor: V, expert: V) -> V:
    """Parameters of a GPU's routed experts in a layer."""
    return routed_parameters / (tensor * expert)


@term("s", "as products, or as long as reading their weights takes, of which few tokens make use")
def grouped_seconds(
    grouped_flops: V, product_rate: V, grouped_efficiency: V, layer_experts: V, memory_rate: V, memory_efficiency: V
) -> V:
    """Of a layer's routed experts, forward."""
    return maximum(
        grouped_flops / (product_rate * grouped_efficiency), 2 * layer_experts / (memory_rate * memory_efficiency)
    )


@term("s", "the same for what goes on to the layer before, and for gradients, which are read, added to and written")
def grouped_backward(
    grouped_seconds: V, grouped_flops: V, product_rate: V, grouped_efficiency: V, layer_experts: V, gradient_bytes: V,
    memory_rate: V, memory_efficiency: V,
) -> V:  # fmt: skip
    """Of a layer's routed experts, backward."""
    return grouped_seconds + maximum(
        grouped_flops / (product_rate * grouped_efficiency),
        2 * gradient_bytes * layer_experts / (memory_rate * memory_efficiency),
    )


@term("FLOP", "2 products with the earlier tokens; fused attention leaves out the later ones")
def attention_flops(tokens: V, sequence: V, queries: V, tensor: V, fused: V) -> V:
    """Of the scores and of the mean of the values, forward."""
    return 4 * tokens * sequence * queries / tensor * where(fused, 0.5, 1)


@term(source="docs/training.md: fitted; fused attention reaches less of short samples")
def attention_efficiency(fused: V, fused_efficiency: V, fused_half: V, sequence: V, unfused_efficiency: V) -> V:
    """Of what products reach: attention's share."""
    return where(fused, fused_efficiency / (1 + fused_half / sequence), unfused_efficiency)


@term("s")
def attention_seconds(attention_flops: V, peak16: V, attention_efficiency: V, product_efficiency: V) -> V:
    """Of the same."""
    return attention_flops / (peak16 * attention_efficiency * product_efficiency)


@term("bytes", "13 bytes a score: written, masked, dropped, read; none where attention is fused")
def score_bytes(tokens: V, sequence: V, heads: V, tensor: V, fused: V) -> V:
    """That scores take through memory, forward."""
    return where(fused, 0, 13 * tokens * sequence * heads / tensor)


@term("bytes", "2 norms, 2 sums: 10 reads and writes of 2 bytes; the activation and the heads' positions")
def pointwise_bytes(tokens: V, hidden: V, width_worked: V, matrices: V, queries: V, keys: V, tensor: V, spread: V) -> V:
    """That all else takes through memory, forward."""
    return 2 * tokens * (10 * hidden / spread + (matrices * width_worked + 2 * (queries + keys)) / tensor)


@term("bytes", "by expert, before and behind the all-to-all, there and back: 6 reads and writes of 2 bytes a copy")
def sorted_bytes(tokens: V, hidden: V, routed: V, spread: V) -> V:
    """That sorting tokens by expert takes through memory, forward; as much backward."""
    return 12 * tokens * hidden * routed / spread


@term("s")
def sorting_seconds(sorted_bytes: V, memory_rate: V, memory_efficiency: V) -> V:
    """Of sorting tokens by expert."""
    return sorted_bytes / (memory_rate * memory_efficiency)


@term("s")
def score_seconds(score_bytes: V, memory_rate: V, memory_efficiency: V) -> V:
    """Of the scores' way through memory."""
    return score_bytes / (memory_rate * memory_efficiency)


@term("s")
def pointwise_seconds(pointwise_bytes: V, memory_rate: V, memory_efficiency: V) -> V:
    """Of all else that goes through memory."""
    return pointwise_bytes / (memory_rate * memory_efficiency)


@term("s")
def layer_forward(
    product_seconds: V, grouped_seconds: V, attention_seconds: V, score_seconds: V, pointwise_seconds: V,
    sorting_seconds: V, efficiency: V,
) -> V:  # fmt: skip
    """Of a layer, forward."""
    return (
        product_seconds + grouped_seconds + attention_seconds + score_seconds + pointwise_seconds + sorting_seconds
    ) / efficiency


@term("s", "twice the products; sorting as often; fused attention makes its scores once more")
def layer_backward(
    product_seconds: V, grouped_backward: V, attention_seconds: V, score_seconds: V, pointwise_seconds: V,
    sorting_seconds: V, fused: V, efficiency: V,
) -> V:  # fmt: skip
    """Of a layer, backward."""
    return (
        2 * product_seconds
        + grouped_backward
        + where(fused, 2.5, 2) * attention_seconds
        + 2 * score_seconds
        + 2 * pointwise_seconds
        + sorting_seconds
    ) / efficiency


@term("s", _KORTHIKANTI)
def layer_again(
    full: V, selective: V, layer_forward: V, attention_seconds: V, score_seconds: V, pointwise_seconds: V, fused: V,
    efficiency: V,
) -> V:  # fmt: skip
    """Of what is computed once more: all, or scores, or where they are fused norms and activations."""
    return where(
        full,
        layer_forward,
        selective * where(fused, pointwise_seconds / 2, attention_seconds + score_seconds) / efficiency,
    )


@term("s", "6 FLOP a word, element and token; the words' scores go through memory ten times in 32 bits")
def head_seconds(
    tokens: V, hidden: V, vocabulary: V, tensor: V, peak16: V, product_efficiency: V, memory_rate: V,
    memory_efficiency: V, efficiency: V,
) -> V:  # fmt: skip
    """Of the last stage's output and loss, forward and backward."""
    return (
        (6 * hidden / (peak16 * product_efficiency) + 40 / (memory_rate * memory_efficiency))
        * tokens
        * vocabulary
        / tensor
        / efficiency
    )
