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


def test_the_bubble_is_its_papers_share_of_a_step() -> None:
    """Of what stages compute and send, and wait; all stages are alike."""
    for pipeline, chunks in ((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (2, 4), (4, 2)):
        for batches, tensor in ((8, 1), (64, 1), (64, 2)):
            parts = books(Layout(tensor, pipeline, chunks=chunks), ALIKE, batches, **BARE).parts
            names = ("computing", "tensor_parallel", "pipeline_parallel", "bubble")
            share = parts["bubble"] / sum(parts[name] for name in names)
            assert share == pytest.approx(bubble_share(pipeline, chunks, batches), rel=1e-3), (pipeline, chunks)


def test_zero_bubble_waits_as_its_paper_says_and_the_first_micro_batch_hides_nothing() -> None:
    """Less than one forward, one backward: by two parts for weights, which take half of a backward pass."""
    for pipeline in (2, 4, 8):
        for recompute in RECOMPUTE:
            layout = Layout(pipeline=pipeline, schedule="zb", recompute=recompute)
            layouts = (layout, replace(layout, schedule="1f1b"))
            plan, plain = (books(some, ALIKE, curves=Lines(1e18)) for some in layouts)
            known = plan.values
            weights = GPT.layers / pipeline * known["layer_backward"] / 2
            backward = known["stage_backward"] - weights  # and what is computed once more before it
            formula = zero_bubble(pipeline, float(known["stage_forward"]), float(backward), float(weights))
            assert plan.parts["bubble"] == pytest.approx(formula, rel=1e-6), layout
            assert 0 < plan.parts["bubble"] < plain.parts["bubble"], layout
            assert plan.parts == plain.parts | {"bubble": plan.parts["bubble"]}, layout
    sent = books(Layout(pipeline=4)).values
    once = 2 * 1024 * 1024 / 1e9
    assert sent["stage_once"] == pytest.approx(once)
    assert sent["filling"] == pytest.approx(2 * 3 * once * 0.9), "of the first micro-batch, of which nothing is hidden"
    assert sent["pipeline_parallel"] == pytest.approx(64 * 2 * once * 0.1 + sent["filling"])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(CHOICES, st.sampled_from(tuple(STACKS)), st.sampled_from((GPT, GATED, MIXED)), st.sampled_from((50.0, 1e9)))
def test_parts_add_up_and_faster_machines_are_faster(layout: Layout, stack: str, model: Model, rate: float) -> None:
    plan = books(layout, model, stack=stack, loader=rate, noise=0.01)
    assert plan.step == pytest.approx(sum(plan.parts.values()), rel=1e-12)
    assert tuple(plan.parts) == PARTS
    assert min(plan.parts.values()) >= 0
    assert {*PARTS} <= {term.name for term in STEPPING.terms}
    faster = replace(SYSTEM, flops=2 * GPU.flops, memory_rate=2 * GPU.memory_rate)
    quick = reckoned(asked(model, layout.gpus, curves=Lines(system=faster), stack=stack, noise=0.01), layout)
    assert quick.parts["computing"] == pytest.approx(plan.parts["computing"] / 2, rel=1e-9)
    network, late = (books(layout, model, curves=lines, stack=stack).step for lines in (Lines(2e9), Lines(1e9, 1e-4)))
    assert network * (1 - 1e-12) <= books(layout, model, stack=stack).step <= late * (1 + 1e-12)


def test_slow_samples_are_waited_for_and_the_slowest_gpu_by_bloms_formula() -> None:
    busy = float(books(Layout(data=8)).values["busy"])
    assert books(Layout(data=8)).parts["loading"] == 0
    for share in (0.1, 0.9, 1.1, 100.0):
        plan = books(Layout(data=8), loader=64 / busy / share)
        assert (plan.parts["loading"] > 0) == (share > 1)
        assert plan.step == pytest.approx(max(1, share) * busy, rel=1e-12)
    for data in (1, 2, 8, 64):
        parts = books(Layout(data=data), noise=0.02).parts
        assert parts["stragglers"] / parts["computing"] == pytest.approx(slowest_of(data, 0.02)), data


def test_products_are_those_that_are_counted() -> None:
    """Forward and backward passes of all layers are Narayanan's equation but for the output; fused, scores are half."""
    full = gpt_flops(GPT.layers, GPT.hidden, 0, 1024, 1, recomputed=False)
    scores = 12 * GPT.layers * GPT.hidden * 1024**2
    for stack, tensor in (("modern", 1), ("megatron-2022", 4)):
        plan = books(Layout(tensor), stack=stack).values
        forward = (full - (scores / 2 if stack == "modern" else 0)) / 3
        flops = float(plan["product_flops"] + plan["attention_flops"])
        assert flops * GPT.layers * tensor == pytest.approx(forward, rel=1e-12)
        assert plan["product_seconds"] == pytest.approx(plan["product_flops"] / GPU.flops / CONSTANTS.products)
        reached = CONSTANTS.fused * 1024 / (1024 + CONSTANTS.half) if stack == "modern" else CONSTANTS.unfused
        rate = GPU.flops * CONSTANTS.products * reached
        assert plan["attention_seconds"] == pytest.approx(plan["attention_flops"] / rate)
    for sequence in (512, 2**20):
        reached = books(Layout(), sequence=sequence).values["attention_efficiency"]
        assert reached == pytest.approx(CONSTANTS.fused / (1 + CONSTANTS.half / sequence))
        assert books(Layout(context=8), sequence=sequence).values["attention_efficiency"] == reached


def test_a_pass_backward_is_twice_one_forward() -> None:
    """But for scores of fused attention, made once more, and tokens, sorted as often; all once more is one forward."""
    for model in (GPT, GATED, MIXED):
        for stack in ("modern", "megatron-2022"):
            known, again, part = (
                books(Layout(recompute=recompute), model, stack=stack).values
                for recompute in ("none", "full", "selective")
            )
            extra = 0.5 * known["attention_seconds"] if STACKS[stack].fused_attention else 0.0
            extra -= known["sorting_seconds"]
            assert known["layer_backward"] == pytest.approx(2 * known["layer_forward"] + extra)
            assert known["layer_again"] == 0
            assert again["layer_again"] == again["layer_forward"] == known["layer_forward"]
            scores = known["attention_seconds"] + known["score_seconds"]
            expected = known["pointwise_seconds"] / 2 if STACKS[stack].fused_attention else scores
            assert part["layer_again"] == pytest.approx(expected), (model.name, stack)
            assert part["layer_again"] < known["layer_forward"]


def test_routed_experts_are_products_of_their_own_kind_or_wait_for_their_weights() -> None:
    """A gated expert's three matrices for every copy of a token; what all tokens share is as in a dense model.

    Where few tokens come, weights are read forward and backward, 2 bytes each, and gradients read and written.
    """
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
    few = replace(MIXED, experts=128, sequence=16)
    for gradients, size in GRADIENTS.items():
        for expert in (1, 4):
            known = books(Layout(data=4, expert=expert), few, gradients=gradients).values
            weights = 128 * few.expert_weights / expert
            assert known["layer_experts"] == weights
            assert known["grouped_seconds"] == pytest.approx(2 * weights / GPU.memory_rate)
            added = 2 * size * weights / GPU.memory_rate
            assert known["grouped_backward"] == pytest.approx(known["grouped_seconds"] + added)


def test_memory_is_read_and_written_as_often_as_said() -> None:
    """Tokens are sorted by expert six times: top_k copies of 2 bytes an element, in layers with experts only.

    Ten times each element of a layer's norms and sums, once the heads and the activation; 13 bytes a score.
    """
    half = replace(MIXED, moe_every=2)
    for sequential, model, share in ((False, MIXED, 1), (False, half, 1 / 2), (True, MIXED, 1 / 2), (False, GPT, 0)):
        known = books(Layout(2, micro=2, sequential=sequential), model).values
        assert known["sorted_bytes"] == share * 6 * 2 * (2 * 1024) * MIXED.top_k * MIXED.hidden
        assert known["sorting_seconds"] == pytest.approx(known["sorted_bytes"] / GPU.memory_rate)
    known, split = (books(Layout(2, micro=2, sequential=some), **BARE).values for some in (False, True))
    heads, width = 2 * (1024 + 1024), 2 * 4 * 1024
    assert known["pointwise_bytes"] == 2 * 2 * 1024 * (10 * 1024 + (width + heads) / 2)
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
    known = books(Layout(data=4, context=2, micro=2)).values
    assert known["micro_batches"] == 64 / 4 / 2
    assert known["tokens"] == 2 * 1024 / 2


def test_the_optimiser_reads_and_writes_its_share_once() -> None:
    """States, gradients, and weights read and written; on the CPU, through its slot and its memory."""
    psi = GPT.parameters
    for name, optimiser in OPTIMISERS.items():
        traffic = optimiser.traffic
        whole = books(Layout(data=8), optimiser=name).parts["optimiser"]
        assert whole == pytest.approx(psi * (traffic + 4 + 4) / GPU.memory_rate), name
        part = books(Layout(data=8, sharding="zero1"), optimiser=name).parts["optimiser"]
        assert part == pytest.approx(whole / 8), name
        away = books(Layout(data=8, sharding="zero1", offload=True), optimiser=name).parts["optimiser"]
        assert away == pytest.approx(psi / 8 * (6 / SYSTEM.pcie_rate + (traffic + 4) / 25e9)), name


def test_utilisation_is_of_the_data_sheet_and_eight_bits_are_faster_where_the_gpu_has_them() -> None:
    """What Narayanan's equation counts, over what the GPUs could have done in a step; an anchor scales computing."""
    model = MODELS["gpt3-1.3b"]
    plan = books(Layout(data=8), model)
    flops = gpt_flops(24, 2048, model.vocabulary, 2048, 64, recomputed=False)
    assert plan.utilisation == pytest.approx(flops / plan.step / 8 / GPU.flops)
    assert plan.tokens_per_second == 64 * 2048 / plan.step
    quick = books(Layout(data=8), model, efficiency=2.0)
    assert quick.parts["computing"] == pytest.approx(plan.parts["computing"] / 2)
    assert np.isfinite(quick.step)
    half, eighth = (books(Layout(), precision=name).values for name in ("bf16", "fp8"))
    faster = CONSTANTS.fp8 * GPU.flops_fp8 / GPU.flops
    assert eighth["product_seconds"] == pytest.approx(half["product_seconds"] / faster)
    assert eighth["attention_seconds"] == half["attention_seconds"]
    old = Lines(system=replace(SYSTEM, arch="sm80", gpu="A100"))
    steps = {reckoned(asked(curves=old, gpus=1, precision=name), Layout()).step for name in ("bf16", "fp8")}
    assert len(steps) == 1
