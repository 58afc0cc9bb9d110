"""A teacher's kit of a lesson: slides, a sheet to hand out, its answers, and a plan of 90 minutes.

Their sentences, and where those stand, are `assets/kit.toml` and `assets/plan.md`; the rest is the page's `Content`.
"""

import io
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from collbench.lesson.content import HERE, Content, Formula, Trace
from collbench.plots import curves, timeline
from collbench.plots.axes import patch_legend
from collbench.plots.document import A4, SLIDE_SIZE, Page, save_pages
from collbench.plots.kinds import PlotRequest
from collbench.plots.style import DARK, GREY, PAPER, PHASES, SLIDE, style
from collbench.results import by_key
from collbench.results.collectives import ADDED, PUBLISHED, Span
from collbench.results.collectives import PHASES as SPANS
from collbench.units import format_rate, format_seconds, format_size

_CODE = 96  # most letters in a line of code
_NUMBER, _RIGHT = PHASES[PUBLISHED], PHASES[ADDED]  # colours
_MONO = {"family": "monospace"}
LOOKS: dict[str, dict[str, Any]] = {
    "bold": {"weight": "bold"},
    "number": {"color": _NUMBER},
    "big": {"color": _NUMBER, "weight": "bold"},
    "right": {"color": _RIGHT, "weight": "bold"},
    "grey": {"color": GREY},
    "mono": _MONO,
    "code": _MONO | {"shade": "#F2F2F2"},
    "old": _MONO | {"shade": "#FBE9E0"},
    "new": _MONO | {"shade": "#E0F3EC"},
}
"""How texts of kit.toml are written; `shade` is the colour of the box behind."""


def write(content: Content, folder: Path) -> list[Path]:
    """Write `slides.pdf`, `sheet.pdf`, `answers.pdf` and `plan.md` into a folder that exists, and return their paths."""
    layouts = _Layouts(content)
    with style(SLIDE):
        slides = list(_slides(content, layouts))
        paths = [save_pages(slides, folder / "slides.pdf")]
    with style(PAPER):
        for name, solved in (("sheet.pdf", False), ("answers.pdf", True)):
            paths.append(save_pages(_sheet(content, layouts, solved), folder / name))
    first: dict[str, int] = {}
    for number, page in enumerate(slides, 1):
        first.setdefault(page.part, number)
    plan = folder / "plan.md"
    plan.write_text(layouts.filled(_asset("plan.md"), slide=first, last=len(slides)), encoding="utf-8")
    return [*paths, plan]


def plain(markdown: str) -> str:
    """Return Markdown as text without its marks, a line for each paragraph or point."""
    from markdown_it import MarkdownIt

    lines, point = [], ""
    for token in MarkdownIt("commonmark", {"html": False}).parse(markdown):
        if token.type == "list_item_open":
            point = "• "
        elif token.type == "inline":
            words = (" " if child.type == "softbreak" else child.content for child in token.children or ())
            lines.append(point + "".join(words))
            point = ""
    return "\n".join(lines)


def code(lines: Sequence[str], mark: str = "") -> str:
    """Return lines of code from the left edge on, each after a mark; what is too long goes on below."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        found += textwrap.wrap(line, _CODE, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(mark + line for line in found)


def terms(formula: Formula) -> tuple[str, str, str]:
    """Return steps, bytes and waits of a formula."""
    steps = f"{formula.steps:g} × {format_seconds(formula.latency)}"
    moved = f"{format_size(formula.moved)} ÷ {format_rate(formula.bandwidth)} GB/s"
    return steps, moved, format_seconds(formula.waits)


def lettered(choices: Sequence[str]) -> list[str]:
    """Return choices as `A   ring-flags`."""
    return [f"{letter}   {plain(words)}" for letter, words in zip(ascii_uppercase, choices, strict=False)]


def _exercises() -> list[str]:
    """Return the exercises' titles, numbered."""
    folders = resources.files("collbench.lesson") / "exercises"
    return []


def _asset(name: str) -> str:
    return (resources.files("collbench.lesson") / "assets" / name).read_text(encoding="utf-8")


class _Layouts:
    """The layouts of kit.toml, filled with what a lesson says."""

    def __init__(self, content: Content) -> None:
        from jinja2 import Environment, StrictUndefined

        self.texts = tomllib.loads(_asset("kit.toml"))
        self._templates = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
        self._templates.globals |= {"content": content, "plain": plain, "code": code, "terms": terms}
        self._templates.globals |= {"seconds": format_seconds, "rate": format_rate, "size": format_size}
        self._templates.globals |= {"lettered": lettered, "exercises": _exercises()}

    def filled(self, template: str, **facts: Any) -> str:
        return self._templates.from_string(template).render(facts)

    def page(self, layout: str, part: str, size: tuple[float, float] = SLIDE_SIZE, **facts: Any) -> Page:
        """Return a page of a layout; texts that are empty leave their boxes empty."""
        page = Page(part, size)
        for box in self.texts["layout"][layout]:
            if words := self.filled(box["text"], **facts).strip():
                page.write(words, box["at"], box["size"], **LOOKS.get(box.get("look", ""), {}))
        return page


# ---- slides


def _slides(content: Content, layouts: _Layouts) -> Iterator[Page]:
    """Yield all slides, with their numbers and with where their numbers come from."""
    here = f"{HERE}: {content.machine}"
    for number, (page, source) in enumerate(_told(content, layouts), 1):
        page.write(source.replace(HERE, here), (0.6, 7.08, 11.5, 0.3), 13, color=GREY)
        page.write(str(number), (12.4, 7.08, 0.5, 0.3), 13, color=GREY)
        yield page


def _told(content: Content, layouts: _Layouts) -> Iterator[tuple[Page, str]]:
    """Yield the slides in the order of the lesson, each with the source of its numbers."""
    yield layouts.page("title", "title"), HERE
    yield _formula(content, layouts), HERE
    for _, figure in curves.figures(content.runs, PlotRequest(("latency",), SLIDE)):
        if engine := figure.get_layout_engine():
            engine.set(rect=(0.01, 0.07, 0.98, 0.92))  # type: ignore[call-arg]
        yield Page("curves", SLIDE_SIZE, figure), HERE
    for question in content.questions:
        yield layouts.page("guess", "questions", question=question, title="", before=""), ""
        yield layouts.page("answer", "questions", question=question, after=""), question.source
    for screen in content.screens:
        question = screen.question
        yield layouts.page("change", screen.name, screen=screen), f"{screen.code.file}, line {screen.code.first}"
        yield layouts.page("guess", screen.name, question=question, title=screen.name, before=""), ""
        page = layouts.page("rung", screen.name, screen=screen, question=question)
        if screen.trace:
            _timeline(page, screen.trace)
        yield page, question.source
    for part, title, reasons in (
        ("losing", "Why hand-written synchronisation loses", content.losing),
        ("winning", "When it wins", content.winning),
    ):
        for first in range(0, len(reasons), 2):
            yield layouts.page("reasons", part, title=title, reasons=reasons[first : first + 2]), HERE
    for broken in content.breaks:
        yield layouts.page("guess", "breaks", question=broken.question, title=broken.title, before=broken.text), ""
        yield layouts.page("break", "breaks", broken=broken), f"{broken.file}; tried here"
    for chapter in content.chapters:
        question, after = chapter.question, chapter.after
        yield layouts.page("guess", "training", question=question, title=chapter.title, before=chapter.idea), ""
        page = layouts.page("chapter" if chapter.picture else "answer", "training", question=question, after=after)
        if chapter.picture:
            _picture(page, chapter.picture)
        yield page, question.source
    yield layouts.page("last", "last"), ""


def _formula(content: Content, layouts: _Layouts) -> Page:
    """Return the formula with its terms for every rung, at the smaller of its sizes."""
    page = layouts.page("formula", "formula")
    rows = [("rung", "size", "steps", "bytes", "waits", "measured")]
    for screen in content.screens:
        for formula in screen.formulas[:1]:
            rows.append((screen.name, format_size(formula.nbytes), *terms(formula), format_seconds(formula.seconds)))
    page.table(rows, (0.6, 2.85, 12.1, min(4.1, 0.5 * len(rows))), (2.6, 1.3, 2.3, 2.9, 1.5, 1.5), 18)
    return page


def _timeline(page: Page, trace: Trace) -> None:
    rows = {}
    for rank, events in sorted(by_key(trace.events, lambda event: event.rank).items()):
        rows[f"rank {rank}"] = [Span(event.phase, event.start, event.seconds) for event in events]
    axes = page.axes((1.6, 4.45, 11.1, 0.8))
    timeline.draw_spans(axes, rows, (0.0, trace.traced))
    axes.tick_params(labelsize=13)
    usual = f"{format_seconds(trace.traced)} with its log, {format_seconds(trace.seconds)} is usual"
    axes.set_title(f"one all-reduce of {format_size(trace.nbytes)}: {usual}", fontsize=14)
    patch_legend(page.figure, {phase: PHASES[phase] for phase in SPANS}, place=(0.42, 0.225))


def _picture(page: Page, png: bytes) -> None:
    from matplotlib.image import imread

    page.blank((5.5, 1.5, 7.3, 4.9)).imshow(imread(io.BytesIO(png)), interpolation="lanczos")


# ---- paper


def _sheet(content: Content, layouts: _Layouts, solved: bool) -> list[Page]:
    """Return the two pages of the sheet, or the same with its answers."""
    pages = [layouts.page(layout, "sheet", A4, solved=solved) for layout in ("first", "second")]
    rows = [("rung", "the question", "guess", "the number", "here")]
    for screen in content.screens:
        asked, says = plain(screen.question.ask), plain(screen.number_says)
        answers = (plain(screen.question.choices[screen.question.answer]), screen.number) if solved else ("", "")
        rows.append((screen.name, asked, answers[0], says, answers[1]))
    pages[0].table(rows, (0.8, 4.75, 6.7, 6.2), (1.2, 2.3, 0.9, 1.6, 0.7), 8.5)
    for drawing in layouts.texts["drawing"]:
        arrows = {DARK: drawing["given"]} | ({GREY: drawing["answer"]} if solved else {})
        pages[1].network(drawing["nodes"], arrows, drawing["at"], 9)
    return pages
