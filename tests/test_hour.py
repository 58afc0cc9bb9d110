"""`make hour` carries a page out as it stands, and stops where it does not hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import hour
from tests.conftest import ROOT
from tests.shown import OURS, shown

MAKEFILE = "good:\n\t@echo made >> made\nbad:\n\t@echo what went wrong; exit 7\nlater:\n\t@touch later\n"
PAGE = "# A page\n\n```\nmake good   # a comment\nmake test\n{more}\n```\n"


def tried(folder: Path, more: str) -> tuple[int, list[str]]:
    """The status, and the lines that are said, of a made-up page."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "README.md").write_text(PAGE.format(more=more))
    said: list[str] = []
    return hour.hour(folder / "README.md", os.environ, said.append), said


def test_every_command_is_carried_out_in_its_order(tmp_path: Path) -> None:
    """A line each, with its time; what is left out says why."""
    status, said = tried(tmp_path, "make good")
    assert status == 0
    assert (tmp_path / "made").read_text() == "made\n" * 2
    assert [line.split("  ")[-1].partition(":")[0] for line in said] == ["make good", "make test", "make good"]
    assert "continuous integration" in said[1]


def test_the_first_that_fails_ends_it(tmp_path: Path) -> None:
    """With its status and its last words; nothing behind it is begun."""
    status, said = tried(tmp_path, "make bad\nmake later")
    assert status == 2  # make's own
    assert said[-1].startswith("FAILED: make bad: status 2, not 0")
    assert "what went wrong" in said[-1]
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize("reason", ["WRONG: implausible", "FAILED: no progress"])
def test_the_reason_is_shown_wherever_it_was_printed(tmp_path: Path, reason: str) -> None:
    """A row that is wrong or failed stands far above the last lines of a sweep."""
    (tmp_path / "rows").write_text(f"8 B  ok\n8 B  {reason}\n" + "another line\n" * (2 * hour.LAST))
    words = f"{sys.executable} -c 'import pathlib; print(pathlib.Path(\"rows\").read_text()); exit(1)'"
    _, said = tried(tmp_path, f"$ {words}")
    lines = said[-1].splitlines()
    assert lines[1].strip() == f"8 B  {reason}"
    assert len(lines) == 1 + 1 + hour.LAST


def test_a_command_must_end_as_the_page_says(tmp_path: Path) -> None:
    """A gate that is shown with a regression fails, and must."""
    page = f"```\n$ {sys.executable} -c 'raise SystemExit(3)' --gate\n```\n"
    for status, text in ((0, page), (1, page.replace("(3)", "(0)"))):
        (tmp_path / "README.md").write_text(text)
        assert hour.hour(tmp_path / "README.md", os.environ, lambda line: None) == status


def test_what_takes_too_long_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is ended."""
    monkeypatch.setattr(hour, "LIMIT", 0.2)
    (tmp_path / "README.md").write_text("```\n$ sleep 60\n```\n")
    assert hour.hour(tmp_path / "README.md", os.environ, lambda line: None) != 0


def test_a_reader_s_own_things_stand_where_the_page_has_words_for_them(tmp_path: Path) -> None:
    """The newest run, and no more ranks than cores."""
    for number, name in enumerate(("old", "new")):
        (folder := tmp_path / "results" / "runs" / name).mkdir(parents=True)
        (folder / "run.jsonl").touch()
        os.utime(folder / "run.jsonl", (number, number))
    assert hour.own("collbench diagnose results/runs/...", tmp_path) == "collbench diagnose results/runs/new"
    ranks = max(2, os.cpu_count() or 2)
    assert hour.own("mpirun -n 16 collbench sweep", tmp_path) == f"mpirun -n {ranks} collbench sweep"


def test_the_readme_is_carried_out_from_its_two_commands_on() -> None:
    """All of what the tests of pages run, and what is made besides."""
    words = [one.words for one in shown(ROOT / "README.md", (*OURS, "make"))]
    assert words[:2] == ["make sweep", "make test"]
    assert {one.words for one in shown(ROOT / "README.md")} <= set(words)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout to copy")
def test_the_copy_is_fresh(tmp_path: Path) -> None:
    """All that git has, as it is now, and nothing that was made."""
    home = hour.copied(tmp_path / "copy")
    assert (home / "README.md").read_bytes() == (ROOT / "README.md").read_bytes()
    assert not (home / ".venv").exists()
    assert not (home / "results" / "runs").exists()


def test_nothing_but_python_is_needed() -> None:
    """Before anything is installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.hour"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
