"""The measured curves of runs, with a fit to each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.curve_fit import CONFIDENCE, MOST_CURVES, CurveFit, Unfit, fit
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.notebook import Shown
from collbench.present.columns import ALWAYS, Column
from collbench.results import Observed, Reported, by_key, observed
from collbench.runfile.store import Run, scatter_in_words
from collbench.units import RANGE, counted, format_rate, format_seconds, format_size


@dataclass(frozen=True)
class FittedCurve(Shown):
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


def curves(runs: Sequence[Run]) -> list[FittedCurve]:
    """Return every curve of the runs, fitted; UsageError if the runs are of different machines."""
    machines = dict.fromkeys(run.header.topology.name or "?" for run in runs)
    if len(machines) > 1:
        raise UsageError(f"the runs are of different machines ({'; '.join(machines)}); fit each by itself")
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
    """Return rows that were right and have a time; not those of 0 bytes, which other tools print for rounded sizes."""
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
"""Of a fitted curve; of another its name."""


def pieces_in_words(curve: FittedCurve) -> Iterator[str]:
    """Return why a curve is in pieces, how far they are off, and a line for each; nothing of three numbers."""
    if curve.fit and curve.fit.why_pieces:
        count, (typical, _, left_out, _) = len(curve.fit.pieces), curve.fit.errors
        used = f"so {counted(count, 'straight piece')} {'is' if count == 1 else 'are'} used"
        errors = f"typical error {typical:.1%}, {left_out:.1%} at sizes that the fit has not seen"
        yield f"{curve.implementation}: {curve.fit.why_pieces}, {used} ({errors})"
        for first, last, latency, rate in curve.fit.pieces:
            per_byte = f" + S / {format_rate(rate)} GB/s" if rate < float("inf") else ""
            yield f"  {format_size(first)} to {format_size(last)}: {format_seconds(latency)}{per_byte}"
