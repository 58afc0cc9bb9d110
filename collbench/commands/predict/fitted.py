"""`collbench predict --fit`: latency, bandwidth and crossovers of measured curves, and a calibration of the model."""

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


FIT = option("--fit", "Fit a measured run; several times for several.", type=PATH, multiple=True, metavar="RUN")
OPTIONS = [FIT, *options_of(FitRequest, "on")]


def show_fits(runs: Sequence[Path], out: Path | None, on: str | None, nodes: int | None, as_json: Path | None) -> int:
    """Fit T = a + g*sqrt(S) + b*S, or pieces of a + b*S, to each curve of the runs, which are of one machine.

    With `out`, the model of the machine is fitted to all curves together, and written there.
    """
    measured_runs = [read(path) for path in runs]
    if (on or nodes) and not out:
        option_name = "--on" if on else "--nodes"
        raise UsageError(f"{option_name} belongs to a calibration; give --out FILE.toml as well")

    # The calibration comes first: what speaks against it is known at once, and fits take a while.
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


@click.command("fit", params=[RUNS, _OUT, *options_of(FitRequest), json_option("everything known of the fits")])
def fit(runs: tuple[Path, ...], **options: Any) -> int:
    """Fit curves as `collbench predict --fit RUN` does, which is its name now."""
    return show_fits(runs, **options)
