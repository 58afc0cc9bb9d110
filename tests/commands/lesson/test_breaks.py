"""Kernels broken on purpose: each change fits, somebody notices it, and the memory model's execution is one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.commands.lesson import breaks
from collbench.commands.lesson.breaks import experiments, tried
from collbench.commands.lesson.content import Part
from collbench.measure import races
from tools.breaks import Experiment as Asked
from tools.breaks import in_order
from tools.memory_model.fragments import FRAGMENTS, WEAKENINGS, in_one_thread
from tools.memory_model.ptx import witness

RACE = """==================
WARNING: ThreadSanitizer: data race (pid=7)
  Write of size 4 at 0x7b9800000000 by thread T1:
    #0 Rank::fill(Job const&, Results const&) const host/streams.cpp:203 (streams.o+0x90f7)
    #1 Rank::run() host/streams.cpp:182 (streams.o+0x90f7)

  Previous read of size 8 at 0x7b9800000000 by thread T8:
    #0 get(Pack const&) host/streams_kernels.cpp:12 (streams.o+0xac00)
    #1 void add_tile<false, Pack, unsigned int>(Route const&, unsigned int) /tmp/x/direct.cu:{line} (streams.o+0xacbd)
    #2 one_shot /tmp/x/direct.cu:131 (streams.o+0xc938)

SUMMARY: ThreadSanitizer: data race host/streams.cpp:203 in Rank::fill(Job const&, Results const&) const
"""


def named(name: str) -> Part:
    return next(each for each in experiments() if each["name"] == name)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def say(check: bool | None, detector: bool | None) -> None:
        monkeypatch.setattr(breaks, "checked", lambda _: (check, "the check's words"))
        monkeypatch.setattr(breaks, "detected", lambda _: (detector, "the detector's words"))

    return say


def test_each_change_fits_its_kernel_and_moves_no_line() -> None:
    for each in experiments():
        text, whole = (files[each["file"]] for files in (breaks.changed(each), races.changed(())))
        assert text != whole, each["name"]
        assert text.count("\n") == whole.count("\n"), each["name"]


def test_the_steps_are_an_execution_in_which_a_read_sees_what_is_there() -> None:
    left = set()
    for name, litmus in breaks.witnesses().items():
        steps, threads = litmus["steps"], litmus["threads"]
        made = [(step["thread"], step["instruction"]) for step in steps]
        assert sorted(made) == [(thread, i) for thread, (_, code) in enumerate(threads) for i in range(len(code))], name
        assert any(step["wrong"] for step in steps), name
        for thread in range(len(threads)):
            own = [step["instruction"] for step in steps if step["thread"] == thread]
            left |= {name} if own != sorted(own) else set()
    assert left == {"relaxed"}
    for asked in Asked.all():
        weakening = next(each for each in WEAKENINGS if each.name == asked.variant)
        whole = next(each for each in FRAGMENTS if each.name == weakening.fragment)
        found = witness(in_one_thread(weakening.of(whole)).threads, asked.outcome or whole.outcome, whole.initially)
        assert found
        ops = found.execution.ops
        memory = {op.location: found.values[op.number, 0] for op in ops if op.thread < 0}
        for op in map(ops.__getitem__, in_order(found)):
            if op.kind == "write":
                memory[op.location] = found.values[op.number, 0]
            assert memory[op.location] == found.values[op.number, 0], (asked.name, op)


def test_steps_leave_the_order_of_the_program_only_where_they_must() -> None:
    for store, poll, order in (
        ("relaxed", "ld.acquire.sys [flag] >= 1; ", [1, 2, 3, 0]),
        ("release", "ld.relaxed.sys [flag] >= 1; ", [3, 0, 1, 2]),
        ("relaxed", "", [2, 0, 1]),
    ):
        found = witness((f"0.0: st [x], 7; st.{store}.sys [flag], 1", f"1.0: {poll}ld a, [x]"), "a != 7")
        assert found
        assert in_order(found) == order, (store, poll)


def test_the_question_is_answered_by_what_was_seen(heard: Callable[..., None]) -> None:
    answers = {}
    for seen in ((True, True), (True, False), (False, True), (False, False), (True, None), (False, None)):
        heard(*seen)
        found = tried()
        assert [each["experiment"] for each in found] == [*experiments()]
        assert {each["checker"] for each in found} == {"the check's words"}
        answers[seen] = {(len(each["question"]["choices"]), each["question"]["answer"]) for each in found}
    assert answers == {
        (True, True): {(4, 0)},
        (True, False): {(4, 1)},
        (False, True): {(4, 2)},
        (False, False): {(4, 3)},
        (True, None): {(2, 0)},
        (False, None): {(2, 1)},
    }
    for detector in (True, False, None):
        heard(None, detector)
        assert not tried()  # who would have noticed is not known


def test_the_answer_says_why_a_check_missed_or_noticed_only_where_it_did(heard: Callable[..., None]) -> None:
    for seen in ((True, True), (False, False), (False, None), (True, False)):
        heard(*seen)
        for each, experiment in zip(tried(), experiments(), strict=True):
            because, (check, detector) = each["question"]["because"], seen
            for words, said in (
                (experiment.get("noticed", ""), check),
                (experiment.get("missed", ""), check is False),
                (experiment.get("detected", ""), detector),
            ):
                assert (words.strip() in because) is bool(said) or not words, (experiment["name"], seen)


def test_a_race_is_told_by_the_lines_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = races.changed(())["direct.cu"].splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "sum[k].add(" in text)
    monkeypatch.setattr(races, "launcher", lambda: ())
    monkeypatch.setattr(races, "build", lambda *_: Path("none"))
    outcome = races.Outcome(calls=1, wrong=0, gave_up=False, races=1, stderr=RACE.format(line=line))
    monkeypatch.setattr(races, "outcome", lambda *_: outcome)
    noticed, words = breaks.detected(named("no-exit"))
    assert noticed
    assert f"writes its next input and line {line} of `direct.cu` reads (`{lines[line - 1].strip()}`)" in words


def test_without_a_race_detector_the_chapter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise races.NoSanitizer("this compiler has no ThreadSanitizer\nand says much more")

    monkeypatch.setattr(races, "launcher", refuse)
    noticed, words = breaks.detected(named("no-wait"))
    assert noticed is None
    assert "this compiler has no ThreadSanitizer." in words


def test_a_sweep_without_a_result_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed, words = breaks.checked({**named("no-exit"), "rung": "none-of-these"})
    assert noticed is None
    assert "none-of-these" in words


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("sanitizer")
def test_each_break_is_noticed_by_somebody_and_whole_kernels_by_nobody() -> None:
    found = {each["experiment"]["name"]: each for each in tried()}
    for name, each in found.items():
        question = each["question"]
        assert "race detector" in question["choices"][question["answer"]], (name, each["checker"], each["races"])
    for name in ("no-wait", "no-credit", "no-exit"):
        assert found[name]["question"]["answer"] == 0, (name, found[name]["checker"])
    for experiment in experiments():
        whole = {**experiment, "new": experiment["old"]}
        for noticed, words in (breaks.checked(whole), breaks.detected(whole)):
            assert noticed is False, (experiment["name"], words)
