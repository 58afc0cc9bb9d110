"""The lesson's page as text: what it has, in which order, what it lets run, and that no text becomes more than text."""

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from collbench.algorithms import implementations
from collbench.commands.lesson.content import Code, Content, Event, Formula, Trace
from collbench.commands.lesson.screens import DRAWN, build, unchanged
from tests.commands.lesson.made_up_content import content
from tests.commands.report.pages import Text, data_of
from tests.conftest import case

HOSTILE = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}</details>\u2028"


@pytest.fixture(scope="module")
def lesson() -> Content:
    return content()


@pytest.fixture(scope="module")
def page(lesson: Content) -> str:
    return build(lesson)


def test_a_page_asks_for_nothing_and_runs_its_script_only(page: str) -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found
    policy = found[1].replace("&#39;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert len(hashes) == 1
    assert "default-src 'none'" in policy
    elements = Text(page).elements
    assert {tag for tag, _ in elements} & {"link", "iframe", "object", "embed", "base", "form"} == set()
    sources = [str(attributes["src"]) for _, attributes in elements if "src" in attributes]
    assert sources
    assert not [source for source in sources if not source.startswith("data:image/svg+xml,")]
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]


def test_every_part_of_a_lesson_has_a_heading_a_landmark_and_a_link(lesson: Content, page: str) -> None:
    elements = Text(page).elements
    ids = [str(attributes["id"]) for _, attributes in elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    sections = [str(attributes["id"]) for tag, attributes in elements if tag == "section"]
    rungs = [screen["name"] for screen in lesson.screens]
    assert sections == ["formula", "guesses", *rungs, "answer", "why", "when", "break", "training", "sheet", "sources"]
    links = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
    inner = [link.removeprefix("#") for link in links if link.startswith("#")]
    assert inner == ["start", "start", *sections]  # the first skips the links
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert not [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in elements}


def test_every_chapter_says_how_long_it_is_and_after_some_minutes_that_one_may_stop(lesson: Content) -> None:
    for intro, (minutes, stop) in (("word " * 100, ("1", "")), ("word " * 2400, ("12", "; a good place to stop"))):
        page = build(replace(lesson, intro=intro))
        notes = re.findall(r"(\d+) of \d+ min(; a good place to stop)?\.", page)
        assert notes[0] == (minutes, stop)
        assert len(notes) == page.count("</section>") + 1


def test_without_the_script_every_answer_moment_and_verdict_can_be_read(lesson: Content, page: str) -> None:
    text = Text(page).text
    broken = lesson.breaks[0]
    traced = next(screen["trace"] for screen in lesson.screens if screen["trace"])
    for said in (
        *(event.words for event in traced.events),
        *(broken["checker"], broken["races"], broken["model"], broken["litmus"]["outcome"]),
        *(step["words"] for step in broken["litmus"]["steps"]),
        *(screen["command"] for screen in lesson.screens),
        *lesson.screens[0]["code"][0].lines[-1].split(),
        "as long as ring-flags at 8 B",
        "It has the fewest steps.",
        "published: vLLM",
        "64 KiB",
    ):
        assert said in text, said
    asked = len(lesson.questions) + len(lesson.screens) + len(lesson.breaks) + len(lesson.chapters)
    assert page.count('class="question"') == page.count("<summary>The answer</summary>") == asked
    assert "hidden" not in {name for tag, attributes in Text(page).elements if tag != "button" for name in attributes}


def test_a_timeline_has_each_event_at_its_time(lesson: Content, page: str) -> None:
    events = (Event(0, "moved", 0.0, 2e-6, "first"), Event(1, "waited", 1e-6, 3e-6, "second", (0,)))
    trace = Trace("ring-flags", 2048, 2, 3e-6, 4e-6, events)
    screen = {**lesson.screens[2], "trace": trace}
    bars = re.findall(
        r'class="part (\w+)" style="left:([\d.]+)%;width:([\d.]+)%"', build(replace(lesson, screens=(screen,)))
    )
    assert bars == [("moved", "0.000", "50.000"), ("waited", "25.000", "75.000")]
    assert len(re.findall(r'class="part \w+" style', page)) == sum(
        len(screen["trace"].events) for screen in lesson.screens if screen["trace"]
    )


def test_a_trace_that_its_log_changed_much_says_so(lesson: Content) -> None:
    screen = next(screen for screen in lesson.screens if screen["name"] == "ring-flags")
    assert screen["trace"]
    for longer, told in ((1.1, False), (0.8, False), (4.0, True)):
        trace = replace(screen["trace"], traced=longer * screen["trace"].seconds)
        text = Text(build(replace(lesson, screens=({**screen, "trace": trace},)))).text
        assert ("4.0 times as long" in text) is told


def test_the_lines_that_changed_show_what_goes_and_what_comes(lesson: Content) -> None:
    first, second = lesson.screens[0], lesson.screens[2]
    before, after = (Code("kernels/x.cu", 1, lines) for lines in (("same();", "old();"), ("  same();", "new();")))
    rung = {**second, "before": (before,), "code": (after,), "unchanged": unchanged((before,), (after,))}
    changed = build(replace(lesson, screens=(rung,)))
    lines = re.findall(
        r'<code( data-line="\d")?(?: class="(\w+)")?>(?:<span class="unseen">\w+: </span>)?(.*)\n', changed
    )
    shown = [line for line in lines if line[2].strip() in ("same();", "old();", "new();")]
    numbered = ' data-line="{}"'.format
    assert shown == [
        ("", "", "same();"),
        ("", "removed", "old();"),
        (numbered(0), "", "  same();"),
        (numbered(1), "added", "new();"),
    ]
    alone = build(replace(lesson, screens=({**first, "before": ()},), breaks=()))
    assert "lines that changed" not in alone


def test_terms_of_the_formula_add_up_to_the_time_or_it_is_said_that_they_do_not(lesson: Content) -> None:
    screen = lesson.screens[2]
    formula = Formula(nbytes=1024, steps=2, moved=1000.0, latency=1e-6, bandwidth=1e9, seconds=5e-6)
    for seconds, said in (
        (5e-6, "+ 2 us = 5 us"),
        (2e-6, "+ 0 ns = 3 us, measured: 2 us , less than by the formula"),
    ):
        changed = {**screen, "formulas": (replace(formula, seconds=seconds),)}
        text = Text(build(replace(lesson, screens=(changed,)))).text
        assert f"1 KiB : 2 \u00d7 1 us + 1000 B \u00f7 1 GB/s {said}" in text, text


def test_the_figure_counts_steps_and_bytes_as_the_implementations_do(page: str) -> None:
    counts = data_of(page)["counts"]
    for line, name in DRAWN.items():
        cost = implementations()[name].cost
        assert cost
        for ranks in (2, 3, 8, 72):
            counted = cost(case(ranks=ranks))
            assert counts[line][ranks - 2] == [counted.steps, pytest.approx(counted.link, rel=1e-5)]  # type: ignore[call-overload]


def test_no_text_becomes_an_element_or_ends_a_script(lesson: Content, page: str) -> None:
    hostile = build(_hostile(lesson))
    before, after = Text(page), Text(hostile)
    assert {tag for tag, _ in after.elements} <= {tag for tag, _ in before.elements}
    assert hostile.count("<script") == page.count("<script")
    assert not [name for _, attributes in after.elements for name in attributes if name.startswith("on")]
    assert "49" not in re.findall(r"img src=x onerror=alert\(1\)&gt;(\d+)", hostile)
    assert data_of(hostile)["traces"]["ring-flags"]["events"][0]["words"] == HOSTILE  # type: ignore[index]
    linked = replace(lesson, intro="[x](javascript:alert(1)) ![y](https://example.org/z.png) <b>bold</b>")
    text = build(linked)
    assert 'href="javascript:' not in text
    assert "<img" not in text[: text.index("<main>")]
    assert "<b>bold" not in text


def _hostile(value: object, field: str = "") -> object:
    """The same with that text wherever a lesson has a text that nobody has to point at."""
    if isinstance(value, str):
        pointed = field in ("name", "phase", "implementation", "library", "figure", "source")
        return value if pointed else HOSTILE
    if isinstance(value, tuple):
        return tuple(_hostile(each, field) for each in value)
    if isinstance(value, dict):
        return {key: _hostile(each, key) for key, each in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{name: _hostile(getattr(value, name), name) for name in value.__dataclass_fields__})  # type: ignore[type-var]
    return value
