"""Plans: the search finds what trying everything finds, bands hold the step, and constants are of the GPU."""

from dataclasses import replace
from itertools import pairwise

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
from collbench.training.layout import RECOMPUTE, Layout, parse_layout
from collbench.training.planner import reckon_one, search
from collbench.training.planning import EQUAL, plan_on
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


@pytest.mark.parametrize("gpus", [1, 4, 6])
def test_the_search_finds_what_trying_every_layout_finds(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that fit first the one with the least mean, whether they are reckoned together or in pieces."""
    given = tight(gpus)
    arrays = candidates(given.job, given.curves.system, {})
    plans = [reckoned(given, layout) for layout in layouts(arrays, range(len(arrays["data"])))]
    fitting = [plan for plan in plans if plan.needed <= given.capacity]
    assert 0 < len(fitting) < len(plans)
    for at_once in (planner.AT_ONCE, 7):
        monkeypatch.setattr(planner, "AT_ONCE", at_once)
        result = search(given, {})
        assert result.tried == len(plans)
        best = layouts(result.arrays, result.fitting[:1])[0]
        assert mean(given, best) == pytest.approx(min(mean(given, plan.layout) for plan in fitting), rel=1e-12)
        timed = layouts(result.arrays, result.fitting)
        assert list(result.means) == pytest.approx([mean(given, layout) for layout in timed], rel=1e-12)
        assert list(result.means) == sorted(result.means)
        assert list(result.steps) == pytest.approx([reckoned(given, layout).step for layout in timed], rel=1e-12)
        assert result.fits == len(fitting)
        for plan in fitting:
            assert (plan.layout in timed) != any(does_less(other.layout, plan.layout) for other in fitting)
        least = min(plan.needed for plan in plans)
        assert plans[result.smallest].needed == least == result.needs.min()


def test_where_nothing_fits_the_smallest_is_known() -> None:
    """And by how much it is too large."""
    given = tight(share=0.0)
    result = search(given, {})
    assert len(result.means) == 0
    assert result.fits == 0
    plan = reckoned(given, layouts(result.arrays, [result.smallest])[0])
    assert plan.needed == pytest.approx(result.needs.min())
    assert plan.needed > given.capacity
    with pytest.raises(UsageError, match="short with"):
        plan_on(given, {})


def test_the_best_are_ranked() -> None:
    """As the search has them, with what is said."""
    given = tight()
    plans = plan_on(given, parse_layout("mb1")).ranked(5)
    assert len(plans) == 5
    assert all(before.step <= after.step * (1 + EQUAL) for before, after in pairwise(plans))
    assert {plan.layout.micro for plan in plans} == {1}


@pytest.mark.parametrize("text", ["dp8", "tp8", "tp2 pp2 dp2", "dp8 zero3", "pp8", "ep4 dp8"])
def test_bands_hold_the_step_and_widen_with_what_is_not_known(text: str) -> None:
    """Of computing, and of curves; with one GPU only computing is unsure."""
    layout = Layout(**parse_layout(text))  # type: ignore[arg-type]
    given = replace(asked(MIXED, 8, 64), curves=Modelled(SYSTEM))
    widths = []
    for spread in (0.0, 0.05, 0.1, 0.3):
        plan = reckon_one(
            with_constants(given, replace(given.machine.constants, spread=spread, spread_experts=spread)), layout
        )
        assert 0 <= plan.low < plan.step < plan.high
        widths.append(plan.high - plan.low)
    assert widths == sorted(set(widths))


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


def test_experts_are_less_sure_than_dense_models() -> None:
    """A GPU alone: by the constant that published runs of experts are within."""
    alone = reckon_one(asked(MIXED, gpus=1), Layout())
    assert alone.high == pytest.approx(alone.step + CONSTANTS.spread_experts * alone.parts["computing"])
    assert CONSTANTS.spread_experts > CONSTANTS.spread


def test_slower_computing_or_network_is_a_slower_step() -> None:
    """Whatever else is the same."""
    given = asked()
    for layout in (Layout(8), Layout(data=8), Layout(2, 2, 2)):
        plan = reckoned(given, layout)
        assert reckoned(replace(given, curves=Lines(5e8)), layout).step > plan.step
        slower = replace(given.machine.constants, products=0.4)
        assert reckoned(with_constants(given, slower), layout).step > plan.step


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_constants_are_of_the_newest_generation_that_is_known(arch: str) -> None:
    """Not of a newer one than the GPU, unless all are."""
    capability = int(arch[2:])
    older = [one for one in FITTED if one <= capability] or [min(FITTED)]
    assert constants_of(arch) == FITTED[max(older)]
    assert 0 < constants_of(arch).products < 1


def test_a_setting_has_the_constants_of_its_gpus_and_its_memory() -> None:
    given = setting(Job(GPT, 8, 8, 1024), Modelled(load("dgx-a100")), loader=10.0)
    assert given.machine.constants == FITTED[80]
    assert given.capacity == 80 * 2**30
    assert given.loader == 10.0
    values = reckoned(given, Layout(data=8)).values
    assert values["slowing"] == CONTENTION
    assert values["product_efficiency"] == FITTED[80].products
    assert values["unfused_efficiency"] == FITTED[80].unfused
    assert values["fused_efficiency"] == FITTED[80].fused
    assert values["grouped_efficiency"] == FITTED[80].grouped


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, f"--gpus 0 is impossible; give 1 to {MOST_GPUS}"),
        ({"gpus": MOST_GPUS + 1}, "--gpus .* is impossible"),
        ({"batch": 0}, f"--batch 0 is impossible; give 1 to {MOST_BATCH}"),
        ({"sequence": 0}, "--sequence 0 is impossible; give 1 to"),
        ({"precision": "int8"}, f"unknown --precision 'int8'; choose from: {', '.join(PRECISIONS)}"),
        ({"optimiser": "adagrad"}, f"unknown --optimiser 'adagrad'; choose from: {', '.join(OPTIMISERS)}"),
        ({"gradients": "fp8"}, f"unknown --gradients 'fp8'; choose from: {', '.join(GRADIENTS)}"),
        ({"stack": "jax"}, f"unknown --stack 'jax'; choose from: {', '.join(STACKS)}"),
        ({"model": replace(GPT, heads=7)}, "not divisible by 7 heads"),
    ],
)
def test_impossible_jobs_are_refused(changes: dict[str, int], message: str) -> None:
    """In one line, with the choices."""
    with pytest.raises(UsageError, match=message) as refused:
        replace(Job(GPT, 8, 8, 1024), **changes).checked()  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_tokens_and_flops_are_of_a_step() -> None:
    job = Job(MODELS["gpt3-175b"], 8, 4, 1024)
    assert job.tokens == 4096
    assert job.flops == 4096 * job.model.flops(1024)
