"""`collbench predict --fit`: latency, bandwidth and crossovers of measured curves, and a calibration of the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from collbench.algorithms import is_path, libraries
from collbench.analysis.crossover import contests
from collbench.analysis.curve_fit import CONFIDENCE, ERRORS, PIECE, Crossing, crossings
from collbench.analysis.fit import COLUMNS, FittedCurve, curves, measured, pieces_in_words
from collbench.analysis.machine import machine, sized
from collbench.cases import Case
from collbench.cli.options import PATH, RUNS, STANDARD, json_option, option, options_of, out_option, write_json
from collbench.errors import UsageError, write_file
from collbench.model import nccl_terms
from collbench.model.equation import Calibration, Terms, calibrate
from collbench.present.terminal import lines
from collbench.requests.declared import Request
from collbench.requests.words import RunsMachine, RunsNodes
from collbench.results import by_key, family
from collbench.runfile.store import Run, cut_off_notes, read, why_none
from collbench.topology.files import to_toml
from collbench.topology.system import System
from collbench.units import format_size

LEGEND = (
    "T = a + g*sqrt(S) + b*S; latency: a; rate: GB/s, 1/b; half at: size with half the rate;\n"
    "bend: from here on a byte takes longer (a cache ends); off: median residual"
)

FEWEST = 4  # sizes of the library
LIBRARY = "nccl"  # whose times the model's equation describes


@dataclass(frozen=True)
class FitRequest(Request):
    """The machine of the runs."""

    on: RunsMachine = None
    nodes: RunsNodes = None


FIT = option(
    "--fit", "Fit a measured run of one machine; may be given several times.", type=PATH, multiple=True, metavar="RUN"
)
OPTIONS = [FIT, *options_of(FitRequest, "on")]


def show_fits(runs: Sequence[Path], out: Path | None, on: str | None, nodes: int | None, as_json: Path | None) -> int:
    """Fit T = a + g*sqrt(S) + b*S, or pieces of a + b*S, to each curve of the runs, which are of one machine.

    With `out`, the model of the machine is fitted to all curves together, and written there.
    """
    measured_runs = [read(path) for path in runs]
    if (on or nodes) and not out:
        option_name = "--on" if on else "--nodes"
        raise UsageError(f"{option_name} says what a calibration is for; give --out FILE.toml as well")

    # The calibration comes first: what speaks against it is known at once, and fits take a while.
    written = write_calibration(out, measured_runs, on, nodes) if out else None
    fits = curves(measured_runs)
    _refuse(fits, measured_runs)
    changes = _all_crossings(fits, measured_runs, libraries())
    for note in cut_off_notes(measured_runs):
        click.echo(f"note: {note}", err=True)
    record = {"curves": [_fields(curve) for curve in fits], "crossings": [change.fields() for change in changes]}
    write_json(as_json, record)
    if as_json != STANDARD:
        _print(fits, changes)
    if written:
        click.echo(f"calibration: {written}", err=as_json == STANDARD)
    return 0


_EARLIER = [
    RUNS,
    out_option("Write a calibration there.", "FILE.toml"),
    *options_of(FitRequest),
    json_option("all fits"),
]


@click.command("fit", params=_EARLIER)
def fit(runs: tuple[Path, ...], **options: Any) -> int:
    """Fit curves as `collbench predict --fit RUN` does, which is its name now."""
    return show_fits(runs, **options)


@dataclass(frozen=True)
class Change:
    """Where the faster of two implementations changes by their fits, and where the measured times themselves cross."""

    case: Case
    library: str
    challenger: str
    crossing: Crossing
    measured: tuple[tuple[int, int], ...]  # bytes between which the measured times themselves show it

    def __str__(self) -> str:
        nbytes, low, high = map(format_size, self.crossing.nbytes)
        sizes = f"between {low} and {high}" if self.crossing.sure else f"near {nbytes}, if at all"
        seen = ", ".join(f"{format_size(before)} to {format_size(after)}" for before, after in self.measured)
        return f"{self.challenger} and {self.library} cross {sizes} (measured: {seen or 'nowhere'})"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`, in bytes."""
        names = {"library": self.library, "challenger": self.challenger, "ranks": self.case.ranks}
        size = self.crossing.nbytes.fields("nbytes")
        return names | size | {"sure": self.crossing.sure, "measured": list(self.measured)}


def _all_crossings(fitted_curves: Sequence[FittedCurve], runs: Sequence[Run], libraries: Sequence[str]) -> list[Change]:
    """Return the crossings of every library with every hand-written implementation, where both have a fit."""
    fits = {(curve.case, curve.implementation): curve.fit for curve in fitted_curves}
    changes = []
    for contest in contests(measured(runs), libraries):
        case, names = contest.case.kind, (contest.library, contest.challenger)
        library, challenger = (fits.get((case, name)) for name in names)
        for crossing in crossings(library, challenger) if library and challenger else ():
            changes.append(Change(case, *names, crossing, tuple(contest.crossovers)))
    return changes


def _refuse(curves: Sequence[FittedCurve], runs: Sequence[Run]) -> None:
    if not curves:
        raise UsageError(f"nothing to fit: {why_none(runs)}")
    names = ", ".join(str(run.path) for run in runs)
    if not any(curve.fit for curve in curves):
        reasons = dict.fromkeys(f"{curve.implementation}: {curve.reason}" for curve in curves)
        raise UsageError(f"no curve in {names} can be fitted; {'; '.join(reasons)}")


def _unfit(curve: FittedCurve) -> str:
    return "" if curve.fit else f"not fitted: {curve.reason}"


def _print(curves: Sequence[FittedCurve], changes: Sequence[Change]) -> None:
    for case in dict.fromkeys(curve.case for curve in curves):
        of_case = [curve for curve in curves if curve.case == case]
        fitted_first = sorted(of_case, key=lambda curve: curve.fit is None)
        click.echo("\n".join([case.title, *lines(COLUMNS, fitted_first, _unfit, names=1)]))
        for curve in of_case:
            warnings = (f"{curve.implementation}: {warning}" for warning in curve.warnings())
            for line in (*pieces_in_words(curve), *warnings):
                click.echo(f"  {line}")
        for change in changes:
            if change.case == case:
                click.echo(f"  {change}")
        if last := max((float(curve.fit.sizes[-1]) for curve in of_case if curve.fit), default=0.0):
            click.echo(f"  beyond {format_size(last)}: extrapolated")
        click.echo()
    click.echo(LEGEND)


def _fields(curve: FittedCurve) -> dict[str, Any]:
    """Return a curve for `--json`: seconds, bytes, bytes per second; null stands for infinite."""
    names = {"collective": curve.case.collective.name, "dtype": curve.case.dtype.name, "ranks": curve.case.ranks}
    names |= {"in_place": curve.case.in_place, "implementation": curve.implementation}
    if not curve.fit:
        return names | {"reason": curve.reason}
    fitted = curve.fit
    return names | {
        "coefficients": None if fitted.pieces else fitted.coefficients.tolist(),
        "bend": None if fitted.pieces else next(iter(fitted.bends), None),
        "pieces": [dict(zip(PIECE, map(_finite, piece), strict=True)) for piece in fitted.pieces],
        "why_pieces": fitted.why_pieces,
        "latency": fitted.latency,
        "rate": _finite(fitted.rate),
        "half_size": _finite(fitted.half_size),
        "intervals": {name: list(map(_finite, estimate.interval)) for name, estimate in fitted.estimates.items()},
        "confidence": CONFIDENCE,
        "sizes": fitted.sizes.tolist(),
        "errors": dict(zip(ERRORS, fitted.errors, strict=True)),
        "residuals": fitted.residuals.tolist(),
        "residuals_left_out": fitted.left_out.tolist(),
        "warnings": list(curve.warnings()),
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def calibration(runs: Sequence[Run], name: str | None, nodes: int | None = None) -> tuple[System, Calibration]:
    """Return the machine of runs, and the factors of the model calibrated to it.

    It is named, or else as the first run's header says; each number of ranks is spread over so many nodes, or else over
    as few as they fill.  UsageError if the machine is not known, or there are too few sizes of the library.
    """
    rows = [row for row in measured(runs) if family(row.implementation) == LIBRARY and not is_path(row.implementation)]
    system = machine(runs[0], name)
    sizes = {row.case.nbytes for row in rows}
    if len(sizes) < FEWEST:
        raise UsageError(
            f"a calibration needs {FEWEST} sizes or more of `{LIBRARY}`, and the runs have {len(sizes)}; "
            f"measure them with `collbench sweep --impl {LIBRARY}`"
        )

    # Each curve with the terms that the model without any calibration expects of it.
    plain = replace(system, calibration="")
    curves: list[tuple[Terms, list[tuple[float, float]]]] = []
    for (collective, ranks), of_curve in by_key(rows, lambda row: (row.case.collective.name, row.case.ranks)).items():
        times = [(max(1.0, float(row.case.nbytes)), row.typical) for row in of_curve]
        curves.append((nccl_terms.terms(sized(plain, ranks, nodes), collective), times))

    # As many whole nodes as were measured, or the system as it is described if that is enough.
    most = max(row.case.ranks for row in rows)
    if nodes:
        plain = plain.of(nodes)
    elif most > plain.ranks:
        plain = sized(plain, most)
    return plain, calibrate(curves)


def write_calibration(path: Path, runs: Sequence[Run], name: str | None, nodes: int | None = None) -> Path:
    """Calibrate, and write_calibration the system with its factors; UsageError if it cannot be written."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a calibration's name must end in .toml, for `--on FILE.toml` to take it")
    system, factors = calibration(runs, name, nodes)
    ratios = [(nbytes, round(ratio, 4)) for nbytes, ratio in factors.ratios]
    rounded = {name: round(value, 4) for name, value in asdict(factors).items() if name != "ratios"}
    text = to_toml(system, rounded | {"ratios": ratios})
    write_file(path, text, "-o")
    return path
