"""Draw run files: bandwidth, time, speed-up, share of the bound against message size; or steps, training, timelines.

For example:
  collbench plot results/runs/...
  collbench plot run-a run-b --view all --format svg
"""

from pathlib import Path
from typing import Any

import click

from collbench.cli.options import FORMATS, PATH, RUNS, Renamed
from collbench.errors import UsageError

_DIGITS = 6  # of a number of lines


@click.command("plot")
@RUNS
@click.option(
    "-o",
    "--out",
    cls=Renamed,
    type=PATH,
    metavar="FOLDER",
    help="Where to write the figures.  [default: the folder of the first run]",
)
@click.option(
    "--format",
    "formats",
    type=FORMATS,
    multiple=True,
    default=["png"],
    show_default=True,
    help="File format; may be given several times.",
)
@click.option(
    "--style",
    default="screen",
    show_default=True,
    metavar="screen|paper|slide",
    help="What the figures against message size are for: it sets their sizes, fonts and lines.",
)
@click.option(
    "--view",
    "views",
    default="bandwidth,latency",
    show_default=True,
    metavar="NAME[,NAME]|all",
    help="What stands along y: bandwidth, latency, ratio (the library's time over this row's), "
    "bound (the share of what the line rate allows); or samples (every sample, around the median of its row).",
)
@click.option(
    "--impl",
    "names",
    metavar="NAME[,NAME]|library|ladder",
    help="Only these implementations.  [default: all in the runs]",
)
@click.option("--linear", is_flag=True, help="Bandwidth on a linear axis from zero.  [default: a logarithmic one]")
@click.option(
    "--lines",
    default="7",
    show_default=True,
    metavar="N|all",
    help="How many lines have a colour: libraries, then those that are fastest somewhere; the others are grey.",
)
@click.option("--overlay", is_flag=True, help="All topologies in one panel, a colour each.")
@click.option("--apart", is_flag=True, help="Give predictions panels of their own.")
@click.option(
    "--on",
    "--as",
    "on",
    cls=Renamed,
    metavar="SYSTEM|FILE.toml",
    help="What machine the measured runs are of, for the view bound.  [default: as each run file says]",
)
def command(runs: tuple[Path, ...], out: Path | None, names: str | None, lines: str, **options: Any) -> None:
    """Draw bandwidth, latency, speed-up or share of the bound against message size, a panel for each topology.

    RUN is a run file or the folder that holds it.  Prints the path of each figure.  What is predicted for a system is
    laid over what was measured on as many GPUs, where only one such prediction is given.  Where there is one topology
    the speed-up over the library is drawn next to the bandwidth, unless --view asks for it too.

    Of runs of step and explain, and of narrow wires, the pictures are those that the command
    drew; names of the second run's pictures end in -2.
    """
    from collbench.api.reading import plot

    folder = out or (runs[0] if runs[0].is_dir() else runs[0].parent)
    options |= {"impl": names or "", "lines": _count(lines)}
    figures = plot(runs, folder, **options, say=lambda reason: click.echo(reason, err=True))
    for figure in figures:
        click.echo(figure)


def _count(lines: str) -> int | None:
    """Return how many lines have a colour, None for all; UsageError for what is neither a number nor `all`."""
    if lines == "all":
        return None
    if not lines.isascii() or not lines.isdecimal() or len(lines) > _DIGITS:
        raise UsageError(f"--lines {lines!r} is no number of lines; give 0 or more, or all")
    return int(lines)
