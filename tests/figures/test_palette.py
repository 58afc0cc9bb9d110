"""Colours of phases: one table, and the same in every picture that shows them, in each format."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from collbench.figures import palette
from collbench.figures.kinds import PLAIN, draw, kinds
from collbench.step_times import COMMUNICATED, COMPUTED
from collbench.tracks import PARTS
from tests.figures.made_up_runs import MADE_UP, run


def of_explanations(folder: Path) -> list[Path]:
    """Pictures of explained operations, in both formats that hold colours as they are."""
    return draw([run(*MADE_UP["timeline"])], folder, ("svg", "png"), PLAIN)


def test_every_phase_has_a_colour_and_no_two_look_alike() -> None:
    """Also the parts of a step and of a memory, each among themselves."""
    assert set(palette.PHASES) == set(PARTS)
    assert set(palette.ACTIVITIES) == {COMPUTED, COMMUNICATED}
    for table in (palette.PHASES, palette.STEP_PARTS, palette.MEMORY_PARTS):
        for one, other in combinations(table.values(), 2):
            assert sum((a - b) ** 2 for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) > 0.02, (one, other)


def test_a_phase_has_one_colour_in_pictures_of_both_formats(tmp_path: Path) -> None:
    """Whatever else a picture holds is grey, black or white: no phase has a second colour."""
    table = {colour.lower() for colour in palette.PHASES.values()}
    for path in of_explanations(tmp_path):
        if path.suffix == ".svg":
            found = set(re.findall(r"#[0-9a-f]{6}\b", path.read_text(encoding="utf-8").lower()))
        else:
            with Image.open(path) as picture:
                common = picture.convert("RGB").getcolors(1 << 24) or []
            found = {"#{:02x}{:02x}{:02x}".format(*pixel) for count, pixel in common if count > 400}  # type: ignore[misc]
        coloured = {colour for colour in found if len({*re.findall("..", colour[1:])}) > 1}
        assert coloured, path
        assert coloured <= table, path


def test_a_step_is_drawn_in_the_colours_of_its_activities() -> None:
    """Computing is blue in a timeline of overlap and in a bar of a plan."""
    assert palette.STEP_PARTS["computing"] == palette.ACTIVITIES[COMPUTED][0]
    figures = dict(kinds()["overlap"].figures([run(*MADE_UP["overlap"])], PLAIN, str))
    timeline, *_ = (figure for stem, figure in figures.items() if stem.startswith("overlap-"))
    faces = {patch.get_facecolor()[:3] for patch in timeline.legends[0].get_patches()}
    assert faces == {to_rgb(shades[0]) for shades in palette.ACTIVITIES.values()}


@pytest.mark.parametrize("prefix", [".", ".part."])
def test_the_rules_of_a_page_hold_the_same_colours(prefix: str) -> None:
    """One rule a phase."""
    rules = dict(re.findall(r"(\S+) \{ background: (#\w+); \}", palette.css(prefix)))
    assert rules == {f"{prefix}{name}": colour for name, colour in palette.PHASES.items()}
