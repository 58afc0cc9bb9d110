"""The teacher's kit: nothing is cut off or covered, questions come before answers, the sheet has no answers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from collbench.commands.lesson import kit
from collbench.commands.lesson.content import Content
from collbench.plots.document import Page
from collbench.runfile.store import read
from tests.commands.lesson import made_up_content
from tests.conftest import ROOT

LONG = "A sentence that goes on, and on, since whoever wrote it had much to say of **one** thing. " * 9


@cache
def content() -> Content:
    runs = (read(ROOT / "results" / "cpu-2-ranks"),)
    plain = made_up_content.content()
    screens = tuple(screen for screen in plain.screens if screen["name"] in ("ring-host", "ring-events", "ring-flags"))
    return replace(plain, runs=runs, screens=screens)


@cache
def slides() -> list[Page]:
    return kit.slides(content())


def wordy() -> Content:
    """The same with long texts everywhere."""
    plain = content()
    line = "  " * 30 + "store_release(&next->channel[block].arrived.word[0], number, " * 4
    asked = {"ask": LONG, "because": LONG, "choices": (LONG[:200],) * 3, "command": "collbench sweep " * 9}
    texts = {**asked, "idea": LONG, "after": LONG, "title": LONG[:120]}
    screen, broken = plain.screens[0], plain.breaks[0]
    code = (replace(screen["code"][0], lines=(line,) * 15),)
    tried = {**broken["experiment"], "text": LONG, "old": f"{line}\n" * 4, "new": f"{line}\n" * 4}
    return replace(
        plain,
        title=LONG[:150],
        intro=LONG,
        runs=(),
        questions=({**plain.questions[0], **asked},),
        screens=({**screen, **texts, "number": LONG[:60], "number_says": LONG[:250], "code": code},),
        losing=({**plain.losing[0], "title": LONG[:90], "text": LONG, "number": LONG[:250]},) * 3,
        breaks=({**broken, "experiment": tried, "checker": LONG, "races": LONG, "model": LONG},),
        chapters=({**plain.chapters[0], **texts},),
    )


def texts(page: Page) -> str:
    return "\n".join(text.get_text() for text in page.figure.texts)


def words(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def boxes(page: Page) -> Iterator[tuple[str, Bbox]]:
    """Every text that was written on a page and every drawing, in pixels."""
    for text in page.figure.texts:
        if text.get_text().strip():
            yield text.get_text(), text.get_window_extent()
    for axes in page.figure.axes:
        if axes.get_visible() and axes.has_data():
            yield "a drawing", axes.get_tightbbox()  # type: ignore[misc]


def is_tidy(pages: Sequence[Page]) -> None:
    """Assert that nothing leaves a page, and that nothing lies on something else."""
    for number, page in enumerate(pages, 1):
        whole = page.figure.bbox
        found = list(boxes(page))
        assert found
        for name, box in found:
            assert box.x0 >= 0 <= box.y0, (number, name)
            assert box.x1 <= whole.x1, (number, name)
            assert box.y1 <= whole.y1, (number, name)
        if page.part != "curves":
            for (one, first), (other, second) in combinations(found, 2):
                assert not Bbox.intersection(first, second), (number, one, other)


def test_nothing_is_cut_off_and_nothing_covers_anything_however_long_the_texts_are() -> None:
    is_tidy(slides())
    is_tidy(kit.slides(wordy()))
    for lesson in (content(), wordy()):
        is_tidy(kit.sheet(lesson))
        is_tidy(kit.sheet(lesson, solved=True))


def test_every_question_has_a_slide_before_its_answer_and_without_it() -> None:
    lesson = content()
    shown = [words(texts(page)) for page in slides()]
    asked = [*lesson.questions, *lesson.screens, *(broken["question"] for broken in lesson.breaks), *lesson.chapters]
    found = 0
    for place, slide in enumerate(shown):
        if slide.startswith("Guess"):
            question = asked[found]
            found += 1
            right = kit.plain(question["choices"][question["answer"]])
            assert words(question["ask"]) in slide
            assert right in slide
            assert words(kit.plain(question["because"])) not in slide
            assert f"A {kit.plain(question['choices'][0])}" in slide
            answer = shown[place + 1]
            assert words(question["ask"]) not in answer
            assert right in answer or "race" in answer
    assert found == len(asked)


def test_slides_are_numbered_and_say_whose_numbers_they_show() -> None:
    lesson = content()
    for number, page in enumerate(slides(), 1):
        assert page.figure.texts[-1].get_text() == str(number)
    sources = {page.figure.texts[-2].get_text() for page in slides()}
    assert {"published: vLLM", "model: DGX H100", f"measured here: {lesson.machine}"} <= sources


def test_the_curves_are_those_that_plots_draw_and_left_out_without_runs() -> None:
    (page,) = (page for page in slides() if page.part == "curves")
    assert {line.get_label() for line in page.figure.axes[0].lines} >= {"two-shot", "mpi: MPICH 5.0.2"}
    bare = replace(content(), runs=(), screens=(), breaks=(), chapters=())
    assert "curves" not in {page.part for page in kit.slides(bare)}


def test_a_timeline_has_a_row_for_every_rank_of_the_trace() -> None:
    lesson = content()
    (screen,) = (screen for screen in lesson.screens if screen["name"] == "ring-flags")
    assert screen["trace"]
    *_, page = (page for page in slides() if page.part == "ring-flags")
    (axes,) = page.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    drawn = sum(len(pieces.get_paths()) for pieces in axes.collections) + len(axes.patches)
    assert drawn == len(screen["trace"].events)


def test_the_sheet_has_two_pages_without_answers_and_its_twin_has_them() -> None:
    lesson = content()
    sheet, answers = (kit.sheet(lesson, solved) for solved in (False, True))
    assert len(sheet) == len(answers) == 2
    before, after = ("\n".join(map(texts, pages)) for pages in (sheet, answers))
    for screen in lesson.screens:
        assert screen["name"] in before
        assert screen["name"] in after
    for answer in ("27x", "144 ns", "2.02 us"):
        assert answer not in before
        assert answer in after


def arrows(page: Page) -> list[FancyArrowPatch]:
    found = (note.arrow_patch for note in page.figure.findobj(Annotation) if isinstance(note, Annotation))
    return [arrow for arrow in found if arrow]


def test_drawings_have_their_missing_arrows_among_the_answers_only() -> None:
    given, complete = (len(arrows(kit.sheet(content(), solved)[1])) for solved in (False, True))
    assert (given, complete) == (3, 3 + 3 + 5 + 2)


def test_the_sheet_can_be_printed_in_grey() -> None:
    for page in kit.sheet(content(), solved=True):
        texts = page.figure.findobj(Text)
        assert texts
        colours = [text.get_color() for text in texts if isinstance(text, Text)]
        for colour in (*colours, *(arrow.get_edgecolor() for arrow in arrows(page))):
            shade = np.asarray(to_rgb(colour))
            assert np.ptp(shade) == 0
            assert shade[0] < 0.5


def short() -> Content:
    """The same with a rung and a chapter, and without curves."""
    lesson = content()
    return replace(lesson, runs=(), chapters=lesson.chapters[:1], screens=lesson.screens[-1:])


def test_the_plan_fills_90_minutes_and_names_slides_that_exist(tmp_path: Path) -> None:
    paths = kit.write(short(), tmp_path)
    assert [path.name for path in paths] == ["slides.pdf", "sheet.pdf", "answers.pdf", "plan.md"]
    count = len(re.findall(rb"/Type /Page\b", paths[0].read_bytes()))
    plan = paths[-1].read_text(encoding="utf-8")
    starts = [int(number) for number in re.findall(r"^\| \d+ to \d+ \| (\d+) \|", plan, re.MULTILINE)]
    assert starts == sorted(starts)
    assert starts[-1] == count
    minutes = re.findall(r"^\| (\d+) to (\d+) \|", plan, re.MULTILINE)
    assert (minutes[0][0], minutes[-1][1]) == ("0", "90")
    assert "144 ns" in plan
    assert "{" not in plan


@pytest.mark.full
def test_the_same_lesson_gives_the_same_files(tmp_path: Path) -> None:
    before = [path.read_bytes() for path in kit.write(short(), tmp_path)]
    assert [path.read_bytes() for path in kit.write(short(), tmp_path)] == before


def test_marks_of_markdown_are_left_out() -> None:
    text = "A **bold** word, `code < 3` and a [link](https://example.org),\nin two lines.\n\n* one\n* *two*\n"
    assert kit.plain(text) == "A bold word, code < 3 and a link, in two lines.\n• one\n• two"
    assert kit.plain("a\n\nb", "\n\n") == "a\n\nb"


def test_long_lines_of_code_go_on_below_and_keep_their_shape() -> None:
    assert kit.code(["    if (x)", "        y();"]) == "if (x)\n    y();"
    first, *more = kit.code(["a " * 60]).split("\n")
    assert len(first) < 80
    assert more
    assert all(line.startswith("    a") for line in more)
