"""Write a report of runs: one HTML file with curves, verdicts and all rows, which opens without a network.

For example:
  collbench report results/runs/...
  collbench report before after --out report.html
"""

from pathlib import Path

import click

from collbench.cli.options import RUNS, machine_option, out_option
from collbench.errors import CollbenchError, RunFileError, UsageError, unlinked, writing
from collbench.host.sanitize import safe_read

_OPTIONS = [
    RUNS,
    out_option("Where to write it.  [default: report.html next to the first run]"),
    machine_option("as the run files say"),
]


@click.command("report", params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, on: str | None) -> int:
    """Put runs into one HTML file: curves to look into, who wins where, verdicts, the machine, and every row.

    RUN is a run file or the folder that holds it: measured, predicted, imported or explained.  Prints the path of the
    report.  It needs no network, and nothing that a run file says can run in it.
    """
    from collbench import report
    from collbench.runfile.store import read  # not above: --help needs none of it

    shown = [read(path) for path in runs]
    place = out or shown[0].path.parent / "report.html"
    if place.is_dir():
        raise UsageError(f"{place} is a folder; give a file with --out, such as {place / 'report.html'}")
    # Reports are written over, and runs must not be.
    if any(place.exists() and place.samefile(run.path) for run in shown) or _is_run(place):
        raise UsageError(f"{place} is a run file, and stays as it is; choose another file with --out")
    if not out:
        unlinked(place, "--out")
    text = report.build(shown, on)
    with writing(place, "file with --out"):
        place.write_text(text, encoding="utf-8")
    click.echo(place)
    return 0


def _is_run(place: Path) -> bool:
    """Return whether a file begins as every run file does."""
    try:
        with safe_read(place, RunFileError) as file:
            start = file.read(200)
    except CollbenchError:
        return False
    return start.lstrip().startswith(b"{") and b'"header"' in start
