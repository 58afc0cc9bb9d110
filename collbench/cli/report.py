"""Write a report of runs: one HTML file with curves, verdicts and all rows, which opens without a network.

For example:
  collbench report results/runs/...
  collbench report imported --on dgx-h100 --nodes 2
  collbench report before after --out report.html
"""

from pathlib import Path

import click

from collbench.cli.options import NODES, RUNS, machine_option, out_option

_OPTIONS = [
    RUNS,
    out_option("Where to write it.  [default: report.html next to the first run]"),
    machine_option("as the run files say"),
    NODES,
]


@click.command("report", params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, on: str | None, nodes: int | None) -> int:
    """Put runs into one HTML file: pass or fail, curves to look into, who wins where, the machine, and every row.

    RUN is a run file or the folder that holds it: measured, predicted, imported or explained.  Prints the path of the
    report.  It needs no network, and nothing that a run file says can run in it.
    """
    from collbench.api.reporting import report  # not above: --help needs none of it

    click.echo(report(runs, out, on=on, nodes=nodes))
    return 0
