"""Formulas of a step: computing and communication put together in time; and the evaluation of formulas.

Every formula is a function whose parameters name other formulas and inputs.  Arguments are numbers, or arrays with a
number for every layout.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from numpy import maximum, where

V = Any  # a number, or an array of one for every layout


def micro_computing(stage_forward: V, stage_backward: V) -> V:
    """Return the seconds of computing of a micro-batch in a stage."""
    return stage_forward + stage_backward


def micro_exposed(tensor_exposed: V, context_exposed: V, expert_exposed: V, shard_exposed: V, stage_exposed: V) -> V:
    """Return the seconds of communication of a micro-batch in a stage that no computing hides."""
    return tensor_exposed + context_exposed + expert_exposed + shard_exposed + stage_exposed


def micro_seconds(micro_computing: V, micro_exposed: V) -> V:
    """Return the seconds of a micro-batch in a stage."""
    return micro_computing + micro_exposed


def head_excess(head_seconds: V, micro_seconds: V, own_layers: V, layers: V, pipeline: V) -> V:
    """Return the seconds by which the last stage takes longer than the fullest; it may have fewer layers."""
    return maximum(0, head_seconds - micro_seconds / own_layers * (own_layers * pipeline - layers))


def bubble(
    pipeline: V, chunks: V, micro_seconds: V, zero_bubble: V, stage_backward: V, own_layers: V, layer_again: V
) -> V:
    """Return the seconds of waiting while the pipeline fills and drains.

    Zero-bubble schedules compute gradients of weights then (Qi et al. 2023, arXiv:2401.10241, table 1: ZB-H1).
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    return (pipeline - 1) * where(
        zero_bubble, micro_seconds - (stage_backward - own_layers * layer_again), micro_seconds / chunks
    )


def filling(pipeline: V, stage_once: V, hidden_pipeline: V) -> V:
    """Return the seconds of sending the first micro-batch through all stages and back, which nothing hides."""
    return 2 * (pipeline - 1) * stage_once * hidden_pipeline


def optimiser_seconds(
    shard: V, share: V, whole: V, state_traffic: V, gradient_bytes: V, memory_rate: V, memory_efficiency: V, offload: V
) -> V:
    """Return the seconds of the optimiser on a GPU: all that it reads and writes, once."""
    return where(
        offload,
        0,
        where(shard >= 1, share, whole) * (state_traffic + gradient_bytes + 4) / (memory_rate * memory_efficiency),
    )


def offload_seconds(
    offload: V, shard: V, share: V, whole: V, gradient_bytes: V, state_traffic: V, pcie_rate: V, host_rate: V
) -> V:
    """Return the seconds of the optimiser on a CPU.

    Gradients go down, weights come up, and all states go through the CPU's memory.
    """
    return where(
        offload,
        where(shard >= 1, share, whole)
        * ((gradient_bytes + 2) / pcie_rate + (state_traffic + gradient_bytes) / host_rate),
        0,
    )


def computing(micro_batches: V, micro_computing: V, head_excess: V) -> V:
    """Return the seconds of computing in a step."""
    return micro_batches * (micro_computing + head_excess)


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


def data_parallel(micro_batches: V, shard_exposed: V, gradient_exposed: V, contention: V) -> V:
    """Return the seconds of exposed communication of gradients and of sharded weights in a step."""
    return micro_batches * shard_exposed + gradient_exposed + contention


def optimiser(optimiser_seconds: V, offload_seconds: V) -> V:
    """Return the seconds of changing the weights in a step."""
    return optimiser_seconds + offload_seconds


def busy(
    computing: V, tensor_parallel: V, context_parallel: V, expert_parallel: V, pipeline_parallel: V, data_parallel: V,
    bubble: V, optimiser: V, stragglers: V,
) -> V:  # fmt: skip
    """Return the seconds of a step whose samples are always there."""
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


def loading(batch: V, loader: V, busy: V) -> V:
    """Return the seconds of waiting for samples in a step."""
    return maximum(0, batch / loader - busy)


def step(busy: V, loading: V) -> V:
    """Return the seconds of a step."""
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


TERMS = (
    micro_computing,
    micro_exposed,
    micro_seconds,
    head_excess,
    bubble,
    filling,
    optimiser_seconds,
    offload_seconds,
    computing,
    stragglers,
    tensor_parallel,
    context_parallel,
    expert_parallel,
    pipeline_parallel,
    data_parallel,
    optimiser,
    busy,
    loading,
    step,
)
"""Formulas of this module, in an order in which they can be evaluated."""


def evaluate(terms: Iterable[Callable[..., Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values together with those of all terms, each evaluated with the values that its parameters name.

    A term whose value is given already is not evaluated again.
    """
    known = dict(values)
    for term in terms:
        if term.__name__ not in known:
            known[term.__name__] = term(*[known[name] for name in _parameters(term)])
    return known


@cache
def _parameters(term: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(term).parameters)
