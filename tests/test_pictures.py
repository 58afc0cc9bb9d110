"""The README's pictures of the lesson and of the judge show what the commands say."""

import re

import pytest
from selenium import webdriver

from tests.browser import browser
from tests.conftest import ROOT
from tools.pictures import FOLDER, PICTURES, drawn, words_of

__all__ = ["browser"]  # a fixture

LARGEST = 150_000  # bytes of a committed picture


def test_the_readme_shows_every_picture_and_each_is_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(docs/pictures/([\w.-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(PICTURES) == sorted(path.name for path in FOLDER.iterdir())
    for name in PICTURES:
        assert (FOLDER / name).stat().st_size < LARGEST, name


@pytest.mark.full
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_words_that_its_command_says_now(name: str, browser: webdriver.Chrome) -> None:
    assert words_of((FOLDER / name).read_bytes()) == words_of(drawn(browser, PICTURES[name]())), (
        "python -m tools.pages pictures"
    )
