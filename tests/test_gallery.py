"""docs/gallery.md shows every kind of picture, drawn from the runs that are committed."""

from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from collbench.plots.kinds import kinds
from collbench.plots.views import VIEWS
from tests.conftest import ROOT
from tools import gallery
from tools.gallery import FOLDER, PICTURES, SOURCE

LARGEST = 150_000  # bytes of a committed picture


def test_every_kind_and_view_is_shown_by_a_picture_of_the_run_files_as_they_are() -> None:
    assert {shown.shows for shown in PICTURES} == {
        *kinds(),
        *(view.name for view in VIEWS),
    }
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == gallery.page(), "make gallery"
    assert {path.name for path in FOLDER.iterdir()} == {shown.name for shown in PICTURES}, "make gallery; remove others"
    for shown in PICTURES:
        path = FOLDER / shown.name
        assert path.stat().st_size < LARGEST, shown.name
        with Image.open(path) as picture:
            assert picture.info[SOURCE] == shown.source, f"make gallery: another run or command of {shown.name}"


@pytest.mark.full
def test_pictures_are_of_the_code_as_it_is(tmp_path: Path) -> None:
    for shown in (shown for shown in PICTURES if shown.title in ("Layouts of a training run", "Latency")):
        again = tmp_path / shown.name
        again.write_bytes(gallery.drawn(shown.command)[shown.name])
        with Image.open(again) as new, Image.open(FOLDER / shown.name) as old:
            assert new.size == old.size, "make gallery"
            apart = ImageStat.Stat(ImageChops.difference(new.convert("L"), old.convert("L"))).mean[0]
        assert apart < 2, "make gallery"
