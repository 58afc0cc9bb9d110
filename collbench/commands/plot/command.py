"""Draw run files: bandwidth, time, speed-up, share of the bound against message size; or steps, training, timelines.

For example:
  collbench plot results/runs/...
  collbench plot run-a run-b -o both.png
  collbench plot run-a run-b --view all --format svg
"""

from pathlib import Path
from typing import Any

import click

from collbench.cli.options import RUNS, options_of, out_option
from collbench.commands.plot.library import DrawRequest, plot

_OPTIONS = [
    RUNS,
    out_option(
        "Folder of the figures, or the file of one: NAME.png, NAME.svg, NAME.pdf.  [default: the folder of the first "
        "run]",
        "FOLDER|FILE",
    ),
    *options_of(DrawRequest),
]


@click.command(params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, **options: Any) -> None:
    """Draw bandwidth, latency, speed-up or share of the bound against message size, a panel for each topology.

    RUN is a run file or the folder that holds it.  Prints the path of each figure.  What is predicted for a system is
    laid over what was measured on as many GPUs, where only one such prediction is given.  Where there is one topology
    the speed-up over the library is drawn next to the bandwidth, unless --view asks for it too.

    Of runs of step and explain, and of narrow wires, the pictures are those that the command
    drew; names of the second run's pictures end in -2.
    """
    if not out:
        out = runs[0] if runs[0].is_dir() else runs[0].parent
    for figure in plot(runs, out, **options, say=lambda reason: click.echo(reason, err=True)):
        click.echo(figure)
