"""Plans: the search finds the best, bands hold the step, and formulas that are shown are those that were reckoned."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.model.steps import CONTENTION
from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.files import load
from collbench.training import planner
from collbench.training.candidates import candidates, layouts
from collbench.training.constants import FITTED, constants_of
from collbench.training.curves import Group, Modelled
from collbench.training.job import GRADIENTS, MOST_BATCH, MOST_GPUS, OPTIMISERS, PRECISIONS, STACKS, Job
from collbench.training.layout import RECOMPUTE, Layout
from collbench.training.ledger import Network, Read, reckon
from collbench.training.planner import SECTIONS, reckon_one, search
from collbench.training.presets import MODELS
from collbench.training.setting import Setting, choices, inputs, setting
from tests.training.books import CONSTANTS, GATED, GPT, MIXED, SYSTEM, Lines, asked, reckoned, with_constants

SMALL = replace(GPT, layers=4, sequence=512)


def tight(gpus: int) -> Setting:
    """A job on GPUs so small that half of its layouts fits."""
    given = asked(SMALL, gpus, 8, Lines(1e10), reserve=0.0)
    arrays = candidates(given.job, SYSTEM, {})
    needs = [reckoned(given, layout).needed for layout in layouts(arrays, range(0, len(arrays["data"]), 5))]
    memory = float(np.quantile(needs, 0.5))
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
    for name, term in (("products", "product"), ("unfused", "unfused"), ("fused", "fused"), ("grouped", "grouped")):
        assert values[f"{term}_efficiency"] == getattr(fitted, name), name


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


TERMS = [term for section in SECTIONS for term in section.terms]
SAMPLE = 30
NAMES: dict[str, Any] = {"maximum": np.maximum, "minimum": np.minimum, "where": np.where, "ceil": np.ceil}


def arrays_of(given: Setting) -> dict[str, Any]:
    arrays = candidates(given.job, given.curves.system, {})
    places = np.linspace(0, len(arrays["data"]) - 1, SAMPLE).astype(int)
    return {name: array[places] for name, array in arrays.items()}


def test_terms_have_a_meaning_a_unit_and_only_inputs_that_are_known_before() -> None:
    setting = asked(MIXED, 32, 64, Lines(1e10))
    given = {*inputs(setting)}
    known = {*given, *choices(arrays_of(setting), setting), "network"}
    for term in TERMS:
        assert term.meaning.endswith("."), term.name
        assert term.unit in ("", "s", "bytes", "FLOP", "FLOP/s"), term.name
        assert term.name not in known, term.name
        assert {*term.inputs} <= known, term.name
        known.add(term.name)
    unused = given - {name for term in TERMS for name in term.inputs}
    assert unused <= {"capacity", "layer_parameters"}, "which tables show"


def test_many_layouts_are_reckoned_as_each_alone_by_the_formulas_that_are_shown() -> None:
    for model, stack in zip(cycle((MIXED, GPT, GATED)), STACKS, strict=False):
        setting = asked(model, 32, 64, Lines(1e10), stack=stack)
        arrays = arrays_of(setting)
        many = reckon(SECTIONS, inputs(setting) | choices(arrays, setting) | {"network": Network(setting.curves)})
        for place, layout in enumerate(layouts(arrays, range(SAMPLE))):
            alone = reckoned(setting, layout).values
            for term in TERMS:
                at = np.broadcast_to(many[term.name], (SAMPLE,))[place]
                assert alone[term.name] == pytest.approx(at, rel=1e-12), term.name
        for values in (many, alone):
            for term in TERMS:
                again = eval(term.formula, {"__builtins__": {}}, {**NAMES, **values})
                assert np.array_equal(again, values[term.name]), term.name


def test_a_network_is_asked_where_something_is_sent() -> None:
    """Not by one GPU alone, nor for nothing; what it is asked is written down if that is wanted."""
    curves = Lines(1e9)
    network = Network(curves)
    sizes, ranks, strides = np.array([1e6, 2e6, 0, 4e6]), np.array([1, 2, 2, 4]), np.array([1, 1, 1, 8])
    assert list(network.time("allreduce", sizes, ranks, strides)) == pytest.approx([0, 2e-3, 0, 6e-3])
    assert [(group, nbytes) for _, group, nbytes in curves.asked] == [(Group(2, 2), 2e6), (Group(4, 1), 4e6)]
    reads: list[Read] = []
    for size, count in ((1e6, 1), (0, 2), (4e6, 4)):
        Network(curves, reads=reads).time("allreduce", size, count, 8)
    assert [(read.group, read.nbytes, read.seconds) for read in reads] == [(Group(4, 1), 4e6, pytest.approx(6e-3))]
    assert float(Network(curves, "high").time("allgather", 1e9, 2, 1)) == pytest.approx(0.5 * 1.25)
    edges = Network(curves, ("seconds", "high")).time("allgather", 1e9, 2, 1)
    assert list(edges) == pytest.approx([0.5, 0.5 * 1.25])
