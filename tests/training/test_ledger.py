"""The books: every formula that is shown is the one that was reckoned, for one layout as for many."""

import ast
import inspect
import textwrap
from typing import Any

import numpy as np
import pytest

from collbench.training.candidates import candidates, layouts
from collbench.training.curves import Group
from collbench.training.job import STACKS
from collbench.training.ledger import Network, Read, Section, Term, reckon
from collbench.training.planner import SECTIONS
from collbench.training.setting import Setting, choices, inputs
from tests.training.books import GATED, GPT, MIXED, Lines, asked, reckoned

TERMS = [term for section in SECTIONS for term in section.terms]
SAMPLE = 60
NAMES: dict[str, Any] = {"maximum": np.maximum, "minimum": np.minimum, "where": np.where, "ceil": np.ceil}


def arrays_of(given: Setting) -> dict[str, Any]:
    """Some candidates from everywhere in the list."""
    arrays = candidates(given.job, given.curves.system, {})
    places = np.linspace(0, len(arrays["data"]) - 1, SAMPLE).astype(int)
    return {name: array[places] for name, array in arrays.items()}


def given(stack: str = "modern") -> Setting:
    return asked(MIXED, 32, 64, Lines(1e10), stack=stack)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_every_term_says_what_it_is_and_returns_one_expression(term: Term) -> None:
    """In one line each; its unit is one of four."""
    assert term.meaning.endswith(".")
    assert "\n" not in term.meaning
    assert term.unit in ("", "s", "bytes", "FLOP", "FLOP/s")
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(term.function))).body
    assert isinstance(function, ast.FunctionDef)
    assert [type(line) for line in function.body] == [ast.Expr, ast.Return]
    used = {node.id for node in ast.walk(ast.parse(term.formula)) if isinstance(node, ast.Name)}
    assert used == {*term.inputs} | (used & {*NAMES})


def test_no_term_is_entered_twice_or_before_what_it_needs() -> None:
    """Everything that terms need is an earlier term, or given by job, layout or network."""
    setting = given()
    known = {*inputs(setting), *choices(arrays_of(setting), setting), "network"}
    for term in TERMS:
        assert term.name not in known
        assert {*term.inputs} <= known
        known.add(term.name)


def test_every_input_is_used() -> None:
    """What no term needs is not given; but for what tables show."""
    setting = given()
    used = {name for term in TERMS for name in term.inputs}
    assert {*inputs(setting)} - used <= {"capacity", "layer_parameters"}


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
@pytest.mark.parametrize("stack", ["modern", "megatron-2022"])
def test_a_formula_as_it_is_shown_gives_the_value(term: Term, stack: str) -> None:
    """For many layouts at once, and for a single one."""
    setting = given(stack)
    many = reckon(SECTIONS, inputs(setting) | choices(arrays_of(setting), setting) | {"network": Network(Lines(1e10))})
    one = reckoned(setting, layouts(arrays_of(setting), [7])[0]).values
    for values in (many, one):
        again = eval(term.formula, {"__builtins__": {}}, {**NAMES, **values})
        assert np.array_equal(again, values[term.name])


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", [GPT, GATED, MIXED], ids=["gpt", "gated", "mixed"])
def test_many_layouts_are_reckoned_as_each_alone(stack: str, model: Any) -> None:
    setting = asked(model, 32, 64, Lines(1e10), stack=stack)
    arrays = arrays_of(setting)
    many = reckon(SECTIONS, inputs(setting) | choices(arrays, setting) | {"network": Network(setting.curves)})
    for place, layout in enumerate(layouts(arrays, range(SAMPLE))):
        alone = reckoned(setting, layout).values
        for term in TERMS:
            at = np.broadcast_to(many[term.name], (SAMPLE,))[place]
            assert alone[term.name] == pytest.approx(at, rel=1e-12), term.name


def test_terms_that_are_known_stay() -> None:
    section = Section("some")

    @section.term("s", "a book")
    def twice(one: float) -> float:
        """Of one."""
        return 2 * one

    @section.term()
    def more(twice: float) -> float:
        """Of both."""
        return twice + 1

    assert reckon([section], {"one": 3}) == {"one": 3, "twice": 6, "more": 7}
    assert reckon([section], {"one": 3, "twice": 1})["more"] == 2
    first = section.terms[0]
    assert (first.unit, first.source, first.meaning, first.formula) == ("s", "a book", "Of one.", "2 * one")


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
