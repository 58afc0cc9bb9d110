"""The lesson in a real browser: guesses, numbers that can be dragged, traces, its silence, its width."""

from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from collbench.commands.lesson.screens import build
from tests.browser import asked_for, browser, show
from tests.commands.lesson.made_up_content import content

__all__ = ["browser"]  # a fixture
pytestmark = pytest.mark.full


class Lesson:
    """The page, open in a browser."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, width: int = 1280, **media: str) -> None:
        show(self.browser, self.url, width, {name.replace("_", "-"): value for name, value in media.items()})

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def until(self, script: str) -> Any:
        """What a script returns once that is true; words follow a change by a frame or some tenths of a second."""
        return WebDriverWait(self.browser, 20).until(lambda _: self.run(script))

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()


@pytest.fixture(scope="module")
def page(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    place = tmp_path_factory.mktemp("lesson") / "lesson.html"
    place.write_text(build(content()))
    return Lesson(browser, place.as_uri())


@pytest.fixture
def opened(page: Lesson) -> Iterator[Lesson]:
    page.open()
    page.run("sessionStorage.clear()")
    page.open()
    yield page
    assert page.browser.get_log("browser") == []


def test_a_guess_is_judged_once_counted_and_kept_until_the_page_is_closed(opened: Lesson) -> None:
    first, second = (f"#q-{name}" for name in ("wins-here", "ring-flags"))
    assert not opened.find(f"{first} details").get_property("open")
    for question, choice, verdict in ((first, 1, "Right"), (second, 2, "27x; the nearest choice is ring-flags")):
        opened.all(f"{question} .choices button")[choice].send_keys(Keys.ENTER)
        assert verdict in opened.find(f"{question} .verdict").text
        assert opened.find(f"{question} details").get_property("open")
        assert "It has the fewest steps." in opened.find(f"{question} .answer").text
    assert opened.find("#right").text == "1 of 12"
    opened.all(f"{second} .choices button")[1].send_keys(Keys.ENTER)
    assert opened.find("#right").text == "1 of 12"
    opened.browser.refresh()
    assert opened.find("#right").text == "1 of 12"
    assert "wrong" in str(opened.all(f"{second} .choices button")[2].get_attribute("class"))


def test_numbers_are_dragged_by_keyboard_and_mouse_and_the_crossover_moves(opened: Lesson) -> None:
    words = "return document.querySelector('#crossover').textContent"
    circle = "return Number(document.querySelector('#plot .cross').getAttribute('cx'))"
    before, place = opened.until(words), opened.until(circle)
    latency, ranks = (opened.find(f"[data-quantity={name}]") for name in ("latency", "ranks"))
    assert ranks.text == "8"
    assert "one-shot and" not in before  # with 2 ranks, a ring, one-shot and two-shot are the same line
    assert "2 ranks only" in before  # the library's points are of as many
    assert not opened.all("#plot path.line-library")
    value, number = latency.get_attribute("aria-valuetext"), latency.get_attribute("aria-valuenow")
    latency.send_keys(Keys.ARROW_RIGHT, Keys.PAGE_UP)
    assert latency.get_attribute("aria-valuetext") == latency.text != value
    assert int(str(latency.get_attribute("aria-valuenow"))) == int(str(number)) + 6
    opened.until(f"return (() => {{ {circle} }})() > {place} + 10")
    after = opened.until(words)
    assert after != before
    assert "one-shot-ll up to" in after
    opened.until("return document.querySelector('#crossover').textContent.includes('then two-shot')")
    ActionChains(opened.browser).drag_and_drop_by_offset(ranks, 26, 0).perform()
    assert ranks.text == "16"
    assert ranks.get_attribute("aria-valuenow") == "9"
    ranks.send_keys(Keys.HOME)
    assert ranks.text == "2"
    opened.until("return document.querySelector('#crossover').textContent.includes('times as long')")
    assert opened.all("#plot path.line-library")
    opened.all("#places button")[1].click()
    assert (ranks.text, opened.find("[data-quantity=bandwidth]").text) == ("8", "370 GB/s")


def test_a_trace_is_walked_through_by_keyboard(opened: Lesson) -> None:
    rung = "#ring-flags"
    slider = opened.find(f"{rung} .player input")
    moved = f"return new DOMMatrix(getComputedStyle(document.querySelector('{rung} .cursor i')).transform).e"
    now = f"return [...document.querySelectorAll('{rung} .words span')].map((each) => each.textContent)"
    assert opened.run(moved) == 0
    slider.send_keys(Keys.ARROW_RIGHT * 5)
    cursor, width = opened.run(moved), opened.run(f"return document.querySelector('{rung} .cursor').clientWidth")
    assert cursor == pytest.approx(width * 0.05, abs=2)
    slider.send_keys(Keys.HOME)
    seen = []
    for _ in range(25):
        slider.send_keys(Keys.PAGE_UP)
        seen.append(opened.run(now))
    assert any(rank_1.startswith("raises a flag of rank 0") for _, rank_1 in seen)
    for words in ("waits for chunk 0 of rank 1", "adds the last part of chunk 0"):
        assert any(rank_0.startswith(words) for rank_0, _ in seen), words
    slider.send_keys(Keys.END)
    spoken = f"document.querySelector('{rung} .player input').getAttribute('aria-valuetext')"
    opened.until(f"return {spoken}.startsWith('1.09 us of 1.09 us')")
    stripes = (
        f"return [...document.querySelectorAll('{rung} .stage g g rect:not(.cell)')]"
        ".map((each) => Number(each.getAttribute('opacity')) > 0)"
    )
    assert opened.run(stripes) == [True] * 8  # each of two ranks has both parts of both chunks
    slider.send_keys(Keys.HOME)
    assert opened.run(stripes) == [True, False, True, False, False, True, False, True]


def test_everything_is_reached_by_keyboard_and_seen_when_it_is(opened: Lesson) -> None:
    focused = (
        "const it = document.activeElement, shown = it.matches('.scrub input')"
        " ? getComputedStyle(it.closest('.timeline').querySelector('.cursor i'), '::after') : getComputedStyle(it);"
        "return [it === document.body, shown.outlineStyle, it.getBoundingClientRect().bottom > 0]"
    )
    wanted = opened.run(
        "return [...document.querySelectorAll('a, button, summary, input, select, [tabindex=\"0\"]')]"
        ".filter((each) => each.checkVisibility()).length"
    )
    for _ in range(wanted):
        opened.press(Keys.TAB)
        assert opened.run(focused) == [False, "solid", True], opened.run("return document.activeElement.outerHTML")
    assert opened.run("return document.activeElement.closest('section').id") == "sources"


def test_nothing_is_asked_of_a_network(page: Lesson) -> None:
    asked_for(page.browser)
    for width in (1280, 390):
        page.open(width)
        page.find("#theme").click()
        page.find("#ring-flags .player .buttons button").send_keys(Keys.ENTER)
        page.find("#q-wins-here .choices button").send_keys(Keys.ENTER)
    urls = asked_for(page.browser)
    assert page.url in urls
    assert not [url for url in urls if not url.startswith(("file:", "data:"))]
    assert page.browser.get_log("browser") == []


def test_a_narrow_window_does_not_scroll_sideways(page: Lesson) -> None:
    for width in (320, 360, 390, 768):
        page.open(width)
        page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.run("return document.documentElement.scrollWidth") <= width, width


def test_night_and_calm_are_respected(page: Lesson) -> None:
    page.open(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    colour = "return getComputedStyle(document.body).backgroundColor"
    dark = page.run(colour)
    page.find("#theme").click()
    assert page.run(colour) != dark
    page.find("#ring-flags .player .buttons button").send_keys(Keys.ENTER)
    frames = page.browser.execute_async_script(  # type: ignore[no-untyped-call]
        "const done = arguments[0], cursor = document.querySelector('#ring-flags .cursor i'), seen = new Set();"
        "let left = 20; const look = () => { seen.add(cursor.style.transform); left -= 1;"
        " left ? requestAnimationFrame(look) : done([...seen]); };"
        "look();"
    )
    assert len(frames) <= 2  # it leaps from moment to moment
