"""Draw run files: bandwidth, time, speed-up, share of the bound against message size; or steps, training, timelines.

For example:
  collbench plot results/runs/...
  collbench plot run-a run-b -o both.png
  collbench plot run-a run-b --view all --format svg
"""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Any

import click

from collbench.algorithms import find
from collbench.cli.options import RUNS, options_of, out_option
from collbench.errors import UsageError, unknown
from collbench.requests.declared import NAMES, Opt, Request, takes
from collbench.requests.sweeps import split_names
from collbench.requests.words import Names, OfMachine, RunOrPath, runs_of
from collbench.runfile.store import Run, cut_off_notes
from collbench.topology.files import load


@dataclass(frozen=True)
class DrawRequest(Request):
    """Runs, and the figures to draw."""

    runs: Annotated[RunOrPath | Sequence[RunOrPath], Opt("", "A run or several, or their paths.")]
    out: Annotated[
        Path | str, Opt("", "Folder for the figures, or a file for a single one, ending in .png, .svg or .pdf.")
    ]
    _: KW_ONLY
    formats: Annotated[
        Sequence[str],
        Opt("--format", "png, svg or pdf, or several.", "by the file's name, else png", metavar="png|svg|pdf"),
    ] = ()
    style: Annotated[str, Opt("--style", "Medium of the figures.", choices=("screen", "paper"))] = "screen"
    views: Annotated[
        Names,
        Opt(
            "--view",
            "Quantity on the y axis: bandwidth, latency, ratio (the library's time over this row's), or bound (share "
            "of the line rate's bound).",
            "bandwidth; in a folder also latency",
            unit=NAMES,
        ),
    ] = ""
    impl: Annotated[
        Names, Opt("--impl", "Only these implementations.", "all in the runs", "NAME[,NAME]|library|ladder", NAMES)
    ] = ""
    lines: Annotated[
        int | str | None,
        Opt(
            "--lines",
            "Number of coloured lines: libraries first, then lines that are fastest somewhere; the others are grey.",
            metavar="N|all",
            library='Number of coloured lines; "all" or None for all.',
        ),
    ] = 7
    overlay: Annotated[bool, Opt("--overlay", "Draw all topologies in one panel, a colour for each.")] = False
    on: Annotated[str | None, OfMachine("Machine of the measured runs, for the view bound.", "as in each run file")] = (
        None
    )
    say: Annotated[
        Callable[[str], object],
        Opt("", "Called with a line for every figure left out, and for every run that was cut off."),
    ] = lambda reason: None


_OPTIONS = [
    RUNS,
    out_option(
        "Folder for the figures, or a file for a single one: NAME.png, NAME.svg, NAME.pdf.  [default: folder of the "
        "run; ./figures for several]",
        "FOLDER|FILE",
    ),
    *options_of(DrawRequest),
]


@click.command(params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, **options: Any) -> None:
    """Draw bandwidth, latency, speed-up or share of the bound against message size, a panel for each topology.

    RUN is a run file or its folder.  Prints the path of each figure.  A single prediction is drawn over measurements on
    the same number of GPUs.  With one topology, the speed-up over the library is drawn next to the bandwidth, unless
    --view also asks for it.

    Runs of step, explain and narrow wires give the same figures as their commands; names of the second run's figures
    end in -2.
    """
    if not out:
        alone = runs[0] if runs[0].is_dir() else runs[0].parent
        out = Path("figures") if len(runs) > 1 else alone  # a run's folder has pictures of this run alone
    for figure in plot(runs, out, **options, say=lambda reason: click.echo(reason, err=True)):
        click.echo(figure)


@takes(DrawRequest)
def plot(request: DrawRequest) -> list[Path]:
    """Draw a run, or several, into a folder or a file.

    Returns:
        The paths of the figures.

    Raises:
        UsageError: Something does not exist, nothing can be drawn, there are several figures for one file, or the
            file or folder cannot be written.

    >>> import collbench, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> [path.name for path in collbench.plot("results/cpu-2-ranks", folder, views="latency")]
    ['latency.png']

    """
    from collbench.plots.kinds import PlotRequest, draw, draw_file, lacking  # Matplotlib takes long to import
    from collbench.plots.views import named
    from collbench.present.figures import FORMATS, STYLES

    out, lines = request.out, request.lines
    shown = runs_of(request.runs)
    if lines not in (None, "all") and not (str(lines).isdecimal() and len(str(lines)) < 7):
        raise UsageError(f"--lines {lines!r} is no number of lines; give 0 or more, or all")
    path, formats = Path(out), tuple(dict.fromkeys(request.formats))
    if wrong := {*formats} - {*FORMATS}:
        raise unknown("--format", min(wrong), FORMATS)
    ending = path.suffix[1:]
    is_file = ending in FORMATS and not path.is_dir()
    # A folder may be called run-1.5, but x.jpg is meant as a file.
    if guess_type(path.name)[0] and not (is_file or path.is_dir()):
        raise UsageError(f"--out {out} ends in .{ending}; figures are .{', .'.join(FORMATS)}")
    if is_file and {*formats} - {ending}:
        raise UsageError(f"--format {', '.join(formats)}: --out {out} takes {ending}; leave --format out")
    usual = ("bandwidth",) if is_file else ("bandwidth", "latency")
    if request.on:
        load(request.on)  # UsageError for an unknown system
    figures = PlotRequest(
        named(split_names(request.views) or usual),
        STYLES[request.style],
        machine=request.on,
        overlay=request.overlay,
        coloured=sys.maxsize if lines in (None, "all") else int(lines or 0),
        implementations=_shown_implementations(split_names(request.impl), shown),
    )
    reasons: list[str] = []
    try:
        if is_file:
            drawn = draw_file(shown, path, figures, reasons.append)
        else:
            drawn = draw(shown, path, formats or ("png",), figures, reasons.append)
    except OSError as error:
        what = f"cannot write figures to {out}: {error.strerror}"
        raise UsageError(f"{what}; choose another folder with --out") from error
    if not drawn:
        raise UsageError(f"nothing to plot: {'; '.join(reasons) or lacking(shown)}")
    for reason in (*reasons, *cut_off_notes(shown)):
        request.say(reason)
    return drawn


def _shown_implementations(names: Sequence[str], runs: Sequence[Run]) -> Collection[str]:
    # Implementations by choice of --impl: names in the runs, and groups.  A run may use the name of a group.
    chosen: dict[str, list[str]] = {"library": [], "ladder": []}
    for name in dict.fromkeys(result.implementation for run in runs for result in run.results):
        chosen.setdefault(name, []).append(name)
        if implementation := find(name):
            chosen["library" if implementation.library else "ladder"].append(name)
    shown: list[str] = []
    for name in names:
        if not chosen.get(name):
            raise UsageError(f"no result of {name!r} in these runs; choose from: {', '.join(chosen)}")
        shown += chosen[name]
    return shown
