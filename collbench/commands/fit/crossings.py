"""Where the faster of a library and a hand-written implementation changes, by the fits to their curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collbench.analysis.crossover import contests
from collbench.analysis.curve_fit import Crossing, crossings
from collbench.analysis.fit import FittedCurve, measured
from collbench.cases import Case
from collbench.runfile.store import Run
from collbench.units import format_size


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


def all_crossings(fitted_curves: Sequence[FittedCurve], runs: Sequence[Run], libraries: Sequence[str]) -> list[Change]:
    """Return the crossings of every library with every hand-written implementation, where both have a fit."""
    fits = {(curve.case, curve.implementation): curve.fit for curve in fitted_curves}
    changes = []
    for contest in contests(measured(runs), libraries):
        case, names = contest.case.kind, (contest.library, contest.challenger)
        library, challenger = (fits.get((case, name)) for name in names)
        for crossing in crossings(library, challenger) if library and challenger else ():
            changes.append(Change(case, *names, crossing, tuple(contest.crossovers)))
    return changes
