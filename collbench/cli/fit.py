"""Fit measured curves: latency, bandwidth and crossovers with intervals, and a calibration for `--on FILE.toml`.

For example:
  collbench fit results/runs/...
  collbench fit run.jsonl --as dgx-h100 --nodes 2 --out machine.toml
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._json import STANDARD, JsonCommand, into, json_option
from collbench.cli._paths import PATH, RUNS, Where
from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.analysis.fit import Change, Curve
    from collbench.cases import Case
    from collbench.runfile.store import Run

LEGEND = (
    "T = a + g*sqrt(S) + b*S; latency: a; rate: GB/s that algbw tends to, 1/b; half at: size with half of it;\n"
    "bend: from there a byte takes longer (a cache ends); off: median distance of the measured times from the curve"
)


@click.command("fit", cls=JsonCommand)
@RUNS
@click.option("--held-back", metavar="SIZE[,SIZE]", help="Fit without these sizes, and say where they should be.")
@click.option("-o", "--out", cls=Where, type=PATH, metavar="FILE.toml", help="Write a calibration there.")
@click.option("--as", "system", metavar="SYSTEM|FILE.toml", help="What the machine is.  [default: as discovered]")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Nodes that ranks are spread over.  [default: as few as they fill]",
)
@json_option("everything known of the fits")
def command(
    runs: tuple[Path, ...],
    held_back: str | None,
    out: Path | None,
    system: str | None,
    nodes: int | None,
    as_json: Path | None,
) -> int:
    """Fit T = a + g*sqrt(S) + b*S to each curve of the runs, which are of one machine.

    RUN is a run file or the folder that holds it.  With -o, the model of the machine is fitted to all curves together,
    and the file works as `--on FILE.toml` and `--as FILE.toml`.
    """
    from collbench.algorithms import libraries
    from collbench.analysis.fit import all_crossings, curves, fields
    from collbench.runfile.store import cut_off_notes, read

    fitted = [read(path) for path in runs]
    calibration = _calibrate(out, fitted, system, nodes)
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


def _calibrate(out: Path | None, runs: "Sequence[Run]", system: str | None, nodes: int | None) -> Path | None:
    """Write the calibration that is asked for: first, since what speaks against it is known at once."""
    from collbench.analysis.fit import write

    if not out and (given := "--as" if system else "--nodes" if nodes else ""):
        raise UsageError(f"{given} says what a calibration is for; give -o FILE.toml as well")
    return write(out, runs, system, nodes) if out else None


def _sizes(text: str | None) -> list[int]:
    from collbench.units import parse_size

    return [parse_size(word) for word in text.split(",")] if text else []


def _refuse(curves: "Sequence[Curve]", runs: "Sequence[Run]", held_back: str | None) -> None:
    from collbench.runfile.store import why_none

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


def _print(curves: "Sequence[Curve]", changes: "Sequence[Change]") -> None:
    from collbench.analysis.fit import held_in_words

    cases: dict[Case, tuple[list[Curve], list[Change]]] = {curve.case: ([], []) for curve in curves}
    for curve in curves:
        cases[curve.case][0].append(curve)
    for change in changes:
        cases[change.case][1].append(change)
    for case, (own, crossed) in cases.items():
        click.echo(case.title)
        _table(own)
        for curve in own:
            for warning in curve.warnings():
                click.echo(f"  {curve.implementation}: {warning}")
            for held in curve.held:
                click.echo(f"  {held_in_words(curve, held)}")
        for change in crossed:
            click.echo(f"  {change}")
        _totals(own)
        click.echo()
    click.echo(LEGEND)


def _table(own: "Sequence[Curve]") -> None:
    """Columns as wide as they must be; a curve without a fit says why."""
    from collbench.analysis.fit import HEADING, columns

    rows = [HEADING, *(columns(curve) for curve in own if curve.fit)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{word:<{width}}" for word, width in zip(row, widths, strict=True)).rstrip())
    for curve in own:
        if not curve.fit:
            click.echo(f"{curve.implementation:<{widths[0]}}  not fitted: {curve.reason}")


def _totals(own: "Sequence[Curve]") -> None:
    """How often intervals were right, and how far they reach."""
    from collbench.units import format_size

    held = [size for curve in own for size in curve.held]
    if held:
        click.echo(f"  held back: {sum(size.covered for size in held)} of {len(held)} covered")
    last = max((float(curve.fit.sizes[-1]) for curve in own if curve.fit), default=0.0)
    if last:
        click.echo(f"  beyond {format_size(last)}, the largest size fitted, these curves are extrapolations")
