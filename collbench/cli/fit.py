"""Fit measured curves: latency, bandwidth and crossovers with intervals, and a calibration for `--on FILE.toml`.

For example:
  collbench fit results/runs/...
  collbench fit run.jsonl --on dgx-h100 --nodes 2 --out machine.toml
"""

from collections.abc import Sequence
from pathlib import Path

import click

from collbench.algorithms import libraries
from collbench.analysis.fit import (
    HEADING,
    Change,
    Curve,
    all_crossings,
    columns,
    curves,
    fields,
    held_in_words,
    pieces_in_words,
    write,
)
from collbench.cli.options import (
    NODES,
    RUNS,
    STANDARD,
    json_option,
    machine_option,
    option,
    out_option,
    write_json,
)
from collbench.cli.tables import grid
from collbench.errors import UsageError
from collbench.runfile.store import Run, cut_off_notes, read, why_none
from collbench.units import format_size, parse_size

LEGEND = (
    "T = a + g*sqrt(S) + b*S; latency: a; rate: GB/s, 1/b; half at: size with half the rate;\n"
    "bend: from here on a byte takes longer (a cache ends); off: median residual"
)

_OPTIONS = [
    RUNS,
    option("--held-back", "Leave these sizes out, and predict them.", metavar="SIZE[,SIZE]"),
    out_option("Write a calibration there.", "FILE.toml"),
    machine_option("as discovered"),
    NODES,
    json_option("everything known of the fits"),
]


@click.command("fit", params=_OPTIONS)
def command(
    runs: tuple[Path, ...],
    held_back: str | None,
    out: Path | None,
    on: str | None,
    nodes: int | None,
    as_json: Path | None,
) -> int:
    """Fit T = a + g*sqrt(S) + b*S, or pieces of a + b*S, to each curve of the runs, which are of one machine.

    RUN is a run file or the folder that holds it.  With --out, the model of the machine is fitted to all curves
    together, and the file works as `--on FILE.toml`.
    """
    fitted = [read(path) for path in runs]
    if (on or nodes) and not out:
        what = "--on" if on else "--nodes"
        raise UsageError(f"{what} says what a calibration is for; give --out FILE.toml as well")
    # First, since what speaks against it is known at once.
    calibration = write(out, fitted, on, nodes) if out else None
    sizes = [parse_size(word) for word in held_back.split(",")] if held_back else []
    fits = curves(fitted, sizes)
    _refuse(fits, fitted, sizes)
    changes = all_crossings(fits, fitted, libraries())
    for note in cut_off_notes(fitted):
        click.echo(f"note: {note}", err=True)
    record = {"curves": [fields(curve) for curve in fits], "crossings": [change.fields() for change in changes]}
    write_json(as_json, record)
    if as_json != STANDARD:
        _print(fits, changes)
    if calibration:
        click.echo(f"calibration: {calibration}", err=as_json == STANDARD)
    return 0


def _refuse(curves: Sequence[Curve], runs: Sequence[Run], sizes: Sequence[int]) -> None:
    if not curves:
        raise UsageError(f"nothing to fit: {why_none(runs)}")
    names = ", ".join(str(run.path) for run in runs)
    missing = [size for size in sizes if not any(size in curve.samples for curve in curves)]
    if missing:
        there = sorted({size for curve in curves for size in curve.samples})
        choices = ", ".join(map(str, there))
        raise UsageError(f"--held-back {missing[0]}: no such size in {names}; choose from: {choices}")
    if not any(curve.fit for curve in curves):
        reasons = dict.fromkeys(f"{curve.implementation}: {curve.reason}" for curve in curves)
        raise UsageError(f"no curve in {names} can be fitted; {'; '.join(reasons)}")


def _print(curves: Sequence[Curve], changes: Sequence[Change]) -> None:
    for case in dict.fromkeys(curve.case for curve in curves):
        of_case = [curve for curve in curves if curve.case == case]
        table = grid([HEADING, *(columns(curve) for curve in of_case if curve.fit)], first_out=(6, 4, 2, 7, 8, 5))
        click.echo("\n".join([case.title, *table]))
        width = max(len(curve.implementation) for curve in of_case)
        for curve in of_case:
            if not curve.fit:
                click.echo(f"{curve.implementation:<{width}}  not fitted: {curve.reason}")
        for curve in of_case:
            warnings = (f"{curve.implementation}: {warning}" for warning in curve.warnings())
            for line in (*pieces_in_words(curve), *warnings, *(held_in_words(curve, held) for held in curve.held)):
                click.echo(f"  {line}")
        for change in changes:
            if change.case == case:
                click.echo(f"  {change}")
        if held := [size.covered for curve in of_case for size in curve.held]:
            click.echo(f"  held back: {sum(held)} of {len(held)} covered")
        if last := max((float(curve.fit.sizes[-1]) for curve in of_case if curve.fit), default=0.0):
            click.echo(f"  beyond {format_size(last)}: extrapolated")
        click.echo()
    click.echo(LEGEND)
