"""Runs as what the page's curves are drawn from: values that JSON has, in seconds and bytes, of what can be drawn."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from collbench.algorithms import is_library, libraries
from collbench.cases import Case
from collbench.plots.panels import share_a_device
from collbench.plots.styles import Look, looks
from collbench.plots.views import RATE
from collbench.report.anchors import Anchors
from collbench.report.head import statuses
from collbench.report.rows import check
from collbench.report.sanitize import Sound
from collbench.report.sections import distinct
from collbench.results import Measurement, Prediction, Reported, Timed, timed
from collbench.runfile.store import Run

ROOM = 200_000
"""Bytes of all curves together, so that the page stays small; of more, whole curves are left out, and it says so."""
VIEWS = ("bandwidth", "latency", "ratio")
"""Of a figure, as report.js knows them; each has a place of its own that can be linked to."""
DIGITS = 4  # significant, which is more than any sample repeats

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "v": "triangle-down",
    "^": "triangle-up",
    "D": "diamond",
    "d": "diamond-tall",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "*": "star",
    "h": "hexagon2",
}
"""Plotly's names of Matplotlib's markers."""
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
AGAIN = ("solid", "dash", "dot", "longdash", "dashdot")  # an implementation's line in the second run, the third, ...
EXPECTED = ("dash", "dot", "longdash", "dashdot")  # the same of predictions, in the first run too
DARK = (0x16, 0x1A, 0x20)  # the page's background at night, as report.css has it
READABLE = 4.5  # contrast with it
KEPT = 0.7  # of the contrast that a colour has with white, so that what is black by day is nearly white at night


def chart_of(runs: Sequence[Sound], anchors: Anchors) -> dict[str, Any]:
    """Everything that the script needs: runs, looks, and for each kind of case its lines; `left_out` curves."""
    styles = looks({result.implementation for run in runs for result in timed(run.run.results)})
    figures: dict[Case, dict[str, Any]] = {}
    seen: dict[Case, list[int]] = {}  # the runs of a figure, in order
    room, left_out = ROOM, 0
    for number, run in enumerate(runs):
        for kind, rows in _lines(run):
            order = len({*seen.get(kind, ()), number}) - 1
            fields = {"run": number} | _line(run.run, rows, order, styles[rows[0].implementation])
            room -= len(data_block(fields))
            if room < 0:
                left_out += 1
                continue
            seen.setdefault(kind, []).append(number)
            figures.setdefault(kind, {"title": kind.title, "lines": []})["lines"].append(fields)
    for kind, figure in figures.items():
        views = [view for view in VIEWS if kind.collective.sized or view != RATE]
        figure["anchors"] = {view: anchors.new(view, figure["title"]) for view in views}
    return {
        "runs": [{"label": run.label, "machine": run.machine, "status": " and ".join(statuses(run))} for run in runs],
        "libraries": _libraries(runs),
        "figures": [*figures.values()],
        "left_out": left_out,
    }


def _libraries(runs: Sequence[Sound]) -> list[str]:
    """What lines are called that others are compared with, those of the first run first."""
    found = (result.label for run in runs for result in timed(run.run.results) if is_library(result.implementation))
    return list(dict.fromkeys([*found, *libraries()]))


def data_block(value: Any) -> Markup:
    """JSON that may stand inside a script element: no character in it means anything to HTML or to old JavaScript."""
    return htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so U+2028 is escaped too


def _lines(run: Sound) -> Iterator[tuple[Case, list[Timed]]]:
    """Each implementation's results of one kind of case by size; of one measured twice, the later."""
    curves: dict[tuple[Case, str, bool], dict[int, Timed]] = {}
    for result in timed(run.run.results):
        if result.case.nbytes:
            kind = result.case.kind
            key = kind, result.implementation, isinstance(result, Prediction)
            curves.setdefault(key, {})[result.case.nbytes] = result
    for (kind, _, _), sizes in curves.items():
        yield kind, [sizes[size] for size in sorted(sizes)]


def _line(run: Run, rows: Sequence[Timed], order: int, look: Look) -> dict[str, Any]:
    """A curve for the script: seconds and bytes by size, and how it is drawn, after `order` runs in its figure."""
    first, bands = rows[0], [row.band for row in rows]
    predicted = isinstance(first, Prediction)
    once = DASHES.get(look.linestyle, "solid")
    again = EXPECTED if predicted else AGAIN
    seen = [row for row in rows if isinstance(row, Measurement | Reported)]
    texts = [check(row) for row in rows]  # of each point its own, as the table has it
    said = {text: place for place, text in enumerate(distinct(texts))}
    return {
        "name": first.label,
        "predicted": predicted,
        "light": look.color,
        "dark": "#" + "".join(f"{part:02x}" for part in for_dark(look.color)),
        "symbol": SYMBOLS.get(look.marker, "circle") + ("-open" if predicted or order else ""),
        "dash": again[order % len(again)] if order or predicted else once,
        "width": 2.4 if look.linewidth > 2 and not predicted else 1.8,
        "factor": 0 if share_a_device(run, seen) else first.case.collective.bus_factor(first.case.ranks),
        "sizes": [row.case.nbytes for row in rows],
        "seconds": [_short(row.typical) for row in rows],
        "low": [_short(low) for low, _ in bands],
        "high": [_short(high) for _, high in bands],
        "said": [*said],
        "says": [said[text] for text in texts],
    }


def _short(value: float) -> float | None:
    """Few digits; none where nobody can tell, which JSON has no number for."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def for_dark(color: str) -> tuple[int, ...]:
    """A colour (#RRGGBB) as it is on the dark page: mixed with white until it can be read."""
    parts = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    wanted = max(READABLE, KEPT * contrast(parts, (255, 255, 255)))
    for share in range(0, 100, 4):
        mixed = tuple(round(part + (255 - part) * share / 100) for part in parts)
        if contrast(mixed, DARK) >= wanted:
            return mixed
    return 255, 255, 255


def contrast(one: Sequence[int], other: Sequence[int]) -> float:
    """Between two colours, from 1 to 21 (WCAG 2, relative luminance)."""
    dark, bright = sorted(map(_luminance, (one, other)))
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: Sequence[int]) -> float:
    parts = [part / 255 for part in color]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
