"""The protocols of the kernels are right by the PTX memory model, and no step of theirs is idle."""

import re

import pytest

from tests.conftest import ROOT
from tools.memory_model import ptx
from tools.memory_model.fragments import FRAGMENTS, WEAKENINGS, Fragment
from tools.memory_model.program import Operation

NAMED = {fragment.name: fragment for fragment in FRAGMENTS}


def goes_wrong(fragment: Fragment) -> bool:
    return ptx.reachable(fragment.threads, fragment.outcome, fragment.initially)


def test_a_protocol_never_goes_wrong_and_without_any_of_its_steps_it_does() -> None:
    for name, fragment in NAMED.items():
        assert not goes_wrong(fragment), (name, fragment.wrong)
        assert ptx.reachable(fragment.threads, f"not ({fragment.outcome})", fragment.initially), name
        weakenings = [weakening for weakening in WEAKENINGS if weakening.fragment == name]
        assert weakenings, f"{name}: a verdict that nothing can change says nothing"
        for weakening in weakenings:
            assert goes_wrong(weakening.of(fragment)), weakening.name


def test_the_threads_of_a_block_meet_equally_often() -> None:
    for fragment in [*FRAGMENTS, *(weakening.of(NAMED[weakening.fragment]) for weakening in WEAKENINGS)]:
        meetings: dict[str, set[int]] = {}
        for thread in fragment.threads:
            meetings.setdefault(thread.partition(":")[0], set()).add(thread.count("bar.sync"))
        assert all(len(counts) == 1 for counts in meetings.values()), fragment.name


def test_a_checker_without_a_rule_would_blame_right_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(ptx.SYNCHRONISES, "bar.sync")
        assert goes_wrong(NAMED["publish and await"])
    monkeypatch.delitem(ptx.AXIOMS, "single-copy atomicity")
    monkeypatch.delitem(ptx.AXIOMS, "sc-per-location")
    assert goes_wrong(NAMED["packet"])


def test_a_checker_blind_to_scopes_would_miss_weakenings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operation, "reaches", lambda *_: True)
    missed = {weakening.name for weakening in WEAKENINGS if not goes_wrong(weakening.of(NAMED[weakening.fragment]))}
    assert missed == {weakening.name for weakening in WEAKENINGS if re.search(r"\b(gpu|cta)\b", weakening.name)}


def test_the_protocols_use_the_instructions_of_the_kernels() -> None:
    proved = "\n".join(thread for fragment in FRAGMENTS for thread in fragment.threads)
    text = "\n".join(path.read_text() for path in (ROOT / "kernels").glob("*.cu*"))
    kernels = "\n".join(text.replace('" SCOPE "', scope).replace('" SCOPE;', scope) for scope in ("sys", "gpu"))
    instructions = set(re.findall(r"\b(?:ld|st|fence|atom|red)\.[\w.]+(?=[ ;])", kernels))
    assert "st.release.sys.u32" in instructions
    for instruction in instructions:
        assert re.sub(r"\.(global|u32)\b", "", instruction) in proved, instruction
    multimem = set(re.findall(r"\bmultimem\.\w+\.\w+\.\w+", kernels))
    assert {word.split(".")[1] for word in multimem} == {"ld_reduce", "st"}
    for instruction in multimem:
        assert instruction in proved, instruction
