"""Memory: what papers say of weights, gradients, states and activations, in one formula each."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.training.footprint import FOOTPRINT, PARTS
from collbench.training.job import OPTIMISERS
from collbench.training.layout import RECOMPUTE, SHARDINGS, Layout
from collbench.training.models import Model
from collbench.training.presets import MODELS
from tests.training.books import GATED, GPT, MIXED, asked, books, reckoned
from tests.training.closed_forms import end_activations, layer_activations, layers_in_flight, zero_bytes

PLAIN: dict[str, Any] = {"stack": "megatron-2022"}  # scores and dropout's marks are kept
STATES = ("weights", "gradients", "optimiser_states")
FEW = st.sampled_from((1, 2, 4, 8))


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("data", [1, 8, 64])
@pytest.mark.parametrize("model", [GPT, GATED, MODELS["gpt2-xl"]], ids=lambda model: f"{model.parameters:.3g}")
def test_zero_keeps_what_its_paper_says(stage: int, data: int, model: Model) -> None:
    """Of every parameter, embeddings too, with gradients of 16 bits."""
    layout = Layout(data=data, sharding=("ddp", "zero1", "zero2", "zero3")[stage])
    memory = books(layout, model, gradients="bf16").memory
    assert sum(memory[name] for name in STATES) == pytest.approx(zero_bytes(stage, model.parameters, data), rel=1e-12)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_each_state_is_sharded_from_its_own_level(optimiser: str) -> None:
    """The optimiser's from 1, gradients from 2, weights from 3; gradients of 32 bits take four bytes."""
    psi, states = GPT.parameters, OPTIMISERS[optimiser].states
    for name, sharding in SHARDINGS.items():
        memory = books(Layout(data=16, sharding=name), optimiser=optimiser).memory
        parts = 8 if sharding.hybrid else 16
        sizes = [(2, "weights", 3), (4, "gradients", 2), (states, "optimiser_states", 1)]
        for size, part, level in sizes:
            assert memory[part] == pytest.approx(size * psi / (parts if sharding.level >= level else 1), rel=1e-12)


def test_states_in_the_cpus_memory_take_none_of_the_gpus() -> None:
    kept, away = (books(Layout(data=8, sharding="zero2", offload=offload)) for offload in (False, True))
    assert away.memory == kept.memory | {"optimiser_states": 0.0}
    assert kept.memory["optimiser_states"] > 0


def test_replicas_of_context_parallelism_share_weights_too() -> None:
    """They hold the same ones."""
    apart = books(Layout(data=8, sharding="zero3")).memory
    for name in STATES:
        assert books(Layout(data=2, context=4, sharding="zero3")).memory[name] == apart[name]


@pytest.mark.parametrize("expert", [1, 2, 4, 8])
@pytest.mark.parametrize("sharding", ["ddp", "zero3"])
def test_experts_are_dealt_out_and_the_rest_is_not(expert: int, sharding: str) -> None:
    """Experts' own replicas are fewer by as many as share them; sharded, every GPU keeps the same of all."""
    memory = books(Layout(data=8, expert=expert, sharding=sharding), MIXED).memory
    routed = MIXED.routed_parameters * MIXED.layers
    rest = MIXED.parameters - routed
    expected = (rest + routed) / 8 if sharding == "zero3" else rest + routed / expert
    assert memory["weights"] == pytest.approx(2 * expected, rel=1e-12)


def test_a_stage_has_its_layers_and_the_larger_end() -> None:
    """The embedding is the first stage's, the output the last's; tensor parallelism divides both."""
    layers = GATED.layer_parameters * GATED.layers / 4
    assert books(Layout(2, 4), GATED).memory["weights"] == pytest.approx(2 * (layers + GATED.output) / 2, rel=1e-12)
    assert GATED.output > GATED.embedding
    shared = GPT.layer_parameters * GPT.layers / 4 + GPT.embedding
    assert books(Layout(2, 4)).memory["weights"] == pytest.approx(shared, rel=1e-12)
    uneven = books(Layout(1, 4), replace(GATED, layers=14)).memory["weights"]
    assert uneven == pytest.approx(2 * (4 * GATED.layer_parameters + GATED.output), rel=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(FEW, FEW, st.sampled_from((512, 1024, 4096)), st.sampled_from((16, 32)))
def test_a_layer_keeps_what_korthikantis_table_says(tensor: int, micro: int, sequence: int, heads: int) -> None:
    """With and without sequence parallelism, for all kinds of recomputation."""
    model = Model("toy", 4, 2048, heads, sequence=sequence)
    for recompute in RECOMPUTE:
        for sequential in (False, True):
            way = "sequence" if sequential else "tensor"
            kind = {"none": way, "selective": f"{way}, selective", "full": "sequence, full" if sequential else "full"}
            layout = Layout(tensor, micro=micro, recompute=recompute, sequential=sequential)
            kept = books(layout, model, **PLAIN).values["layer_kept"]
            formula = layer_activations(sequence, micro, model.hidden, heads, tensor, kind[recompute])
            assert kept == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize(("pipeline", "chunks"), [(1, 1), (2, 1), (8, 1), (2, 2), (2, 4), (4, 2)])
def test_the_first_stage_keeps_all_layers_or_more(pipeline: int, chunks: int) -> None:
    """Without chunks those of the model once, however many stages; with chunks parts of one more round."""
    plan = books(Layout(pipeline=pipeline, chunks=chunks), batch=64, **PLAIN)
    formula = layers_in_flight(GPT.layers, pipeline, chunks) * layer_activations(1024, 1, 1024, 16, 1, "tensor")
    assert plan.memory["activations"] == pytest.approx(formula, rel=1e-12)


def test_no_more_micro_batches_are_kept_than_there_are() -> None:
    few, many = (books(Layout(pipeline=8), batch=batch, **PLAIN).memory["activations"] for batch in (4, 64))
    assert few == pytest.approx(many / 2)
    assert books(Layout(pipeline=8), batch=8, **PLAIN).memory["activations"] == many


def test_full_recomputation_needs_one_whole_layer_beside_inputs() -> None:
    """2sbhL, and what the layer that is being computed once more keeps."""
    memory = books(Layout(tensor=2, recompute="full"), **PLAIN).memory
    inputs = GPT.layers * layer_activations(1024, 1, 1024, 16, 2, "full")
    assert memory["activations"] == pytest.approx(inputs + layer_activations(1024, 1, 1024, 16, 2, "tensor"), rel=1e-12)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_the_ends_on_one_stage_keep_korthikantis_terms(tensor: int) -> None:
    """Dropout's marks behind the embedding, the norm, the output's input and its scores in 32 bits."""
    one = books(Layout(tensor, micro=2, sequential=True), **PLAIN).memory["end_activations"]
    assert one == pytest.approx(end_activations(1024, 2, 1024, GPT.vocabulary, tensor), rel=1e-12)
    stages = books(Layout(tensor, 4, micro=2, sequential=True), **PLAIN).memory["end_activations"]
    assert stages == pytest.approx(1024 * 2 * 1024 * 4 / tensor, rel=1e-12)


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


def test_selective_recomputation_of_fused_layers_spares_norms_and_activations() -> None:
    """The outputs of both norms, and of the activation before the last matrix."""
    kept, less = (books(Layout(2, recompute=words, sequential=True)).values["layer_kept"] for words in RECOMPUTE[:2])
    assert kept - less == 1024 * (4 * 1024 + 2 * 4 * 1024) / 2


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    FEW, FEW, FEW, st.sampled_from((1, 2)), st.sampled_from(tuple(SHARDINGS)), st.sampled_from(RECOMPUTE),
    st.booleans(), st.sampled_from((GPT, GATED, MIXED)), st.sampled_from((1, 2, 4)),
)  # fmt: skip
def test_parts_add_up_and_more_gpus_never_need_more_for_weights(
    tensor: int, pipeline: int, data: int, context: int, sharding: str, recompute: str, offload: bool, model: Model,
    micro: int,
) -> None:  # fmt: skip
    """Nor does a higher level of sharding, for states of any kind."""
    layout = Layout(tensor, pipeline, data, context, 1, 1, micro, sharding, recompute, offload=offload)
    plan = books(layout, model, batch=128)
    assert plan.needed == pytest.approx(sum(plan.memory.values()), rel=1e-12)
    assert min(plan.memory.values()) >= 0
    own = sum(plan.memory[name] for name in STATES)
    base = books(layout, replace(model, layers=16), batch=128).memory
    for changed in (replace(layout, tensor=2 * tensor), replace(layout, pipeline=2 * pipeline)):
        more = books(changed, replace(model, layers=16), batch=128).memory
        assert sum(more[part] for part in STATES) <= sum(base[part] for part in STATES) * (1 + 1e-12)
    higher = {"ddp": "zero1", "zero1": "zero2", "zero2": "zero3"}.get(sharding, sharding)
    shared = books(replace(layout, sharding=higher), model, batch=128).memory
    assert sum(shared[part] for part in STATES) <= own
    whole = books(replace(layout, recompute="none"), model, batch=128).values["layer_kept"]
    assert plan.values["layer_kept"] <= whole


def test_other_needs_are_there() -> None:
    """The process itself, NCCL's and stages' buffers, gathered layers, and what is held back."""
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
    assert {*PARTS} <= {term.name for term in FOOTPRINT.terms}


FIGURE_1 = [  # GiB of a GPU: states without the embedding, activations, those with selective recomputation
    (Model("22b", 48, 6144, 64), 8, 1, 1, 4, 45.5625, 59.25, 9.5625),
    (MODELS["gpt3-175b"], 64, 8, 3, 1, 45.5625, 66.84375, 12.3515625),
    (MODELS["megatron-530b"], 280, 35, 3, 1, 31.640625, 114.0234375, 23.076171875),
    (MODELS["megatron-1t"], 512, 64, 1, 1, 32.958984375, 131.25, 26.5625),
]
"""Korthikanti et al. 2022, arXiv:2205.05198, figure 1; numbers as Calculon's validation has them."""


@pytest.mark.parametrize(("model", "gpus", "stages", "chunks", "micro", "states", "kept", "selective"), FIGURE_1)
def test_published_memory_is_met(
    model: Model, gpus: int, stages: int, chunks: int, micro: int, states: float, kept: float, selective: float
) -> None:
    """To the digits that were published; 18 bytes a parameter of the layers."""
    question = asked(model, gpus, max(gpus, micro), stack="megatron-2022")
    schedule = "interleaved" if chunks > 1 else "1f1b"
    for recompute, wanted in (("none", kept), ("selective", selective)):
        sequential = recompute == "selective"
        layout = Layout(8, stages, 1, 1, 1, chunks, micro, "ddp", recompute, schedule, sequential)
        plan = reckoned(question, layout)
        ends = 18 * float(plan.values["end_parameters"])
        held = sum(plan.memory[name] for name in ("weights", "gradients", "optimiser_states")) - ends
        assert plan.memory["activations"] / 2**30 == pytest.approx(wanted, rel=1e-3)
        assert held / 2**30 == pytest.approx(states, rel=1e-3)
