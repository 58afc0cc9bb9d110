"""The report in a real browser: its curves against the data, its controls by mouse and keyboard, its silence."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from collbench.commands.report import command as reports
from collbench.results import Note, Prediction, Skipped
from collbench.runfile.store import read
from collbench.units import format_seconds, format_size
from tests.browser import asked_for, browser, show
from tests.commands.report.pages import SCRIPT, SIZES, data_of, times, write
from tests.conftest import case, measurement

__all__ = ["browser"]  # a fixture
pytestmark = pytest.mark.full

NAMES = ["mpi", "ring-flags", "two-shot", SCRIPT]


class Page:
    """The report, open in a browser that is told the size and the colours of its window."""

    def __init__(self, browser: webdriver.Chrome, place: Path) -> None:
        self.browser = browser
        self.url = place.as_uri()
        self.data: Any = data_of(place.read_text())

    def open(self, width: int = 1280, theme: str = "light") -> None:
        show(self.browser, self.url, width, {"prefers-color-scheme": theme})

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def points(self, wanted: dict[str, int] | None = None) -> dict[str, int]:
        """Markers of each drawn curve, counted in the page; once they are as wanted, or after five seconds."""
        deadline = time.monotonic() + 5
        while (found := self._points()) != wanted and wanted is not None and time.monotonic() < deadline:
            time.sleep(0.02)  # Plotly may still be busy with what was to be drawn before
        return found

    def _points(self) -> dict[str, int]:
        return dict(
            self.run(
                "return [...document.querySelectorAll('#plot .scatterlayer .trace')]"
                ".map((each) => [each.__data__[0].trace.uid, each.querySelectorAll('path.point').length])"
                ".filter(([uid]) => uid.startsWith('line-'))"
            )
        )

    def expected(self) -> dict[str, int]:
        lines = self.data["figures"][0]["lines"]
        return {f"line-0-{number}": len(line["sizes"]) for number, line in enumerate(lines)}

    def focused(self) -> str:
        return str(self.run("return document.activeElement.textContent"))

    def title(self) -> str:
        return self.find("#plot .ytitle").text


@pytest.fixture(scope="module")
def page(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Of a measured run whose host and one of whose implementations are called `<script>...`, and a predicted one."""
    folder = tmp_path_factory.mktemp("report")
    rows = [
        duration for name, rate in zip(NAMES, (5e9, 2e9, 9e9, 7e9), strict=True) for duration in times(2e-6, rate, name)
    ]
    noted = [replace(row, note=Note.of("<b>bold</b> <a href='https://example.org'>link</a>")) for row in rows]
    header = {"environment": {"host": SCRIPT, "versions": {}, "variables": {}}, "topology": {"name": SCRIPT}}
    measured = write(folder / "measured", *noted, Skipped(case(), "nvls", "cpu", "no such switch"), header=header)
    model = [Prediction(case(nbytes=size), "mpi", 3e-6, 1e-6, 9e-6) for size in SIZES[:6]]
    predicted = write(folder / "predicted", *model)
    place = folder / "report.html"
    place.write_text(reports.build([read(measured), read(predicted)]))
    return Page(browser, place)


@pytest.fixture
def opened(page: Page) -> Page:
    page.open()
    return page


def test_every_curve_has_its_points(opened: Page) -> None:
    assert opened.points(opened.expected()) == opened.expected()
    assert len(opened.expected()) == len(NAMES) + 1
    assert opened.run("return document.querySelectorAll('#plot .scatterlayer .fills path.js-fill').length") == 5


def test_pointing_shows_value_and_interval(opened: Page) -> None:
    opened.find("input[value=latency] + span").click()
    row = measurement("mpi", tuple((2e-6 + SIZES[8] / 5e9) * (1 + 0.001 * step) for step in range(9)), nbytes=SIZES[8])
    marker = opened.run(
        "const trace = [...document.querySelectorAll('#plot .scatterlayer .trace')]"
        ".find((each) => each.__data__[0].trace.uid === 'line-0-0');"
        "const box = trace.querySelectorAll('path.point')[8].getBoundingClientRect();"
        "document.querySelector('#plot').scrollIntoView(); const after = trace.querySelectorAll('path.point')[8];"
        "const now = after.getBoundingClientRect(); return [now.x + now.width / 2, now.y + now.height / 2]"
    )
    ActionChains(opened.browser).move_by_offset(0, 0).perform()
    opened.browser.execute_cdp_cmd(
        "Input.dispatchMouseEvent", {"type": "mouseMoved", "x": marker[0] - 3, "y": marker[1]}
    )
    opened.browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": marker[0], "y": marker[1]})
    label = wait(lambda: opened.run("return document.querySelector('#plot .hoverlayer .hovertext')?.textContent || ''"))
    low, high = map(format_seconds, row.interval)
    assert f"{format_size(SIZES[8])}: {format_seconds(row.typical)}" in label
    assert f"95 % interval: {low} - {high}" in label
    assert "ok, <b>bold</b> <a href='https://example.org'>link</a>" in label
    assert opened.run("return document.querySelectorAll('#plot .hoverlayer a').length") == 0


def test_a_button_hides_its_curve(opened: Page) -> None:
    button = opened.find("[data-line='0-1']")
    assert button.text.startswith("ring-flags")
    expected = opened.expected()
    for act in (button.click, lambda: button.send_keys(Keys.ENTER), lambda: button.send_keys(Keys.SPACE)):
        shown = button.get_attribute("aria-pressed") == "true"
        act()
        assert button.get_attribute("aria-pressed") == str(not shown).lower()
        left = expected if not shown else {name: count for name, count in expected.items() if name != "line-0-1"}
        assert opened.points(left) == left
    left = {name: count for name, count in expected.items() if name != "line-0-1"}
    assert opened.points(left) == left


def test_views_change_the_axis(opened: Page) -> None:
    seen = []
    for view, title in (
        ("bandwidth", "bus bandwidth (GB/s)"),
        ("latency", "time per operation"),
        ("ratio", "times as fast as the library"),
    ):
        opened.find(f"input[value={view}] + span").click()
        assert opened.title() == title
        seen.append(opened.run("return document.querySelector('#plot').layout.yaxis.type"))
    assert seen == ["log", "log", "log"]
    compared = {f"line-0-{number}": len(SIZES) for number in (1, 2, 3)}  # the others are libraries
    assert opened.points(compared) == compared
    opened.find("input[value=ratio]").send_keys(Keys.ARROW_LEFT)
    assert opened.title() == "time per operation"


def test_the_search_filters_rows(opened: Page) -> None:
    search = opened.find("#search")
    shown = "return [...document.querySelectorAll('#rows tbody tr')].filter((row) => row.offsetParent).length"
    total = len(NAMES) * len(SIZES) + 1 + 6
    assert opened.run(shown) == total
    search.send_keys("TWO-shot")
    assert opened.run(shown) == len(SIZES)
    search.send_keys("  bold 2 mib")
    assert opened.run(shown) == 1
    assert opened.find("#count").text == f"1 of {total} rows"
    search.clear()
    search.send_keys("switch SKIP")
    assert opened.run(shown) == 1
    search.clear()
    search.send_keys(Keys.SPACE)
    assert opened.run(shown) == total


def test_text_of_the_run_file_is_shown_and_not_run(opened: Page) -> None:
    assert opened.browser.title != "owned"
    assert SCRIPT in opened.find("#environment").text
    assert SCRIPT in opened.find("h1").text
    assert opened.find("[data-line='0-3']").text == f"{SCRIPT}"
    assert opened.run("return document.querySelectorAll('script').length") == 4
    assert opened.run("const made = document.createElement('script'); made.text = 'window.owned = 1';"
                      "document.body.append(made); return window.owned === undefined")  # fmt: skip
    opened.browser.get_log("browser")  # the policy's complaint of this


def test_nothing_is_asked_of_a_network_and_nothing_goes_wrong(page: Page) -> None:
    for kind in ("browser", "performance"):
        page.browser.get_log(kind)
    page.open()
    for view in ("latency", "ratio", "bandwidth"):
        page.find(f"input[value={view}] + span").click()
    page.find("#plot").send_keys(Keys.ARROW_RIGHT)
    page.find("#theme").click()
    assert page.browser.get_log("browser") == []
    urls = asked_for(page.browser)
    assert page.url in urls
    assert not [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.parametrize("width", [320, 375, 768])
def test_a_narrow_window_does_not_scroll_sideways(page: Page, width: int) -> None:
    page.open(width)
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run("return document.querySelector('#plot .main-svg').getBoundingClientRect().right") <= width
    assert page.run("const box = document.querySelector('#table .scroll'); return box.scrollWidth > box.clientWidth")
    assert page.points(page.expected()) == page.expected()


def wait(look: Any, tries: int = 100) -> Any:
    for _ in range(tries):
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("nothing to be seen")
