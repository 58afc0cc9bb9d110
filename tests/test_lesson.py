"""The lesson says what the committed runs say."""

import re
import shutil
from pathlib import Path

import pytest

from collbench.implementations import implementations
from tests import lesson
from tests.conftest import ROOT

TEXT = lesson.LESSON.read_text(encoding="utf-8")
FROM_ELSEWHERE = {"0.6 us", "5.75 us"}  # with their sources beside them


def test_every_number_is_what_its_run_says() -> None:
    """`python -m tests.lesson` writes them anew."""
    assert len(lesson.NUMBER.findall(TEXT)) > 20
    assert lesson.rewritten(TEXT) == TEXT


def test_no_measured_number_stands_without_its_run() -> None:
    """Times, factors and shares outside of links are from elsewhere, and few."""
    bare = re.sub(r"\[[^\]]*\]\([^)]*\)", "", TEXT)
    found = set(re.findall(r"\b\d+(?:\.\d+)? ?(?:us|ms|ns|x|%|GB/s)(?!\w)", bare))
    assert found <= FROM_ELSEWHERE


def test_the_lesson_goes_up_the_ladder() -> None:
    """A section for each rung, in order, named as it is."""
    named = re.findall(r"^## (?:\d+\. |Beside the ladder: )([\w-]+)", TEXT, re.MULTILINE)
    rungs = [each.name for each in implementations().values() if not each.library and each.name != "auto"]
    assert named == rungs


def test_a_number_that_is_no_longer_true_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with other times changes the text."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    run = tmp_path / "results" / "cpu-2-ranks" / "run.jsonl"
    text = run.read_text()
    assert '"nbytes": 8,' in text
    run.write_text(re.sub(r'("implementation": "mpi".*"nbytes": 8,.*"seconds": \[)[^\]]*', r"\g<1>1e-3", text))
    monkeypatch.setattr(lesson, "LESSON", tmp_path / "docs" / "lesson.md")
    assert lesson.rewritten(TEXT) != TEXT
    assert "1 ms" in lesson.rewritten(TEXT)


@pytest.mark.parametrize("title", ["mpi at 9 B", "nobody at 8 B", "speed of mpi at 8 B", "waited of mpi at 8 B"])
def test_a_number_that_no_run_has_is_an_error(title: str) -> None:
    """Rather than an empty place."""
    with pytest.raises(KeyError):
        lesson.value(ROOT / "results" / "cpu-2-ranks", title)
