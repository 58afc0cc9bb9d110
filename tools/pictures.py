"""The README's pictures of the lesson and of the judge of exercises.

The lesson is of committed runs, and the judge judges a known wrong answer, so nothing is measured.  Each PNG holds the
words that it shows, except for those that vary on a busy machine, by which a test finds an outdated picture.
"""

import base64
import html
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from selenium import webdriver

from collbench.commands.exercise.records import find
from tests.browser import opened, show
from tests.commands.exercise.answers import answers
from tools import ROOT, output_of
from tools.gallery import signed

FOLDER = ROOT / "docs" / "pictures"
WORDS = "collbench-words"  # the key of the words in a PNG
WIDTH = 1000  # of the page, in CSS pixels
COLOURS = 256  # of a committed picture: enough for sharp letters in a small file

RUNS = ("results/cpu-2-ranks", "results/cpu-2-ranks-explained")
RUNG = "one-shot"  # the rung with the part of the lesson that is shown
EVENTS = 6  # steps into its recorded operation
EXERCISE, WRONG = "1", "flags are relaxed"
STEADY = r"^(\$|Exercise|mistake:)"  # lines of the judge that do not depend on the order of threads

TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #fcfbf9 }
pre { margin: 0; padding: 22px 26px; font: 15.5px/1.5 "DejaVu Sans Mono", monospace; white-space: pre-wrap;
      color: #e6e6e6; background: #1c2026 }
b { color: #8fd3ff } i { color: #9be29b; font-style: normal }
</style><pre>"""


class Page(NamedTuple):
    """A page for the browser, and scripts: preparation, the shown part as [top, height], and its words."""

    text: str
    prepare: str
    extent: str
    words: str


def lesson() -> Page:
    """Return the page with one rung of the lesson: its title, text and recorded operation."""
    with tempfile.TemporaryDirectory() as folder:
        output_of(["lesson", *(str(ROOT / run) for run in RUNS), "-o", folder], folder, COLLBENCH_STATE=folder)
        text = Path(folder, "lesson.html").read_text(encoding="utf-8")
    section = f"document.getElementById('{RUNG}')"
    player = f"{section}.querySelector('.player')"
    forward = f"[...{section}.querySelectorAll('button')].find(button => button.textContent.includes('Event ▶'))"
    return Page(
        text,
        f"for (let i = 0; i < {EVENTS}; i++) {forward}.click()",
        f"const top = {section}.getBoundingClientRect().top + scrollY;"
        f"return [top, {player}.getBoundingClientRect().bottom + scrollY - top]",
        f"const end = {player}.getBoundingClientRect().bottom;"
        f"const parts = [...{section}.querySelectorAll('h2, p')];"
        "return parts.filter(part => part.getBoundingClientRect().top < end).map(part => part.innerText).join('\\n')",
    )


def judge() -> Page:
    """Return the page with the output of `collbench exercise check` for a wrong answer, as in a terminal."""
    exercise = find(EXERCISE)
    wrong = next(answer for answer in answers(exercise) if answer.name == WRONG)
    with tempfile.TemporaryDirectory() as home:
        folder = f"exercise-{EXERCISE}-{exercise.kernel}"
        wrong.write(Path(home, folder))
        said = output_of(["exercise", "check", folder, "--no-time"], home, statuses=(1,), COLLBENCH_STATE=home)
    lines = html.escape(f"$ collbench exercise check {EXERCISE}\n{said}", quote=False)
    for word in ("not yet:", "mistake:", "hint:"):
        lines = lines.replace(word, f"<b>{word}</b>")
    lines = lines.replace(f"$ collbench exercise check {EXERCISE}", f"<i>$ collbench exercise check {EXERCISE}</i>")
    whole = "document.querySelector('pre')"
    return Page(
        TERMINAL + lines,
        "",
        f"return [0, {whole}.getBoundingClientRect().height]",
        f"return {whole}.innerText.split('\\n').filter(line => /{STEADY}/.test(line)).join('\\n')",
    )


PICTURES: Mapping[str, Callable[[], Page]] = {"lesson.png": lesson, "judge.png": judge}


def drawn(browser: webdriver.Chrome, page: Page) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "page.html")
        place.write_text(page.text, encoding="utf-8")
        show(browser, place.as_uri(), WIDTH, {"prefers-color-scheme": "light", "prefers-reduced-motion": "reduce"})
        browser.execute_script(page.prepare)
        top, height = browser.execute_script(page.extent)
        clip = {"x": 0, "y": top, "width": WIDTH, "height": height, "scale": 1}
        words = browser.execute_script(page.words)
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as picture:
        return signed(picture.convert("RGB").quantize(COLOURS), WORDS, words)


def words_of(content: bytes) -> str:
    with Image.open(io.BytesIO(content)) as picture:
        return str(picture.info[WORDS])


def written() -> Iterator[tuple[Path, bytes]]:
    with opened() as browser:
        for name, page in PICTURES.items():
            yield FOLDER / name, drawn(browser, page())
