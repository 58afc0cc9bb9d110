"""A report of runs: one HTML file with everything in it, which opens anywhere and fetches nothing.

`build` makes its text: the modules here gather what the page says, `templates/` lays it out.  What comes from a run
file is not trusted: `sanitize` sets aside what cannot be reckoned with, the templates escape every text, and the page's
own policy lets no script run but two: ours, and `plotly/` as its makers publish it, which the page holds compressed.
"""

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from collbench import __version__
from collbench.plots import palette
from collbench.report import sections
from collbench.report.anchors import SECTIONS, Anchors
from collbench.report.data import chart_of, data_block
from collbench.report.head import about, title_of
from collbench.report.headline import FIRST, headlines
from collbench.report.lesson import lesson
from collbench.report.machines import environments, machines, system_of
from collbench.report.plans import plans
from collbench.report.rows import raw_table
from collbench.report.sanitize import Sound, sound
from collbench.report.sections import AnalysedRun
from collbench.report.steps import STEPPED, steps
from collbench.report.verdicts import fitted, judge
from collbench.report.which import which
from collbench.results import PlannedStep
from collbench.runfile.store import Run

LARGEST = 1_500_000
"""Bytes of a page, but for dozens of runs.  Rows of the table that have no room are left out, and it says so."""
LEAST_ROWS = 100_000  # bytes of rows whatever else the page holds
PICTURES = 240_000
"""Bytes of all pictures together; of more, whole pictures are left out, and it says so."""


def build(runs: Sequence[Run], name: str | None = None) -> str:
    """The report as the text of an HTML file; the same runs give the same text.

    `name` is a system (preset or FILE.toml) that the machine of all runs is known to be; UsageError if it is none.
    """
    library = _file("plotly/plotly-basic.min.js")
    script = _file("fflate/fflate.js") + _file("views.js") + _file("report.js")
    loader = PackageLoader(__name__, "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = sound(runs)
    page = partial(
        environment.get_template("page.html").render,
        **_content([_analysed(run, name) for run in shown]),
        version=__version__,
        policy=_policy(library, script),
        style=Markup(_file("report.css") + palette.css(".part.")),
        library=packed(library),
        script=Markup(script),
    )
    room = LARGEST - len(page(raw=raw_table(shown, 0)).encode())
    return page(raw=raw_table(shown, max(room, LEAST_ROWS)))


def _analysed(run: Sound, name: str | None) -> AnalysedRun:
    """A run with what its analyses say."""
    system, why_not = system_of(run, name)
    curves = fitted(run)
    return AnalysedRun(run, system, why_not, curves, judge(run, system, why_not, curves))


def _content(analysed: Sequence[AnalysedRun]) -> Mapping[str, Any]:
    """What the runs say, part by part, under the names that the templates use."""
    shown, anchors, room = [one.run for one in analysed], Anchors(), _room(analysed)
    chart = chart_of(shown, anchors)
    stepped = sections.by_run(analysed, partial(steps, room=room, anchors=anchors))
    planned = sections.by_run(analysed, partial(plans, room=room, anchors=anchors))
    between = which(shown)
    parts = {
        "verdict": headlines(analysed, [*stepped, *planned], between),
        "curves": chart["figures"],
        "lesson": lesson(shown, [one.curves for one in analysed]),
        "which": between,
        "steps": stepped,
        "plans": planned,
        "spent": sections.by_run(analysed, partial(sections.spent, anchors=anchors)),
        "crossovers": sections.by_run(analysed, sections.crossovers),
        "fits": sections.by_run(analysed, sections.fits),
        "verdicts": sections.by_run(analysed, sections.verdicts),
        "machine": machines(analysed, anchors),
        "environment": environments(analysed),
    }
    nav = [(part, title) for part, title in SECTIONS.items() if parts.get(part, True)]
    runs = [about(run) for run in shown]
    page = {"title": title_of(shown), "runs": runs, "nav": nav, "titles": SECTIONS, "told": FIRST}
    return parts | page | {"chart": chart, "data": data_block(chart)}


def _room(analysed: Sequence[AnalysedRun]) -> int:
    """Bytes for the pictures of one part of one run."""
    parts = [
        any(isinstance(row, rows) for row in one.run.run.results) for one in analysed for rows in (STEPPED, PlannedStep)
    ]
    return PICTURES // max(1, sum(parts))


def _policy(*scripts: str) -> str:
    """No request to anywhere, and no script but these.  Plotly sets styles, which a policy has no finer word for."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def packed(text: str) -> str:
    """A text as the page unpacks it: raw DEFLATE, in base 64.

    By fflate, since the browser's own way is asynchronous, and a page may be printed before that is done.
    """
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()


def _file(name: str) -> str:
    """The text of a file of this package."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")
