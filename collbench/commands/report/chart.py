"""What the page's curves are drawn from: values that JSON has, in seconds and bytes, of what can be drawn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from collbench.algorithms import is_library, libraries
from collbench.cases import Case
from collbench.commands.report.analysed import AnalysedRun, SafeRun
from collbench.commands.report.sections import Anchors
from collbench.commands.report.summary import statuses
from collbench.commands.report.table import check
from collbench.plots.panels import share_a_device
from collbench.present.figures import Look, looks
from collbench.results import Timed, by_key, timed
from collbench.runfile.store import Run

ROOM = 200_000
"""Bytes of all curves together, so that the page stays small; of more, whole curves are left out, and it says so."""
VIEWS = ("bandwidth", "latency", "ratio")
"""Views of a figure, as report.js knows them; each can be linked to."""
_DIGITS = 4  # significant, which is more than any sample repeats

Line = tuple[Case, Sequence[Timed], bool]
"""A curve by size: its kind, its rows, and whether it is what the model expects of another."""
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_LATER_RUNS = ("solid", "dash", "dot", "longdash", "dashdot")  # an implementation's line in the second run, the third
_PREDICTIONS = ("dash", "dot", "longdash", "dashdot")  # the same of predictions, in the first run too


def chart_of(runs: Sequence[AnalysedRun], anchors: Anchors) -> dict[str, Any]:
    """Return all that the script needs: runs, looks, and for each kind of case its lines; `left_out` curves."""
    curves = [[*_lines(run), *_expected(run)] for run in runs]
    chosen = looks({rows[0].implementation for lines in curves for _, rows, _ in lines})
    figures: dict[Case, dict[str, Any]] = {}
    drawn_runs: dict[Case, list[int]] = {}  # of a figure, in order
    room, left_out = ROOM, 0
    for number, run in enumerate(runs):
        for kind, rows, expected in curves[number]:
            earlier = len({*drawn_runs.get(kind, ())} - {number})
            line = {"run": number, "expected": expected} | _line(run.run, rows, earlier, chosen[rows[0].implementation])

            # The page stays small: curves that have no room any more are counted.
            room -= len(data_block(line))
            if room < 0:
                left_out += 1
                continue
            drawn_runs.setdefault(kind, []).append(number)
            figures.setdefault(kind, {"title": kind.title, "lines": []})["lines"].append(line)
    for kind, figure in figures.items():
        views = [view for view in VIEWS if kind.collective.sized or view != "bandwidth"]
        figure["anchors"] = {view: anchors.new(view, figure["title"]) for view in views}

    # Those that others are compared with, of the first run first.
    compared = []
    for run in runs:
        compared += [row.label for row in timed(run.run.results) if is_library(row.implementation)]
    return {
        "runs": [{"label": run.label, "machine": run.machine, "status": " and ".join(statuses(run))} for run in runs],
        "libraries": list(dict.fromkeys([*compared, *libraries()])),
        "figures": [*figures.values()],
        "left_out": left_out,
    }


def data_block(value: Any) -> Markup:
    """Return JSON that may stand in a script element: no character of it means anything to HTML or old JavaScript."""
    # ASCII, so U+2028 is escaped too; a back-tick marks code, which the chart's texts cannot show.
    return htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":")).replace("`", "'")


def _lines(run: SafeRun) -> Iterator[Line]:
    """Yield each implementation's results of a kind of case by size; the later of two for the same case."""
    rows = (row for row in timed(run.run.results) if row.case.nbytes)
    curves = by_key(rows, lambda row: (row.case.kind, row.implementation, row.predicted))
    for (kind, _, _), curve in curves.items():
        sizes = {row.case.nbytes: row for row in curve}
        yield kind, [sizes[size] for size in sorted(sizes)], False


def _expected(run: AnalysedRun) -> Iterator[Line]:
    """Yield what the model expects of each curve that is held against it, size by size."""
    for diagnosis in (curve.diagnosis for curve in run.verdicts):
        if diagnosis.expected:
            named = [replace(row, implementation=diagnosis.implementation) for row in diagnosis.expected]
            yield named[0].case.kind, named, True


def _line(run: Run, rows: Sequence[Timed], earlier: int, look: Look) -> dict[str, Any]:
    """Return a curve for the script: seconds and bytes by size, and how it is drawn.

    The figure has *earlier* runs before this one, and their lines differ by dashes.
    """
    first, bands = rows[0], [row.band for row in rows]
    predicted = first.predicted

    # The first run's measured lines have their own dashes; later runs and predictions differ by theirs.
    dash = DASHES.get(look.linestyle, "solid")
    if predicted or earlier:
        dashes = _PREDICTIONS if predicted else _LATER_RUNS
        dash = dashes[earlier % len(dashes)]
    seen = [row for row in rows if not row.predicted]
    checks = [check(row) for row in rows]
    texts = list(dict.fromkeys(checks))
    return {
        "name": first.label,
        "predicted": predicted,
        "light": look.color,
        "dark": for_dark(look.color),
        "marker": look.marker,  # report.js has Plotly's names of Matplotlib's markers
        "open": bool(predicted or earlier),
        "dash": dash,
        "width": 2.4 if look.linewidth > 2 and not predicted else 1.8,
        "factor": 0 if share_a_device(run, seen) else first.case.collective.bus_factor(first.case.ranks),
        "sizes": [row.case.nbytes for row in rows],
        "seconds": [_short(row.typical) for row in rows],
        "low": [_short(low) for low, _ in bands],
        "high": [_short(high) for _, high in bands],
        "checks": texts,
        "check_of": [texts.index(text) for text in checks],  # each point
    }


def _short(value: float) -> float | None:
    """Return a value with few digits; None where it is not known, which JSON has no number for."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def for_dark(colour: str) -> str:
    """Return a colour (#RRGGBB) for the dark page: the darker by day the lighter by night, and black nearly white."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue  # as it looks, by ITU-R BT.601
    white = max(0.0, 0.9 - 1.6 * brightness)
    mixed = (round(255 * (part + (1 - part) * white)) for part in (red, green, blue))
    return "#" + "".join(f"{part:02x}" for part in mixed)
