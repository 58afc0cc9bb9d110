"""Fit measured curves: latency, bandwidth and crossovers with intervals, and a calibration for `--on FILE.toml`.

For example:
  collbench fit results/runs/...
  collbench fit run.jsonl --on dgx-h100 --nodes 2 --out machine.toml
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from collbench.algorithms import libraries
from collbench.analysis.fit import HEADING, Change, Curve, all_crossings, columns, curves, fields, held_in_words, write
from collbench.cases import Case
from collbench.cli.options import NODES, PATH, RUNS, STANDARD, JsonCommand, Renamed, into, json_option, machine_option
from collbench.cli.tables import grid
from collbench.errors import UsageError
from collbench.runfile.store import Run, cut_off_notes, read, why_none
from collbench.units import format_size, parse_size

LEGEND = (
    "T = a + g*sqrt(S) + b*S; latency: a; rate: GB/s that algbw tends to, 1/b; half at: size with half of it;\n"
    "bend: from there a byte takes longer (a cache ends); off: median distance of the measured times from the curve"
)


@click.command("fit", cls=JsonCommand)
@RUNS
@click.option("--held-back", metavar="SIZE[,SIZE]", help="Fit without these sizes, and say where they should be.")
@click.option("-o", "--out", cls=Renamed, type=PATH, metavar="FILE.toml", help="Write a calibration there.")
@machine_option("as discovered")
@NODES
@json_option("everything known of the fits")
def command(
    runs: tuple[Path, ...],
    held_back: str | None,
    out: Path | None,
    on: str | None,
    nodes: int | None,
    as_json: Path | None,
) -> int:
    """Fit T = a + g*sqrt(S) + b*S to each curve of the runs, which are of one machine.

    RUN is a run file or the folder that holds it.  With --out, the model of the machine is fitted to all curves
    together, and the file works as `--on FILE.toml`.
    """
    fitted = [read(path) for path in runs]
    calibration = _calibrate(out, fitted, on, nodes)
    fits = curves(fitted, _sizes(held_back))
    _refuse(fits, fitted, held_back)
    changes = all_crossings(fits, fitted, libraries())
    for note in cut_off_notes(fitted):
        click.echo(f"note: {note}", err=True)
    if as_json:
        record = {"curves": [fields(curve) for curve in fits], "crossings": [change.fields() for change in changes]}
        with into(as_json):
            click.echo(json.dumps(record, indent=2))
    if as_json != STANDARD:
        _print(fits, changes)
    if calibration:
        click.echo(f"calibration: {calibration}", err=as_json == STANDARD)
    return 0


def _calibrate(out: Path | None, runs: Sequence[Run], on: str | None, nodes: int | None) -> Path | None:
    """Write the calibration that is requested: first, since what speaks against it is known at once."""
    if out:
        return write(out, runs, on, nodes)
    if on or nodes:
        raise UsageError(f"{'--on' if on else '--nodes'} says what a calibration is for; give --out FILE.toml as well")
    return None


def _sizes(text: str | None) -> list[int]:
    return [parse_size(word) for word in text.split(",")] if text else []


def _refuse(curves: Sequence[Curve], runs: Sequence[Run], held_back: str | None) -> None:
    if not curves:
        raise UsageError(f"nothing to fit: {why_none(runs)}")
    names = ", ".join(str(run.path) for run in runs)
    missing = [size for size in _sizes(held_back) if not any(size in curve.samples for curve in curves)]
    if missing:
        sizes = sorted({size for curve in curves for size in curve.samples})
        raise UsageError(
            f"--held-back {missing[0]}: no such size in {names}; choose from: {', '.join(map(str, sizes))}"
        )
    if not any(curve.fit for curve in curves):
        reasons = dict.fromkeys(f"{curve.implementation}: {curve.reason}" for curve in curves)
        raise UsageError(f"no curve in {names} can be fitted; {'; '.join(reasons)}")


def _print(curves: Sequence[Curve], changes: Sequence[Change]) -> None:
    cases: dict[Case, tuple[list[Curve], list[Change]]] = {curve.case: ([], []) for curve in curves}
    for curve in curves:
        cases[curve.case][0].append(curve)
    for change in changes:
        cases[change.case][1].append(change)
    for case, (of_case, crossed) in cases.items():
        click.echo(case.title)
        _table(of_case)
        for curve in of_case:
            for warning in curve.warnings():
                click.echo(f"  {curve.implementation}: {warning}")
            for held in curve.held:
                click.echo(f"  {held_in_words(curve, held)}")
        for change in crossed:
            click.echo(f"  {change}")
        _totals(of_case)
        click.echo()
    click.echo(LEGEND)


def _table(curves: Sequence[Curve]) -> None:
    """Print a row for each curve; one without a fit says why."""
    lines = grid([HEADING, *(columns(curve) for curve in curves if curve.fit)])
    width = max(len(curve.implementation) for curve in curves)
    lines += [f"{curve.implementation:<{width}}  not fitted: {curve.reason}" for curve in curves if not curve.fit]
    for line in lines:
        click.echo(line)


def _totals(curves: Sequence[Curve]) -> None:
    """Print how often intervals were right, and how far they reach."""
    held = [size for curve in curves for size in curve.held]
    if held:
        click.echo(f"  held back: {sum(size.covered for size in held)} of {len(held)} covered")
    last = max((float(curve.fit.sizes[-1]) for curve in curves if curve.fit), default=0.0)
    if last:
        click.echo(f"  beyond {format_size(last)}, the largest size fitted, these curves are extrapolations")
