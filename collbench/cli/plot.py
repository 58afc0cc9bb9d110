"""Draw run files: bandwidth, time, speed-up, share of the bound against message size; or steps, training, timelines.

For example:
  collbench plot results/runs/...
  collbench plot run-a run-b -o both.png
  collbench plot run-a run-b --view all --format svg
"""

from pathlib import Path
from typing import Any

import click

from collbench.cli.options import FORMATS, RUNS, machine_option, option, out_option

_OPTIONS = [
    RUNS,
    out_option(
        "Folder of the figures, or the file of one: NAME.png, NAME.svg, NAME.pdf.  [default: the folder of the first "
        "run]",
        "FOLDER|FILE",
    ),
    option("--format formats", "One or several.  [default: as --out ends, else png]", type=FORMATS, multiple=True),
    option("--style", "What the figures are for.", default="screen", show_default=True, metavar="screen|paper|slide"),
    option(
        "--view views",
        "What stands along y: bandwidth, latency, ratio (the library's time over this row's), bound (the share of what "
        "the line rate allows); or samples (every sample, around the median of its row).  [default: bandwidth, in a "
        "folder latency too]",
        default="",
        metavar="NAME[,NAME]|all",
    ),
    option("--impl", "Only these.  [default: all in the runs]", default="", metavar="NAME[,NAME]|library|ladder"),
    option("--linear", "Bandwidth on a linear axis from zero.  [default: a logarithmic one]", is_flag=True),
    option(
        "--lines",
        "How many lines have a colour: libraries, then those that are fastest somewhere; the others are grey.",
        default="7",
        show_default=True,
        metavar="N|all",
    ),
    option("--overlay", "All topologies in one panel, a colour each.", is_flag=True),
    option("--apart", "Give predictions panels of their own.", is_flag=True),
    machine_option("as each run file says", "What machine the measured runs are of, for the view bound."),
]


@click.command("plot", params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, **options: Any) -> None:
    """Draw bandwidth, latency, speed-up or share of the bound against message size, a panel for each topology.

    RUN is a run file or the folder that holds it.  Prints the path of each figure.  What is predicted for a system is
    laid over what was measured on as many GPUs, where only one such prediction is given.  Where there is one topology
    the speed-up over the library is drawn next to the bandwidth, unless --view asks for it too.

    Of runs of step and explain, and of narrow wires, the pictures are those that the command
    drew; names of the second run's pictures end in -2.
    """
    from collbench.api.reading import plot

    folder = out or (runs[0] if runs[0].is_dir() else runs[0].parent)
    for figure in plot(runs, folder, **options, say=lambda reason: click.echo(reason, err=True)):
        click.echo(figure)
