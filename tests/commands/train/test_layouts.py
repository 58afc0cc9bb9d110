"""Layouts: names that are read again, exactly those candidates that numbers allow, and refusals with a way out."""

import random
import re
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.train import layouts as words_of
from collbench.commands.train.layouts import (
    CODES,
    FIELDS,
    MICROS,
    RECOMPUTE,
    SCHEDULES,
    SHARDINGS,
    Choices,
    Layout,
    candidates,
    coded,
    layouts,
    parse_layout,
)
from collbench.commands.train.models import MODELS, STACKS, Model, TrainingJob, divisors
from collbench.errors import UsageError
from collbench.topology.files import load
from tests.commands.train.layouts_on_lines import GATED, MIXED, SYSTEM

TOY = Model("toy", 6, 64, 4, sequence=8192, vocabulary=1000)


def job(gpus: int, batch: int, model: Model = TOY, stack: str = "modern") -> TrainingJob:
    return TrainingJob(model, gpus, batch, model.sequence, stack=stack)


def listed(given: TrainingJob, fixed: Choices | None = None) -> list[Layout]:
    arrays = candidates(given, SYSTEM, fixed or {})
    return layouts(arrays, range(len(arrays["data"])))


def even(given: TrainingJob, one: Layout) -> bool:
    layers, stages = given.model.layers, one.pipeline * one.chunks
    fewer = [pipeline for pipeline in range(1, one.pipeline) if able(given, one, pipeline)]
    per_replica = given.batch / one.data / one.micro
    return (
        one.gpus == given.gpus
        and given.model.heads % one.tensor == 0
        and SYSTEM.gpus % one.tensor == 0
        and per_replica == int(per_replica)
        and stages <= layers
        and (one.chunks == 1 or alike(layers, stages))
        and (alike(layers, one.pipeline) or all(fullest(layers, one.pipeline) < fullest(layers, n) for n in fewer))
        and (one.chunks == 1 or (one.pipeline > 1 and per_replica % one.pipeline == 0))
        and max(1, given.model.experts) % one.expert == 0
        and one.data * one.context % one.expert == 0
        and (one.context == 1 or given.sequence / one.context >= 4096)
    )


def alike(layers: int, stages: int) -> bool:
    """Whether stages have equally many layers, if embedding or output or both count as a layer."""
    return any((layers + ends) % stages == 0 for ends in (0, 1, 2))


def fullest(layers: int, stages: int) -> int:
    return max(layers // stages + (stage < layers % stages) for stage in range(stages))


def able(given: TrainingJob, one: Layout, pipeline: int) -> bool:
    """Whether a layout can have so many stages instead of its own, and more replicas."""
    data = given.gpus / (one.tensor * one.context * pipeline)
    return data == int(data) and given.batch % data == 0


def sensible(one: Layout) -> bool:
    """Whether it has no other name that says the same, and no sample is cut where there are several."""
    replicas = one.data * one.context
    stride = one.tensor * (one.pipeline if one.placement == "pp-inside" else 1)
    inside = np.gcd(replicas, max(1, SYSTEM.gpus // stride))
    return not (
        (replicas == 1 and one.sharding != "ddp")
        or (one.sharding == "hsdp" and (inside == 1 or inside == replicas))
        or (one.sequential and one.tensor == 1)
        or (one.schedule == "zb" and one.pipeline == 1)
        or (one.schedule == "interleaved") != (one.chunks > 1)
        or (one.placement == "pp-inside" and (one.pipeline == 1 or replicas == 1 or one.gpus <= SYSTEM.gpus))
        or (one.micro % 2 == 0 and one.context % 2 == 0)
    )


def brute(given: TrainingJob) -> set[Layout]:
    few = range(1, given.gpus + 1)
    shapes = [
        Layout(tensor, pipeline, data, context, expert, chunks, micro)
        for tensor, pipeline, context, data in product(few, few, (1, 2, 4, 8), few)
        if tensor * pipeline * context * data == given.gpus
        for expert, chunks, micro in product(range(1, 9), range(1, 7), MICROS)
    ]
    names = ("sharding", "recompute", "schedule", "sequential", "offload", "placement")
    words = list(product(SHARDINGS, RECOMPUTE, SCHEDULES, (False, True), (False, True), words_of.PLACEMENTS))
    allowed = [shape for shape in shapes if even(given, shape)]
    every = (replace(shape, **dict(zip(names, some, strict=True))) for shape in allowed for some in words)
    return {one for one in every if sensible(one)}


def test_they_are_what_trying_all_numbers_finds_each_once() -> None:
    few = ((1, 1, 6, 0), (2, 6, 6, 4), (4, 4, 9, 4), (6, 12, 6, 0), (12, 2, 7, 0), (12, 12, 7, 0))
    for gpus, batch, layers, experts in few:
        request = job(gpus, batch, replace(TOY, layers=layers, experts=experts))
        ones = listed(request)
        assert len(set(ones)) == len(ones), request
        assert set(ones) == brute(request), request
    assert {*FIELDS, *CODES} == set(vars(Layout()))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(MODELS)), st.integers(1, 64), st.integers(1, 16), st.sampled_from(sorted(STACKS)))
def test_everything_is_dealt_out_evenly_by_what_the_software_can(name: str, nodes: int, each: int, stack: str) -> None:
    request = job(8 * nodes, 8 * nodes * each, MODELS[name], stack)
    arrays = candidates(request, SYSTEM, {})
    for place in np.linspace(0, len(arrays["data"]) - 1, 40).astype(int):
        (one,) = layouts(arrays, [place])
        assert even(request, one)
        options = STACKS[stack].options
        assert all(getattr(one, choice) in options[choice] for choice in options)
        assert {name: arrays[name][place] for name in arrays} == coded(one)
    assert listed(job(1, 1, stack=stack)), "a GPU alone has a layout"


def test_what_is_said_stays_even_if_it_is_of_no_use() -> None:
    words = (
        "tp2, pp2, dp2, mb2, tp2 sp, zero1, full, none, offload, no-offload, zb, 1f1b, pp-inside, dp-inside, v3, v1, "
        "cp2, pp2 v3, hsdp, sp, zb pp1, tp1 sp, zero3 dp1, pp1 pp-inside, mb5"
    )
    for gpus in (1, 8):
        request = job(gpus, 80)
        everything = set(listed(request))
        for text in words.split(", "):
            fixed = parse_layout(text)
            taken = prod(int(fixed.get(name, 1)) for name in ("tensor", "pipeline", "context", "data"))
            if gpus % taken or (gpus == 1 and fixed.get("chunks", 1) != 1):
                with pytest.raises(UsageError):
                    listed(request, fixed)
                continue
            ones = listed(request, fixed)
            assert ones, text
            assert all({name: getattr(one, name) for name in fixed} == dict(fixed) for one in ones), text
            assert {one.gpus for one in ones} == {gpus}, text
            agree = {one for one in everything if all(getattr(one, name) == value for name, value in fixed.items())}
            assert agree <= set(ones), text


def test_what_is_left_out_for_a_better_layout_stays_where_that_is_excluded() -> None:
    seven = job(12, 12, replace(TOY, layers=7))
    for text, stages in (
        ("tp1 cp1", {1, 2, 3, 4}),
        ("tp1 cp1 dp2", {6}),
        ("pp6", {6}),
        ("tp1 cp1 mb4", {4}),
        ("tp1 cp1 mb6", {6}),
    ):
        assert {one.pipeline for one in listed(seven, parse_layout(text))} == stages, text
    cut = Layout(data=4, context=2, micro=2)
    for text in ("cp2", "dp4", "mb2", "cp2 mb2", ""):
        assert (cut in listed(job(8, 80), parse_layout(text) if text else {})) == bool(text), text


REFUSED = (  # gpus, batch, what is said, and a model
    (8, 7, "dp8", GATED), (64, 3, "tp1", GATED), (1024, 7, "", MODELS["gpt2-xl"]), (8, 8, "mb5", GATED),
    (8, 8, "mb3 dp8", GATED), (8, 8, "tp3", GATED), (8, 8, "tp32", GATED), (8, 8, "tp16", GATED),
    (12, 12, "tp8", GATED), (8, 8, "pp7", GATED), (8, 8, "pp100", GATED), (7, 8, "pp2", GATED),
    (8, 8, "dp64", GATED), (8, 9, "dp64", GATED), (8, 8, "cp3", GATED), (6, 12, "cp3", GATED),
    (8, 8, "ep2", GATED), (8, 8, "ep3", MIXED), (4, 8, "ep8", MIXED), (8, 8, "pp4 v3", GATED),
    (8, 8, "pp1 v2", GATED), (8, 8, "v64", GATED), (8, 1, "tp2 dp4", MIXED),
)  # fmt: skip


def test_refusals_name_a_way_out_that_works() -> None:
    for gpus, batch, text, model in REFUSED:
        request, fixed = job(gpus, batch, model), dict(parse_layout(text)) if text else {}
        with pytest.raises(UsageError) as refused:
            listed(request, fixed)
        assert "\n" not in str(refused.value)
        assert listed(*_mended(request, fixed, str(refused.value))), text
    with pytest.raises(UsageError, match="leave one of these out"):
        listed(job(8, 8), parse_layout("pp2 v2 zb"))
    assert listed(job(8, 8), parse_layout("pp2 v1 zb"))


def _mended(request: TrainingJob, fixed: dict[str, Any], message: str) -> tuple[TrainingJob, dict[str, Any]]:
    if number := re.search(r"--batch (\d+)$", message):
        return replace(request, batch=int(number[1])), fixed
    if number := re.search(r"--gpus (\d+)$", message):
        return replace(request, gpus=int(number[1])), fixed
    if number := re.search(r"^(\w+) cannot .*give (\d+)$", message):
        return request, fixed | dict.fromkeys(parse_layout(number[1]), int(number[2]))
    left = re.search(r"leave out (\w+)$", message)
    assert left, message
    return request, {name: value for name, value in fixed.items() if name not in parse_layout(left[1])}


def test_tensor_parallelism_stays_in_a_node_unless_it_is_said() -> None:
    pairs, wide = load("hgx-a100-4"), replace(TOY, heads=16)
    assert candidates(job(16, 16), pairs, {})["tensor"].max() == 4
    assert candidates(job(16, 16, wide), pairs, {})["tensor"].max() == 4
    assert set(candidates(job(16, 16, wide), pairs, {"tensor": 16})["tensor"]) == {16}
    for number in (*range(1, 200), 4096, 4999, 5000):
        assert divisors(number) == [one for one in range(1, number + 1) if number % one == 0], number


LAYOUTS = st.builds(
    Layout, *[st.integers(1, 10**6)] * 7, st.sampled_from(tuple(SHARDINGS)), st.sampled_from(RECOMPUTE),
    st.sampled_from(SCHEDULES), st.booleans(), st.booleans(), st.sampled_from(words_of.PLACEMENTS),
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LAYOUTS, st.randoms(use_true_random=False), st.sampled_from((" ", ", ", ",", "\n", "  ")), st.booleans())
def test_a_name_in_any_order_is_read_as_its_layout(one: Layout, dice: random.Random, gap: str, loud: bool) -> None:
    assert one.gpus == one.tensor * one.pipeline * one.data * one.context
    words = one.name.split()
    dice.shuffle(words)
    text = gap.join([*words, words[0]])
    assert Layout(**parse_layout(text.upper() if loud else text))  # type: ignore[arg-type] == one


def test_a_name_leaves_out_what_is_usual_and_only_what_is_said_is_read() -> None:
    assert Layout().name == "dp1 mb1 ddp"
    full = Layout(8, 16, 4, 2, 4, 2, 3, "zero1", "full", "zb", True, True, "pp-inside")
    assert full.name == "tp8 pp16 cp2 ep4 v2 dp4 mb3 zero1 full sp offload zb pp-inside"
    assert parse_layout("tp8") == {"tensor": 8}
    assert parse_layout("no-sp offload tp=4") == {"sequential": False, "offload": True, "tensor": 4}
    for alias, name in words_of.SHARDING_ALIASES.items():
        assert parse_layout(alias) == {"sharding": name}


def test_unknown_words_and_contradictions_are_refused_with_the_choices() -> None:
    for word in ("", "tp", "tp0", "tp-1", "tp1.5", "tp9999999999", "xx3", "no-zb", "zero4", "8tp", "sp2"):
        message = f"unknown word of a layout {word!r}; .*choose from: tpN, .*zero1.*, pp-inside"
        with pytest.raises(UsageError, match=message) as refused:
            parse_layout(word)
        assert "\n" not in str(refused.value)
    twice = {"tp8 tp4": "tensor twice: 8 and 4", "zero1 fsdp": "sharding twice: zero1 and zero3"}
    for text, both in (twice | {"sp no-sp": "sequential twice", "1f1b zb": "schedule twice"}).items():
        with pytest.raises(UsageError, match=f"--layout says {both}.*; give one"):
            parse_layout(text)
