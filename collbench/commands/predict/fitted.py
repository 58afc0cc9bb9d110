"""`collbench predict --fit`: fits of measured curves, and a calibration of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from collbench.analysis.calibration import write_calibration
from collbench.analysis.fit import Fits
from collbench.cli.options import PATH, RUNS, STANDARD, json_option, option, options_of, out_option, write_json
from collbench.errors import UsageError
from collbench.requests.declared import Request
from collbench.requests.words import RunsMachine, RunsNodes
from collbench.runfile.store import cut_off_notes, read


@dataclass(frozen=True)
class FitRequest(Request):
    """The machine of the runs."""

    on: RunsMachine = None
    nodes: RunsNodes = None


FIT = option("--fit", "Measured run to fit; may be given several times.", type=PATH, multiple=True, metavar="RUN")
OPTIONS = [FIT, *options_of(FitRequest, "on")]


def show_fits(runs: Sequence[Path], out: Path | None, on: str | None, nodes: int | None, as_json: Path | None) -> int:
    """Fit T = a + g*sqrt(S) + b*S, or piecewise a + b*S, to each curve of the runs of one machine.

    With `out`, also fit the model of the machine to all curves together, and write it there.
    """
    measured_runs = [read(path) for path in runs]
    if (on or nodes) and not out:
        option_name = "--on" if on else "--nodes"
        raise UsageError(f"{option_name} names the machine of a calibration; give --out FILE.toml as well")

    # The calibration comes first, so that its errors appear before the slow fits.
    written = write_calibration(out, measured_runs, on, nodes) if out else None
    fits = Fits.of(measured_runs)
    for note in cut_off_notes(measured_runs):
        click.echo(f"note: {note}", err=True)
    write_json(as_json, fits.fields())
    if as_json != STANDARD:
        click.echo("\n".join(fits.lines()))
    if written:
        click.echo(f"calibration: {written}", err=as_json == STANDARD)
    return 0


_OUT = out_option("Write a calibration there.", "FILE.toml")


@click.command("fit", params=[RUNS, _OUT, *options_of(FitRequest), json_option("all figures of the fits")])
def fit(runs: tuple[Path, ...], **options: Any) -> int:
    """Fit curves; now named `collbench predict --fit RUN`."""
    return show_fits(runs, **options)
