"""The lesson says what the committed runs say."""

import re
import shutil
from pathlib import Path

import pytest

from collbench.implementations import implementations
from tests.conftest import ROOT
from tools import lesson

TEXT = lesson.LESSONS[0].read_text(encoding="utf-8")
FROM_ELSEWHERE = {"0.6 us", "5.75 us"}  # with their sources beside them


@pytest.mark.parametrize("page", lesson.LESSONS, ids=lambda page: page.stem)
def test_every_number_is_what_its_run_says(page: Path) -> None:
    """`python -m tools.lesson` writes them anew."""
    text = page.read_text(encoding="utf-8")
    assert len(lesson.NUMBER.findall(text)) > 20
    assert lesson.rewritten(text) == text


@pytest.mark.parametrize("page", lesson.LESSONS, ids=lambda page: page.stem)
def test_no_measured_number_stands_without_its_run(page: Path) -> None:
    """Times, factors and shares outside of links are from elsewhere, and few."""
    bare = re.sub(r"\[[^\]]*\]\([^)]*\)", "", lesson.BLOCK.sub("", page.read_text(encoding="utf-8")))
    numbers = set(re.findall(r"\b\d+(?:\.\d+)? ?(?:us|ms|ns|x|%|GB/s)(?!\w)", bare))
    assert numbers <= FROM_ELSEWHERE


def test_the_textbooks_say_of_each_algorithm_what_the_lesson_says_of_it() -> None:
    """Who is first and last at the smallest and the largest size, and by how much."""
    small, large = (
        sorted(lesson.TEXTBOOK, key=lambda name: lesson.TEXTBOOK[name](size))
        for size in (lesson.TEXTBOOK_SIZES[0], lesson.TEXTBOOK_SIZES[-1])
    )
    assert (small[0], small[1]) == ("parameter server, one", "recursive doubling")
    assert set(small[-2:]) == {"ring", "chain, pipelined"}
    assert small[-1] == "chain, pipelined"
    assert (large[0], large[1], large[-1]) == ("hierarchical", "chain, pipelined", "parameter server, one")
    doubling, ring = lesson.TEXTBOOK["recursive doubling"], lesson.TEXTBOOK["ring"]
    assert ring(lesson.TEXTBOOK_SIZES[0]) / doubling(lesson.TEXTBOOK_SIZES[0]) == pytest.approx(20, rel=0.1)
    assert doubling(lesson.TEXTBOOK_SIZES[-1]) / ring(lesson.TEXTBOOK_SIZES[-1]) == pytest.approx(3, rel=0.05)


def test_the_lesson_goes_up_the_ladder() -> None:
    """A section for each rung, in order, named as it is."""
    named = re.findall(r"^## (?:\d+\. |Beside the ladder: )([\w-]+)", TEXT, re.MULTILINE)
    rungs = [
        implementation.name
        for implementation in implementations().values()
        if not implementation.library and not implementation.wire and implementation.name != "auto"
    ]
    assert named == rungs


def test_a_number_that_is_no_longer_true_is_noticed(tmp_path: Path) -> None:
    """A run with other times changes the text."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    run = tmp_path / "results" / "cpu-2-ranks" / "run.jsonl"
    text = run.read_text()
    assert '"nbytes": 8,' in text
    run.write_text(re.sub(r'("implementation": "mpi".*"nbytes": 8,.*"seconds": \[)[^\]]*', r"\g<1>1e-3", text))
    assert lesson.rewritten(TEXT, tmp_path) != TEXT
    assert "1 ms" in lesson.rewritten(TEXT, tmp_path)


@pytest.mark.parametrize("title", ["mpi at 9 B", "nobody at 8 B", "speed of mpi at 8 B", "waited of mpi at 8 B"])
def test_a_number_that_no_run_has_is_an_error(title: str) -> None:
    """Rather than an empty place."""
    with pytest.raises(KeyError):
        lesson.value(ROOT / "results" / "cpu-2-ranks-epyc", title)
