"""Plans: the search finds the best by formulas that are shown; what does not fit, sizes, money, anchors, advice."""

import functools
import inspect
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import pytest

from collbench.commands.train import search as search_module
from collbench.commands.train.curves import GpuGroup, ModelCurves, Network, group_of, placed
from collbench.commands.train.layouts import RECOMPUTE, Layout, candidates, layout_of, layouts, parse_layout
from collbench.commands.train.library import RESOURCES, anchored, parse_anchor, sensitivities
from collbench.commands.train.models import (
    GRADIENTS,
    MODELS,
    MOST_BATCH,
    MOST_GPUS,
    OPTIMISERS,
    PRECISIONS,
    STACKS,
    Model,
    TrainingJob,
    described,
    load_model,
    usual_tokens,
)
from collbench.commands.train.search import (
    EQUAL,
    GROUPED,
    TERMS,
    Plan,
    best_of,
    best_on,
    evaluate,
    evaluate_layout,
    on_system,
    plan_on,
    resized,
    search,
)
from collbench.commands.train.section import scaled
from collbench.commands.train.setting import FITTED, PlanSetting, choices, constants_of, inputs, machine_of
from collbench.errors import UsageError
from collbench.model.predict import CONTENTION
from collbench.topology.files import load
from collbench.topology.products import ARCHITECTURES, is_amd
from collbench.topology.system import System
from tests.commands.train.layouts_on_lines import (
    CONSTANTS,
    GATED,
    GPT,
    MIXED,
    SYSTEM,
    Lines,
    evaluated,
    request,
    with_constants,
)

SMALL = replace(GPT, layers=4, sequence=512)


def tight(gpus: int) -> PlanSetting:
    """A job on GPUs so small that half of its layouts fits."""
    given = request(SMALL, gpus, 8, Lines(1e10), reserve=0.0)
    arrays = candidates(given.job, SYSTEM, {})
    needs = [evaluated(given, layout).needed for layout in layouts(arrays, range(0, len(arrays["data"]), 5))]
    memory = float(np.quantile(needs, 0.5))
    return replace(given, machine=replace(given.machine, product=replace(given.machine.product, memory=memory)))


def does_less(one: Layout, other: Layout) -> bool:
    """Whether it recomputes or offloads less than another one that is otherwise the same, and neither more."""
    alike = replace(one, recompute=other.recompute, offload=other.offload) == other
    costs = [(RECOMPUTE.index(layout.recompute), layout.offload) for layout in (one, other)]
    return alike and costs[0] != costs[1] and all(less <= more for less, more in zip(*costs, strict=True))


@pytest.mark.parametrize("gpus", [1, pytest.param(4, marks=pytest.mark.full), 6])
def test_the_search_finds_what_trying_every_layout_finds(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tight(gpus)
    arrays = candidates(given.job, given.curves.system, {})
    plans = [evaluated(given, layout) for layout in layouts(arrays, range(len(arrays["data"])))]
    fitting = [plan for plan in plans if plan.needed <= given.capacity]
    assert 0 < len(fitting) < len(plans)
    steps = {plan.layout: plan.step for plan in fitting}
    for at_once in (search_module.AT_ONCE, 7):
        monkeypatch.setattr(search_module, "AT_ONCE", at_once)
        result = search(given, {})
        timed = layouts(result.arrays, result.timed)
        assert (result.tried, result.fits) == (len(plans), len(fitting))
        assert steps[timed[0]] == pytest.approx(min(steps.values()), rel=1e-12)
        assert list(result.steps) == pytest.approx([steps[layout] for layout in timed], rel=1e-12)
        assert list(result.steps) == sorted(result.steps)
        for one in steps:
            assert (one in timed) != any(does_less(other, one) for other in steps)
        (smallest,) = (plan.needed for plan in plans if plan.layout == result.smallest)
        assert smallest == min(plan.needed for plan in plans) == result.needs.min()


def test_a_band_is_of_what_is_unsure() -> None:
    large = MODELS["gpt3-1.3b"]  # whose layers take longer than a host takes to launch them
    given = request(large, gpus=1)
    alone = evaluate_layout(given, Layout())
    parts = alone.parts
    assert alone.high == pytest.approx(alone.typical + 0.1 * parts["computing"])
    assert alone.low == pytest.approx(alone.typical - parts["computing"] * (1 - 1 / 1.1))
    sure = replace(given.machine.constants, spread=0.0)
    one = evaluate_layout(with_constants(given, sure), Layout())
    assert one.low == one.typical == one.high
    two = request(large, gpus=2, stack="megatron-2022")
    known = evaluate_layout(with_constants(two, sure), Layout(2))
    sent = known.parts["tensor_parallel"]
    assert known.high - known.typical == pytest.approx(0.25 * sent)  # by the edges of the curves that were made up
    assert known.typical - known.low == pytest.approx(0.2 * sent)
    both = evaluate_layout(two, Layout(2))
    assert both.high - both.typical == pytest.approx(np.hypot(0.25 * sent, 0.1 * both.parts["computing"]))
    experts = evaluate_layout(request(MODELS["mixtral-8x7b"], gpus=1), Layout())
    assert experts.high == pytest.approx(experts.typical + CONSTANTS.spread_experts * experts.parts["computing"])
    assert CONSTANTS.spread_experts > CONSTANTS.spread


def test_constants_are_of_the_newest_generation_that_is_known() -> None:
    assert all(fitted.generation == generation for generation, fitted in FITTED.items())
    for arch in filter(lambda arch: not is_amd(arch), ARCHITECTURES):
        older = [one for one in FITTED if one <= int(arch[2:])] or [min(FITTED)]
        assert constants_of(arch) == FITTED[max(older)], arch
        assert 0 < constants_of(arch).products < 1, arch
    curves = ModelCurves(load("dgx-a100"))
    given = PlanSetting(TrainingJob(GPT, 8, 8, 1024), curves, machine_of(curves.system))
    fitted = FITTED[80]
    assert (given.machine.constants, given.capacity) == (fitted, 80 * 2**30)
    values = evaluated(given, Layout(data=8)).values
    assert values["slowing"] == CONTENTION
    assert values["product_rate"] == values["product_rate_16"] == fitted.products * given.machine.product.flops
    for name in ("unfused_efficiency", "fused_efficiency", "fused_half", "narrow", "few"):
        short = "half" if name == "fused_half" else name.removesuffix("_efficiency")
        assert values[name] == getattr(fitted, short), name


def test_impossible_jobs_are_refused_with_the_choices() -> None:
    for changes, message in (
        ({"gpus": 0}, f"--gpus 0 is impossible; give 1 to {MOST_GPUS}"),
        ({"gpus": MOST_GPUS + 1}, "--gpus .* is impossible"),
        ({"batch": 0}, f"--batch 0 is impossible; give 1 to {MOST_BATCH}"),
        ({"sequence": 0}, "--sequence 0 is impossible; give 1 to"),
        ({"precision": "int8"}, f"unknown --precision 'int8'; choose from: {', '.join(PRECISIONS)}"),
        ({"optimiser": "adagrad"}, f"unknown --optimiser 'adagrad'; choose from: {', '.join(OPTIMISERS)}"),
        ({"gradients": "fp8"}, f"unknown --gradients 'fp8'; choose from: {', '.join(GRADIENTS)}"),
        ({"stack": "jax"}, f"unknown --stack 'jax'; choose from: {', '.join(STACKS)}"),
        ({"model": replace(GPT, heads=7)}, "not divisible by 7 heads"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            replace(TrainingJob(GPT, 8, 8, 1024), **changes).checked()  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    job = TrainingJob(MODELS["gpt3-175b"], 8, 4, 1024)
    assert (job.tokens, job.flops) == (4096, 4096 * job.model.flops(1024))


SAMPLE = 30


def arrays_of(given: PlanSetting) -> dict[str, Any]:
    arrays = candidates(given.job, given.curves.system, {})
    places = np.linspace(0, len(arrays["data"]) - 1, SAMPLE).astype(int)
    return {name: array[places] for name, array in arrays.items()}


def test_formulas_say_what_they_return_and_take_only_what_is_known_before() -> None:
    setting = request(MIXED, 32, 64, Lines(1e10))
    given = {*inputs(setting)}
    known = {*given, *choices(arrays_of(setting), setting), "network"}
    parameters = {term.__name__: {*inspect.signature(term).parameters} for term in TERMS}
    for term in TERMS:
        assert (term.__doc__ or "").startswith("Return "), term
        assert term.__name__ not in known, term
        assert parameters[term.__name__] <= known, term
        known.add(term.__name__)
    assert given <= set().union(*parameters.values())


def test_many_layouts_are_evaluated_as_each_alone() -> None:
    for model, stack in zip(cycle((MIXED, GPT, GATED)), STACKS, strict=False):
        setting = request(model, 32, 64, Lines(1e10), stack=stack)
        arrays = arrays_of(setting)
        many = evaluate(TERMS, inputs(setting) | choices(arrays, setting) | {"network": Network(setting.curves)})
        for place, layout in enumerate(layouts(arrays, range(SAMPLE))):
            alone = evaluated(setting, layout).values
            for name in (term.__name__ for term in TERMS):
                at = np.broadcast_to(many[name], (SAMPLE,))[place]
                assert alone[name] == pytest.approx(at, rel=1e-12), name


def test_a_network_is_asked_where_something_is_sent() -> None:
    curves = Lines(1e9)
    network = Network(curves)
    sizes, ranks, strides = np.array([1e6, 2e6, 0, 4e6]), np.array([1, 2, 2, 4]), np.array([1, 1, 1, 8])
    assert list(network.time("allreduce", sizes, ranks, strides)) == pytest.approx([0, 2e-3, 0, 6e-3])
    assert [(group, nbytes) for _, group, nbytes in curves.request] == [(GpuGroup(2, 2), 2e6), (GpuGroup(4, 1), 4e6)]
    assert float(Network(curves, "high").time("allgather", 1e9, 2, 1)) == pytest.approx(0.5 * 1.25)


def plan(model: str | Model, on: System, gpus: int, batch: int, layout: str = "", **job: Any) -> Plan:
    """Plan a training run on a system that need not be in a file; what `job` says is of the TrainingJob."""
    known = load_model(model) if isinstance(model, str) else model
    curves = ModelCurves(on, gpus)
    machine = machine_of(curves.system)
    trained = TrainingJob(known, gpus, batch, known.sequence, **{"stack": machine.stack} | job)
    return plan_on(PlanSetting(trained.checked(), curves, machine), parse_layout(layout) if layout else {})


@functools.cache
def gpt3(**more: str) -> Plan:
    return plan("gpt3-175b", load("dgx-a100"), 1024, 1536, **more)  # type: ignore[arg-type]


def test_the_ranking_is_by_step_and_equal_ones_by_memory() -> None:
    unsure = plan("gpt3-175b", load("gcp-a3-ultra"), 1024, 2048)
    for ranked in (gpt3().ranked(20), unsure.ranked(20), plan("llama3-8b", load("dgx-h100"), 96, 384).ranked(20)):
        fastest = ranked[0].typical
        for first, second in pairwise(ranked):
            fastest = min(fastest, second.typical) if second.typical < fastest * (1 + EQUAL) else second.typical
            assert second.typical > first.typical / (1 + EQUAL)
            if second.typical < first.typical:
                assert first.needed <= second.needed
        assert len({tuple(getattr(layout_of(one.implementation), name) for name in GROUPED) for one in ranked}) == len(
            ranked
        )
    best = best_of(gpt3().setting, parse_layout("tp8 pp16 mb2"))
    assert layout_of(best.implementation) == Layout(tensor=8, pipeline=16, data=8, micro=2, recompute="full")


def test_what_does_not_fit_names_what_does() -> None:
    with pytest.raises(UsageError, match=r"fits 80 GiB: .* short with .*; these fit: .*--gpus (\d+)") as refused:
        plan("megatron-1t", load("dgx-a100"), 64, 512)
    gpus = int(str(refused.value).rpartition("--gpus ")[2])
    assert plan("megatron-1t", load("dgx-a100"), gpus, 512).fits
    with pytest.raises(UsageError):
        plan("megatron-1t", load("dgx-a100"), gpus // 2, 512)
    with pytest.raises(UsageError, match="these fit: --layout") as refused:
        plan("llama2-70b", load("dgx-h100"), 64, 256, layout="ddp tp1 pp1")
    (words,) = [text for text in str(refused.value).split('"') if "zero3" in text]
    assert words == "zero3 tp1 pp1"
    assert plan("llama2-70b", load("dgx-h100"), 64, 256, layout=words).fits


def test_a_scaling_loses_efficiency_with_every_gpu_and_says_what_does_not_fit() -> None:
    answer = gpt3()
    found = [best_on(answer.setting, answer.fixed, gpus) for gpus in (32, 64, 512, 1024, 4096)]
    assert [bool(size.best) for size in found] == [False, True, True, True, True]
    assert "short with" in found[0].reason
    curve = scaled([size.best for size in found if size.best])
    assert curve
    efficiencies = [curve.efficiency(row) for row in curve.rows]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[0] == 1 > efficiencies[-1] > 0.5


def test_cost_is_hours_times_gpus_times_price() -> None:
    answer = gpt3()
    offer = replace(answer.best, purpose="cost", price=2.5, currency="EUR", total=3e11)
    assert offer.currency == "EUR"
    assert offer.seconds == pytest.approx(3e11 / (1536 * 2048) * answer.best.typical)
    assert offer.cost == pytest.approx(offer.seconds / 3600 * 1024 * 2.5)


def test_another_system_is_compared_with_the_same_software_and_money_buys_whole_nodes() -> None:
    for named in ({}, {"stack": "megatron-2022"}, {"stack": "modern"}):
        answer = gpt3(**named)
        assert on_system(answer.setting, load("dgx-h100")).job.stack == answer.setting.job.stack
    assert on_system(gpt3().setting, load("gb200-nvl72")).curves.system.gpus == 64


def test_tokens_are_those_published_or_twenty_a_parameter() -> None:
    assert usual_tokens(MODELS["gpt3-175b"]) == 300e9
    assert usual_tokens(MODELS["mixtral-8x7b"]) == 20 * MODELS["mixtral-8x7b"].active


def test_an_anchor_makes_its_step_right_and_others_follow() -> None:
    answer = gpt3(layout="tp8 pp16 mb1")
    requested = 1.3 * answer.best.typical
    given, plan = anchored(answer.setting, parse_anchor(f"{requested:.6f}s"), answer.fixed)
    layout = layout_of(plan.implementation)
    assert plan.typical == pytest.approx(requested, rel=1e-4)
    assert evaluate_layout(given, layout).typical == pytest.approx(requested, rel=1e-4)
    other = evaluate_layout(given, replace(layout, micro=2))
    assert other.typical > evaluate_layout(answer.setting, replace(layout, micro=2)).typical
    anchor = parse_anchor("30%,gpus=512,batch=768,layout=tp8 pp8")
    _, plan = anchored(answer.setting, anchor, {})
    assert plan.utilisation == pytest.approx(0.3, rel=1e-3)
    assert (plan.gpus, plan.tokens / 2048, layout_of(plan.implementation).pipeline) == (512, 768, 8)


def test_more_of_what_holds_a_step_up_helps_most() -> None:
    answer = gpt3()
    gains = sensitivities(answer)
    assert gains[0].resource == "FLOP/s"
    assert {gain.resource for gain in gains} == {*RESOURCES, "memory"}
    assert all(1 <= gain.tenth < 1.11 and gain.tenth <= gain.twice <= 2 for gain in gains)
    slow = plan("gpt3-13b", load("ethernet-100g-tcp"), 64, 64, layout="tp1 pp1", stack="modern")
    helped = {gain.resource: gain for gain in sensitivities(slow)}
    assert helped["network cards"].tenth > 1.03
    doubled = evaluate_layout(RESOURCES["network cards"](slow.setting, 2.0), layout_of(slow.best.implementation))
    assert helped["network cards"].twice == slow.best.typical / doubled.typical
    alone = {gain.resource: gain.twice for gain in sensitivities(plan("gpt2-small", load("dgx-h100"), 1, 64))}
    assert alone["network cards"] == alone["links inside a node"] == 1, "where there is no link"


def test_faster_links_shorten_what_is_beyond_latency() -> None:
    curves = Lines(1e9, 1e-3)
    plain, faster = Network(curves), Network(curves, inside=2.0, across=4.0)
    for ranks, factor in ((8, 2), (16, 4)):
        latency, whole = (float(plain.time("allreduce", size, ranks, 1)) for size in (1.0, 1e9))
        assert float(faster.time("allreduce", 1e9, ranks, 1)) == pytest.approx(latency + (whole - latency) / factor)
        assert float(faster.time("allreduce", 1.0, ranks, 1)) == latency


def test_a_file_and_words_describe_the_same_model() -> None:
    words = load_model("layers=4,hidden=256,heads=4,sequence=128,vocabulary=1000,gated=true")
    told = {"layers": 4, "hidden": 256, "heads": 4, "sequence": 128, "vocabulary": 1000, "gated": True}
    assert replace(words, name="x") == replace(described(told, "file.toml"), name="x")
    assert described({"model": told}, "file.toml") == described(told, "file.toml")
    for changes, said in (
        ({"width": 8}, "unknown key in file.toml 'width'; choose from: name, layers"),
        ({"layers": 4.5}, "file.toml: field 'layers': expected int, got float"),
        ({"gated": 1}, "file.toml: field 'gated': expected bool, got int"),
    ):
        with pytest.raises(UsageError, match=said):
            described({**told, **changes}, "file.toml")
    with pytest.raises(UsageError, match="write it as layers=32"):
        load_model("layers=4,hidden=a b")


def test_another_number_of_gpus_has_nodes_of_its_own() -> None:
    for gpus, inside, nodes in ((8, 8, 1), (64, 64, 1), (72, 72, 1), (256, 64, 4), (144, 72, 2)):
        system = placed(load("gb200-nvl72"), gpus)
        assert (system.gpus, system.nodes) == (inside, nodes)
        group = group_of(min(gpus, inside), 1, system.gpus)
        assert (group.ranks, group.nodes) == (inside, 1)
    for system, gpus, others in (("dgx-h100", 4, 64), ("gb200-nvl72", 8, 64), ("gb200-nvl72", 64, 72)):
        one, other = (plan(MODELS["llama3-8b"], load(system), count, 576) for count in (gpus, others))
        for here, there in ((one, other), (other, one)):
            grown = resized(here.setting, there.setting.job.gpus)
            assert grown
            assert grown.curves.system == there.setting.curves.system, system
            assert plan_on(grown, {}).best.typical == there.best.typical, system
    box = plan("gpt2-small", replace(load("pcie4-4090"), nics=None, tiers=()), 8, 64)
    with pytest.raises(UsageError, match="no network cards"):
        resized(box.setting, 64)
