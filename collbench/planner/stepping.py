"""Terms of a step: the parts of the two books before, put together in time."""

from typing import Any

from numpy import maximum, where

from collbench.planner.ledger import Section

V = Any  # a number, or an array of one for every layout

STEPPING = Section("step")
term = STEPPING.term

_MEGATRON = "Narayanan et al. 2021, arXiv:2104.04473, section 2.2"
_ZERO_BUBBLE = "Qi et al. 2023, arXiv:2401.10241, table 1: ZB-H1"


@term("s")
def micro_computing(stage_forward: V, stage_backward: V) -> V:
    """Of a micro-batch in a stage: computing."""
    return stage_forward + stage_backward


@term("s")
def micro_exposed(tensor_exposed: V, context_exposed: V, expert_exposed: V, shard_exposed: V, stage_exposed: V) -> V:
    """Of a micro-batch in a stage: communication that no computing hides."""
    return tensor_exposed + context_exposed + expert_exposed + shard_exposed + stage_exposed


@term("s")
def micro_seconds(micro_computing: V, micro_exposed: V) -> V:
    """Of a micro-batch in a stage."""
    return micro_computing + micro_exposed


@term("s")
def head_excess(head_seconds: V, micro_seconds: V, own_layers: V, layers: V, pipeline: V) -> V:
    """By which the last stage takes longer than the fullest; it may have fewer layers."""
    return maximum(0, head_seconds - micro_seconds / own_layers * (own_layers * pipeline - layers))


@term("s", _MEGATRON)
def bubble(
    pipeline: V, chunks: V, micro_seconds: V, zero_bubble: V, stage_backward: V, own_layers: V, layer_again: V
) -> V:
    """Of waiting while the pipeline fills and drains; zero-bubble computes gradients of weights then."""
    return (pipeline - 1) * where(
        zero_bubble, micro_seconds - (stage_backward - own_layers * layer_again), micro_seconds / chunks
    )


@term("s")
def filling(pipeline: V, stage_once: V, hidden_pipeline: V) -> V:
    """Of what the first micro-batch is sent from stage to stage, and back, which nothing hides."""
    return 2 * (pipeline - 1) * stage_once * hidden_pipeline


@term("s", "all that the optimiser reads and writes, once")
def optimiser_seconds(
    shard: V, share: V, whole: V, state_traffic: V, gradient_bytes: V, memory_rate: V, memory_efficiency: V, offload: V
) -> V:
    """Of changing the weights on a GPU."""
    return where(
        offload,
        0,
        where(shard >= 1, share, whole) * (state_traffic + gradient_bytes + 4) / (memory_rate * memory_efficiency),
    )


@term("s", "gradients down, weights up, and all states through the CPU's memory")
def offload_seconds(
    offload: V, shard: V, share: V, whole: V, gradient_bytes: V, state_traffic: V, pcie_rate: V, host_rate: V
) -> V:
    """Of changing them on a CPU."""
    return where(
        offload,
        where(shard >= 1, share, whole)
        * ((gradient_bytes + 2) / pcie_rate + (state_traffic + gradient_bytes) / host_rate),
        0,
    )


@term("s")
def computing(micro_batches: V, micro_computing: V, head_excess: V) -> V:
    """Of a step: computing."""
    return micro_batches * (micro_computing + head_excess)


@term("s", "Blom 1958: the slowest of n; model/steps.py")
def stragglers(computing: V, slowest: V) -> V:
    """Of waiting for the slowest GPU."""
    return computing * slowest


@term("s")
def tensor_parallel(micro_batches: V, tensor_exposed: V) -> V:
    """Of a step: exposed communication of tensor parallelism."""
    return micro_batches * tensor_exposed


@term("s")
def context_parallel(micro_batches: V, context_exposed: V) -> V:
    """Of a step: exposed communication of context parallelism."""
    return micro_batches * context_exposed


@term("s")
def expert_parallel(micro_batches: V, expert_exposed: V) -> V:
    """Of a step: exposed communication of expert parallelism."""
    return micro_batches * expert_exposed


@term("s")
def pipeline_parallel(micro_batches: V, stage_exposed: V, filling: V) -> V:
    """Of a step: exposed communication between stages."""
    return micro_batches * stage_exposed + filling


@term("s")
def data_parallel(micro_batches: V, shard_exposed: V, gradient_exposed: V, contention: V) -> V:
    """Of a step: exposed communication of gradients and of sharded weights."""
    return micro_batches * shard_exposed + gradient_exposed + contention


@term("s")
def optimiser(optimiser_seconds: V, offload_seconds: V) -> V:
    """Of a step: changing the weights."""
    return optimiser_seconds + offload_seconds


@term("s")
def busy(
    computing: V, tensor_parallel: V, context_parallel: V, expert_parallel: V, pipeline_parallel: V, data_parallel: V,
    bubble: V, optimiser: V, stragglers: V,
) -> V:  # fmt: skip
    """Of a step, if samples are always there."""
    return (
        computing
        + tensor_parallel
        + context_parallel
        + expert_parallel
        + pipeline_parallel
        + data_parallel
        + bubble
        + optimiser
        + stragglers
    )


@term("s")
def loading(batch: V, loader: V, busy: V) -> V:
    """Of a step: waiting for samples, if they are read at that rate."""
    return maximum(0, batch / loader - busy)


@term("s")
def step(busy: V, loading: V) -> V:
    """Of all of it."""
    return busy + loading


PARTS = (
    "computing",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_parallel",
    "data_parallel",
    "bubble",
    "optimiser",
    "stragglers",
    "loading",
)
"""What `step` is the sum of."""
