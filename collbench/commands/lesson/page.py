"""A lesson as one HTML file that opens anywhere and fetches nothing.

`assets/lesson.html` lays the `Content` out, `lesson.css` says how that looks and `lesson.js` moves it.  Without the
script everything can be read, and there is nothing to guess.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from markupsafe import Markup

from collbench import __version__
from collbench.algorithms import implementations
from collbench.commands.lesson import asset
from collbench.commands.lesson.content import Content, Trace
from collbench.commands.lesson.numbers import allreduce
from collbench.commands.report.chart import data_block, for_dark
from collbench.present import page as pages
from collbench.present.figures import LOOKS, PHASES, phase_css
from collbench.units import format_figure, format_seconds, format_size

DRAWN = {"ring": "ring-flags", "one-shot": "one-shot", "two-shot": "two-shot", "one-shot-ll": "one-shot-ll"}
"""Lines of the figure whose numbers can be dragged: names, and implementations that count what each costs."""
FIRST_RANKS = 8  # of the figure: with 2, a ring, one-shot and two-shot are one line
MOST_RANKS = 72  # that can be dragged to: those of the largest NVLink domain
DASHES = {"-": "", "--": "7 4", "-.": "8 3 2 3", ":": "2 3"}


def build(content: Content) -> str:
    """Return the lesson as the text of an HTML file; the same content gives the same text.

    Texts are Markdown without HTML and without pictures; nothing in them becomes an element that loads or runs.
    """
    script = pages.asset("views.js") + asset("lesson.js")
    traces = {screen["name"]: screen["trace"] for screen in content.screens if screen["trace"]}

    # Texts are escaped by the templates; Markdown becomes elements by these filters alone.
    environment = pages.templates("collbench.commands.lesson", "assets")
    environment.filters |= {
        "markdown": partial(_markdown, inline=False),
        "inline": partial(_markdown, inline=True),
        "size": format_size,
        "seconds": format_seconds,
        "rate": lambda rate: f"{format_figure(rate / 1e9)} GB/s",
        "badge": _badge,
    }
    page = environment.get_template("lesson.html").render(
        content=content,
        phases=sorted({event.phase for trace in traces.values() for event in trace.events}, key=[*PHASES].index),
        first_ranks=FIRST_RANKS,
        version=__version__,
        policy=pages.policy(script),
        style=Markup(pages.asset("colours.css") + asset("lesson.css") + _colours()),
        data=data_block(_data(content, traces)),
        script=Markup(script),
    )
    return page.lstrip()  # the template's macros leave empty lines


def _data(content: Content, traces: Mapping[str, Trace]) -> Mapping[str, Any]:
    """Return what the script needs beyond the text of the page."""
    looks = {line: LOOKS[name] for line, name in DRAWN.items()}
    return {
        "places": [*map(asdict, (content.measured, *content.places))],
        "ranks": FIRST_RANKS,
        "counts": _counts(),
        "dashes": {line: DASHES.get(str(look.linestyle), "") for line, look in looks.items()},
        "traces": {name: asdict(trace) for name, trace in traces.items()},
    }


def _counts() -> Mapping[str, list[tuple[float, float]]]:
    """Return steps one after the other, and bytes through the busiest link over the size, of 2, 3 and more ranks."""
    counts: dict[str, list[tuple[float, float]]] = {line: [] for line in DRAWN}
    for line, name in DRAWN.items():
        cost = implementations()[name].cost
        assert cost
        for ranks in range(2, MOST_RANKS + 1):
            counted = cost(allreduce(1024, ranks))
            counts[line].append((counted.steps, round(counted.link, 6)))
    return counts


def _markdown(text: str, inline: bool) -> Markup:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
    return Markup(parser.renderInline(text) if inline else parser.render(text))


def _badge(source: str) -> str:
    """Return the class of a source's badge: the first word."""
    return "".join(filter(str.isalpha, source.partition(" ")[0].lower())) or "other"


def _colours() -> str:
    """Return style sheet rules: of phases, as the plots have them, and of the figure's lines, by day and night."""
    colours = {line: LOOKS[name].color for line, name in DRAWN.items()}
    rules = [f".line-{line} {{ --day: {colour}; --night: {for_dark(colour)}; }}" for line, colour in colours.items()]
    return "\n".join([phase_css(".part."), *rules])
