"""Draw run files: bandwidth and time against message size, or timelines of explanations."""

from pathlib import Path

import click

from collbench.errors import UsageError


@click.command("plot")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where to write the figures.  [default: the folder of the first run]",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["png", "svg", "pdf"]),
    multiple=True,
    default=["png"],
    show_default=True,
    help="File format; may be given several times.",
)
@click.option("--apart", is_flag=True, help="Give predictions panels of their own.")
def command(runs: tuple[Path, ...], out: Path | None, formats: tuple[str, ...], apart: bool) -> None:
    """Draw bandwidth and latency against message size, a panel for each topology.

    RUN is a run file or the folder that holds it.  Prints the path of each figure.  What is predicted for a system is
    laid over what was measured on as many GPUs, where only one such prediction is given.
    """
    from collbench import plots, store, timeline  # not above: Matplotlib takes a while, and --help needs none of it
    from collbench.measurement import Explanation

    folder = out or (runs[0] if runs[0].is_dir() else runs[0].parent)
    found = [store.read(path) for path in runs]
    try:
        written = plots.draw(found, folder, tuple(dict.fromkeys(formats)), apart)
        explained = [each for run in found for each in run.results if isinstance(each, Explanation)]
        written += timeline.draw(explained, folder, tuple(dict.fromkeys(formats)))
    except OSError as error:
        what = f"cannot write figures to {folder}: {error.strerror}"
        raise UsageError(f"{what}; choose another folder with --out") from error
    if not written:
        names = ", ".join(map(str, runs))
        raise UsageError(f"nothing to plot: no measurement in {names} was right; its other rows say why")
    for figure in written:
        click.echo(figure)
