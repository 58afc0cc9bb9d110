"""The books: every formula that is shown is the one that was reckoned, for one layout as for many."""

from itertools import cycle
from typing import Any

import numpy as np
import pytest

from collbench.training.candidates import candidates, layouts
from collbench.training.curves import Group
from collbench.training.job import STACKS
from collbench.training.ledger import Network, Read, reckon
from collbench.training.planner import SECTIONS
from collbench.training.setting import Setting, choices, inputs
from tests.training.books import GATED, GPT, MIXED, Lines, asked, reckoned

TERMS = [term for section in SECTIONS for term in section.terms]
SAMPLE = 30
NAMES: dict[str, Any] = {"maximum": np.maximum, "minimum": np.minimum, "where": np.where, "ceil": np.ceil}


def arrays_of(given: Setting) -> dict[str, Any]:
    """Some candidates from everywhere in the list."""
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
