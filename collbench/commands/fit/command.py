"""Fit measured curves: latency, bandwidth and crossovers with intervals, and a calibration for `--on FILE.toml`.

For example:
  collbench fit results/runs/...
  collbench fit run.jsonl --on dgx-h100 --nodes 2 --out machine.toml
"""

from dataclasses import dataclass
from pathlib import Path

import click

from collbench.analysis.calibration import write_calibration
from collbench.analysis.fit import Fits
from collbench.cli.options import RUNS, STANDARD, json_option, options_of, out_option, write_json
from collbench.errors import UsageError
from collbench.requests.declared import Request
from collbench.requests.words import RunsMachine, RunsNodes
from collbench.runfile.store import cut_off_notes, read


@dataclass(frozen=True)
class FitRequest(Request):
    """The machine of the runs."""

    on: RunsMachine = None
    nodes: RunsNodes = None


_OPTIONS = [
    RUNS,
    out_option("Write a calibration there.", "FILE.toml"),
    *options_of(FitRequest),
    json_option("everything known of the fits"),
]


@click.command("fit", params=_OPTIONS)
def command(runs: tuple[Path, ...], out: Path | None, on: str | None, nodes: int | None, as_json: Path | None) -> int:
    """Fit T = a + g*sqrt(S) + b*S, or pieces of a + b*S, to each curve of the runs, which are of one machine.

    RUN is a run file or the folder that holds it.  With --out, the model of the machine is fitted to all curves
    together, and the file works as `--on FILE.toml`.
    """
    measured_runs = [read(path) for path in runs]
    if (on or nodes) and not out:
        option_name = "--on" if on else "--nodes"
        raise UsageError(f"{option_name} says what a calibration is for; give --out FILE.toml as well")

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
