"""Stages with unequal numbers of layers: as long as any way to deal the layers out, and no more of them than pay."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.layouts import CODES, FIELDS, Layout, coded, layout_of, parse_layout, uneven
from collbench.commands.train.models import MODELS, TrainingJob, divisors, load_model
from collbench.commands.train.rows import PlannedStep
from collbench.commands.train.search import Plan, best_of, evaluate_layout, plan_on, search, values_of
from collbench.commands.train.setting import PlanSetting, machine_of
from collbench.errors import UsageError
from collbench.topology.files import load
from collbench.units import format_seconds
from tests.commands.train.layouts_on_lines import GATED, Lines, evaluated, request

DEEPSEEK = (  # of arXiv:2412.19437, section 4.2, with attention of the usual kind
    "layers=61,hidden=7168,heads=128,sequence=4096,vocabulary=129280,gated=true,experts=256,top_k=8,ffn=2048,shared=1,"
    "dense_ffn=18432"
)


def asked(model: str, system: str, gpus: int, batch: int) -> PlanSetting:
    curves, known = ModelCurves(load(system), gpus), load_model(model)
    machine = machine_of(curves.system)
    return PlanSetting(TrainingJob(known, gpus, batch, known.sequence, stack=machine.stack).checked(), curves, machine)


def makespan(stages: Sequence[float], micro_batches: int, forward: float) -> float:
    """Seconds of 1F1B whose stages take so long for a micro-batch, so much of it forward; sending takes no time."""
    count, last = micro_batches, len(stages) - 1
    done: dict[tuple[str, int, int], float] = {}
    orders = []
    for stage in range(len(stages)):
        ahead = min(last - stage, count)
        order = [("forward", one) for one in range(ahead)]
        for one in range(count):
            order += [("forward", ahead + one)] if ahead + one < count else []
            order.append(("backward", one))
        orders.append(order)
    now = [0.0] * len(stages)
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                kind, one = order[0]
                before = ("forward", stage - 1, one) if kind == "forward" else ("backward", stage + 1, one)
                if (kind, stage) in (("forward", 0), ("backward", last)):
                    before = ("forward", stage, one)
                if before not in done and (kind, stage) != ("forward", 0):
                    break
                takes = stages[stage] * (forward if kind == "forward" else 1 - forward)
                now[stage] = done[kind, stage, one] = max(now[stage], done.get(before, 0.0)) + takes
                order.pop(0)
    return max(now)


def test_a_step_is_as_long_as_its_longest_stage_and_a_micro_batch_in_the_others() -> None:
    """Of every way to deal layers out, at most as many a stage as there must be, the last stage with the output.

    A layer adds its gradients to those of the micro-batches before: 8 bytes a parameter, read and written.
    """
    for layers, stages, micro_batches, words in product((5, 7, 9, 10), (3, 4), (4, 9), (8, 2**15, 2**19)):
        model = replace(GATED, layers=layers, vocabulary=words)
        plan = evaluated(request(model, stages, micro_batches, Lines(1e18)), Layout(pipeline=stages))
        added = 8 * model.layer_parameters / plan.values["bandwidth"]
        layer = float(plan.values["layer_forward"] + plan.values["layer_backward"] + added)
        head, most = float(plan.values["head_seconds"]), -(-layers // stages)
        every = [one for one in product(range(most + 1), repeat=stages) if sum(one) == layers]
        times = [[layer * own + (head if place == stages - 1 else 0) for place, own in enumerate(one)] for one in every]
        longest = min(map(max, times))
        assert plan.parts["computing"] / micro_batches == pytest.approx(longest, rel=1e-6)
        forward = float(plan.values["layer_forward"]) / layer
        spans = [makespan(one, micro_batches, forward) for one in times if max(one) <= 1.01 * longest]
        step = plan.parts["computing"] + plan.parts["bubble"]
        assert min(spans) <= step * (1 + 1e-6), (layers, stages)
        assert step == pytest.approx(micro_batches * longest + layers * layer + head - longest, rel=1e-6)
        if head < 0.01 * layer:
            assert step == pytest.approx(max(spans), rel=0.01), "the shorter stages before the others"


def test_the_search_leaves_out_no_number_of_stages_that_is_the_best() -> None:
    left_out = 0
    for layers, gpus, batch in ((7, 12, 24), (7, 12, 2), (11, 24, 24), (9, 16, 16), (61, 96, 96)):
        setting = request(replace(GATED, layers=layers, sequence=8192), gpus, batch, Lines(1e10))
        for gibibytes in (80, 4):
            product = replace(setting.machine.product, memory=gibibytes * 2**30)
            given = replace(setting, machine=replace(setting.machine, product=product))
            found = []
            for count in divisors(gpus):
                with suppress(UsageError):  # more stages than layers, or replicas than samples
                    found.append(search(given, {"pipeline": count}))
            everything = search(given, {})
            best = min(float(one.steps[0]) for one in found if len(one.steps))
            assert everything.steps[0] == pytest.approx(best, rel=1e-9), (layers, gpus, gibibytes)
            left_out += sum(one.tried for one in found) - everything.tried
    assert left_out > 0


def test_a_model_of_61_layers_has_stages_and_fixed_chunks_need_not_be_even() -> None:
    given = asked(DEEPSEEK, "dgx-h100", 2048, 15360)
    everything, unpiped = plan_on(given, {}), plan_on(given, {"pipeline": 1})
    best = everything.best
    assert layout_of(best.implementation).pipeline in (16, 32)
    assert best.needed <= given.capacity
    assert everything.steps[0] < 0.95 * unpiped.steps[0]
    assert best.high < 0.7 * unpiped.best.high, "whose experts are in many nodes, which is less sure"
    chunks = best_of(given, parse_layout("pp16 v2"))
    assert values_of(given, layout_of(chunks.implementation))["own_layers"] == 4
    assert not any(uneven(80, one) for one in (1, 2, 3, 4, 5, 8, 9, 16, 27, 40, 41, 80))
    assert all(uneven(80, one) for one in (6, 7, 11, 12, 32))


def test_of_layouts_that_are_as_fast_the_smallest_is_first() -> None:
    given = request(replace(GATED, layers=10), 28, 28)
    ones = [Layout(pipeline=7, data=4), Layout(pipeline=4, data=7), Layout(pipeline=14, data=2)]
    codes = [coded(one) for one in ones]
    arrays = {name: np.array([code[name] for code in codes]) for name in (*FIELDS, *CODES)}
    for seconds, needed, order in (
        ((1.0, 1.005, 1.008), (1.0, 3.0, 2.0), [0, 2, 1]),
        ((1.0, 1.02, 1.05), (3.0, 2.0, 1.0), [0, 1, 2]),
        ((1.0, 1.008, 1.016), (3.0, 2.0, 1.0), [1, 0, 2]),
    ):
        steps, needs = np.array(seconds), np.array(needed)
        plan = Plan(given, {}, arrays, steps, np.arange(3), needs, 3)
        assert plan.places == order


def printed(plan: PlannedStep) -> tuple[str, ...]:
    return (*map(format_seconds, (plan.typical, plan.low, plan.high)), f"{plan.needed / 2**30:.1f}")


def test_no_two_rows_of_a_plan_are_equal() -> None:
    for place, model in enumerate([*MODELS][::3]):
        system = ("dgx-h100", "gb200-nvl72", "dgx-a100")[place % 3]
        gpus, batch = ((8, 64), (96, 384), (512, 1024))[place // 3 % 3]
        given = asked(model, system, gpus, batch)
        if not search(given, {}).fits:
            continue
        rows = [printed(one) for one in plan_on(given, {}).ranked(15)]
        assert len({*rows}) == len(rows), (model, system, gpus)
    within = plan_on(request(GATED, 8, 64, Lines(1e10)), {}).arrays["placement"]
    assert not within.any(), "in a node all GPUs are next to each other"
    given = request(replace(GATED, sequence=8192), 16, 64, Lines(1e10))
    for n in (2, 4):
        whole, cut = (evaluate_layout(given, Layout(data=16 // c, context=c, micro=c)) for c in (1, n))
        assert cut.needed == whole.needed
        assert cut.typical > whole.typical
