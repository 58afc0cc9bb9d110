"""Communication: bytes on the wire by nccl-tests' bus factors, against what papers count; and what is hidden."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from collbench.training.curves import Group
from collbench.training.job import STACKS
from collbench.training.layout import RECOMPUTE, Layout
from collbench.training.models import Model
from collbench.training.planner import Planned
from tests.training.books import GATED, GPT, MIXED, Lines, asked, books, reckoned
from tests.training.closed_forms import bus_factor

RATE = 1e9
BARE: dict[str, Any] = {"stack": "megatron-2022"}  # that hides nothing
ACTIVATIONS = 2 * 1024 * GPT.hidden  # bytes of a micro-batch's, 16 bits each


def sent(plan: Planned, term: str) -> float:
    return float(plan.values[term]) * RATE


def groups_of(layout: Layout, model: Model = GPT, batch: int = 64, **more: Any) -> set[tuple[str, Group]]:
    """All collectives whose curves were asked, with their groups; those of ways not taken, too."""
    curves = Lines(RATE)
    assert reckoned(asked(model, layout.gpus, batch, curves, **more), layout).step > 0
    return {(collective, group) for collective, group, _ in curves.asked}


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
    """And their gradients scattered; nothing is left to add up then, but between nodes where sharding ends there."""
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
    """Every GPU its share of the layers, and the ends, with its like in other nodes."""
    layout = Layout(data=32, sharding="hsdp")
    share = 2 * (GPT.layers * GPT.layer_parameters / 8 + GPT.embedding + GPT.output)
    plan = books(layout, gradients="bf16")
    assert sent(plan, "gradient_seconds") == pytest.approx(share * bus_factor("allreduce", 4), rel=1e-9)
    assert sent(plan, "gather_once") == pytest.approx(2 * GPT.layer_parameters * 7 / 8)
    assert {("allgather", Group(8, 8)), ("reducescatter", Group(8, 8)), ("allreduce", Group(4))} <= groups_of(layout)


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
            assert {(half, Group(tensor, tensor)) for half in halves} <= groups_of(layout, **BARE), layout
    for chunks, tensor in product((1, 2, 4), (1, 4)):
        plan = books(Layout(tensor, 2, chunks=chunks, micro=2), **BARE)
        assert sent(plan, "stage_exposed") == pytest.approx(2 * chunks * 2 * ACTIVATIONS / tensor, rel=1e-9)
        assert sent(books(Layout(tensor, 1), **BARE), "stage_exposed") == 0


def test_tokens_go_to_their_experts_and_back() -> None:
    """Of every token top_k copies, all but those for the GPU's own experts: twice forward, twice backward."""
    for expert, (recompute, times) in product((2, 8), (("none", 4), ("full", 6))):
        layout = Layout(data=8, expert=expert, recompute=recompute)
        volume = MIXED.layers * times * MIXED.top_k * ACTIVATIONS * (expert - 1) / expert
        for some, model, share in (
            (layout, MIXED, 1),
            (layout, replace(MIXED, moe_every=2), 1 / 2),
            (replace(layout, tensor=2, sequential=True), MIXED, 1 / 2),
        ):
            assert sent(books(some, model), "expert_exposed") == pytest.approx(share * volume, rel=1e-9), some


def test_keys_and_values_go_round_once_forward_twice_backward() -> None:
    """Those of all other GPUs, 2 bytes each; attention hides as much as it takes itself."""
    model = replace(GATED, sequence=8192)
    plan = books(Layout(2, context=4), model, batch=4)
    volume = 3 * model.layers * 2 * 2 * 8192 * model.keys / 2 * 3 / 4
    hidden = 3 * model.layers * float(plan.values["attention_seconds"])
    assert plan.values["context_exposed"] == pytest.approx(volume / RATE - hidden, rel=1e-9)
    fast = reckoned(asked(model, 8, 4, Lines(1e15)), Layout(2, context=4))
    assert fast.values["context_exposed"] == 0


def test_groups_are_where_a_layout_puts_them() -> None:
    """Tensor parallelism inside, then context, then replicas, then stages; or stages before replicas."""
    groups = groups_of(Layout(2, 2, 4, 2, 2), replace(MIXED, sequence=8192), 8)
    tensor, context, expert = ("allreduce", Group(2, 2)), ("allgather", Group(2, 2)), ("alltoall", Group(2, 2))
    replicas, experts = ("allreduce", Group(8, 4)), ("allreduce", Group(4, 2))
    assert {tensor, context, expert, replicas, experts, ("sendrecv", Group(2, 1, 2))} <= groups
    groups = groups_of(Layout(2, 2, 8, placement="pp-inside"))
    assert {tensor, ("allreduce", Group(8, 2)), ("sendrecv", Group(2, 2))} <= groups
    assert {group for collective, group in groups if collective == "sendrecv"} == {Group(2, 2)}
    groups = groups_of(Layout(2, data=8, sharding="zero1"))
    halves = {(half, group) for half, group in groups if half in ("reducescatter", "allgather")}
    assert {group for _, group in halves} == {Group(2, 2), Group(8, 4)}
    groups = groups_of(Layout(2, 8, 2, placement="pp-inside"))  # from the fourth stage to the fifth is another node
    assert {group for collective, group in groups if collective == "sendrecv"} == {Group(8, 4)}


def test_software_hides_what_it_says() -> None:
    """Half of tensor parallelism, nine tenths between stages, gradients behind the last backward pass."""
    layout = Layout(2, 2, 2, sharding="zero1")
    modern, bare = books(layout), books(layout, **BARE)
    assert modern.values["tensor_exposed"] == pytest.approx(bare.values["tensor_exposed"] / 2)
    assert modern.values["stage_exposed"] == pytest.approx(bare.values["stage_exposed"] / 10)
    assert bare.values["gradient_exposed"] == bare.values["gradient_seconds"]
    assert bare.values["contention"] == 0
    known = modern.values
    backward, forward = (known[name] * 3 / 4 for name in ("stage_backward", "stage_forward"))
    assert known["gradient_window"] == pytest.approx(backward + forward)
    for sharding in ("ddp", "zero2", "zero3"):
        assert books(replace(layout, sharding=sharding)).values["gradient_window"] == pytest.approx(backward)
    quick = reckoned(asked(gpus=8, curves=Lines(1e15)), layout).values
    assert quick["gradient_exposed"] == pytest.approx(quick["gradient_seconds"] / 4)  # the last of four layers
    assert known["gradient_exposed"] == pytest.approx(known["gradient_seconds"] - known["gradient_window"])
    experts = reckoned(asked(MIXED, 8, curves=Lines(1e8)), Layout(data=8, expert=2)).values
    sending = experts["gradient_seconds"] + experts["expert_gradient_seconds"]
    assert experts["gradient_exposed"] == pytest.approx(sending - experts["gradient_window"])
    assert experts["gradient_window"] > 0
    assert quick["contention"] == pytest.approx(known["slowing"] * quick["gradient_seconds"])
    assert known["contention"] == pytest.approx(known["slowing"] * known["gradient_window"])


def test_gathering_is_hidden_behind_the_layer_before() -> None:
    """All but the first layer's; of a slow network what is longer than computing."""
    layout = Layout(data=8, sharding="zero3")
    quick = reckoned(asked(curves=Lines(1e13)), layout).values
    assert quick["shard_exposed"] == pytest.approx(quick["gather_once"] + quick["scatter_once"])
    slow = books(layout).values
    bound = GPT.layers * (2 * slow["gather_once"] + slow["scatter_once"])
    hidden = (GPT.layers - 1) * (slow["layer_forward"] + slow["layer_backward"])
    # backward begins with the layer that is there already
    assert slow["shard_exposed"] == pytest.approx(bound - hidden - slow["gather_once"])
    old = reckoned(asked(curves=Lines(1e13), stack="deepspeed-2021"), layout).values
    assert old["gather_once"] == pytest.approx(old["layer_gathered"] / STACKS["deepspeed-2021"].gather)
    assert old["scatter_once"] == pytest.approx(2 * old["layer_gathered"] / STACKS["deepspeed-2021"].gather)
    assert books(layout, stack="deepspeed-2021").values["gather_once"] == slow["gather_once"]
