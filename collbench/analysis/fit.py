"""Fits of the measured curves of runs: numbers, warnings and crossings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from collbench.algorithms import libraries
from collbench.analysis.crossover import contests
from collbench.analysis.curve_fit import (
    CONFIDENCE,
    ERRORS,
    MOST_CURVES,
    PIECE,
    Crossing,
    CurveFit,
    Unfit,
    crossings,
    fit,
)
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.notebook import Shown
from collbench.present.columns import ALWAYS, Column
from collbench.present.terminal import lines
from collbench.results import Observed, Reported, by_key, observed
from collbench.runfile.store import Run, scatter_in_words, why_none
from collbench.units import RANGE, counted, format_rate, format_seconds, format_size

LEGEND = (
    "T = a + g*sqrt(S) + b*S; latency: a; rate: GB/s, 1/b; half at: size with half the rate;\n"
    "bend: size from which on a byte takes longer (end of a cache); off: median residual"
)


@dataclass(frozen=True)
class FittedCurve(Shown):
    """The samples of an implementation in a kind of case, by size, with a fit."""

    case: Case  # without a size
    implementation: str
    samples: Mapping[int, tuple[float, ...]]  # seconds
    fit: CurveFit | None = None
    reason: str = ""  # why there is no fit
    scatter: str = ""  # the spread of a size's rounds in words

    def warnings(self) -> Iterator[str]:
        """Yield the spread of rounds, and the numbers of the fit that are extrapolated."""
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

    def fields(self) -> dict[str, Any]:
        """Return the curve for `--json` in seconds, bytes and bytes per second; null for infinite."""
        names = {"collective": self.case.collective.name, "dtype": self.case.dtype.name, "ranks": self.case.ranks}
        names |= self.case.properties | {"implementation": self.implementation}
        if not self.fit:
            return names | {"reason": self.reason}
        fitted = self.fit
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
            "warnings": list(self.warnings()),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def curves(runs: Sequence[Run]) -> list[FittedCurve]:
    """Return the fitted curves of the runs; UsageError if the runs are of different machines."""
    machines = dict.fromkeys(run.header.topology.name or "?" for run in runs)
    if len(machines) > 1:
        raise UsageError(f"the runs are of different machines ({'; '.join(machines)}); fit each separately")
    fitted: list[FittedCurve] = []
    for (case, name), rows in by_key(measured(runs), lambda row: row.curve).items():
        samples: dict[int, tuple[float, ...]] = {}
        for row in rows:
            times = row.rounds if isinstance(row, Reported) and row.rounds else row.times
            samples[row.case.nbytes] = samples.get(row.case.nbytes, ()) + times
        curve = FittedCurve(case, name, samples, scatter=scatter_in_words(rows))
        try:
            if len(fitted) >= MOST_CURVES:
                raise Unfit(f"only {MOST_CURVES} curves are fitted")
            fitted.append(replace(curve, fit=fit(list(samples), list(samples.values()))))
        except Unfit as error:
            fitted.append(replace(curve, reason=str(error)))
    return fitted


def measured(runs: Sequence[Run]) -> list[Observed]:
    """Return the correct rows with a time, without those of 0 bytes, which other tools print for rounded sizes."""
    return [result for run in runs for result in observed(run.cases) if result.case.nbytes > 0]


def _figure(
    name: str, key: str, form: Callable[[float], str], importance: int, of_interval: int
) -> tuple[Column[FittedCurve], ...]:
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


def _bend(curve: FittedCurve) -> str:
    if not curve.fit:
        return ""
    return f"pieces: {len(curve.fit.pieces)}" if curve.fit.pieces else ", ".join(map(format_size, curve.fit.bends))


COLUMNS: tuple[Column[FittedCurve], ...] = (
    Column("", lambda curve: curve.implementation, key="implementation"),
    *_figure("latency", "latency", format_seconds, ALWAYS, 3),
    *_figure("rate", "rate", format_rate, ALWAYS, 2),
    *_figure("half at", "half_size", format_size, 6, 1),
    Column("bend", _bend, importance=4),
    Column("off", lambda curve: curve.fit and curve.fit.errors[0], "{:.1%}".format, 5, "<"),
)
"""The columns of a fitted curve; a curve without a fit has only its name."""


def pieces_in_words(curve: FittedCurve) -> Iterator[str]:
    """Yield the reason and the errors of a curve in pieces, and a line for each piece; nothing for other curves."""
    if curve.fit and curve.fit.why_pieces:
        count, (typical, _, left_out, _) = len(curve.fit.pieces), curve.fit.errors
        used = f"so {counted(count, 'straight piece')} {'is' if count == 1 else 'are'} used"
        errors = f"typical error {typical:.1%}, {left_out:.1%} at sizes left out of the fit"
        yield f"{curve.implementation}: {curve.fit.why_pieces}, {used} ({errors})"
        for first, last, latency, rate in curve.fit.pieces:
            per_byte = f" + S / {format_rate(rate)} GB/s" if rate < float("inf") else ""
            yield f"  {format_size(first)} to {format_size(last)}: {format_seconds(latency)}{per_byte}"


@dataclass(frozen=True)
class Change:
    """A crossing of two implementations' fits, and the crossings of their measured times."""

    case: Case
    library: str
    challenger: str
    crossing: Crossing
    measured: tuple[tuple[int, int], ...]  # pairs of sizes in bytes between which the measured times cross

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


@dataclass(frozen=True)
class Fits(Shown):
    """Fitted curves of runs of one machine, with crossings of libraries and hand-written implementations."""

    curves: Sequence[FittedCurve]
    changes: Sequence[Change]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        """Return the fits of runs; UsageError if no curve can be fitted, or the runs are of different machines."""
        fitted = curves(runs)
        if not fitted:
            raise UsageError(f"nothing to fit: {why_none(runs)}")
        if not any(curve.fit for curve in fitted):
            reasons = dict.fromkeys(f"{curve.implementation}: {curve.reason}" for curve in fitted)
            names = ", ".join(str(run.path) for run in runs)
            raise UsageError(f"no curve in {names} can be fitted; {'; '.join(reasons)}")
        fits = {(curve.case, curve.implementation): curve.fit for curve in fitted}
        changes = []
        for contest in contests(measured(runs), libraries()):
            case, names_of = contest.case.kind, (contest.library, contest.challenger)
            library, challenger = (fits.get((case, name)) for name in names_of)
            for crossing in crossings(library, challenger) if library and challenger else ():
                changes.append(Change(case, *names_of, crossing, tuple(contest.crossovers)))
        return cls(fitted, changes)

    def fields(self) -> dict[str, Any]:
        """Return everything for `--json`."""
        changes = [change.fields() for change in self.changes]
        return {"curves": [curve.fields() for curve in self.curves], "crossings": changes}

    def lines(self) -> Iterator[str]:
        """Yield a table for each case, remarks on its curves, and the legend."""
        for case in dict.fromkeys(curve.case for curve in self.curves):
            of_case = [curve for curve in self.curves if curve.case == case]
            fitted_first = sorted(of_case, key=lambda curve: curve.fit is None)
            yield from (case.title, *lines(COLUMNS, fitted_first, _unfit, names=1))
            for curve in of_case:
                yield from (f"  {line}" for line in pieces_in_words(curve))
                yield from (f"  {curve.implementation}: {warning}" for warning in curve.warnings())
            yield from (f"  {change}" for change in self.changes if change.case == case)
            if last := max((float(curve.fit.sizes[-1]) for curve in of_case if curve.fit), default=0.0):
                yield f"  beyond {format_size(last)}: extrapolated"
            yield ""
        yield LEGEND


def _unfit(curve: FittedCurve) -> str:
    return "" if curve.fit else f"not fitted: {curve.reason}"
