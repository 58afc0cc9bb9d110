"""Write a report of runs: one HTML file with curves, verdicts and all rows, which opens without a network.

For example:
  collbench report results/runs/...
  collbench report imported --on dgx-h100 --nodes 2
  collbench report before after --out report.html
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from collbench.cli.options import RUNS, options_of
from collbench.commands.report import page as reports
from collbench.errors import UsageError, unlinked, writing
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.runs import RunOrPath, runs_of
from collbench.requests.words import OfMachine, RunsNodes


@dataclass(frozen=True)
class ReportRequest(Request):
    """Runs, and where their report goes."""

    runs: Annotated[
        RunOrPath | Sequence[RunOrPath],
        Opt("", "A run or several, or their paths: measured, predicted, imported or explained."),
    ]
    out: Annotated[
        Path | str | None,
        Opt("-o --out", "The file, which is written over.", "report.html next to the first run", metavar="FILE"),
    ] = None
    _: KW_ONLY
    on: Annotated[
        str | None, OfMachine("What machine the runs are of, a preset or FILE.toml.", "as the run files say")
    ] = None
    nodes: RunsNodes = None


@takes(ReportRequest)
def report(request: ReportRequest) -> Path:
    """Write a report of a run, or of several: one HTML file, which opens without a network.

    Returns:
        The path of the report.

    Raises:
        RunFileError: One of them is no run file.
        UsageError: The system does not exist or cannot have the ranks, the place is a folder or a run, or it cannot be
            written to.

    >>> import collbench, tempfile
    >>> place = collbench.report("results/cpu-2-ranks", tempfile.mkdtemp() + "/mine.html")
    >>> place.name, place.read_text(encoding="utf-8")[:15]
    ('mine.html', '<!doctype html>')

    """
    shown = runs_of(request.runs)
    place = Path(request.out) if request.out else shown[0].path.parent / "report.html"
    if place.suffix not in (".html", ".htm"):  # so that no run file is written over
        raise UsageError(f"{place} is no name of a report; choose another with --out, such as report.html")
    if not request.out:
        unlinked(place, "--out")
    text = reports.build(shown, request.on, request.nodes)
    with writing(place, "file with --out"):
        place.write_text(text, encoding="utf-8")
    return place


@click.command(params=[RUNS, *options_of(ReportRequest)])
def command(**words: Any) -> None:
    """Put runs into one HTML file: pass or fail, curves to look into, who wins where, the machine, and every row.

    RUN is a run file or the folder that holds it: measured, predicted, imported or explained.  Prints the path of the
    report.  It needs no network, and nothing that a run file says can run in it.
    """
    click.echo(report(**words))
