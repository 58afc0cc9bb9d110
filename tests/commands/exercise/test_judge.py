"""What the judge says, with made-up runs: each of its sentences, pictures of a failing call, and times to doubt."""

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from collbench.commands.exercise import command, judge, picture, records
from collbench.measure import races
from collbench.results.disturbed import Scheduling
from tests.commands.exercise.test_exercises import measured

EVERY = records.exercises()
MEET, PUBLISH, BEAT = EVERY[0], EVERY[1], EVERY[-1]
STAGES = {(True, True): "together", (False, True): "late", (True, False): "early", (False, False): "again"}
CLEAN = races.Outcome(calls=32, wrong=0, gave_up=False, races=0, stderr="", ended=(16,) * 4, waits=(0,) * 4)
RUNS = tomllib.loads(Path(__file__).with_name("runs.toml").read_text())
FAILURES = {
    name: replace(CLEAN, **fields | {"found": [RUNS["result"] | facts for facts in fields.get("found", ())]})
    for name, fields in RUNS["failure"].items()
}
HUNG = FAILURES["stuck"]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., judge.Judgement]:
    def judged(outcome: Any, exercise: records.Exercise = MEET, stage: str = "together", stall: int = 0) -> Any:
        def ran(_: Path, run: races.Run, before: tuple[str, ...]) -> races.Outcome:
            shown = outcome if STAGES[run.before, run.after] == stage and stall in (0, run.stall) else CLEAN
            return replace(shown, ended=shown.ended[: run.ranks], waits=shown.waits[: run.ranks])

        (tmp_path / f"{exercise.kernel}.cu").write_text(exercise.files()[f"{exercise.kernel}.cu"])
        monkeypatch.setattr(races, "launcher", tuple)
        monkeypatch.setattr(races, "build_user_kernel", lambda *_: Path("none"))
        monkeypatch.setattr(races, "outcome", ran)
        return judge.judge(exercise, tmp_path)

    return judged


def sentences(verdict: judge.Judgement) -> Iterator[str]:
    assert len(verdict.picture) <= 8
    assert all(len(line) <= 74 for line in verdict.picture)
    yield from (verdict.says, *verdict.evidence, *verdict.picture, *verdict.notes, verdict.remark)


def test_every_sentence_of_the_judge_is_said_by_some_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judged: Callable[..., judge.Judgement]
) -> None:
    said: list[str] = []
    for name, outcome in FAILURES.items():
        verdicts = [judged(outcome, exercise) for exercise in EVERY]
        for verdict in verdicts + [judged(outcome, stage=stage) for stage in STAGES.values()]:
            assert not verdict.passed, name
            said += sentences(verdict)
    for stall in (races.START, races.BARRIER, races.PACKETS, races.RECEIVE):
        said += sentences(judged(HUNG, stage="again", stall=stall))
    said += sentences(judged(replace(CLEAN, raised=2 * MEET.raises)))
    assert not judged(replace(CLEAN, raised=MEET.raises), BEAT).remark

    mpi = measured()["mpi"]
    for rows in ([], [mpi, replace(mpi, implementation=BEAT.kernel)]):
        monkeypatch.setattr(judge, "swept", lambda *_, rows=rows: (rows, "it failed"))
        said += sentences(judge.timed(BEAT, tmp_path))

    judged(CLEAN)
    monkeypatch.setattr(races, "launcher", Mock(side_effect=races.NoSanitizer))
    said += sentences(judge.judge(MEET, tmp_path))
    monkeypatch.setattr(races, "build_user_kernel", Mock(side_effect=ValueError("meet.cu:999: error: no")))
    said += sentences(judge.judge(MEET, tmp_path))
    for subject, texts in judge.words().items():
        for key, text in texts.items():
            pieces = re.split(r"\{[^}]*\}", text)
            assert any(all(piece in line for piece in pieces) for line in said), (subject, key)
    assert not any(set("{}") & set(line) for line in said if "cu:" not in line)
    assert {mistake.value for exercise in EVERY for mistake in exercise.mistake} <= {"", *judge.words()["value"]}


def test_words_fit_their_facts(judged: Callable[..., judge.Judgement]) -> None:
    assert "Of 64 elements, 1 is wrong: " in judged(FAILURES["one"]).evidence[-1]
    assert "Of 64 elements, 12 are wrong: " in judged(FAILURES["missing"]).evidence[-1]
    assert any("waits for its flag from rank 1" in line for line in judged(HUNG, PUBLISH).picture)
    assert any("waits for a packet" in line for line in judged(HUNG, BEAT).picture)
    known = (records.Mistake("Stuck.", caught="stuck", hint="Draw it."), records.Mistake("No order.", caught="race"))
    exercise = msgspec.structs.replace(MEET, mistake=known)
    hints = [(verdict.mistake, verdict.hint) for verdict in (judged(each, exercise) for each in FAILURES.values())]
    assert set(hints) == {("", ""), ("Stuck.", "Draw it."), ("No order.", "")}


def test_pictures_show_who_waits_who_is_late_and_which_inputs_a_result_has() -> None:
    first, second, third, _ = picture.hang((2, 3, 2), ("rank 2", "", ""))
    assert [set("]?") & set(line) for line in (first, second, third)] == [{"?"}, {"]"}, set()]
    assert first.endswith("waits for rank 2")
    for stage in STAGES.values():
        caller, kernel, _ = picture.race(stage, [(1, "writes", "fills in"), (-1, "reads", "reads")])
        assert ("|" in kernel) == (stage != "again")
        if stage in ("late", "early"):
            assert (caller.index("w") < caller.index("[")) == (stage == "late")

    earlier = RUNS["result"] | {"rank": 0, "call": 1}
    for name, case in RUNS["picture"].items():
        rows = picture.inputs(2, (9, 9), case["due"], [*FAILURES[name].found, earlier])
        assert [line.split()[3:] for line in rows[1:3]] == [["?", "?"], case["row"]], name
    assert not picture.inputs(2, (9, 9), (0, 1), FAILURES["other"].found)
    assert "?" in picture.inputs(2, (2, 3), (0, 1), FAILURES["missing"].found)[1]  # rank 0 is still in the call


def test_a_number_that_is_none_is_read_behind_what_a_kernel_prints(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho \'nan {"calls": 1, "wrong": 1, "gave_up": false, "found": [-nan, -inf]}\'')
    program.chmod(0o700)
    assert races.outcome(program, races.Run((), 2), before=()).found[1] == -float("inf")


def test_an_unsteady_time_is_measured_again_and_has_no_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLBENCH_STATE", str(tmp_path / "state"))
    mpi, tries = measured()["mpi"], []
    steady = replace(mpi, implementation=MEET.kernel)

    def swept(_: Path, *words: str) -> Any:
        tries.append(words[words.index("-b") + 1])
        return [mpi, steady if tries == ["8", "8"] else replace(steady, scheduling=Scheduling(off_core=1.0))], ""

    monkeypatch.setattr(judge, "swept", swept)
    monkeypatch.setattr(judge, "judge", lambda *_: judge.Judgement())
    command.command.main(["check", str(records.start(MEET, tmp_path / "here"))], standalone_mode=False)
    assert tries == ["8", "8", "64K", "64K", "64K"]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if re.match(" +[0-9].*(yours|mpi)", line)]
    assert [row[-1] == "disturbed" for row in rows] == [False, False, True, False]
    assert [row[-1].endswith("x") for row in rows] == [False, True, False, False]
