"""A teacher's kit of a lesson: slides, a sheet to hand out, its answers, and a plan of 90 minutes.

Their sentences, and where those stand, are `assets/kit.toml` and `assets/plan.md`; the rest is the page's `Content`.
"""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase

from collbench.commands.exercise.records import exercises
from collbench.commands.explain import figure as timeline
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import HERE, Content, Formula, Part, Trace
from collbench.plots import curves
from collbench.plots.axes import patch_legend
from collbench.plots.document import A4, SLIDE_SIZE, Layouts, Page, save_pages
from collbench.plots.kinds import PlotRequest
from collbench.present.figures import DARK, GREY, PAPER, SLIDE, style
from collbench.present.figures import PHASES as COLOURS
from collbench.results import by_key
from collbench.results.collectives import PHASES, Span
from collbench.units import format_rate, format_seconds, format_size

_CODE = 78  # most letters in a line of code


def write(content: Content, folder: Path) -> list[Path]:
    """Write `slides.pdf`, `sheet.pdf`, `answers.pdf` and `plan.md` into that folder, and return their paths."""
    pages = slides(content)
    with style(SLIDE):
        paths = [save_pages(pages, folder / "slides.pdf")]
    with style(PAPER):
        for name, solved in (("sheet.pdf", False), ("answers.pdf", True)):
            paths.append(save_pages(sheet(content, solved), folder / name))

    # The plan names the first slide of each part.
    first: dict[str, int] = {}
    for number, page in enumerate(pages, 1):
        first.setdefault(page.part, number)
    plan = folder / "plan.md"
    plan.write_text(_layouts(content).filled(asset("plan.md"), slide=first, last=len(pages)), encoding="utf-8")
    return [*paths, plan]


def plain(markdown: str, between: str = "\n") -> str:
    """Return Markdown as text without its marks, with that between paragraphs and points."""
    from markdown_it import MarkdownIt

    lines, point = [], ""
    for token in MarkdownIt("commonmark", {"html": False}).parse(markdown):
        if token.type == "list_item_open":
            point = "• "
        elif token.type == "inline":
            words = (" " if child.type == "softbreak" else child.content for child in token.children or ())
            lines.append(point + "".join(words))
            point = ""
    return between.join(lines)


def code(lines: Sequence[str], mark: str = "") -> str:
    """Return lines of code from the left edge on, each after a mark; what is too long goes on below."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        found += textwrap.wrap(line, _CODE, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(mark + line for line in found)


def terms(formula: Formula) -> tuple[str, str, str]:
    """Return steps, bytes and the rest of a formula."""
    steps = f"{formula.steps:g} \N{MULTIPLICATION SIGN} {format_seconds(formula.latency)}"
    moved = f"{format_size(formula.moved)} ÷ {format_rate(formula.bandwidth, 2)} GB/s"
    return steps, moved, format_seconds(formula.rest)


def lettered(choices: Sequence[str]) -> list[str]:
    """Return choices as `A   ring-flags`."""
    return [f"{letter}   {plain(words)}" for letter, words in zip(ascii_uppercase, choices, strict=False)]


def _layouts(content: Content) -> Layouts:
    """Return kit.toml's layouts, whose texts know the lesson and how its parts are written."""
    forms = {"plain": plain, "code": code, "terms": terms, "lettered": lettered}
    units = {"seconds": format_seconds, "size": format_size, "rate": lambda rate: format_rate(rate, 2)}
    titles = [f"{exercise.number}   {exercise.title}" for exercise in exercises()]
    return Layouts(table("kit"), content=content, exercises=titles, **forms, **units)


# ---- slides


@style(SLIDE)
def slides(content: Content) -> list[Page]:
    """Return all slides, with their numbers and the sources of theirs."""
    here, pages = f"{HERE}: {content.machine}", []
    for number, (page, source) in enumerate(_pages(content, _layouts(content)), 1):
        page.write(source.replace(HERE, here), (0.6, 7.08, 11.5, 0.3), 13, color=GREY)
        page.write(str(number), (12.4, 7.08, 0.5, 0.3), 13, color=GREY)
        pages.append(page)
    return pages


def _pages(content: Content, layouts: Layouts) -> Iterator[tuple[Page, str]]:
    """Yield the slides in the order of the lesson, each with the source of its numbers."""
    yield layouts.page("title", "title"), HERE
    yield _formula(content, layouts), HERE
    for _, figure in curves.figures(content.runs, PlotRequest(("latency",), SLIDE)):
        if engine := figure.get_layout_engine():
            engine.set(rect=(0.01, 0.07, 0.98, 0.92))  # type: ignore[call-arg]
        yield Page("curves", SLIDE_SIZE, figure), HERE
    for question in content.questions:
        yield layouts.page("guess", "questions", question=question, title=""), ""
        yield layouts.page("answer", "questions", question=question, after=""), question["source"]
    for screen in content.screens:
        yield from _rung(screen, layouts)
    for part, reasons in (("losing", content.losing), ("winning", content.winning)):
        for first in range(0, len(reasons), 2):
            yield layouts.page("reasons", part, reasons=reasons[first : first + 2], winning=part == "winning"), HERE
    for broken in content.breaks:
        tried, asked = broken["experiment"], broken["question"]
        yield layouts.page("introduced", "breaks", question=asked, title=tried["title"], before=tried["text"]), ""
        yield layouts.page("break", "breaks", broken=broken), f"kernels/{tried['file']}; tried here"
    for chapter in content.chapters:
        title, idea, after = chapter["title"], chapter["idea"], chapter["after"]
        yield layouts.page("introduced", "training", question=chapter, title=title, before=idea), ""
        yield layouts.page("answer", "training", question=chapter, after=after), chapter["source"]
    yield layouts.page("last", "last"), ""


def _rung(screen: Part, layouts: Layouts) -> Iterator[tuple[Page, str]]:
    """Yield the idea, the code, the guess, and the answer with its trace."""
    name, source = screen["name"], screen["source"]
    yield layouts.page("idea", name, screen=screen), ""
    yield layouts.page("code", name, screen=screen), ", ".join(dict.fromkeys(part.file for part in screen["code"]))
    yield layouts.page("guess", name, question=screen, title=name), ""
    page = layouts.page("rung", name, screen=screen, question=screen)
    if screen["trace"]:
        _timeline(page, screen["trace"])
    measured = screen["formulas"] and HERE not in source
    yield page, f"{HERE}; the answer is {source}" if measured else source


def _formula(content: Content, layouts: Layouts) -> Page:
    """Return the formula with its terms for every rung, at the smaller of its sizes."""
    page = layouts.page("formula", "formula")
    rows = [("rung", "size", "steps", "bytes", "the rest", "measured")]
    for screen in content.screens:
        for formula in screen["formulas"][:1]:
            rows.append((screen["name"], format_size(formula.nbytes), *terms(formula), format_seconds(formula.seconds)))
    page.table(rows, (0.6, 2.85, 12.1, min(4.1, 0.5 * len(rows))), (2.6, 1.3, 2.3, 2.9, 1.5, 1.5), 18)
    return page


def _timeline(page: Page, trace: Trace) -> None:
    """Draw what every rank did, up to the last event."""
    rows = {}
    for rank, events in sorted(by_key(trace.events, lambda event: event.rank).items()):
        rows[f"rank {rank}"] = [Span(event.phase, event.start, event.seconds) for event in events]
    axes = page.axes((1.6, 4.45, 11.1, 0.8))
    timeline.draw_spans(axes, rows, (0.0, trace.lasts))
    axes.tick_params(labelsize=13)
    lasts, traced, usual = map(format_seconds, (trace.lasts, trace.traced, trace.seconds))
    drawn = f"one of {format_size(trace.nbytes)}: {lasts} from the first to the last moment"
    axes.set_title(f"{drawn}\none after the other: {traced} with the log, {usual} without", fontsize=11)
    axes.set_xlabel(trace.altered, fontsize=11, loc="left")
    looks = {"fontsize": 13, "handlelength": 1, "columnspacing": 1, "borderaxespad": 0}
    patch_legend(page.figure, {phase: COLOURS[phase] for phase in PHASES}, place=(0.6, 0.412), **looks)


# ---- paper


@style(PAPER)
def sheet(content: Content, solved: bool = False) -> list[Page]:
    """Return the two pages of the sheet, or the same with its answers."""
    layouts = _layouts(content)
    pages = [layouts.page(layout, "sheet", A4, solved=solved) for layout in ("first", "second")]
    rows = [("rung", "the question", "guess", "a number", "value")]
    for screen in content.screens:
        right = plain(screen["choices"][screen["answer"]])
        answers = (right, screen["number"]) if solved else ("", "")
        rows.append((screen["name"], plain(screen["ask"]), answers[0], plain(screen["number_says"]), answers[1]))
    pages[0].table(rows, (0.8, 4.75, 6.7, 6.2), (1.2, 2.0, 1.2, 1.5, 0.8), 8.5)
    for drawing in layouts.tables["drawing"]:
        arrows = {DARK: drawing["given"]} | ({GREY: drawing["answer"]} if solved else {})
        pages[1].network(drawing["nodes"], arrows, drawing["at"], 9)
    return pages
