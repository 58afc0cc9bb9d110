"""Write a report of runs: one HTML file with curves, verdicts and all rows, which opens without a network.

For example:
  collbench report results/runs/...
  collbench report imported --on dgx-h100 --nodes 2
  collbench report before after --out report.html
"""

from typing import Any

import click

from collbench.cli.options import RUNS, options_of
from collbench.commands.report.library import ReportRequest, report


@click.command(params=[RUNS, *options_of(ReportRequest)])
def command(**words: Any) -> None:
    """Put runs into one HTML file: pass or fail, curves to look into, who wins where, the machine, and every row.

    RUN is a run file or the folder that holds it: measured, predicted, imported or explained.  Prints the path of the
    report.  It needs no network, and nothing that a run file says can run in it.
    """
    click.echo(report(**words))
