"""Models: as many parameters and FLOPs as their authors publish, and refusals that say what works."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.train.models import ALIASES, MODELS, MOST, MOST_COUNTED, Model, load_model
from collbench.errors import UsageError
from tests.commands.train.closed_forms import PUBLISHED, gpt_flops, gpt_parameters


def test_presets_have_as_many_parameters_as_published() -> None:
    assert set(PUBLISHED) == set(MODELS)
    for name, (total, active) in PUBLISHED.items():
        model = MODELS[name].checked()
        rounded = 0.015 if name.startswith("gpt3") else 0.005
        digit = 0.05 if name.startswith("megatron") else 0.0
        assert model.parameters / 1e9 == pytest.approx(total, rel=0 if digit else rounded, abs=digit), name
        assert not active or model.active / 1e9 == pytest.approx(active, rel=rounded), name
    assert set(ALIASES.values()) <= set(MODELS)
    assert not set(ALIASES) & set(MODELS)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.integers(1, 300), st.integers(1, 100), st.integers(1, 10**6), st.integers(1, 10**5))
def test_gpts_follow_the_closed_forms(layers: int, head: int, heads: int, words: int, length: int) -> None:
    model = Model("any", layers, head * heads, heads, sequence=length, vocabulary=words).checked()
    parameters = gpt_parameters(layers, model.hidden, words, length) + 2 * model.hidden
    assert model.parameters == pytest.approx(parameters, rel=1e-12)
    flops = model.flops(length) * length
    assert flops == pytest.approx(gpt_flops(layers, model.hidden, words, length, 1, recomputed=False), rel=1e-12)
    again = flops + length * layers * (2 * model.worked + 4 * model.queries * length)
    assert again == pytest.approx(gpt_flops(layers, model.hidden, words, length, 1, recomputed=True), rel=1e-12)


def test_a_part_of_one_name_is_taken_and_of_several_all_are_named() -> None:
    for text, name in (("8b", "llama3-8b"), ("Qwen", "qwen3-235b"), ("405", "llama3-405b"), ("scout", "llama4-scout")):
        assert load_model(text).name == name
    for text, near in (
        ("13b", "gpt3-13b or llama2-13b"),
        ("mixtral", "mixtral-8x7b or mixtral-8x22b"),
        ("3b", "gpt3-1.3b"),
    ):
        with pytest.raises(UsageError, match=f"did you mean {near}"):
            load_model(text)
    with pytest.raises(UsageError, match="choose from"):
        load_model("")


def test_a_token_meets_top_k_experts_of_all() -> None:
    for model in (model for model in MODELS.values() if model.experts):
        spared = model.parameters - model.active
        assert spared == (model.experts - model.top_k) * model.expert_weights * model.moe_layers > 0, model.name
        assert replace(model, top_k=model.experts).active == model.parameters, model.name
        assert replace(model, experts=0).parameters < model.active, model.name
        per_layer = model.layers * (model.worked - model.attention_weights)
        met = model.moe_layers * (model.hidden * model.experts + (model.top_k + model.shared) * model.expert_weights)
        dense = (model.layers - model.moe_layers) * model.dense_weights
        assert per_layer == pytest.approx(met + dense), model.name


IMPOSSIBLE: tuple[tuple[dict[str, float], str, dict[str, float]], ...] = (  # changes, message, and what it says to give
    ({"hidden": 1000, "heads": 16}, "hidden 1000 is not divisible by 16 heads", {"hidden": 992}),
    ({"hidden": 1000, "heads": 16}, "give hidden 992, 20 heads", {"heads": 20}),
    ({"hidden": 8, "heads": 16}, "give hidden 16, 8 heads", {"heads": 8}),
    ({"hidden": 1000, "heads": 16}, "or head for the size of one", {"head": 64}),
    ({"kv_heads": 7}, "12 heads are not divisible by 7 kv_heads; give 6", {"kv_heads": 6}),
    ({"kv_heads": 24}, "give 12", {"kv_heads": 12}),
    ({"experts": 8, "top_k": 9}, "top_k 9 is more than its 8 experts; give 8", {"top_k": 8}),
    ({"experts": 8, "moe_every": 13}, "moe_every 13 is more than its 12 layers; give 1", {"moe_every": 1}),
    ({"layers": 0}, f"layers = 0 is impossible; give 1 to {MOST_COUNTED}", {"layers": 1}),
    ({"experts": MOST_COUNTED + 1}, f"is impossible; give 0 to {MOST_COUNTED}", {"experts": MOST_COUNTED}),
    ({"ffn": MOST + 1}, f"is impossible; give 0 to {MOST}", {"ffn": MOST}),
    ({"ffn": -1}, f"ffn = -1 is impossible; give 0 to {MOST}", {"ffn": 0}),
)


def test_what_no_transformer_is_is_refused_with_what_would_be() -> None:
    small = MODELS["gpt2-small"]
    for changes, message, way_out in IMPOSSIBLE:
        broken = replace(small, **changes)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=message) as refused:
            broken.checked()
        assert "\n" not in str(refused.value)
        replace(broken, **way_out).checked()  # type: ignore[arg-type]
    counts = [name for name, value in vars(small).items() if type(value) is int]
    assert len(counts) > 10
    for name in counts:
        for value in (-1, MOST + 1):
            with pytest.raises(UsageError, match=f"{name} = {value} is impossible"):
                replace(small, **{name: value}).checked()


def test_another_length_of_samples_changes_learned_positions_only() -> None:
    gpt, llama = MODELS["gpt2-small"], MODELS["llama2-7b"]
    assert replace(gpt, sequence=2048).parameters - gpt.parameters == 1024 * 768
    assert replace(llama, sequence=8192).parameters == llama.parameters
    with pytest.raises(UsageError, match="sequence = 0"):
        replace(llama, sequence=0).checked()
