"""Terms of a plan: memory, communication and computing, each against a formula of a paper; parts that add up."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.train import formulas
from collbench.commands.train.communication import PARTS
from collbench.commands.train.curves import GpuGroup
from collbench.commands.train.layouts import RECOMPUTE, SHARDINGS, Layout
from collbench.commands.train.models import GRADIENTS, MODELS, OPTIMISERS, STACKS, Model
from collbench.commands.train.search import TERMS, evaluate_layout
from collbench.model.predict import CONTENTION
from collbench.topology.system import product_of
from tests.commands.train.closed_forms import (
    bubble_share,
    bus_factor,
    end_activations,
    gpt_flops,
    layer_activations,
    layers_in_flight,
    slowest_of,
    zero_bubble,
    zero_bytes,
)
from tests.commands.train.layouts_on_lines import (
    AT_ONCE,
    CHOICES,
    CONSTANTS,
    GATED,
    GPT,
    MIXED,
    SYSTEM,
    Books,
    Lines,
    books,
    evaluated,
    request,
)

BARE: dict[str, Any] = {"stack": "megatron-2022"}  # that hides nothing, and keeps scores and dropout's marks
STATES = ("weights", "gradients", "optimiser_states")


def exactly(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


def test_zero_keeps_what_its_paper_says() -> None:
    for stage, sharding in enumerate(("ddp", "zero1", "zero2", "zero3")):
        for data, model in ((1, GPT), (8, GATED), (64, MODELS["gpt2-xl"])):
            memory = books(Layout(data=data, sharding=sharding), model, gradients="bf16").memory
            assert sum(memory[name] for name in STATES) == exactly(zero_bytes(stage, model.parameters, data)), sharding


def test_each_state_is_sharded_from_its_own_level() -> None:
    for optimiser, kind in OPTIMISERS.items():
        for name, zero in SHARDINGS.items():
            memory = books(Layout(data=16, sharding=name), optimiser=optimiser).memory
            parts = 8 if name == "hsdp" else 16
            for size, part, level in ((2, "weights", 3), (4, "gradients", 2), (kind.states, "optimiser_states", 1)):
                expected = size * GPT.parameters / (parts if zero >= level else 1)
                assert memory[part] == exactly(expected), (optimiser, name, part)
    kept, away = (books(Layout(data=8, sharding="zero2", offload=offload)) for offload in (False, True))
    assert away.memory == kept.memory | {"optimiser_states": 0.0}
    apart = books(Layout(data=8, sharding="zero3")).memory
    together = books(Layout(data=2, context=4, sharding="zero3")).memory
    assert [apart[name] for name in STATES] == [together[name] for name in STATES], "context parallelism has replicas"


def test_experts_are_dealt_out_and_a_stage_has_its_layers_and_the_larger_end() -> None:
    routed = MIXED.routed_parameters * MIXED.layers
    rest = MIXED.parameters - routed
    for expert in (1, 2, 8):
        for sharding, expected in (("ddp", rest + routed / expert), ("zero3", (rest + routed) / 8)):
            memory = books(Layout(data=8, expert=expert, sharding=sharding), MIXED).memory
            assert memory["weights"] == exactly(2 * expected), (expert, sharding)
    layers = GATED.layer_parameters * GATED.layers / 4
    assert books(Layout(2, 4), GATED).memory["weights"] == exactly(2 * (layers + GATED.output) / 2)
    assert GATED.output > GATED.embedding
    shared = GPT.layer_parameters * GPT.layers / 4 + GPT.embedding
    assert books(Layout(2, 4)).memory["weights"] == exactly(shared)
    uneven = books(Layout(1, 4), replace(GATED, layers=14)).memory["weights"]
    assert uneven == exactly(2 * (4 * GATED.layer_parameters + GATED.output))


def test_a_layer_keeps_what_korthikantis_table_says() -> None:
    for tensor, micro, sequence, heads in ((1, 1, 512, 16), (2, 4, 1024, 32), (8, 2, 4096, 16)):
        model = Model("toy", 4, 2048, heads, sequence=sequence)
        for recompute in RECOMPUTE:
            for sequential in (False, True):
                way = "sequence" if sequential else "tensor"
                full = "sequence, full" if sequential else "full"
                kind = {"none": way, "selective": f"{way}, selective", "full": full}[recompute]
                layout = Layout(tensor, micro=micro, recompute=recompute, sequential=sequential)
                formula = layer_activations(sequence, micro, model.hidden, heads, tensor, kind)
                assert books(layout, model, **BARE).values["layer_kept"] == exactly(formula), layout


def test_stages_keep_the_activations_of_all_layers_in_flight() -> None:
    layer = layer_activations(1024, 1, 1024, 16, 1, "tensor")
    for pipeline, chunks in ((1, 1), (2, 1), (8, 1), (2, 2), (2, 4), (4, 2)):
        memory = books(Layout(pipeline=pipeline, chunks=chunks), batch=64, **BARE).memory
        assert memory["activations"] == exactly(layers_in_flight(GPT.layers, pipeline, chunks) * layer), pipeline
    few, as_many, many = (books(Layout(pipeline=8), batch=batch, **BARE).memory["activations"] for batch in (4, 8, 64))
    assert few == pytest.approx(many / 2)
    assert as_many == many
    again = books(Layout(tensor=2, recompute="full"), **BARE).memory["activations"]
    inputs = GPT.layers * layer_activations(1024, 1, 1024, 16, 2, "full")
    assert again == exactly(inputs + layer_activations(1024, 1, 1024, 16, 2, "tensor"))


def test_the_ends_keep_korthikantis_terms() -> None:
    for tensor in (1, 2, 8):
        one = books(Layout(tensor, micro=2, sequential=True), **BARE).memory["end_activations"]
        assert one == exactly(end_activations(1024, 2, 1024, GPT.vocabulary, tensor))
        stages = books(Layout(tensor, 4, micro=2, sequential=True), **BARE).memory["end_activations"]
        assert stages == exactly(1024 * 2 * 1024 * 4 / tensor)


def test_fused_attention_keeps_neither_scores_nor_marks() -> None:
    assert books(Layout()).values["layer_kept"] == 32 * 1024 * 1024
    gated = 1024 * (8 * 1024 + 4 * GATED.queries + 4 * GATED.keys + 6 * GATED.width)
    assert books(Layout(), GATED).values["layer_kept"] == gated
    assert GATED.keys == GATED.queries / 4
    scores = 2 * 1024 * 1024 * GATED.heads  # LLaMA has no dropout, fused or not
    assert books(Layout(), GATED, **BARE).values["layer_kept"] == gated + scores
    routed = books(Layout(), MIXED).values["layer_kept"]
    assert routed - gated == 1024 * (2 * 2 * 1024 + 6 * GATED.width)  # to two experts: their inputs, another's insides
    kept, less = (books(Layout(2, recompute=words, sequential=True)).values["layer_kept"] for words in RECOMPUTE[:2])
    assert kept - less == 1024 * (4 * 1024 + 2 * 4 * 1024) / 2, "both norms, and the activation"


def test_other_needs_are_the_process_buffers_gathered_layers_and_what_is_held_back() -> None:
    alone, two = books(Layout()).memory, books(Layout(data=2)).memory
    assert alone["buffers"] == 0
    assert alone["context_memory"] == two["buffers"] == 2**30
    assert alone["fragments"] == pytest.approx(0.06 * request().capacity)
    assert books(Layout(), reserve=0.1).memory["fragments"] == pytest.approx(0.1 * request().capacity)
    stages = books(Layout(pipeline=2, micro=2)).memory["buffers"]
    assert stages - two["buffers"] == 4 * 2 * 1024 * 1024
    gathered = books(Layout(data=2, sharding="zero3"), MIXED).memory["buffers"]
    assert gathered - two["buffers"] == pytest.approx(8 * (MIXED.layer_parameters + MIXED.routed_parameters))
    assert tuple(alone) == formulas.PARTS
    for plan in (books(layout, MIXED) for layout in (Layout(), Layout(2, 2, 4, 1, 2, sharding="zero3", offload=True))):
        assert plan.needed == exactly(sum(plan.memory.values()))


RATE = 1e9
ACTIVATIONS = 2 * 1024 * GPT.hidden  # bytes of a micro-batch's, 16 bits each


def sent(plan: Books, term: str) -> float:
    return float(plan.values[term]) * RATE


def groups_of(layout: Layout, model: Model = GPT, batch: int = 64, **more: Any) -> set[tuple[str, GpuGroup]]:
    """All collectives whose curves were asked, with their groups; those of ways not taken, too."""
    curves = Lines(RATE)
    assert evaluated(request(model, layout.gpus, batch, curves, **more), layout).step > 0
    return {(collective, group) for collective, group, _ in curves.request}


def test_replicas_and_sharded_states_send_what_zeros_paper_says() -> None:
    """A ring's 2(d-1)/d of all gradients once a step, whatever the micro-batches; ZeRO-3 half as much again.

    Rajbhandari et al. 2020, section 7: ZeRO-1 and, with one micro-batch, ZeRO-2 send as much as replicas.
    """
    for data in (1, 2, 8, 64):
        plain = 2 * GPT.parameters * 2 * (data - 1) / data
        plan = books(Layout(data=data), gradients="bf16", batch=256, **BARE)
        assert sent(plan, "gradient_seconds") == pytest.approx(plain, rel=1e-9)
        assert sent(books(Layout(data=data), batch=256), "gradient_seconds") == pytest.approx(2 * plain)
        ends = 2 * (GPT.embedding + GPT.output) * (data - 1) / data  # the embedding is gathered once
        for name, expected in (("zero1", plain), ("zero2", plain), ("zero3", 1.5 * plain - ends)):
            if data in (2, 8):
                plan = books(Layout(data=data, sharding=name), gradients="bf16", batch=data)
                layers = sent(plan, "gather_once") * 2 + sent(plan, "scatter_once")
                volume = layers * GPT.layers + sent(plan, "gradient_seconds")
                assert volume == pytest.approx(expected, rel=1e-9), (name, data)


def test_sharded_experts_are_gathered_among_their_own_replicas() -> None:
    dense = books(Layout(data=8, sharding="zero3"), replace(MIXED, experts=0), batch=8, gradients="bf16")
    router = 2 * MIXED.hidden * MIXED.experts - 2 * GATED.matrices * GATED.hidden * GATED.width
    for expert in (1, 2, 8):
        weights, replicas = 2 * MIXED.routed_parameters / expert, 8 // expert
        plan = books(Layout(data=8, expert=expert, sharding="zero3"), MIXED, batch=8, gradients="bf16")
        for term in ("gather_once", "scatter_once"):
            rest = sent(dense, term) + router * 7 / 8
            assert sent(plan, term) == pytest.approx(rest + weights * bus_factor("allgather", replicas), rel=1e-9)
        assert sent(plan, "expert_gradient_seconds") == 0
        for sharding in ("ddp", "zero1"):
            plan = books(Layout(data=8, expert=expert, sharding=sharding), MIXED, batch=8, gradients="bf16")
            assert sent(plan, "gather_once") == sent(plan, "scatter_once") == 0
            volume = weights * MIXED.layers * bus_factor("allreduce", replicas)
            assert sent(plan, "expert_gradient_seconds") == pytest.approx(volume, rel=1e-9), (sharding, expert)
        plan = books(Layout(data=16, expert=expert, sharding="hsdp"), MIXED, batch=16, gradients="bf16")
        between = weights * MIXED.layers / replicas * bus_factor("allreduce", 2)
        assert sent(plan, "expert_gradient_seconds") == pytest.approx(between, rel=1e-9), expert


def test_sharding_within_nodes_adds_up_shares_between_them() -> None:
    layout = Layout(data=32, sharding="hsdp")
    share = 2 * (GPT.layers * GPT.layer_parameters / 8 + GPT.embedding + GPT.output)
    plan = books(layout, gradients="bf16")
    assert sent(plan, "gradient_seconds") == pytest.approx(share * bus_factor("allreduce", 4), rel=1e-9)
    assert sent(plan, "gather_once") == pytest.approx(2 * GPT.layer_parameters * 7 / 8)
    assert {("allgather", GpuGroup(8, 8)), ("reducescatter", GpuGroup(8, 8)), ("allreduce", GpuGroup(4))} <= groups_of(
        layout
    )


def test_a_layer_adds_up_activations_four_times_or_six_and_stages_send_them_on() -> None:
    """All-reduces of 2sbh bytes; halves of them send the same; full recomputation repeats the forward two.

    Stages send 2v messages of a GPU's part of 2sbh bytes for a micro-batch, there and back for every chunk.
    """
    for tensor, recompute in product((2, 8), RECOMPUTE):
        for sequential, halves in ((True, {"reducescatter", "allgather"}), (False, {"allreduce"})):
            layout = Layout(tensor, micro=2, recompute=recompute, sequential=sequential)
            plan = books(layout, **BARE)
            times = 6 if recompute == "full" else 4
            volume = times * GPT.layers * 2 * ACTIVATIONS * bus_factor("allreduce", tensor)
            assert sent(plan, "tensor_exposed") == pytest.approx(volume, rel=1e-9), layout
            assert plan.parts["tensor_parallel"] == pytest.approx(32 * plan.values["tensor_exposed"])
            assert {(half, GpuGroup(tensor, tensor)) for half in halves} <= groups_of(layout, **BARE), layout
    for chunks, tensor in product((1, 2, 4), (1, 4)):
        plan = books(Layout(tensor, 2, chunks=chunks, micro=2), **BARE)
        assert sent(plan, "stage_exposed") == pytest.approx(2 * chunks * 2 * ACTIVATIONS / tensor, rel=1e-9)
        assert sent(books(Layout(tensor, 1), **BARE), "stage_exposed") == 0


def test_tokens_go_to_their_experts_and_back_and_keys_and_values_round() -> None:
    """Of every token top_k copies, all but those for the GPU's own experts: twice forward, twice backward.

    Keys and values of all other GPUs once forward, twice backward; attention hides as much as it takes itself, and is
    slowed meanwhile.
    """
    for expert, (recompute, times) in product((2, 8), (("none", 4), ("full", 6))):
        layout = Layout(data=8, expert=expert, recompute=recompute)
        copies = MIXED.layers * times * MIXED.top_k * ACTIVATIONS
        volume = copies * (expert - 1) / expert
        for some, model, all_sent in (
            (layout, MIXED, volume),
            (layout, replace(MIXED, moe_every=2), volume / 2),
            # Two GPUs that cut each expert gather the copies of both: each sends half of them.
            (replace(layout, tensor=2, sequential=True), MIXED, volume / 2 + copies / 2),
        ):
            assert sent(books(some, model), "expert_exposed") == pytest.approx(all_sent, rel=1e-9), some
    model = replace(GATED, sequence=8192)
    plan = books(Layout(2, context=4), model, batch=4)
    volume = 3 * model.layers * 2 * 2 * 8192 * model.keys / 2 * 3 / 4
    hidden = 3 * model.layers * float(plan.values["attention_seconds"])
    assert plan.values["context_exposed"] == pytest.approx(volume / RATE - hidden + CONTENTION * hidden, rel=1e-9)
    fast = evaluated(request(model, 8, 4, Lines(1e15)), Layout(2, context=4))
    assert fast.values["context_exposed"] == pytest.approx(CONTENTION * volume / 1e15, rel=1e-9)


def test_groups_are_where_a_layout_puts_them() -> None:
    groups = groups_of(Layout(2, 2, 4, 2, 2), replace(MIXED, sequence=8192), 8)
    tensor, context, expert = ("allreduce", GpuGroup(2, 2)), ("allgather", GpuGroup(2, 2)), ("alltoall", GpuGroup(2, 2))
    replicas, experts = ("allreduce", GpuGroup(8, 4)), ("allreduce", GpuGroup(4, 2))
    assert {tensor, context, expert, replicas, experts, ("sendrecv", GpuGroup(2, 1, 2))} <= groups
    groups = groups_of(Layout(2, 2, 8, placement="pp-inside"))
    assert {tensor, ("allreduce", GpuGroup(8, 2)), ("sendrecv", GpuGroup(2, 2))} <= groups
    assert {group for collective, group in groups if collective == "sendrecv"} == {GpuGroup(2, 2)}
    groups = groups_of(Layout(2, data=8, sharding="zero1"))
    halves = {(half, group) for half, group in groups if half in ("reducescatter", "allgather")}
    assert {group for _, group in halves} == {GpuGroup(2, 2), GpuGroup(8, 4)}
    groups = groups_of(Layout(2, 8, 2, placement="pp-inside"))  # from the fourth stage to the fifth is another node
    assert {group for collective, group in groups if collective == "sendrecv"} == {GpuGroup(8, 4)}


def test_software_hides_what_it_says() -> None:
    """Half of tensor parallelism, nine tenths between stages, gradients behind the last backward pass.

    What hides tensor parallelism is slowed by it.
    """
    layout = Layout(2, 2, 2, sharding="zero1")
    modern, bare = books(layout), books(layout, **BARE)
    exposed = bare.values["tensor_exposed"] * (1 / 2 + CONTENTION / 2)
    assert modern.values["tensor_exposed"] == pytest.approx(exposed)
    assert modern.values["stage_exposed"] == pytest.approx(bare.values["stage_exposed"] / 10)
    assert bare.values["gradient_exposed"] == bare.values["gradient_seconds"]
    assert bare.values["contention"] == 0
    known = modern.values
    backward, forward = (known[name] * 3 / 4 for name in ("stage_backward", "stage_forward"))
    assert known["gradient_window"] == pytest.approx(backward + forward)
    for sharding in ("ddp", "zero2", "zero3"):
        assert books(replace(layout, sharding=sharding)).values["gradient_window"] == pytest.approx(backward)
    quick = evaluated(request(gpus=8, curves=Lines(1e15)), layout).values
    assert quick["gradient_exposed"] == pytest.approx(quick["gradient_seconds"] / 4)  # the last of four layers
    assert known["gradient_exposed"] == pytest.approx(known["gradient_seconds"] - known["gradient_window"])
    experts = evaluated(request(MIXED, 8, curves=Lines(1e8)), Layout(data=8, expert=2)).values
    sending = experts["gradient_seconds"] + experts["expert_gradient_seconds"]
    assert experts["gradient_exposed"] == pytest.approx(sending - experts["gradient_window"])
    assert experts["gradient_window"] > 0
    assert quick["contention"] == pytest.approx(known["slowing"] * quick["gradient_seconds"])
    assert known["contention"] == pytest.approx(known["slowing"] * known["gradient_window"])


def test_gathering_is_hidden_behind_the_layer_before_and_slows_it() -> None:
    layout = Layout(data=8, sharding="zero3")
    quick = evaluated(request(curves=Lines(1e13)), layout, **AT_ONCE).values
    seven = (GPT.layers - 1) * (2 * quick["gather_once"] + quick["scatter_once"])
    first = quick["gather_once"] + quick["scatter_once"]
    assert quick["shard_exposed"] == pytest.approx(first + CONTENTION * seven)
    slow = books(layout).values
    bound = GPT.layers * (2 * slow["gather_once"] + slow["scatter_once"])
    hidden = (GPT.layers - 1) * (slow["layer_forward"] + slow["layer_backward"])
    # backward begins with the layer that is there already; all computing but a layer's is slowed
    assert slow["shard_exposed"] == pytest.approx(bound - hidden - slow["gather_once"] + CONTENTION * hidden)
    old = evaluated(request(curves=Lines(1e13), stack="deepspeed-2021"), layout).values
    weights = 2 * GPT.layer_parameters
    assert old["gather_once"] == pytest.approx(weights / STACKS["deepspeed-2021"].gather_rate)
    assert old["scatter_once"] == pytest.approx(2 * weights / STACKS["deepspeed-2021"].gather_rate)
    assert books(layout, stack="deepspeed-2021").values["gather_once"] == slow["gather_once"]


ALIKE = replace(GPT, vocabulary=1)  # stages of which none has a head to speak of
GPU = product_of(SYSTEM)


def test_the_bubble_is_its_papers_share_of_a_step() -> None:
    for pipeline, chunks in ((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (2, 4), (4, 2)):
        for batches, tensor in ((8, 1), (64, 1), (64, 2)):
            parts = books(Layout(tensor, pipeline, chunks=chunks), ALIKE, batches, **BARE).parts
            names = ("computing", "tensor_parallel", "pipeline_parallel", "bubble")
            share = parts["bubble"] / sum(parts[name] for name in names)
            assert share == pytest.approx(bubble_share(pipeline, chunks, batches), rel=1e-3), (pipeline, chunks)


def test_zero_bubble_waits_as_its_paper_says_and_the_first_micro_batch_hides_nothing() -> None:
    for pipeline in (2, 4, 8):
        for recompute in RECOMPUTE:
            layout = Layout(pipeline=pipeline, schedule="zb", recompute=recompute)
            layouts = (layout, replace(layout, schedule="1f1b"))
            plan, plain = (books(some, ALIKE, curves=Lines(1e18)) for some in layouts)
            known = plan.values
            again = GPT.layers / pipeline * known["layer_again"]
            weights = (known["stage_backward"] - again) / 2
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
@given(CHOICES, st.sampled_from(tuple(STACKS)), st.sampled_from((GPT, GATED, MIXED)))
def test_parts_add_up_and_faster_machines_are_faster(layout: Layout, stack: str, model: Model) -> None:
    plan = books(layout, model, stack=stack, noise=0.01)
    assert plan.step == pytest.approx(sum(plan.parts.values()), rel=1e-12)
    assert tuple(plan.parts) == PARTS
    assert min(plan.parts.values()) >= 0
    assert {*PARTS} <= {term.__name__ for term in TERMS}
    faster = replace(SYSTEM, flops=2 * GPU.flops, memory_rate=2 * GPU.memory_rate)
    quick = books(layout, model, curves=Lines(system=faster), stack=stack, noise=0.01)
    assert quick.parts["computing"] == pytest.approx(plan.parts["computing"] / 2, rel=1e-9)
    network, late = (books(layout, model, curves=lines, stack=stack).step for lines in (Lines(2e9), Lines(1e9, 1e-4)))
    assert network * (1 - 1e-12) <= books(layout, model, stack=stack).step <= late * (1 + 1e-12)


def test_the_slowest_gpu_is_waited_for_by_bloms_formula() -> None:
    for data in (1, 2, 8, 64):
        parts = books(Layout(data=data), noise=0.02).parts
        assert parts["stragglers"] / parts["computing"] == pytest.approx(slowest_of(data, 0.02)), data


def test_products_are_those_that_are_counted() -> None:
    full = gpt_flops(GPT.layers, GPT.hidden, 0, 1024, 1, recomputed=False)
    scores = 12 * GPT.layers * GPT.hidden * 1024**2
    for stack, tensor in (("modern", 1), ("megatron-2022", 4)):
        plan = books(Layout(tensor), stack=stack).values
        forward = (full - (scores / 2 if stack == "modern" else 0)) / 3
        flops = float(plan["product_flops"] + plan["attention_flops"])
        assert flops * GPT.layers * tensor == pytest.approx(forward, rel=1e-12)
        rate = GPU.flops * CONSTANTS.products * (1 if stack == "modern" else CONSTANTS.older)
        assert plan["product_seconds"] == pytest.approx(plan["product_flops"] / rate)
        rate *= CONSTANTS.fused * 1024 / (1024 + CONSTANTS.half) if stack == "modern" else CONSTANTS.unfused
        assert plan["attention_seconds"] == pytest.approx(plan["attention_flops"] / rate)
    for sequence in (512, 2**20):
        reached = books(Layout(), sequence=sequence).values["attention_efficiency"]
        assert reached == pytest.approx(CONSTANTS.fused / (1 + CONSTANTS.half / sequence))
        assert books(Layout(context=8), sequence=sequence).values["attention_efficiency"] == reached


def test_a_pass_backward_is_twice_one_forward() -> None:
    for model in (GPT, GATED, MIXED):
        for stack in ("modern", "megatron-2022"):
            known, again, part = (
                books(Layout(recompute=recompute), model, stack=stack).values
                for recompute in ("none", "full", "selective")
            )
            extra = 0.5 * known["attention_seconds"] if STACKS[stack].fused else 0.0
            extra -= known["sorted_bytes"] / GPU.memory_rate
            assert known["layer_backward"] == pytest.approx(2 * known["layer_forward"] + extra)
            assert known["layer_again"] == 0
            assert again["layer_again"] == again["layer_forward"] == known["layer_forward"]
            scores = known["attention_seconds"] + known["score_bytes"] / GPU.memory_rate
            expected = known["pointwise_bytes"] / GPU.memory_rate / 2 if STACKS[stack].fused else scores
            assert part["layer_again"] == pytest.approx(expected), (model.name, stack)
            assert part["layer_again"] < known["layer_forward"]


def test_routed_experts_are_products_of_their_own_kind() -> None:
    """A gated expert's three matrices for every copy of a token; what all tokens share is as in a dense model.

    Backward they take twice as long, or as long as gradients take to be read and written.
    """
    known = books(Layout(2), MIXED).values
    assert known["grouped_flops"] == 2 * 1024 * MIXED.top_k * 3 * MIXED.hidden * MIXED.width / 2
    rate = GPU.flops * CONSTANTS.products
    each = 1024 * MIXED.top_k / MIXED.experts  # tokens of an expert
    reached = MIXED.width / (MIXED.width + CONSTANTS.narrow) * each / (each + CONSTANTS.few)
    assert known["grouped_seconds"] == pytest.approx(known["grouped_flops"] / (rate * reached))
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
            assert known["grouped_seconds"] > 2 * weights / GPU.memory_rate, "no faster than their weights are read"
            added = max(2 * size * weights / GPU.memory_rate, float(known["grouped_seconds"]))
            assert known["grouped_backward"] == pytest.approx(known["grouped_seconds"] + added)


def test_memory_is_read_and_written_as_often_as_said() -> None:
    """Tokens are sorted by expert six times: top_k copies of 2 bytes an element, in layers with experts only.

    Ten times each element of a layer's norms and sums, once the heads and the activation; 13 bytes a score.
    """
    half = replace(MIXED, moe_every=2)
    for sequential, model, share in ((False, MIXED, 1), (False, half, 1 / 2), (True, MIXED, 1 / 2), (False, GPT, 0)):
        known = books(Layout(2, micro=2, sequential=sequential), model).values
        assert known["sorted_bytes"] == share * 6 * 2 * (2 * 1024) * MIXED.top_k * MIXED.hidden
    known, split = (books(Layout(2, micro=2, sequential=some), **BARE).values for some in (False, True))
    heads, width = 2 * (1024 + 1024), 2 * 4 * 1024
    assert known["pointwise_bytes"] == 2 * 2 * 1024 * (10 * 1024 + (width + heads) / 2)
    assert split["pointwise_bytes"] == 2 * 2 * 1024 * (10 * 1024 + width + heads) / 2
    assert known["score_bytes"] == 13 * 2 * 1024 * 1024 * 16 / 2
    products = known["product_seconds"] + known["attention_seconds"]
    moved = (known["score_bytes"] + known["pointwise_bytes"]) / GPU.memory_rate
    assert known["layer_forward"] == pytest.approx(products + moved)
    assert books(Layout()).values["score_bytes"] == 0


def test_the_output_is_the_last_stages_unless_it_has_fewer_layers() -> None:
    flops, scores = 6 * 1024 * 1024 * GPT.vocabulary, 40 * 1024 * GPT.vocabulary
    seconds = flops / (GPU.flops * CONSTANTS.products) + scores / GPU.memory_rate
    for tensor, pipeline in ((1, 1), (2, 4)):
        plan = books(Layout(tensor, pipeline)).values
        assert plan["head_excess"] == plan["head_seconds"] == pytest.approx(seconds / tensor)
        assert plan["computing"] == pytest.approx(
            64 * (plan["stage_forward"] + plan["stage_backward"] + plan["head_excess"])
        )
    fewer = books(Layout(1, 4), replace(GPT, layers=14)).values
    assert fewer["own_layers"] == 4
    interleaved = books(Layout(1, 4, chunks=2), replace(GPT, layers=12)).values
    assert interleaved["own_layers"] == 4, "two chunks of two layers, not three layers"
    spare = fewer["micro_seconds"] / 4 * 2
    assert fewer["head_excess"] == pytest.approx(max(0, fewer["head_seconds"] - spare))
    assert books(Layout(1, 4), replace(GPT, layers=14, vocabulary=1000)).values["head_excess"] == 0
    known = books(Layout(data=4, context=2, micro=2)).values
    assert known["micro_batches"] == 64 / 4 / 2
    assert known["tokens"] == 2 * 1024 / 2


def test_the_optimiser_reads_and_writes_its_share_once_and_gradients_four_times() -> None:
    psi = GPT.parameters
    for name, optimiser in OPTIMISERS.items():
        traffic = optimiser.traffic
        whole = books(Layout(data=8), optimiser=name).parts["optimiser"]
        assert whole == pytest.approx(psi * (traffic + 4 * 4 + 4) / GPU.memory_rate), name
        part = books(Layout(data=8, sharding="zero1"), optimiser=name).parts["optimiser"]
        assert part == pytest.approx(whole / 8), name
        away = books(Layout(data=8, sharding="zero1", offload=True), optimiser=name).parts["optimiser"]
        assert away == pytest.approx(psi / 8 * (6 / SYSTEM.pcie_rate + (traffic + 4) / 25e9)), name


def test_utilisation_is_of_the_data_sheet_and_eight_bits_are_faster_where_the_gpu_has_them() -> None:
    model = MODELS["gpt3-1.3b"]
    plan = evaluate_layout(request(model, 8), Layout(data=8))
    flops = gpt_flops(24, 2048, model.vocabulary, 2048, 64, recomputed=False)
    assert plan.utilisation == pytest.approx(flops / plan.typical / 8 / GPU.flops)
    assert plan.tokens == 64 * 2048
    usual = books(Layout(data=8), model)
    quick = books(Layout(data=8), model, efficiency=2.0)
    assert quick.parts["computing"] == pytest.approx(usual.parts["computing"] / 2)
    assert np.isfinite(quick.step)
    half, eighth = (books(Layout(), precision=name).values for name in ("bf16", "fp8"))
    faster = CONSTANTS.fp8 * GPU.flops_fp8 / GPU.flops
    assert eighth["product_seconds"] == pytest.approx(half["product_seconds"] / faster)
    assert eighth["attention_seconds"] == half["attention_seconds"]
    old = Lines(system=replace(SYSTEM, arch="sm80", gpu="A100"))
    steps = {evaluated(request(curves=old, gpus=1, precision=name), Layout()).step for name in ("bf16", "fp8")}
    assert len(steps) == 1
