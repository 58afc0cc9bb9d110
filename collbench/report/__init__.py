"""A report of runs: one HTML file with everything in it, which opens anywhere and fetches nothing.

`build` makes its text.  Whatever comes from a run file is not trusted: `sound` sets aside what cannot be reckoned with,
`markup` escapes what is shown, and the page's own policy lets no script run but the two that are in it.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from string import Template

from collbench import __version__
from collbench.report import data, machines, sections
from collbench.report.lesson import lesson
from collbench.report.machines import system_of
from collbench.report.markup import Seen, data_block, escaped, joined
from collbench.report.rows import rows
from collbench.report.sanitize import Sound, sound
from collbench.report.verdicts import fits, judge
from collbench.runs.file import Run


def build(runs: Sequence[Run], name: str | None = None) -> str:
    """The report as the text of an HTML file; the same runs give the same text.

    `name` is a system (preset or FILE.toml) that the machine of all runs is known to be; UsageError if it is none.
    """
    found = [_seen(run, name) for run in sound(runs)]
    drawn = data.curves([each.run for each in found])
    library, script = _library(), _part("report.js")
    return Template(_part("page.html")).substitute(
        policy=escaped(_policy(library, script)),
        title=escaped(sections.heading(found)),
        style=_part("report.css"),
        header=sections.header(found),
        lesson=sections.lesson(lesson([each.run for each in found], [each.fits for each in found])),
        curves=sections.curves(drawn),
        sections=joined(
            [
                sections.crossovers(found),
                sections.spent(found),
                sections.fits(found),
                sections.verdicts(found),
                machines.machines(found),
                machines.environment(found),
                sections.table_of(rows([each.run for each in found]), len(found) > 1),
            ]
        ),
        footer=sections.footer(__version__),
        data=data_block(drawn),
        library=library,
        script=script,
    )


def _seen(run: Sound, name: str | None) -> Seen:
    """A run with what its analyses say."""
    system, why_not = system_of(run, name)
    fitted = fits(run)
    return Seen(run, system, why_not, fitted, judge(run, system, why_not, fitted))


def _policy(*scripts: str) -> str:
    """No request to anywhere, and no script but these.  Plotly sets styles, which a policy has no finer word for."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _library() -> str:
    """The drawing library's own text, from the installed package."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _part(name: str) -> str:
    return (resources.files(__name__) / name).read_text(encoding="utf-8")
