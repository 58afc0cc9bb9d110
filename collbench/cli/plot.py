"""Draw run files: bandwidth, time, speed-up, share of the bound against message size; or steps, training, timelines."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._paths import FORMATS, PATH, RUNS
from collbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from collbench.figures.kinds import Wanted
    from collbench.runs.file import Run


@click.command("plot")
@RUNS
@click.option(
    "-o",
    "--out",
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
    "style_name",
    default="screen",
    show_default=True,
    metavar="screen|paper|slide",
    help="What the figures are for: sizes, fonts and lines of those against message size.",
)
@click.option(
    "--view",
    "views",
    default="bandwidth,latency",
    show_default=True,
    metavar="NAME[,NAME]|all",
    help="What stands along y: bandwidth, latency, ratio (the library's time over this one's), "
    "bound (the share of what the line rate allows).",
)
@click.option(
    "--impl",
    "names",
    metavar="NAME[,NAME]|library|ladder",
    help="Only these implementations.  [default: all in the runs]",
)
@click.option("--overlay", is_flag=True, help="All topologies in one panel, a colour each.")
@click.option("--apart", is_flag=True, help="Give predictions panels of their own.")
@click.option(
    "--as",
    "machine",
    metavar="SYSTEM|FILE.toml",
    help="What machine the measured runs are of, for the view bound.  [default: as each run file says]",
)
def command(
    runs: tuple[Path, ...],
    out: Path | None,
    formats: tuple[str, ...],
    style_name: str,
    views: str,
    names: str | None,
    overlay: bool,
    apart: bool,
    machine: str | None,
) -> None:
    """Draw bandwidth, latency, speed-up or share of the bound against message size, a panel for each topology.

    RUN is a run file or the folder that holds it.  Prints the path of each figure.  What is predicted for a system is
    laid over what was measured on as many GPUs, where only one such prediction is given.

    Of runs of scale, overlap, jitter, styles and explain, and of narrow wires, the pictures are those that the command
    drew; of the second run given their names end in -2.
    """
    from collbench.figures.kinds import lacking
    from collbench.runs import file  # not above: --help needs none of it

    wanted = _wanted(style_name, views, machine)._replace(overlay=overlay, apart=apart)
    folder = out or (runs[0] if runs[0].is_dir() else runs[0].parent)
    read = [file.read(path) for path in runs]
    wanted = wanted._replace(implementations=_implementations(names, read) if names else ())
    reasons: list[str] = []
    figures = _draw(read, folder, tuple(dict.fromkeys(formats)), wanted, reasons)
    if not figures:
        raise UsageError(f"nothing to plot: {'; '.join(reasons) or lacking(read)}")
    for reason in reasons:
        click.echo(reason, err=True)
    for figure in figures:
        click.echo(figure)


def _wanted(style_name: str, views: str, machine: str | None) -> "Wanted":
    """What to draw; UsageError for a style, a view or a system that there is not."""
    from collbench.figures.kinds import Wanted
    from collbench.figures.styles import STYLES
    from collbench.figures.views import chosen
    from collbench.topology.files import load

    if style_name not in STYLES:
        raise unknown("--style", style_name, STYLES)
    quantities = chosen(name.strip() for name in views.split(","))
    if machine:
        load(machine)
    return Wanted([quantity.name for quantity in quantities], STYLES[style_name], machine=machine)


def _draw(
    runs: "Sequence[Run]", folder: Path, formats: Sequence[str], wanted: "Wanted", reasons: list[str]
) -> list[Path]:
    """All that can be drawn of them, and why the rest cannot."""
    from collbench.figures.kinds import draw

    try:
        return draw(runs, folder, formats, wanted, reasons.append)
    except OSError as error:
        what = f"cannot write figures to {folder}: {error.strerror}"
        raise UsageError(f"{what}; choose another folder with --out") from error


def _implementations(names: str, runs: "Sequence[Run]") -> Collection[str]:
    """Those of the runs that are meant; UsageError, listing what there is, for one that is not in them."""
    from collbench.implementations import find

    there = list(dict.fromkeys(result.implementation for run in runs for result in run.results))
    groups = {
        "library": [name for name in there if (way := find(name)) and way.library],
        "ladder": [name for name in there if (way := find(name)) and not way.library],
    }
    chosen: list[str] = []
    for word in (word.strip() for word in names.split(",")):
        meant = [*groups.get(word, ()), *([word] if word in there else ())]  # a style may be called as a group is
        if not meant:
            choices = dict.fromkeys([*groups, *there])
            raise UsageError(f"no result of {word!r} in these runs; choose from: {', '.join(choices)}")
        chosen += meant
    return chosen
