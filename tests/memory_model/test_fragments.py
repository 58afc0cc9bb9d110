"""The protocols of the kernels are right by the PTX memory model, and no step of theirs is idle."""

import re

import pytest

from tests.conftest import ROOT
from tools.memory_model import ptx
from tools.memory_model.fragments import FRAGMENTS, ON_ONE_DEVICE, WEAKENINGS, Fragment, Weakening
from tools.memory_model.program import Operation

NAMED = {fragment.name: fragment for fragment in FRAGMENTS}


def goes_wrong(fragment: Fragment) -> bool:
    return ptx.reachable(fragment.threads, fragment.outcome, fragment.initially)


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.name)
def test_a_protocol_never_goes_wrong(fragment: Fragment) -> None:
    """No execution that the model allows ends in the bug."""
    assert not goes_wrong(fragment), fragment.wrong


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.name)
def test_a_protocol_can_go_right(fragment: Fragment) -> None:
    """Some execution ends all its waits, so that the bug is not absent for want of executions."""
    assert ptx.reachable(fragment.threads, f"not ({fragment.outcome})", fragment.initially)


@pytest.mark.parametrize("weakening", WEAKENINGS, ids=lambda weakening: weakening.name)
def test_a_weakened_protocol_goes_wrong(weakening: Weakening) -> None:
    """Every step is needed: without it the model allows the bug."""
    assert goes_wrong(weakening.of(NAMED[weakening.fragment]))


@pytest.mark.parametrize(
    "fragment",
    [*FRAGMENTS, *(weakening.of(NAMED[weakening.fragment]) for weakening in WEAKENINGS)],
    ids=lambda fragment: fragment.name,
)
def test_the_threads_of_a_block_meet_equally_often(fragment: Fragment) -> None:
    """Otherwise one of them would wait for ever, which the model does not see."""
    meetings: dict[str, set[int]] = {}
    for thread in fragment.threads:
        meetings.setdefault(thread.partition(":")[0], set()).add(thread.count("bar.sync"))
    assert all(len(counts) == 1 for counts in meetings.values())


def test_every_protocol_has_a_weakening() -> None:
    """A verdict that nothing can change says nothing."""
    assert {weakening.fragment for weakening in WEAKENINGS} == NAMED.keys()


def test_a_weakening_that_changes_nothing_is_refused() -> None:
    """A misspelt one would pass for the protocol itself."""
    with pytest.raises(ValueError, match=r"has no 'st\.nothing'"):
        Weakening("", "relay", (("st.nothing", ""),)).of(NAMED["relay"])


def test_a_checker_without_barriers_would_blame_the_right_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread's flag speaks for the block only because of the barrier."""
    monkeypatch.delitem(ptx.SYNCHRONISES, "bar.sync")
    assert goes_wrong(NAMED["publish and await"])


def test_a_checker_without_single_copy_atomicity_would_blame_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 64-bit word arrives whole only because of that axiom, which SC per location repeats."""
    monkeypatch.delitem(ptx.AXIOMS, "single-copy atomicity")
    monkeypatch.delitem(ptx.AXIOMS, "sc-per-location")
    assert goes_wrong(NAMED["packet"])


def test_a_checker_blind_to_scopes_would_miss_weakenings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those at a scope too narrow, and only those."""
    monkeypatch.setattr(Operation, "reaches", lambda *_: True)
    missed = {weakening.name for weakening in WEAKENINGS if not goes_wrong(weakening.of(NAMED[weakening.fragment]))}
    assert missed == {weakening.name for weakening in WEAKENINGS if re.search(r"\b(gpu|cta)\b", weakening.name)}


def test_the_protocols_use_the_instructions_of_the_kernels() -> None:
    """Each memory instruction that a kernel spells out is in a fragment that was proved."""
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


@pytest.mark.parametrize("record", [*FRAGMENTS, *WEAKENINGS], ids=lambda record: record.name)
def test_the_page_lists_every_verdict(record: Fragment | Weakening) -> None:
    """docs/kernels.md has a row for it; one row for a protocol on one device with its narrower scope."""
    page, name = (ROOT / "docs" / "kernels.md").read_text(), record.name.removesuffix(", cta scope")
    if name in ("on one device: packets, a slow receiver", "on one device: one buffer"):
        assert '"packets, a slow receiver" holds at any scope' in page
    elif name.startswith(ON_ONE_DEVICE):
        assert f"| {name.removeprefix(ON_ONE_DEVICE)} | never | goes wrong |" in page
    else:
        assert f"| {record.name} |" in page
