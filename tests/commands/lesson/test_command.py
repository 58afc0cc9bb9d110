"""`collbench lesson`: a page from runs, what is not measured again, and how it goes on after an interruption."""

import json
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import collbench
from collbench.commands.lesson import command as lesson
from collbench.commands.lesson.numbers import judged
from collbench.errors import Notice
from collbench.records import encoded
from collbench.runfile.schema import to_result
from collbench.runfile.store import NAME, read
from tests.commands.sweep.test_command import wait_for
from tests.conftest import ROOT, Command

MEASURED = {"sweep": "cpu-2-ranks", "explain": "cpu-2-ranks-explained"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, run in MEASURED.items():
        (tmp_path / "out" / part).mkdir(parents=True)
        shutil.copy(ROOT / "results" / run / NAME, tmp_path / "out" / part / NAME)
    (tmp_path / "out" / "breaks.json").write_text("[]")
    return tmp_path / "out"


def test_what_is_there_is_not_measured_again(here: Command, folder: Path) -> None:
    before = {part: (folder / part / NAME).read_bytes() for part in MEASURED}
    done = here("lesson", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["out/lesson.html"]
    assert before == {part: (folder / part / NAME).read_bytes() for part in MEASURED}
    page = (folder / "lesson.html").read_text(encoding="utf-8")
    assert "27x" in page
    assert "not measured here" not in page
    assert len(page.encode()) < 2_000_000


def test_only_run_files_are_measured_again_and_never_a_run_that_cannot_be_read(here: Command, folder: Path) -> None:
    for part in MEASURED:
        (folder / part / "notes.txt").write_text("mine")
    (folder / "explain" / NAME).write_text("no run\n")
    before = (folder / "sweep" / NAME).read_bytes()
    refused = here("lesson", "--out", "out")
    assert refused.returncode == 2
    assert "--fresh" in refused.stderr
    assert (folder / "explain" / NAME).read_text() == "no run\n"
    (folder / "explain" / NAME).unlink()
    done = here("lesson", "--on", "cpu", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert all(read(folder / part).whole for part in MEASURED)
    assert (folder / "sweep" / NAME).read_bytes() == before
    assert {(folder / part / "notes.txt").read_text() for part in MEASURED} == {"mine"}


@pytest.fixture
def spoiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rows of a sweep that was cut off behind its last row, of which the first was disturbed."""
    monkeypatch.setattr(lesson, "PARTS", {"sweep": "sweep"})
    with warnings.catch_warnings(action="ignore", category=Notice):  # of rows that were disturbed
        collbench.sweep(impl="ring-flags,one-shot", on="cpu", maxbytes=8, iters=3, starts=1, out=tmp_path / "sweep")
    header, *rows, _ = (tmp_path / "sweep" / NAME).read_text().splitlines(keepends=True)
    for at, share in enumerate((0.99, 0.0)):
        row = json.loads(rows[at])
        spoilt = row | {"barrier": None, "scheduling": row["scheduling"] | {"off_core": share}}
        rows[at] = encoded(spoilt).decode()
    (tmp_path / "sweep" / NAME).write_text("".join([header, *rows]))
    (tmp_path / "breaks.json").write_text("[]")
    assert len(rows) == 2
    return rows


def test_a_disturbed_row_is_measured_again_in_its_place(spoiled: list[str], tmp_path: Path) -> None:
    assert lesson.command.main(["--out", str(tmp_path)], standalone_mode=False) == 0
    run = read(tmp_path / "sweep")
    assert run.whole
    assert sorted(row.implementation for row in run.results) == ["one-shot", "ring-flags"]
    disturbed, calm = (to_result(json.loads(row)) for row in spoiled)
    assert disturbed not in run.results
    assert calm in run.results


def test_a_row_that_stays_disturbed_is_left_and_told(
    spoiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lesson, "REPEATING", 0.0)
    assert lesson.command.main(["--out", str(tmp_path)], standalone_mode=False) == 0
    assert spoiled[0] in (tmp_path / "sweep" / NAME).read_text()
    said = capsys.readouterr().err
    assert "Left out: 1 of 2 rows, disturbed" in said or "Left out: 2 of 2 rows, disturbed" in said
    assert "--fresh" in said
    assert "rows, disturbed" in (tmp_path / "lesson.html").read_text()


def test_runs_that_are_given_are_enough_and_those_without_a_time_are_refused(here: Command, folder: Path) -> None:
    (folder.parent / "other").mkdir()
    shutil.copy(folder / "breaks.json", folder.parent / "other")
    done = here("lesson", str(folder / "sweep"), str(folder / "explain"), "--out", "other")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["other/lesson.html"]
    refused = here("lesson", str(ROOT / "results" / "dgx-h100-scale"), "--out", "other")
    assert refused.returncode == 2
    assert "all-reduce" in refused.stderr


def test_the_page_may_have_a_place_of_its_own_while_runs_are_in_the_usual_folder(here: Command, folder: Path) -> None:
    shutil.copytree(folder, folder.parent / lesson.FOLDER)
    done = here("lesson", "--out", "new/x.html")
    assert done.stdout.split() == ["new/x.html"], done.stderr
    assert [path.name for path in (folder.parent / "new").iterdir() if path.is_file()] == ["x.html"]


def test_other_ranks_than_those_in_the_folder_and_a_launcher_are_refused(here: Command, folder: Path) -> None:
    for arguments, variables in (
        (("--ranks", "3"), {}),
        ((), {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}),
    ):
        done = here("lesson", "--out", str(folder), *arguments, **variables)
        assert done.returncode == 2
        assert done.stderr.startswith("collbench: error: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.full
@pytest.mark.timeout(600)
def test_an_interrupted_lesson_goes_on_with_the_rows_that_are_there(
    start: Callable[..., subprocess.Popen[str]], collbench: Command, tmp_path: Path
) -> None:
    file = tmp_path / "out" / "sweep" / NAME
    process = start("lesson", "--on", "cpu", "--out", "out")
    wait_for(lambda: file.exists() and file.read_text().count('"kind":"measurement"') >= 5)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert process.returncode == 128 + signal.SIGINT
    lines, rows = file.read_text().splitlines()[1:6], read(file).results[:5]
    process = start("lesson", "--on", "cpu", "--out", "out")
    process.communicate(timeout=400)
    assert process.returncode == 0
    there = file.read_text().splitlines()
    again = [row for line, row in zip(lines, rows, strict=True) if line not in there]
    assert all(row.disturbed for row in judged([*again, *read(file).results])[: len(again)])
    assert all(read(tmp_path / "out" / part).whole for part in MEASURED)
    assert collbench("lesson", "--out", "out").returncode == 0
