"""Plans: the search finds what trying everything finds, bands hold the step, and constants are of the GPU."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.model.steps import CONTENTION
from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.files import load
from collbench.training import planner
from collbench.training.candidates import candidates, layouts
from collbench.training.constants import FITTED, constants_of
from collbench.training.curves import Modelled
from collbench.training.job import GRADIENTS, MOST_BATCH, MOST_GPUS, OPTIMISERS, PRECISIONS, STACKS, Job
from collbench.training.layout import RECOMPUTE, Layout
from collbench.training.planner import reckon_one, search
from collbench.training.planning import plan_on
from collbench.training.presets import MODELS
from collbench.training.setting import Setting, setting
from tests.training.books import CONSTANTS, GPT, MIXED, SYSTEM, Lines, asked, reckoned, with_constants

SMALL = replace(GPT, layers=4, sequence=512)


def tight(gpus: int = 4, share: float = 0.5) -> Setting:
    """A job on GPUs so small that only that share of its layouts fits."""
    given = asked(SMALL, gpus, 8, Lines(1e10), reserve=0.0)
    arrays = candidates(given.job, SYSTEM, {})
    needs = [reckoned(given, layout).needed for layout in layouts(arrays, range(0, len(arrays["data"]), 5))]
    memory = float(np.quantile(needs, share)) if share else 0.9 * min(needs)
    return replace(given, machine=replace(given.machine, product=replace(given.machine.product, memory=memory)))


def does_less(one: Layout, other: Layout) -> bool:
    """Whether it recomputes or offloads less than another one that is otherwise the same, and neither more."""
    alike = replace(one, recompute=other.recompute, offload=other.offload) == other
    costs = [(RECOMPUTE.index(layout.recompute), layout.offload) for layout in (one, other)]
    return alike and costs[0] != costs[1] and all(less <= more for less, more in zip(*costs, strict=True))


def mean(given: Setting, layout: Layout) -> float:
    """By the edges of the bands that `Lines` has, computing as expected."""
    sure = with_constants(given, replace(given.machine.constants, spread=0.0))
    plan = reckon_one(sure, layout)
    return (plan.low + 4 * plan.step + plan.high) / 6


@pytest.mark.parametrize("gpus", [1, pytest.param(4, marks=pytest.mark.full), 6])
def test_the_search_finds_what_trying_every_layout_finds(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that fit first the one with the least mean, whether they are reckoned together or in pieces."""
    given = tight(gpus)
    arrays = candidates(given.job, given.curves.system, {})
    plans = [reckoned(given, layout) for layout in layouts(arrays, range(len(arrays["data"])))]
    fitting = [plan for plan in plans if plan.needed <= given.capacity]
    assert 0 < len(fitting) < len(plans)
    means = {plan.layout: mean(given, plan.layout) for plan in fitting}
    for at_once in (planner.AT_ONCE, 7):
        monkeypatch.setattr(planner, "AT_ONCE", at_once)
        result = search(given, {})
        timed = layouts(result.arrays, result.fitting)
        assert (result.tried, result.fits) == (len(plans), len(fitting))
        assert means[timed[0]] == pytest.approx(min(means.values()), rel=1e-12)
        assert list(result.means) == pytest.approx([means[layout] for layout in timed], rel=1e-12)
        assert list(result.means) == sorted(result.means)
        assert list(result.steps) == pytest.approx([reckoned(given, layout).step for layout in timed], rel=1e-12)
        for plan in fitting:
            assert (plan.layout in timed) != any(does_less(other.layout, plan.layout) for other in fitting)
        assert plans[result.smallest].needed == min(plan.needed for plan in plans) == result.needs.min()


def test_where_nothing_fits_the_smallest_is_known() -> None:
    given = tight(share=0.0)
    result = search(given, {})
    assert (len(result.means), result.fits) == (0, 0)
    plan = reckoned(given, layouts(result.arrays, [result.smallest])[0])
    assert plan.needed == pytest.approx(result.needs.min())
    assert plan.needed > given.capacity
    with pytest.raises(UsageError, match="short with"):
        plan_on(given, {})


def test_a_band_is_of_what_is_unsure() -> None:
    """A GPU alone is as unsure as computing; two whose computing is known as unsure as their curves."""
    given = asked(gpus=1)
    alone = reckon_one(given, Layout())
    parts = alone.parts
    assert alone.high == pytest.approx(alone.step + 0.1 * parts["computing"])
    assert alone.low == pytest.approx(alone.step - parts["computing"] * (1 - 1 / 1.1))
    sure = replace(given.machine.constants, spread=0.0)
    one = reckon_one(with_constants(given, sure), Layout())
    assert one.low == one.step == one.high
    two = asked(gpus=2, stack="megatron-2022")
    known = reckon_one(with_constants(two, sure), Layout(2))
    sent = known.parts["tensor_parallel"]
    assert known.high - known.step == pytest.approx(0.25 * sent)  # by the edges of the curves that were made up
    assert known.step - known.low == pytest.approx(0.2 * sent)
    both = reckon_one(two, Layout(2))
    assert both.high - both.step == pytest.approx(np.hypot(0.25 * sent, 0.1 * both.parts["computing"]))
    experts = reckon_one(asked(MIXED, gpus=1), Layout())
    assert experts.high == pytest.approx(experts.step + CONSTANTS.spread_experts * experts.parts["computing"])
    assert CONSTANTS.spread_experts > CONSTANTS.spread


def test_constants_are_of_the_newest_generation_that_is_known() -> None:
    """Not of a newer one than the GPU, unless all are."""
    assert all(fitted.generation == generation for generation, fitted in FITTED.items())
    for arch in ARCHITECTURES:
        older = [one for one in FITTED if one <= int(arch[2:])] or [min(FITTED)]
        assert constants_of(arch) == FITTED[max(older)], arch
        assert 0 < constants_of(arch).products < 1, arch
    given = setting(Job(GPT, 8, 8, 1024), Modelled(load("dgx-a100")), loader=10.0)
    fitted = FITTED[80]
    assert (given.machine.constants, given.capacity, given.loader) == (fitted, 80 * 2**30, 10.0)
    values = reckoned(given, Layout(data=8)).values
    assert values["slowing"] == CONTENTION
    names = ("product_efficiency", "unfused_efficiency", "fused_efficiency", "grouped_efficiency")
    efficiencies = (fitted.products, fitted.unfused, fitted.fused, fitted.grouped)
    assert tuple(values[name] for name in names) == efficiencies


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
            replace(Job(GPT, 8, 8, 1024), **changes).checked()  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    job = Job(MODELS["gpt3-175b"], 8, 4, 1024)
    assert (job.tokens, job.flops) == (4096, 4096 * job.model.flops(1024))
