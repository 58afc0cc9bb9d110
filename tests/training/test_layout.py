"""Layouts and their names: what is written is read again, whatever the order, and nothing else is."""

import random
from typing import Any

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


@settings(max_examples=100, deadline=None, derandomize=True)
@given(LAYOUTS, st.randoms(use_true_random=False), st.sampled_from((" ", ", ", ",", "\n", "  ")), st.booleans())
def test_a_name_is_read_as_the_layout_that_has_it(
    layout: Layout, dice: random.Random, between: str, loud: bool
) -> None:
    """Words in any order, with blanks or commas, in capitals or not, some twice."""
    words = layout.name.split()
    dice.shuffle(words)
    text = between.join([*words, words[0]])
    assert layout_of(parse_layout(text.upper() if loud else text)) == layout


@settings(max_examples=100, deadline=None, derandomize=True)
@given(LAYOUTS)
def test_a_layout_takes_the_product_of_its_sizes(layout: Layout) -> None:
    assert layout.gpus == layout.tensor * layout.pipeline * layout.data * layout.context


def test_a_name_leaves_out_what_is_usual() -> None:
    assert Layout().name == "dp1 mb1 ddp"
    full = Layout(8, 16, 4, 2, 4, 2, 3, "zero1", "full", "zb", True, True, "pp-inside")
    assert full.name == "tp8 pp16 cp2 ep4 v2 dp4 mb3 zero1 full sp offload zb pp-inside"


def test_only_what_is_said_is_read() -> None:
    """With other words for some."""
    assert parse_layout("tp8") == {"tensor": 8}
    assert parse_layout("no-sp offload tp=4") == {"sequential": False, "offload": True, "tensor": 4}
    for alias, name in SHARDING_ALIASES.items():
        assert parse_layout(alias) == {"sharding": name}


@pytest.mark.parametrize(
    "word", ["", "tp", "tp0", "tp-1", "tp1.5", "tp9999999999", "xx3", "no-zb", "zero4", "8tp", "sp2"]
)
def test_unknown_words_are_refused_with_the_choices(word: str) -> None:
    with pytest.raises(
        UsageError, match=f"unknown word of a layout {word!r}; choose from: tpN, .*zero1.*, pp-inside"
    ) as refused:
        parse_layout(word)
    assert "\n" not in str(refused.value)


TWICE = {
    "tp8 tp4": "tensor twice: 8 and 4",
    "zero1 fsdp": "sharding twice: zero1 and zero3",
    "sp no-sp": "sequential twice",
    "none full": "recompute twice",
    "1f1b zb": "schedule twice",
}


@pytest.mark.parametrize(("text", "both"), TWICE.items())
def test_contradictions_are_refused(text: str, both: str) -> None:
    with pytest.raises(UsageError, match=f"--layout says {both}.*; give one"):
        parse_layout(text)


def test_fields_are_layouts() -> None:
    said: dict[str, Any] = {"tensor": 2, "offload": True}
    assert layout_of(said) == Layout(tensor=2, offload=True)
    with pytest.raises(AssertionError):
        layout_of({"speed": 1})
