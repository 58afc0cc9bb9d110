"""docs/gallery.md shows every kind of picture, drawn from the runs that are committed."""

from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from collbench.cli.plot import command as plot_command
from collbench.figures.kinds import kinds
from collbench.figures.views import QUANTITIES, SAMPLES
from tools import gallery
from tools.gallery import FOLDER, PICTURES, SOURCE, Shown

LARGEST = 150_000  # bytes of a committed picture
each_picture = pytest.mark.parametrize("shown", PICTURES, ids=lambda shown: shown.name)


def test_every_kind_and_view_is_shown() -> None:
    """A new one fails here first; so are pictures that have a command of their own."""
    views = {view.name for view in QUANTITIES} | {SAMPLES}
    assert {shown.shows for shown in PICTURES} == {*kinds(), *views, "ratios", "system"}


def test_the_page_is_written_by_the_command() -> None:
    """`make gallery` writes it anew."""
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page()
    titles = [shown.title for shown in PICTURES]
    assert len(set(titles)) == len(titles)
    assert {path.name for path in FOLDER.iterdir()} == {shown.name for shown in PICTURES}


@each_picture
def test_a_picture_is_of_the_run_files_as_they_are(shown: Shown) -> None:
    """Small enough for a repository, too; `make gallery` draws it anew."""
    path = FOLDER / shown.name
    assert path.stat().st_size < LARGEST
    with Image.open(path) as picture:
        assert picture.info[SOURCE] == shown.source, "its run file or its command is another one now: make gallery"
    assert shown.runs or shown.shows == "system"


def test_every_option_of_a_command_on_the_page_exists() -> None:
    """No example teaches a word that is refused."""
    known = {option for parameter in plot_command.params for option in parameter.opts}
    for shown in PICTURES:
        words = shown.command.split()
        if words[0] == "plot":
            assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("title", ["A fabric", "Latency"])
def test_pictures_are_of_the_code_as_it_is(title: str, tmp_path: Path) -> None:
    """Two of them, drawn again: the same but for what another version of the libraries makes of letters."""
    (shown,) = (shown for shown in PICTURES if shown.title == title)
    again = tmp_path / shown.name
    again.write_bytes(gallery.drawn(shown.command)[shown.name])
    with Image.open(again) as new, Image.open(FOLDER / shown.name) as old:
        assert new.size == old.size, "make gallery"
        apart = ImageStat.Stat(ImageChops.difference(new.convert("L"), old.convert("L"))).mean[0]
    assert apart < 2, "make gallery"
