"""Steps: bubbles, waits and what a GPU computes, each against a formula of its own; parts that add up."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.topology.products import product_of
from collbench.training.job import GRADIENTS, OPTIMISERS, STACKS
from collbench.training.layout import RECOMPUTE, Layout
from collbench.training.models import Model
from collbench.training.presets import MODELS
from collbench.training.stepping import PARTS, STEPPING
from tests.training.books import CHOICES, CONSTANTS, GATED, GPT, MIXED, SYSTEM, Lines, asked, books, reckoned
from tests.training.closed_forms import bubble_share, gpt_flops, slowest_of, zero_bubble

ALIKE = replace(GPT, vocabulary=1)  # stages of which none has a head to speak of
GPU = product_of(SYSTEM)
BARE: dict[str, Any] = {"stack": "megatron-2022"}
STAGES = [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (2, 4), (4, 2)]


@pytest.mark.parametrize(("pipeline", "chunks"), STAGES)
@pytest.mark.parametrize("batches", [8, 64])
@pytest.mark.parametrize("tensor", [1, 2])
def test_the_bubble_is_its_papers_share_of_a_step(pipeline: int, chunks: int, batches: int, tensor: int) -> None:
    """Of what stages compute and send, and wait; all stages are alike."""
    plan = books(Layout(tensor, pipeline, chunks=chunks), ALIKE, batches, **BARE)
    names = ("computing", "tensor_parallel", "pipeline_parallel", "bubble")
    computing, sending, stages, bubble = (plan.parts[name] for name in names)
    share = bubble / (computing + sending + stages + bubble)
    assert share == pytest.approx(bubble_share(pipeline, chunks, batches), rel=1e-3)


@pytest.mark.parametrize("pipeline", [2, 4, 8])
@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_zero_bubble_waits_as_its_paper_says(pipeline: int, recompute: str) -> None:
    """Less than one forward, one backward: by two parts for weights, which take half of a backward pass."""
    layout = Layout(pipeline=pipeline, schedule="zb", recompute=recompute)
    plan = reckoned(asked(ALIKE, pipeline, curves=Lines(1e18)), layout)
    known = plan.values
    weights = GPT.layers / pipeline * known["layer_backward"] / 2
    backward = known["stage_backward"] - weights  # and what is computed once more before it
    formula = zero_bubble(pipeline, float(known["stage_forward"]), float(backward), float(weights))
    assert plan.parts["bubble"] == pytest.approx(formula, rel=1e-6)
    plain = reckoned(asked(ALIKE, pipeline, curves=Lines(1e18)), replace(layout, schedule="1f1b"))
    assert 0 < plan.parts["bubble"] < plain.parts["bubble"]
    assert {name: plan.parts[name] for name in PARTS if name != "bubble"} == {
        name: plain.parts[name] for name in PARTS if name != "bubble"
    }


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CHOICES, st.sampled_from(tuple(STACKS)), st.sampled_from((GPT, GATED, MIXED)), st.sampled_from((50.0, 1e9)))
def test_parts_add_up_to_the_step(layout: Layout, stack: str, model: Model, loader: float) -> None:
    """And none is negative, whatever is chosen."""
    plan = books(layout, model, stack=stack, loader=loader, noise=0.01)
    assert plan.step == pytest.approx(sum(plan.parts.values()), rel=1e-12)
    assert tuple(plan.parts) == PARTS
    assert min(plan.parts.values()) >= 0
    assert {*PARTS} <= {term.name for term in STEPPING.terms}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(1, 1e6))
def test_samples_are_waited_for_exactly_where_they_come_slower_than_they_are_used(loader: float) -> None:
    """Then a step takes as long as reading them."""
    plan = books(Layout(data=8), loader=loader)
    busy = float(plan.values["busy"])
    assert (plan.parts["loading"] > 0) == (64 / loader > busy)
    assert plan.step == pytest.approx(max(busy, 64 / loader), rel=1e-12)
    assert books(Layout(data=8)).parts["loading"] == 0


def test_the_slowest_gpu_is_waited_for_by_bloms_formula() -> None:
    """The longer, the more there are; alone, nobody waits."""
    waits = []
    for data in (1, 2, 8, 64):
        plan = books(Layout(data=data), noise=0.02)
        waits.append(plan.parts["stragglers"] / plan.parts["computing"])
        assert waits[-1] == pytest.approx(slowest_of(data, 0.02))
    assert waits[0] == 0
    assert waits == sorted(set(waits))


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("stack", ["modern", "megatron-2022"])
def test_products_are_those_that_are_counted(tensor: int, stack: str) -> None:
    """Forward and backward passes of all layers are Narayanan's equation but for the output; fused, scores are half."""
    plan = books(Layout(tensor), stack=stack).values
    full = gpt_flops(GPT.layers, GPT.hidden, 0, 1024, 1, recomputed=False)
    scores = 12 * GPT.layers * GPT.hidden * 1024**2
    forward = (full - (scores / 2 if stack == "modern" else 0)) / 3
    flops = float(plan["product_flops"] + plan["attention_flops"])
    assert flops * GPT.layers * tensor == pytest.approx(forward, rel=1e-12)
    assert plan["product_seconds"] == pytest.approx(plan["product_flops"] / GPU.flops / CONSTANTS.products)
    reached = CONSTANTS.fused * 1024 / (1024 + CONSTANTS.half) if stack == "modern" else CONSTANTS.unfused
    rate = GPU.flops * CONSTANTS.products * reached
    assert plan["attention_seconds"] == pytest.approx(plan["attention_flops"] / rate)


@pytest.mark.parametrize("model", [GPT, GATED, MIXED], ids=["gpt", "gated", "mixed"])
@pytest.mark.parametrize("stack", ["modern", "megatron-2022"])
def test_a_pass_backward_is_twice_one_forward(model: Model, stack: str) -> None:
    """But for scores of fused attention, made once more, and tokens, sorted as often; all once more is one forward."""
    known = books(Layout(), model, stack=stack).values
    extra = 0.5 * known["attention_seconds"] if STACKS[stack].fused_attention else 0.0
    extra -= known["sorting_seconds"]
    assert known["layer_backward"] == pytest.approx(2 * known["layer_forward"] + extra)
    assert known["layer_again"] == 0
    again = books(Layout(recompute="full"), model, stack=stack).values
    assert again["layer_again"] == again["layer_forward"] == known["layer_forward"]
    part = books(Layout(recompute="selective"), model, stack=stack).values["layer_again"]
    scores = known["attention_seconds"] + known["score_seconds"]
    expected = known["pointwise_seconds"] / 2 if STACKS[stack].fused_attention else scores
    assert part == pytest.approx(expected)
    assert part < known["layer_forward"]


@pytest.mark.parametrize("sequence", [512, 4096, 2**20])
def test_fused_attention_reaches_more_of_long_samples(sequence: int) -> None:
    """Half of what it reaches at best where a sample has `half` tokens, however many GPUs cut it."""
    reached = books(Layout(), sequence=sequence).values["attention_efficiency"]
    assert reached == pytest.approx(CONSTANTS.fused / (1 + CONSTANTS.half / sequence))
    assert books(Layout(context=8), sequence=sequence).values["attention_efficiency"] == reached
    assert books(Layout(), sequence=sequence, stack="megatron-2022").values["attention_efficiency"] == CONSTANTS.unfused


def test_routed_experts_are_products_of_their_own_kind() -> None:
    """A gated expert's three matrices for every copy of a token; what all tokens share is as in a dense model."""
    known = books(Layout(2), MIXED).values
    assert known["grouped_flops"] == 2 * 1024 * MIXED.top_k * 3 * MIXED.hidden * MIXED.width / 2
    rate = GPU.flops * CONSTANTS.products
    assert known["grouped_seconds"] == pytest.approx(known["grouped_flops"] / (rate * CONSTANTS.grouped))
    assert known["product_seconds"] == pytest.approx(known["product_flops"] / rate)
    shared = books(Layout(2), replace(MIXED, shared=1)).values
    assert shared["grouped_flops"] == known["grouped_flops"]
    more = shared["product_flops"] - known["product_flops"]
    assert more == pytest.approx(known["grouped_flops"] / MIXED.top_k)
    assert books(Layout(2)).values["grouped_flops"] == 0


@pytest.mark.parametrize("gradients", GRADIENTS)
def test_experts_that_see_few_tokens_wait_for_their_weights(gradients: str) -> None:
    """Read forward and backward, 2 bytes each; their gradients are read and written; parallel experts have fewer."""
    few = replace(MIXED, experts=128, sequence=16)
    own = 128 * few.expert_weights
    for expert in (1, 4):
        known = books(Layout(data=4, expert=expert), few, gradients=gradients).values
        assert known["layer_experts"] == own / expert
        assert known["grouped_seconds"] == pytest.approx(2 * own / expert / GPU.memory_rate)
        added = 2 * GRADIENTS[gradients] * own / expert / GPU.memory_rate
        assert known["grouped_backward"] == pytest.approx(known["grouped_seconds"] + added)


def test_tokens_are_sorted_by_expert_six_times() -> None:
    """Of every token top_k copies of 2 bytes an element, read or written; in layers with experts only."""
    known = books(Layout(2, micro=2), MIXED).values
    assert known["sorted_bytes"] == 6 * 2 * (2 * 1024) * MIXED.top_k * MIXED.hidden
    assert known["sorting_seconds"] == pytest.approx(known["sorted_bytes"] / GPU.memory_rate)
    assert books(Layout(2, micro=2), replace(MIXED, moe_every=2)).values["sorted_bytes"] == known["sorted_bytes"] / 2
    assert books(Layout(2, micro=2, sequential=True), MIXED).values["sorted_bytes"] == known["sorted_bytes"] / 2
    assert books(Layout(2, micro=2)).values["sorted_bytes"] == 0


def test_memory_is_read_and_written_as_often_as_said() -> None:
    """Ten times each element of a layer's norms and sums, once the heads and the activation; 13 bytes a score."""
    known = books(Layout(2, micro=2), **BARE).values
    heads, width = 2 * (1024 + 1024), 2 * 4 * 1024
    assert known["pointwise_bytes"] == 2 * 2 * 1024 * (10 * 1024 + (width + heads) / 2)
    split = books(Layout(2, micro=2, sequential=True), **BARE).values
    assert split["pointwise_bytes"] == 2 * 2 * 1024 * (10 * 1024 + width + heads) / 2
    assert known["score_bytes"] == 13 * 2 * 1024 * 1024 * 16 / 2
    assert known["score_seconds"] == pytest.approx(known["score_bytes"] / GPU.memory_rate)
    assert known["pointwise_seconds"] == pytest.approx(known["pointwise_bytes"] / GPU.memory_rate)
    assert books(Layout()).values["score_bytes"] == 0


def test_the_output_is_the_last_stages_unless_it_has_fewer_layers() -> None:
    """6 FLOP a word, element and token, and 40 bytes a word and token."""
    flops, scores = 6 * 1024 * 1024 * GPT.vocabulary, 40 * 1024 * GPT.vocabulary
    seconds = flops / (GPU.flops * CONSTANTS.products) + scores / GPU.memory_rate
    for tensor, pipeline in ((1, 1), (2, 4)):
        plan = books(Layout(tensor, pipeline)).values
        assert plan["head_excess"] == plan["head_seconds"] == pytest.approx(seconds / tensor)
        assert plan["computing"] == pytest.approx(64 * (plan["micro_computing"] + plan["head_excess"]))
    fewer = books(Layout(1, 4), replace(GPT, layers=14)).values
    assert fewer["own_layers"] == 4
    spare = fewer["micro_seconds"] / 4 * 2
    assert fewer["head_excess"] == pytest.approx(max(0, fewer["head_seconds"] - spare))
    assert books(Layout(1, 4), replace(GPT, layers=14, vocabulary=1000)).values["head_excess"] == 0


def test_a_step_has_as_many_micro_batches_as_replicas_leave() -> None:
    """And as many tokens each as context parallelism leaves."""
    known = books(Layout(data=4, context=2, micro=2)).values
    assert known["micro_batches"] == 64 / 4 / 2
    assert known["tokens"] == 2 * 1024 / 2


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_optimiser_reads_and_writes_its_share_once(name: str) -> None:
    """States, gradients, and weights read and written; on the CPU, through its slot and its memory."""
    traffic, psi = OPTIMISERS[name].traffic, GPT.parameters
    whole = books(Layout(data=8), optimiser=name).parts["optimiser"]
    assert whole == pytest.approx(psi * (traffic + 4 + 4) / GPU.memory_rate)
    part = books(Layout(data=8, sharding="zero1"), optimiser=name).parts["optimiser"]
    assert part == pytest.approx(whole / 8)
    away = books(Layout(data=8, sharding="zero1", offload=True), optimiser=name).parts["optimiser"]
    assert away == pytest.approx(psi / 8 * (6 / SYSTEM.pcie_rate + (traffic + 4) / 25e9))


def test_the_first_micro_batch_is_sent_through_all_stages() -> None:
    """What is hidden later is not hidden for it: there and back, between any two stages."""
    plan = books(Layout(pipeline=4)).values
    once = 2 * 1024 * 1024 / 1e9
    assert plan["stage_once"] == pytest.approx(once)
    assert plan["filling"] == pytest.approx(2 * 3 * once * 0.9)
    assert plan["pipeline_parallel"] == pytest.approx(64 * 2 * once * 0.1 + plan["filling"])


def test_eight_bits_are_faster_where_the_gpu_has_them() -> None:
    """Products only; a GPU without computes on sixteen."""
    half, eighth = (books(Layout(), precision=name).values for name in ("bf16", "fp8"))
    assert eighth["product_seconds"] == pytest.approx(
        half["product_seconds"] / (CONSTANTS.fp8 * GPU.flops_fp8 / GPU.flops)
    )
    assert eighth["attention_seconds"] == half["attention_seconds"]
    old = replace(SYSTEM, arch="sm80", gpu="A100")
    without = [
        reckoned(asked(curves=Lines(system=old), gpus=1, precision=name), Layout()).step for name in ("bf16", "fp8")
    ]
    assert without[0] == without[1]


def test_utilisation_is_of_the_data_sheet() -> None:
    """What Narayanan's equation counts, over what the GPUs could have done in a step; an anchor scales computing."""
    model = MODELS["gpt3-1.3b"]
    plan = books(Layout(data=8), model)
    flops = gpt_flops(24, 2048, model.vocabulary, 2048, 64, recomputed=False)
    assert plan.utilisation == pytest.approx(flops / plan.step / 8 / GPU.flops)
    assert plan.tokens_per_second == 64 * 2048 / plan.step
    quick = books(Layout(data=8), model, efficiency=2.0)
    assert quick.parts["computing"] == pytest.approx(plan.parts["computing"] / 2)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(CHOICES, st.sampled_from((GPT, GATED, MIXED)))
def test_computing_scales_with_the_data_sheet(layout: Layout, model: Model) -> None:
    """A GPU that is twice as fast at all computes a step in half the time."""
    plan = books(layout, model)
    faster = replace(SYSTEM, flops=2 * GPU.flops, memory_rate=2 * GPU.memory_rate)
    quick = reckoned(asked(model, layout.gpus, curves=Lines(system=faster)), layout)
    assert quick.parts["computing"] == pytest.approx(plan.parts["computing"] / 2, rel=1e-9)
    assert np.isfinite(quick.step)
