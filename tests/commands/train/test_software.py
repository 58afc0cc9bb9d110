"""What software adds to a step: launches, buckets of gradients, what hiding costs, 32 bits, and nanotron's habits."""

from dataclasses import replace

import pytest

from collbench.commands.train.curves import GpuGroup
from collbench.commands.train.formulas import grouped_efficiency
from collbench.commands.train.layouts import Layout, candidates, layouts
from collbench.commands.train.models import GRADIENTS, MODELS, OPTIMISERS, STACKS, Model
from collbench.model.predict import CONTENTION
from collbench.topology.system import product_of
from tests.commands.train.layouts_on_lines import CONSTANTS, GATED, GPT, MIXED, SYSTEM, Lines, books, evaluated, request

GPU = product_of(SYSTEM)
LARGE = MODELS["gpt3-6.7b"]


def test_a_layer_takes_at_least_what_the_host_needs_to_launch_it() -> None:
    for stack in ("modern", "nanotron"):
        software = STACKS[stack]
        for tensor, calls in ((1, 0.0), (2, software.calls)):
            host = software.launches + calls
            for efficiency in (1.0, 2.0):
                given = request(gpus=tensor, stack=stack, efficiency=efficiency)
                known = evaluated(given, Layout(tensor, recompute="full")).values
                times = [known[name] for name in ("layer_forward", "layer_backward", "layer_again")]
                assert times == pytest.approx([host, 2 * host, host]), (stack, tensor)
            large = evaluated(request(LARGE, tensor, stack=stack), Layout(tensor, micro=4)).values
            at_once = books(Layout(tensor, micro=4), LARGE, stack=stack).values
            for name in ("layer_forward", "layer_backward"):
                assert large[name] == at_once[name] > 2 * host, (stack, tensor)
    assert STACKS["modern"].launches == pytest.approx(25 * 8e-6)


def test_every_micro_batch_adds_its_gradients_up_in_memory() -> None:
    for gradients, size in GRADIENTS.items():
        for model, efficiency in ((GPT, 1.0), (MIXED, 2.0)):
            known = books(Layout(2, 4), model, gradients=gradients, efficiency=efficiency).values
            added = 2 * size * 2 * model.layer_parameters / 2 / GPU.memory_rate / efficiency  # 2 layers of a stage
            assert known["stage_backward"] == pytest.approx(2 * known["layer_backward"] + added), gradients


LATENCY = 1e-3


def starts(layout: Layout, stack: str, model: Model = GPT) -> float:
    """Collectives of gradients, by what a latency of each adds to them."""
    late, prompt = (
        books(layout, model, curves=Lines(latency=latency), stack=stack).values["gradient_seconds"]
        for latency in (LATENCY, 0.0)
    )
    return float(late - prompt) / LATENCY


def test_gradients_take_as_many_collectives_as_buckets() -> None:
    for model in (GPT, LARGE):
        nbytes = 4 * model.parameters
        for stack, bucket in (("modern", 400e6), ("nanotron", 25 * 2**20)):
            assert starts(Layout(data=8), stack, model) == pytest.approx(max(1, nbytes / bucket)), stack
        assert starts(Layout(data=8), "megatron-2022", model) == pytest.approx(1)
    reduced_and_gathered = 2
    assert starts(Layout(data=8, sharding="zero1"), "nanotron") == pytest.approx(reduced_and_gathered * 8 * 9)
    assert starts(Layout(1, 2, 8, sharding="zero1"), "nanotron") == pytest.approx(reduced_and_gathered * 4 * 9)
    assert starts(Layout(data=8, sharding="zero1"), "modern", LARGE) == pytest.approx(
        reduced_and_gathered * 4 * LARGE.parameters / 400e6
    )
    sent = books(Layout(data=8, sharding="zero1"), LARGE, curves=Lines(1e9)).values["gradient_seconds"] * 1e9
    assert sent == pytest.approx((4 + 2) * LARGE.parameters * 7 / 8), "as much in buckets as at once"
    curves = Lines()
    books(Layout(data=8), LARGE, curves=curves)
    sizes = [size for collective, group, size in curves.request if (collective, group.ranks) == ("allreduce", 8)]
    assert max(sizes) == pytest.approx(400e6), "large messages are as large as a bucket"


def test_what_is_hidden_slows_what_hides_it_and_nothing_else_is_slowed() -> None:
    long = replace(GATED, sequence=8192)
    for layout, model, term in (
        (Layout(8), GPT, "tensor_exposed"),
        (Layout(2, context=4), long, "context_exposed"),
        (Layout(data=8, sharding="zero3"), GPT, "shard_exposed"),
    ):
        given = request(model, 8, 64, Lines(1e12))
        slowed, free = (evaluated(given, layout, slowing=share).values for share in (CONTENTION, 0.0))
        around = 3 * 8 * 4 * 8192 * model.keys / 2 * 3 / 4 / 1e12
        sharded = 7 * (2 * free["gather_once"] + free["scatter_once"])
        hidden = {
            "tensor_exposed": 8 * 4 * free["tensor_once"] / 2,
            "context_exposed": around,
            "shard_exposed": sharded,
        }[term]
        assert slowed[term] - free[term] == pytest.approx(CONTENTION * hidden, rel=1e-9), term
        assert slowed["step"] > free["step"], term
    given = request(GPT, 8, 64, stack="megatron-2022")
    assert len({float(evaluated(given, Layout(8), slowing=share).step) for share in (0.0, 0.5)}) == 1


def test_routed_experts_reach_more_the_wider_they_are_and_the_more_tokens_come_to_each() -> None:
    narrow, few = CONSTANTS.narrow, CONSTANTS.few
    assert grouped_efficiency(few, 1, 1, 1, 1e12, narrow, few) == pytest.approx(1 / 2)
    assert grouped_efficiency(1e12, 1, 1, 1, narrow, narrow, few) == pytest.approx(1 / 2)

    def reached(model: str, layout: Layout) -> float:
        return float(books(layout, MODELS[model], batch=layout.data * layout.micro).values["grouped_efficiency"])

    mixtral = "mixtral-8x22b"
    sizes = [reached(mixtral, Layout(micro=micro)) for micro in (1, 4, 16, 256)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 0.85
    assert reached(mixtral, Layout(data=4, expert=4)) == pytest.approx(sizes[1]), "of four GPUs' tokens"
    assert reached("qwen3-235b", Layout()) < sizes[0] / 2, "of 128 small experts"


def test_with_tf32_weights_and_messages_have_32_bits_and_the_optimiser_no_copy() -> None:
    half, whole = (books(Layout(data=8), precision=name) for name in ("bf16", "tf32"))
    assert whole.values["product_rate"] == GPU.flops_tf32 * CONSTANTS.products
    assert whole.values["product_seconds"] == pytest.approx(2 * half.values["product_seconds"], rel=0.01)
    assert whole.memory["weights"] == 2 * half.memory["weights"] == 4 * GPT.parameters
    assert whole.memory["gradients"] == half.memory["gradients"]
    for name, optimiser in OPTIMISERS.items():
        states = books(Layout(data=8), precision="tf32", optimiser=name).memory["optimiser_states"]
        assert states == (optimiser.states - 4) * GPT.parameters >= 0, name
    for layout, twice, alike in (
        (Layout(2, 2, 4, expert=2), ("tensor_once", "stage_once", "expert_exposed"), ("expert_gradient_seconds",)),
        (Layout(data=8, sharding="zero1"), ("weight_array", "pointwise_bytes", "sorted_bytes"), ("gradient_array",)),
        (Layout(data=8, sharding="zero3"), ("gather_once", "layer_kept"), ("scatter_once",)),
    ):
        half, whole = (books(layout, MIXED, precision=name) for name in ("bf16", "tf32"))
        for factor, terms in ((2, twice), (1, alike)):
            for term in terms:
                assert whole.values[term] == pytest.approx(factor * half.values[term]) != 0, term
    asked, long = [], replace(GATED, sequence=8192)
    for precision in ("bf16", "tf32"):
        curves = Lines()
        books(Layout(data=2, context=8), long, precision=precision, curves=curves)
        (once,) = {size for name, group, size in curves.request if (name, group) == ("allgather", GpuGroup(8, 8))}
        asked.append(once)
    assert asked == [4 * 8192 * long.keys, 8 * 8192 * long.keys], "keys and values of all tokens"


def test_nanotron_keeps_twice_the_activations_and_adds_gradients_up_after_every_micro_batch() -> None:
    modern, nanotron = (books(Layout(2, 2, 4), GATED, stack=stack) for stack in ("modern", "nanotron"))
    assert nanotron.values["layer_kept"] == pytest.approx(2 * modern.values["layer_kept"])
    assert nanotron.memory["fragments"] == pytest.approx(0.16 * GPU.memory)
    more = books(Layout(), stack="nanotron", reserve=0.3).memory["fragments"]
    assert more == pytest.approx(0.3 * GPU.memory), "what a user holds back, if it is more"
    for layout, times in (
        (Layout(1, 2, 4), 16),  # 64 samples of 4 replicas
        (Layout(1, 2, 4, micro=4), 4),
        (Layout(1, 1, 4), 1),
        (Layout(1, 2, 4, sharding="zero1"), 1),
    ):
        plan = books(layout, stack="nanotron")
        assert plan.parts["data_parallel"] == pytest.approx(times * plan.values["gradient_seconds"]), layout
    assert nanotron.values["gradient_window"] == 0, "nothing hides them"
    arrays = candidates(request(GATED, 16, 64, stack="nanotron").job, SYSTEM, {})
    assert {one.sharding for one in layouts(arrays, range(len(arrays["data"])))} == {"ddp", "zero1"}
    assert {*arrays["context"]} == {1}
