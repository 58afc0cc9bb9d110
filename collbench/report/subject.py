"""What is told of a run in words: the one kind of case that has the most points, what was measured before the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.crossover import rivals
from collbench.cases import Case
from collbench.report.sanitize import Sound
from collbench.results import Prediction, Timed


@dataclass(frozen=True)
class Subject:
    """One kind of case of one run."""

    run: Sound
    kind: Case  # of no size
    rows: tuple[Timed, ...]

    @property
    def predicted(self) -> bool:
        """Whether nobody measured it."""
        return isinstance(self.rows[0], Prediction)

    @property
    def names(self) -> list[str]:
        """Its implementations, in their order."""
        return list(dict.fromkeys(row.implementation for row in self.rows))

    def curve(self, name: str) -> list[Timed]:
        """One implementation by size."""
        sizes = {row.case.nbytes: row for row in self.rows if row.implementation == name}
        return [sizes[size] for size in sorted(sizes)]


def subject_of(runs: Sequence[Sound]) -> Subject | None:
    """That of some runs; None where no collective alone has a time."""
    groups: dict[tuple[int, Case, bool], list[Timed]] = {}
    for number, run in enumerate(runs):
        for rival in rivals(run.run.results):
            key = number, rival.case.kind, isinstance(rival, Prediction)
            groups.setdefault(key, []).append(rival)
    if not groups:
        return None
    best = max(groups, key=lambda key: (not key[2], len(groups[key])))
    return Subject(runs[best[0]], best[1], tuple(groups[best]))
