"""The checker says what the literature says, and each of its rules is needed for that."""

import re

import pytest

from tools.memory_model import ptx
from tools.memory_model.fragments import FRAGMENTS
from tools.memory_model.litmus import Litmus, published

PUBLISHED = [*published(), *published("sections.txt")]


def agrees(test: Litmus) -> bool:
    return ptx.reachable(test.threads, test.outcome, test.initially) == test.allowed


def all_agree() -> bool:
    wrong = (ptx.reachable(fragment.threads, fragment.outcome, fragment.initially) for fragment in FRAGMENTS)
    return all(map(agrees, PUBLISHED)) and not any(wrong)


def test_published_verdicts_are_found() -> None:
    for test in PUBLISHED:
        assert agrees(test), test.name


def test_without_a_rule_verdicts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [(ptx.SYNCHRONISES, rule) for rule in ptx.SYNCHRONISES]
    for table, rule in [*rules, *((ptx.AXIOMS, axiom) for axiom in ("coherence", "atomicity", "causality"))]:
        with monkeypatch.context() as patch:
            patch.delitem(table, rule)
            assert not all_agree(), rule


def test_where_axioms_overlap_each_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for axiom, threads, outcome in (
        ("causality", ["0.0: st.relaxed.sys [x], 1", "1.0: ld.relaxed.sys a, [x]; ld.relaxed.sys b, [x]"], "a > b"),
        (
            "single-copy atomicity",
            ["0.0: st.relaxed.sys.b64 [x], {1, 1}", "1.0: ld.relaxed.sys.b64 {a, b}, [x]"],
            "a != b",
        ),
    ):
        for without, allowed in (((axiom,), False), (("sc-per-location",), False), ((axiom, "sc-per-location"), True)):
            with monkeypatch.context() as patch:
                for name in without:
                    patch.delitem(ptx.AXIOMS, name)
                assert ptx.reachable(threads, outcome) == allowed, without


def test_a_witness_ends_with_the_outcome_and_fulfils_every_axiom() -> None:
    shown = 0
    for test in (test for test in PUBLISHED if test.allowed):
        found = ptx.witness(test.threads, test.outcome, test.initially)
        assert found, test.name
        assert all(axiom(found.execution, found.coherence) for axiom in ptx.AXIOMS.values()), test.name
        registers = {name: found.values[slot] for name, slot in found.execution.program.registers.items()}
        if set(re.findall(r"[a-z]\w*", test.outcome)) <= {*registers, "and", "or", "not"}:
            assert eval(test.outcome, {"__builtins__": {}}, registers), test.name
            shown += 1
    assert shown > 20


def test_what_the_model_does_not_cover_is_refused() -> None:
    for threads, match in [
        (["0.0: ld.strong a, [x]"], "not understood: ld.strong"),
        (["0.0: multimem.st [x], 1"], "multimem for such an address"),
        (["0.0: multimem.st [x|y], 1", "0.0: ld.v2 {a, b}, [x]"], "size of earlier accesses"),
        (["0.0: ld a, [x]", "0.0: st [y], a"], "a is not loaded before"),
    ]:
        with pytest.raises(ValueError, match=match):
            ptx.reachable(threads, "True")
