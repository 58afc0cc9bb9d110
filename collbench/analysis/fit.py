"""The measured curves of runs with a fit to each, and the model calibrated to a machine by all of them together.

A calibration is written as a file for `--on FILE.toml`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from collbench.analysis.crossover import contests
from collbench.analysis.curve_fit import CONFIDENCE, ERRORS, FEWEST, PIECE, Crossing, CurveFit, Unfit, crossings, fit
from collbench.analysis.machine import machine, sized
from collbench.cases import Case
from collbench.errors import UsageError, writing
from collbench.model import nccl_terms
from collbench.model.equation import Calibration, Terms, calibrate
from collbench.notebook import Shown
from collbench.present.columns import ALWAYS, Column
from collbench.results import Observed, Reported, by_key, family, observed
from collbench.runfile.rounds import scatter_in_words
from collbench.runfile.store import Run
from collbench.topology.files import to_toml
from collbench.topology.system import System
from collbench.units import RANGE, counted, format_rate, format_seconds, format_size

LIBRARY = "nccl"  # whose times the model's equation describes


@dataclass(frozen=True)
class Curve(Shown):
    """An implementation at a kind of case, over sizes: samples in seconds for each."""

    case: Case  # of no size
    implementation: str
    samples: Mapping[int, tuple[float, ...]]
    fit: CurveFit | None = None
    reason: str = ""  # why there is no fit
    scatter: str = ""  # how far rounds of a size are apart

    def warnings(self) -> Iterator[str]:
        """Return how far rounds are apart, and what of the fit reaches beyond what was measured."""
        if self.scatter:
            yield f"{self.scatter}: the medians are fitted"
        if not self.fit:
            return
        first, last = self.fit.sizes[0], self.fit.sizes[-1]
        least = float(self.fit.predict(first))
        if least > 2 * self.fit.latency:
            yield f"latency is extrapolated: even {format_size(first)} takes {format_seconds(least)}"
        if not last > self.fit.half_size:
            yield f"the rate is extrapolated: {format_size(last)}, the largest size, does not reach half of it"


def curves(runs: Sequence[Run]) -> list[Curve]:
    """Return every curve of the runs, fitted.

    Raises:
        UsageError: The runs are of different machines.

    """
    machines = dict.fromkeys(run.header.topology.name or "?" for run in runs)
    if len(machines) > 1:
        raise UsageError(f"the runs are of different machines ({'; '.join(machines)}); fit each by itself")
    found = []
    for (case, name), rows in by_key(measured(runs), lambda row: (row.case.kind, row.implementation)).items():
        samples: dict[int, tuple[float, ...]] = {}
        for row in rows:
            times = row.rounds if isinstance(row, Reported) and row.rounds else row.times
            samples[row.case.nbytes] = samples.get(row.case.nbytes, ()) + times
        try:
            fitted, reason = fit(list(samples), list(samples.values())), ""
        except Unfit as error:
            fitted, reason = None, str(error)
        found.append(Curve(case, name, samples, fitted, reason, scatter_in_words(rows)))
    return found


def measured(runs: Sequence[Run]) -> list[Observed]:
    """Return rows that were right and have a time; not those of 0 bytes, which other tools print for rounded sizes."""
    return [result for run in runs for result in observed(run.cases) if result.case.nbytes > 0]


def _figure(
    name: str, key: str, form: Callable[[float], str], importance: int, of_interval: int
) -> tuple[Column[Curve], ...]:
    """Return the columns of a figure of a fit, and of its interval."""
    return (
        Column(name, lambda curve: curve.fit and curve.fit.estimates[key].value, form, importance),
        Column(
            f"{CONFIDENCE:.0%}",
            lambda curve: curve.fit and curve.fit.estimates[key].interval,
            lambda ends: RANGE.join(map(form, ends)),
            of_interval,
        ),
    )


def _bend(curve: Curve) -> str:
    if not curve.fit:
        return ""
    return f"pieces: {len(curve.fit.pieces)}" if curve.fit.pieces else ", ".join(map(format_size, curve.fit.bends))


COLUMNS: tuple[Column[Curve], ...] = (
    Column("", lambda curve: curve.implementation, key="implementation"),
    *_figure("latency", "latency", format_seconds, ALWAYS, 3),
    *_figure("rate", "rate", format_rate, ALWAYS, 2),
    *_figure("half at", "half_size", format_size, 6, 1),
    Column("bend", _bend, importance=4),
    Column("off", lambda curve: curve.fit and curve.fit.errors[0], "{:.1%}".format, 5, "<"),
)
"""Of a fitted curve; of another its name."""


def pieces_in_words(curve: Curve) -> Iterator[str]:
    """Return why a curve is in pieces, how far they are off, and a line for each; nothing of three numbers."""
    if curve.fit and curve.fit.why_pieces:
        count, (typical, _, left_out, _) = len(curve.fit.pieces), curve.fit.errors
        used = f"so {counted(count, 'straight piece')} {'is' if count == 1 else 'are'} used"
        errors = f"typical error {typical:.1%}, {left_out:.1%} at sizes that the fit has not seen"
        yield f"{curve.implementation}: {curve.fit.why_pieces}, {used} ({errors})"
        for first, last, latency, rate in curve.fit.pieces:
            per_byte = f" + S / {format_rate(rate)} GB/s" if rate < float("inf") else ""
            yield f"  {format_size(first)} to {format_size(last)}: {format_seconds(latency)}{per_byte}"


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
        place = f"between {low} and {high}" if self.crossing.sure else f"near {nbytes}, if at all"
        seen = ", ".join(f"{format_size(before)} to {format_size(after)}" for before, after in self.measured)
        return f"{self.challenger} and {self.library} cross {place} (measured: {seen or 'nowhere'})"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`, in bytes."""
        names = {"library": self.library, "challenger": self.challenger, "ranks": self.case.ranks}
        size = self.crossing.nbytes.fields("nbytes")
        return names | size | {"sure": self.crossing.sure, "measured": list(self.measured)}


def all_crossings(fitted_curves: Sequence[Curve], runs: Sequence[Run], libraries: Sequence[str]) -> list[Change]:
    """Return the crossings of every library with every hand-written implementation, where both have a fit."""
    fits = {(curve.case, curve.implementation): curve.fit for curve in fitted_curves if curve.fit}
    crossed = []
    for contest in contests(measured(runs), libraries):
        case = contest.case.kind
        library, challenger = fits.get((case, contest.library)), fits.get((case, contest.challenger))
        if library and challenger:
            names = case, contest.library, contest.challenger
            seen = tuple(contest.crossovers)
            crossed += [Change(*names, crossing, seen) for crossing in crossings(library, challenger)]
    return crossed


def fields(curve: Curve) -> dict[str, Any]:
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
        "intervals": {name: list(map(_finite, one.interval)) for name, one in fitted.estimates.items()},
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
    rows = [row for row in measured(runs) if family(row.implementation) == LIBRARY]
    system = machine(runs[0], name)
    sizes = {row.case.nbytes for row in rows}
    if len(sizes) < FEWEST:
        raise UsageError(
            f"a calibration needs {FEWEST} sizes or more of `{LIBRARY}`, and the runs have {len(sizes)}; "
            f"measure them with `collbench sweep --impl {LIBRARY}`"
        )
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


def write(path: Path, runs: Sequence[Run], name: str | None, nodes: int | None = None) -> Path:
    """Calibrate, and write the system with its factors; UsageError if it cannot be written."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a calibration's name must end in .toml, for `--on FILE.toml` to take it")
    system, factors = calibration(runs, name, nodes)
    ratios = [(nbytes, round(ratio, 4)) for nbytes, ratio in factors.ratios]
    rounded = {name: round(value, 4) for name, value in asdict(factors).items() if name != "ratios"}
    text = to_toml(system, rounded | {"ratios": ratios})
    with writing(path, "-o"):
        path.write_text(text, encoding="utf-8")
    return path
