"""Memory: what papers say of weights, gradients, states and activations, in one formula each."""

from dataclasses import replace
from typing import Any

import pytest

from collbench.training.footprint import FOOTPRINT, PARTS
from collbench.training.job import OPTIMISERS
from collbench.training.layout import RECOMPUTE, SHARDINGS, Layout
from collbench.training.models import Model
from collbench.training.presets import MODELS
from tests.training.books import GATED, GPT, MIXED, asked, books
from tests.training.closed_forms import end_activations, layer_activations, layers_in_flight, zero_bytes

PLAIN: dict[str, Any] = {"stack": "megatron-2022"}  # scores and dropout's marks are kept
STATES = ("weights", "gradients", "optimiser_states")


def exactly(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


def test_zero_keeps_what_its_paper_says() -> None:
    """Of every parameter, embeddings too, with gradients of 16 bits."""
    for stage, sharding in enumerate(("ddp", "zero1", "zero2", "zero3")):
        for data, model in ((1, GPT), (8, GATED), (64, MODELS["gpt2-xl"])):
            memory = books(Layout(data=data, sharding=sharding), model, gradients="bf16").memory
            assert sum(memory[name] for name in STATES) == exactly(zero_bytes(stage, model.parameters, data)), sharding


def test_each_state_is_sharded_from_its_own_level() -> None:
    """The optimiser's from 1, gradients from 2, weights from 3; gradients of 32 bits take four bytes."""
    for optimiser, kind in OPTIMISERS.items():
        for name, sharding in SHARDINGS.items():
            memory = books(Layout(data=16, sharding=name), optimiser=optimiser).memory
            parts = 8 if sharding.hybrid else 16
            for size, part, level in ((2, "weights", 3), (4, "gradients", 2), (kind.states, "optimiser_states", 1)):
                expected = size * GPT.parameters / (parts if sharding.level >= level else 1)
                assert memory[part] == exactly(expected), (optimiser, name, part)
    kept, away = (books(Layout(data=8, sharding="zero2", offload=offload)) for offload in (False, True))
    assert away.memory == kept.memory | {"optimiser_states": 0.0}
    apart = books(Layout(data=8, sharding="zero3")).memory
    together = books(Layout(data=2, context=4, sharding="zero3")).memory
    assert [apart[name] for name in STATES] == [together[name] for name in STATES], "context parallelism has replicas"


def test_experts_are_dealt_out_and_the_rest_is_not() -> None:
    routed = MIXED.routed_parameters * MIXED.layers
    rest = MIXED.parameters - routed
    for expert in (1, 2, 8):
        for sharding, expected in (("ddp", rest + routed / expert), ("zero3", (rest + routed) / 8)):
            memory = books(Layout(data=8, expert=expert, sharding=sharding), MIXED).memory
            assert memory["weights"] == exactly(2 * expected), (expert, sharding)


def test_a_stage_has_its_layers_and_the_larger_end() -> None:
    """The embedding is the first stage's, the output the last's; tensor parallelism divides both."""
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
                assert books(layout, model, **PLAIN).values["layer_kept"] == exactly(formula), layout


def test_stages_keep_the_activations_of_all_layers_in_flight() -> None:
    """With chunks parts of one more round; never more micro-batches than there are; recomputed, inputs and a layer."""
    layer = layer_activations(1024, 1, 1024, 16, 1, "tensor")
    for pipeline, chunks in ((1, 1), (2, 1), (8, 1), (2, 2), (2, 4), (4, 2)):
        memory = books(Layout(pipeline=pipeline, chunks=chunks), batch=64, **PLAIN).memory
        assert memory["activations"] == exactly(layers_in_flight(GPT.layers, pipeline, chunks) * layer), pipeline
    few, as_many, many = (books(Layout(pipeline=8), batch=batch, **PLAIN).memory["activations"] for batch in (4, 8, 64))
    assert few == pytest.approx(many / 2)
    assert as_many == many
    again = books(Layout(tensor=2, recompute="full"), **PLAIN).memory["activations"]
    inputs = GPT.layers * layer_activations(1024, 1, 1024, 16, 2, "full")
    assert again == exactly(inputs + layer_activations(1024, 1, 1024, 16, 2, "tensor"))


def test_the_ends_keep_korthikantis_terms() -> None:
    """Dropout's marks behind the embedding, the norm, the output's input and its scores in 32 bits."""
    for tensor in (1, 2, 8):
        one = books(Layout(tensor, micro=2, sequential=True), **PLAIN).memory["end_activations"]
        assert one == exactly(end_activations(1024, 2, 1024, GPT.vocabulary, tensor))
        stages = books(Layout(tensor, 4, micro=2, sequential=True), **PLAIN).memory["end_activations"]
        assert stages == exactly(1024 * 2 * 1024 * 4 / tensor)


def test_fused_attention_keeps_neither_scores_nor_marks() -> None:
    """32 bytes of sbh are left of GPT's 34; of LLaMA's, what its narrower keys and three matrices leave."""
    assert books(Layout()).values["layer_kept"] == 32 * 1024 * 1024
    gated = 1024 * (8 * 1024 + 4 * GATED.queries + 4 * GATED.keys + 6 * GATED.width)
    assert books(Layout(), GATED).values["layer_kept"] == gated
    assert GATED.keys == GATED.queries / 4
    scores = 2 * 1024 * 1024 * GATED.heads  # LLaMA has no dropout, fused or not
    assert books(Layout(), GATED, **PLAIN).values["layer_kept"] == gated + scores
    routed = books(Layout(), MIXED).values["layer_kept"]
    assert routed - gated == 1024 * (2 * 2 * 1024 + 6 * GATED.width)  # to two experts: their inputs, another's insides
    kept, less = (books(Layout(2, recompute=words, sequential=True)).values["layer_kept"] for words in RECOMPUTE[:2])
    assert kept - less == 1024 * (4 * 1024 + 2 * 4 * 1024) / 2, "both norms, and the activation"


def test_other_needs_are_the_process_buffers_gathered_layers_and_what_is_held_back() -> None:
    alone, two = books(Layout()).memory, books(Layout(data=2)).memory
    assert alone["buffers"] == 0
    assert alone["context_memory"] == two["buffers"] == 2**30
    assert alone["fragments"] == pytest.approx(0.06 * asked().capacity)
    assert books(Layout(), reserve=0.1).memory["fragments"] == pytest.approx(0.1 * asked().capacity)
    stages = books(Layout(pipeline=2, micro=2)).memory["buffers"]
    assert stages - two["buffers"] == 4 * 2 * 1024 * 1024
    gathered = books(Layout(data=2, sharding="zero3"), MIXED).memory["buffers"]
    assert gathered - two["buffers"] == pytest.approx(8 * (MIXED.layer_parameters + MIXED.routed_parameters))
    assert tuple(alone) == PARTS
    for plan in (books(layout, MIXED) for layout in (Layout(), Layout(2, 2, 4, 1, 2, sharding="zero3", offload=True))):
        assert plan.needed == exactly(sum(plan.memory.values()))
    assert {*PARTS} <= {term.name for term in FOOTPRINT.terms}
