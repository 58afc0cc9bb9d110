"""Formulas of a step: computing and communication put together in time.

Every formula is a function whose parameters name other formulas and inputs (`search.evaluate` evaluates them, in the
order of this file).  Arguments are numbers, or arrays with a number for every layout.
"""

from inspect import signature
from typing import Any

from numpy import maximum, minimum, where

V = Any  # a number, or an array of one for every layout


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
"""What `step` is the sum of."""
