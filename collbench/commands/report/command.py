"""Write a report of runs: one HTML file with curves, verdicts and all rows, which opens without a network.

For example:
  collbench report results/runs/...
  collbench report imported --on dgx-h100 --nodes 2
  collbench report before after --out report.html

`build` makes its text: the modules here gather the contents, `templates/` lays them out.  Run files are not trusted:
`analysed` sets unusable rows aside, the templates escape every text, and the page's policy allows only two scripts:
its own, and the published `plotly/`, which the page holds compressed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
from markupsafe import Markup

from collbench import __version__
from collbench.cli.options import RUNS, options_of
from collbench.commands.report import sections
from collbench.commands.report.analysed import AnalysedRun, analysed, safe_runs
from collbench.commands.report.chart import all_rows, chart_of, data_block
from collbench.commands.report.sections import FIRST, SECTIONS, Anchors, about, by_run, title_of, verdict
from collbench.errors import UsageError, write_file
from collbench.plots.kinds import sections as sections_of
from collbench.present.figures import phase_css
from collbench.present.page import asset, packed, policy, templates
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.words import OfMachine, RunOrPath, RunsNodes, runs_of
from collbench.runfile.store import Run

ROWS = 700_000
"""Bytes of all rows together; the page names the number of rows left out."""
PICTURES = 500_000
"""Bytes of all pictures together; the page names the number of pictures left out."""


@dataclass(frozen=True)
class ReportRequest(Request):
    """Runs, and the file of their report."""

    runs: Annotated[
        RunOrPath | Sequence[RunOrPath],
        Opt("", "A run or several, or their paths: measured, predicted, imported or explained."),
    ]
    out: Annotated[
        Path | str | None,
        Opt("-o --out", "File to write or overwrite.", "report.html next to the first run", metavar="FILE"),
    ] = None
    _: KW_ONLY
    on: Annotated[str | None, OfMachine("Machine of the runs, a preset or FILE.toml.", "as in the run files")] = None
    nodes: RunsNodes = None


@takes(ReportRequest)
def report(request: ReportRequest) -> Path:
    """Write a report of one or several runs: one HTML file, which opens without a network.

    Returns:
        The path of the report.

    Raises:
        RunFileError: One of them is no run file.
        UsageError: The system does not exist or cannot have the ranks, or the file is no .html file or cannot be
            written.

    >>> import collbench, tempfile
    >>> place = collbench.report("results/cpu-2-ranks", tempfile.mkdtemp() + "/mine.html")
    >>> place.name, place.read_text(encoding="utf-8")[:15]
    ('mine.html', '<!doctype html>')

    """
    shown = runs_of(request.runs)
    place = Path(request.out) if request.out else shown[0].path.parent / "report.html"
    if place.suffix not in (".html", ".htm"):  # so that no run file is overwritten
        raise UsageError(f"{place} is no name of a report; choose another with --out, like report.html")
    text = build(shown, request.on, request.nodes)
    write_file(place, text, "file with --out")
    return place


@click.command(params=[RUNS, *options_of(ReportRequest)])
def command(**words: Any) -> None:
    """Write runs into one HTML file: pass or fail, interactive curves, fastest implementations, machine, and all rows.

    RUN is a run file or its folder: measured, predicted, imported or explained.  Prints the path of the report.  The
    report needs no network, and runs no code of a run file.
    """
    click.echo(report(**words))


def build(runs: Sequence[Run], name: str | None = None, nodes: int | None = None) -> str:
    """Return the report as the text of an HTML file; the same runs give the same text, in their order.

    The system *name* (preset or FILE.toml) is the known machine of all runs, whose ranks are spread over *nodes* of it.
    UsageError if there is no such system, or its nodes cannot have the ranks.
    """
    library = asset("plotly/plotly-basic.min.js")
    script = asset("fflate/fflate.js") + asset("views.js") + asset("report.js", __package__)
    return (
        templates(__package__, "templates")
        .get_template("page.html")
        .render(
            **_content([analysed(run, name, nodes) for run in safe_runs(runs)]),
            version=__version__,
            policy=policy(library, script),
            style=Markup(asset("colours.css") + asset("report.css", __package__) + phase_css(".part.")),
            library=packed(library),
            script=Markup(script),
        )
    )


def _content(runs: Sequence[AnalysedRun]) -> Mapping[str, Any]:
    commands = sections_of({type(result).__name__ for run in runs for result in run.run.results})
    titles = {**SECTIONS, **{section.name: section.title for section in commands}}
    anchors = Anchors({*titles})
    chart = chart_of(runs, anchors)

    # Each command's part of each run has the same room for pictures.
    illustrated = 0
    for run in runs:
        for section in commands:
            illustrated += section.drawn and any(isinstance(row, section.rows) for row in run.run.results)
    room = PICTURES // max(1, illustrated)
    said, all_said = [], []
    for section in commands:
        said_of_runs = by_run(runs, partial(sections.said, section=section, room=room, anchors=anchors))
        said.append((section, said_of_runs))
        all_said += said_of_runs

    which = sections.which(runs)
    parts = {
        "verdict": verdict(runs, all_said, which),
        "curves": chart["figures"],
        "which": which,
        **{section.name: said_of_runs for section, said_of_runs in said},
        "crossovers": by_run(runs, sections.crossovers),
        "fits": by_run(runs, sections.fits),
        "verdicts": by_run(runs, sections.verdicts),
        "machine": sections.machines(runs),
        "environment": by_run(runs, sections.environment),
        "raw": all_rows(runs, commands, ROWS),
        "table": True,
    }
    return parts | {
        "title": title_of(runs, commands),
        "runs": [about(run) for run in runs],
        "nav": [(name, titles[name]) for name, part in parts.items() if part and name in titles],
        "titles": titles,
        "said": said,
        "in_verdict": FIRST,
        "chart": chart,
        "data": data_block(chart),
    }
