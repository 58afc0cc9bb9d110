"""The exercises: starters that do not pass, solutions that do, wrong answers by their names; and the command."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.commands.exercise import judge, records
from collbench.commands.exercise.command import command
from collbench.errors import UsageError
from collbench.measure import races
from collbench.results import Measurement
from collbench.runfile.store import read
from tests.commands.exercise.answers import Answer, answers
from tests.conftest import ROOT

EVERY = records.exercises()
MEET = EVERY[0]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLBENCH_STATE", str(tmp_path / "state"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def code(text: str) -> str:
    return re.sub(r"//[^\n]*|\s", "", text)


def of(name: str) -> Answer:
    return next(answer for answer in answers(MEET) if answer.name == name)


def test_notes_that_somebody_else_may_have_written_lead_to_no_folder(tmp_path: Path) -> None:
    records.note(MEET, folder="/ours")
    assert records.notes()[MEET.name] == {"folder": "/ours"}
    (tmp_path / "state" / "exercises").rename(tmp_path / "foreign")
    (tmp_path / "state" / "exercises").symlink_to(tmp_path / "foreign")
    assert records.notes() == {}


@pytest.mark.usefixtures("sanitizer")
def test_the_first_exercise_is_judged(tmp_path: Path) -> None:
    late, stuck = of("flags are relaxed"), of("tells the next rank alone")
    verdict = late.judged(tmp_path / "race")
    assert (late.complaint(verdict), verdict.caught, verdict.level) == ("", "race", "races")
    assert any(re.search(r"meet\.cu:\d+: \S", line) for line in verdict.evidence)
    verdict = stuck.judged(tmp_path / "stuck")
    assert (stuck.complaint(verdict), verdict.caught, verdict.level) == ("", "stuck", "right")
    assert any("waits for rank" in line for line in verdict.picture)


@pytest.mark.full
@pytest.mark.machine
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("sanitizer")
@pytest.mark.parametrize("exercise", EVERY, ids=[exercise.name for exercise in EVERY])
def test_a_solution_passes_and_wrong_answers_are_told_by_their_names(
    exercise: records.Exercise, tmp_path: Path
) -> None:
    starter = Answer(exercise, "starter", exercise.files()[f"{exercise.kernel}.cu"], names=" ")
    verdict = starter.judged(tmp_path / "starter")
    assert not verdict.passed
    assert verdict.level != "builds"
    some = list(answers(exercise))
    assert len(some) > 5
    for number, answer in enumerate(answer for answer in some if not answer.by_time):
        complaint = answer.complaint(answer.judged(tmp_path / str(number)))
        assert not complaint, (answer.name, complaint)


def test_exercises_are_numbered_and_their_solutions_are_not_in_the_package() -> None:
    assert [exercise.number for exercise in EVERY] == list(range(1, len(EVERY) + 1))
    for exercise in EVERY:
        files = {path.name for path in exercise.folder.iterdir()}
        assert files == {"exercise.toml", "task.md", f"{exercise.kernel}.cu"}
        assert set(exercise.hints) == {"builds", "right", "races", "speed"}, exercise.name
        starter = exercise.files()[f"{exercise.kernel}.cu"]
        assert "YOUR CODE" in starter
        assert len(starter.splitlines()) < 100
        assert len(exercise.files()["README.md"].splitlines()) < 70
        assert code(starter) not in {code(answer.text) for answer in answers(exercise)}
        assert records.find(str(exercise.number)) is records.find(exercise.name) is exercise


def test_what_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    wrong = Answer(MEET, "no C++", of("solution").text.replace("const Call call(world);", "const Call call(worl);"))
    verdict = wrong.judged(tmp_path)
    assert verdict.level == "builds"
    assert any(re.match(r"meet\.cu:\d+: const Call call\(worl\);", line) for line in verdict.evidence)
    empty = Answer(MEET, "nothing", '#include "flags.cuh"\n').judged(tmp_path)
    assert empty.level == "builds"
    assert any("meet" in line for line in empty.evidence)


def test_without_a_sanitizer_values_are_judged_and_races_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Iterator[str]:
        raise races.NoSanitizer("none here")

    monkeypatch.setattr(races, "launcher", refuse)
    relaxed = of("flags are relaxed").judged(tmp_path / "relaxed")
    assert relaxed.passed
    assert "Races were not checked" in relaxed.notes[0]
    alone = of("tells the next rank alone")
    assert not alone.complaint(alone.judged(tmp_path / "alone"))


def test_a_folder_is_written_once_and_never_over_changes(tmp_path: Path) -> None:
    place = tmp_path / "here"
    assert run("start", 1, "--folder", place).return_value is None
    assert {path.name for path in place.iterdir()} == {"meet.cu", "meet.toml", "README.md"}
    records.start(MEET, place)  # nothing was changed
    (place / "meet.cu").write_text("my work\n")
    with pytest.raises(UsageError, match="was changed"):
        records.start(MEET, place)
    assert (place / "meet.cu").read_text() == "my work\n"
    with pytest.raises(UsageError, match="choose from: 1 meet"):
        records.find("99")


def test_the_list_says_what_is_started_and_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert all(exercise.title in run().output for exercise in EVERY)
    assert "exercise start 1" in run().output
    run("start", 1)
    assert re.search(r"1  Meet +started", run("list").output)
    assert "Next: collbench exercise check 1" in run("list").output
    of("solution").write(tmp_path / "exercise-1-meet")
    monkeypatch.setattr(judge, "judge", lambda exercise, folder: judge.Judgement())
    checked = run("check", 1, "--no-time")
    assert checked.return_value == 0
    assert "solved" in checked.output
    assert re.search(r"1  Meet +solved", run("list").output)
    assert run("list").output == run().output
    assert "Next: collbench exercise start 2" in run().output
    monkeypatch.chdir(tmp_path / "exercise-1-meet")
    assert run("check", "--no-time").return_value == 0
    assert run("check", tmp_path / "exercise-1-meet" / "meet.cu", "--no-time").return_value == 0
    monkeypatch.setattr(judge, "judge", lambda exercise, folder: judge.Judgement("races", says="Two at once."))
    failed = run("check")
    assert failed.return_value == 1
    assert "Two at once." in failed.output
    assert MEET.hints["races"] in failed.output
    monkeypatch.setattr(judge, "judge", lambda exercise, folder: judge.Judgement("races", mistake="A flag is relaxed."))
    assert MEET.hints["races"] not in run("check").output  # it may speak of another mistake
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exercise-1-meet").rename(tmp_path / "moved")
    assert re.search(r"1  Meet +solved +\S+exercise-1-meet \(no longer there\)", run("list").output)
    run("start", 2, "--folder", "two")
    (tmp_path / "two").rename(tmp_path / "three")
    assert "Next: collbench exercise start 2" in run("list").output


def test_what_cannot_be_checked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["check"], ["check", "1"], ["check", "."], ["start", "none"], ["hint", "0"]):
        error = run(*arguments).exception
        assert isinstance(error, UsageError), arguments
    (tmp_path / "meet.toml").write_text("")
    with pytest.raises(Exception, match=r"meet\.cu cannot be read"):
        judge.judge(MEET, tmp_path)


def measured() -> dict[str, Measurement]:
    """Rows of an all-reduce of 8 bytes, by implementation."""
    results = [row for row in read(ROOT / "results" / "cpu-2-ranks").results if isinstance(row, Measurement)]
    return {
        row.implementation: row for row in results if (row.case.collective.name, row.case.nbytes) == ("allreduce", 8)
    }


def test_a_kernel_beats_the_library_only_if_it_wins_twice_at_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exercise, rows = EVERY[-1], measured()
    answer = next(answers(exercise)).write(tmp_path)
    names = {"-": "ring-host", "+": "one-shot-ll", "=": "mpi"}
    for won, passes in (
        ({}, False),
        ({"8": "++"}, True),
        ({"8": "+--"}, False),
        ({"8": "-++"}, True),
        ({"8": "+-", "64K": "+-"}, False),
        ({"8": "+-", "64K": "++"}, True),
        ({"8": "==="}, False),
    ):
        left = {size: iter(won.get(size, "")) for size in exercise.sizes}

        def swept(_: Path, *words: str, left: dict[str, Iterator[str]] = left) -> tuple[list[Measurement], str]:
            mine = rows[names[next(left[words[words.index("-b") + 1]], "-")]]
            return [rows["mpi"], replace(mine, implementation=exercise.kernel)], ""

        monkeypatch.setattr(judge, "swept", swept)
        verdict = judge.timed(exercise, answer)
        assert verdict.passed == passes, won
        assert bool(verdict.evidence) == ("=" in won.get("8", "")), won


@pytest.mark.machine
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("sanitizer")
def test_the_last_solution_beats_the_library_and_a_right_but_slow_answer_does_not(tmp_path: Path) -> None:
    timed = [answer for answer in answers(EVERY[-1]) if answer.by_time]
    assert len(timed) == 2
    for number, answer in enumerate(timed):
        assert not answer.complaint(answer.judged(tmp_path / str(number))), answer.name


@pytest.mark.full
@pytest.mark.usefixtures("sanitizer")
def test_a_solution_is_timed_against_its_rung_and_the_library(tmp_path: Path) -> None:
    verdict = judge.timed(MEET, of("solution").write(tmp_path), budget=0.1)
    assert verdict.passed
    assert [set(rows) for rows in verdict.table.values()] == [{"mpi", MEET.rung, MEET.kernel}] * len(MEET.sizes)
    wrong = of("waits for the next rank alone").text.replace("< number &&", "< 0 &&")
    verdict = judge.timed(MEET, Answer(MEET, "no wait", wrong.replace("combine(sum,", "combine(T(1),")).write(tmp_path))
    assert (verdict.level, verdict.caught) == ("right", "wrong")
