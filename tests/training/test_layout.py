"""Layouts and their names: what is written is read again, whatever the order, and nothing else is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.training.layout import (
    PLACEMENTS,
    RECOMPUTE,
    SCHEDULES,
    SHARDING_ALIASES,
    SHARDINGS,
    Layout,
    layout_of,
    parse_layout,
)

COUNT = st.integers(1, 10**6)
LAYOUTS = st.builds(
    Layout, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, st.sampled_from(tuple(SHARDINGS)),
    st.sampled_from(RECOMPUTE), st.sampled_from(SCHEDULES), st.booleans(), st.booleans(), st.sampled_from(PLACEMENTS),
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LAYOUTS, st.randoms(use_true_random=False), st.sampled_from((" ", ", ", ",", "\n", "  ")), st.booleans())
def test_a_name_in_any_order_is_read_as_its_layout(one: Layout, dice: random.Random, gap: str, loud: bool) -> None:
    assert one.gpus == one.tensor * one.pipeline * one.data * one.context
    words = one.name.split()
    dice.shuffle(words)
    text = gap.join([*words, words[0]])
    assert layout_of(parse_layout(text.upper() if loud else text)) == one


def test_a_name_leaves_out_what_is_usual() -> None:
    assert Layout().name == "dp1 mb1 ddp"
    full = Layout(8, 16, 4, 2, 4, 2, 3, "zero1", "full", "zb", True, True, "pp-inside")
    assert full.name == "tp8 pp16 cp2 ep4 v2 dp4 mb3 zero1 full sp offload zb pp-inside"


def test_only_what_is_said_is_read() -> None:
    assert parse_layout("tp8") == {"tensor": 8}
    assert parse_layout("no-sp offload tp=4") == {"sequential": False, "offload": True, "tensor": 4}
    for alias, name in SHARDING_ALIASES.items():
        assert parse_layout(alias) == {"sharding": name}
    assert layout_of({"tensor": 2, "offload": True}) == Layout(tensor=2, offload=True)


def test_unknown_words_and_contradictions_are_refused_with_the_choices() -> None:
    for word in ("", "tp", "tp0", "tp-1", "tp1.5", "tp9999999999", "xx3", "no-zb", "zero4", "8tp", "sp2"):
        message = f"unknown word of a layout {word!r}; choose from: tpN, .*zero1.*, pp-inside"
        with pytest.raises(UsageError, match=message) as refused:
            parse_layout(word)
        assert "\n" not in str(refused.value)
    for text, both in (
        ("tp8 tp4", "tensor twice: 8 and 4"),
        ("zero1 fsdp", "sharding twice: zero1 and zero3"),
        ("sp no-sp", "sequential twice"),
        ("none full", "recompute twice"),
        ("1f1b zb", "schedule twice"),
    ):
        with pytest.raises(UsageError, match=f"--layout says {both}.*; give one"):
            parse_layout(text)
