"""A report of runs: one HTML file with everything in it, which opens anywhere and fetches nothing.

`build` makes its text: the modules here gather what the page says, `templates/` lays it out.  What comes from a run
file is not trusted: `sanitize` sets aside what cannot be reckoned with, the templates escape every text, and the page's
own policy lets no script run but the two that are in it.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from collbench import __version__
from collbench.report import sections
from collbench.report.data import chart_of, data_block
from collbench.report.lesson import paragraphs
from collbench.report.machines import environments, machines, system_of
from collbench.report.plans import ROOM, plans
from collbench.report.rows import raw_table
from collbench.report.sanitize import Sound, sound
from collbench.report.sections import AnalysedRun
from collbench.report.steps import steps
from collbench.report.verdicts import fitted, judge
from collbench.runs.file import Run


def build(runs: Sequence[Run], name: str | None = None) -> str:
    """The report as the text of an HTML file; the same runs give the same text.

    `name` is a system (preset or FILE.toml) that the machine of all runs is known to be; UsageError if it is none.
    """
    library, script = _file("package_data/plotly.min.js", "plotly"), _file("report.js")
    loader = PackageLoader(__name__, "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        **_content([_analysed(run, name) for run in sound(runs)]),
        version=__version__,
        policy=_policy(library, script),
        style=Markup(_file("report.css")),
        library=Markup(library),
        script=Markup(script),
    )


def _analysed(run: Sound, name: str | None) -> AnalysedRun:
    """A run with what its analyses say."""
    system, why_not = system_of(run, name)
    curves = fitted(run)
    return AnalysedRun(run, system, why_not, curves, judge(run, system, why_not, curves))


def _content(analysed: Sequence[AnalysedRun]) -> Mapping[str, Any]:
    """What the runs say, part by part, under the names that the templates use."""
    shown = [one.run for one in analysed]
    chart = chart_of(shown)
    return {
        "title": sections.title_of(shown),
        "kinds": sections.kinds(shown),
        "runs": [sections.about(run) for run in shown],
        "lesson": paragraphs(shown, [one.curves for one in analysed]),
        "chart": chart,
        "data": data_block(chart),
        "crossovers": sections.by_run(analysed, sections.crossovers),
        "spent": sections.by_run(analysed, sections.spent),
        "steps": sections.by_run(analysed, steps),
        "plans": sections.by_run(analysed, partial(plans, room=ROOM // len(analysed))),
        "fits": sections.by_run(analysed, sections.fits),
        "verdicts": sections.by_run(analysed, sections.verdicts),
        "machines": machines(analysed),
        "environments": environments(analysed),
        "raw": raw_table(shown),
    }


def _policy(*scripts: str) -> str:
    """No request to anywhere, and no script but these.  Plotly sets styles, which a policy has no finer word for."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _file(name: str, package: str = __name__) -> str:
    """The text of a file of an installed package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")
