"""Accuracy of `diagnose` on machines that the model has not seen: two tables of docs/analysis.md.

The trials are published sweeps as they are, the same sweeps made slower, and the same sweeps with a fault.  For a
fault, the times are multiplied by the factor that the model predicts, so that the oddities of the machine remain.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np

from collbench.analysis.diagnose import Diagnosis, diagnose, judge, narrow_shares
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts
from collbench.analysis.reasons import FEWEST, HYPOTHESES, Hypothesis
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.model.constants import Constants
from collbench.model.equation import Floats
from collbench.model.nccl_terms import terms_by
from collbench.model.predict import ErrorModel, Levels, band, error_model, widened
from collbench.results import Measurement, Prediction
from collbench.topology.system import System
from tests.conftest import case
from tools import block, table
from tools.model.accuracy import Errors, healthy
from tools.model.classes import CLASSES
from tools.model.report import held_out, tables
from tools.model.spread import levels

QUIET = RunFacts({})
SLOWER = (1.0, 1.5, 2.0, 3.0)
FACTORS = np.exp(np.arange(0, 1.8, 0.02))
"""Factors that are tried, to find the smallest one at which a curve is SLOW."""
SEEN = 1.25
"""The smallest factor of a fault that counts, for the median size or the median of the upper half."""
Rows = Sequence[tuple[int, float]]


def measured(rows: Rows, collective: str, ranks: int) -> list[Measurement]:
    """Return rows of (bytes, seconds) as measurements of a run."""
    return [
        Measurement(case(collective, nbytes, ranks=ranks), "nccl", "gpu", 1, (seconds,)) for nbytes, seconds in rows
    ]


def expecting(known: Constants) -> Callable[[System, Sequence[Case], str], list[Prediction]]:
    def expect(system: System, cases: Sequence[Case], implementation: str) -> list[Prediction]:
        name = cases[0].collective.name
        times = terms_by(known, system, name).at(np.array([max(1, one.nbytes) for one in cases], float))
        predictions = []
        for one, seconds in zip(cases, times.tolist(), strict=True):
            low, high = band(system, name, one.nbytes)
            predictions.append(Prediction(one, implementation, seconds, low * seconds, high * seconds))
        return predictions

    return expect


@dataclass(frozen=True)
class Trial:
    """A sweep, and a model that has not seen its machine."""

    found: Errors
    known: Constants
    levels: Levels

    @property
    def system(self) -> System:
        return self.found.sweep.system

    @cached_property
    def error_model(self) -> ErrorModel:
        """The spread of the model's errors at the sizes of the sweep."""
        return error_model([int(nbytes) for nbytes in self.found.nbytes], self.levels)

    def word(self, by: float = 1.0) -> Word:
        """Return the verdict on the curve with all its times multiplied by a factor."""
        sizes = [int(nbytes) for nbytes in self.found.nbytes]
        return judge(sizes, self.found.logs + np.log(by), self.error_model).word

    @property
    def slow(self) -> list[bool]:
        """Whether the curve is SLOW with its times multiplied by each of SLOWER."""
        return [self.word(by) is Word.SLOW for by in SLOWER]

    def judged(self, factors: Floats) -> Diagnosis:
        """Return the diagnosis with the times multiplied by one factor for each size."""
        return diagnose(self.rows(self.found.measured * factors), self.system, QUIET, expecting(self.known))

    def rows(self, seconds: Floats) -> list[Measurement]:
        rows = [(int(nbytes), time) for nbytes, time in zip(self.found.nbytes, seconds.tolist(), strict=True)]
        return measured(rows, self.found.sweep.collective, self.system.ranks)

    def effect(self, changed: System) -> Floats | None:
        """Return the factors by which a change of the system changes the times; None if it would hardly be seen."""
        try:
            there = terms_by(self.known, changed, self.found.sweep.collective).at(np.maximum(1, self.found.nbytes))
        except CollbenchError:
            return None
        factors = there / self.found.predicted
        return factors if max(np.median(factors), np.median(factors[len(factors) // 2 :])) >= SEEN else None


def trials() -> list[Trial]:
    """Return all healthy sweeps with enough sizes for a verdict, each with a model that has not seen its machine."""
    without = held_out()
    every = tables(without, healthy())["nothing"]
    found = []
    for operator, known in without.items():
        known_of = levels([one for one in every if one.sweep.operator != operator])
        mine = [one for one in every if one.sweep.operator == operator and len(one.nbytes) >= FEWEST]
        found += [Trial(one, known, widened(tuple(known_of[one.kind]), one.sweep.system)) for one in mine]
    return [trial for trial in found if not narrow_shares(trial.rows(trial.found.measured))]


def verdicts(every: Sequence[Trial]) -> list[str]:
    """Return a table by kind of machine: curves called SLOW as they are and when slower, and the factors seen."""
    rows = []
    for name, among in CLASSES.items():
        found = [trial for trial in every if among(trial.found.sweep)]
        slow = np.sum([trial.slow for trial in found], axis=0).tolist()
        least = np.quantile([least_seen(trial) for trial in found], (0.5, 0.8))
        rows.append([name, *map(str, (len(found), *slow)), *(f"{factor:.2f}x" for factor in least)])
    slower = [f"{by:g}x slower" for by in SLOWER[1:]]
    return table(("machines", "curves", "called slow", *slower, "half are seen from", "80 % from"), rows)


def least_seen(trial: Trial) -> float:
    """Return the smallest factor at which a curve is SLOW."""
    return float(next((by for by in FACTORS if trial.word(by) is Word.SLOW), FACTORS[-1]))


def causes(every: Sequence[Trial]) -> list[str]:
    """Return a table by cause: curves, those called SLOW, and those with the cause first or among the first two."""
    rows = []
    for hypothesis in HYPOTHESES:
        found = [trial.judged(factors) for trial in every for factors in _degraded(hypothesis, trial)]
        slow = [diagnosis for diagnosis in found if diagnosis.word is Word.SLOW]
        first = sum(named(hypothesis, diagnosis, 1) for diagnosis in slow)
        among = sum(named(hypothesis, diagnosis, 2) for diagnosis in slow)
        if found:
            rows.append([hypothesis.name, *map(str, (len(found), len(slow), first, among))])
    return table(("what is wrong", "curves", "called slow", "cause first", "cause among the first two"), rows)


def named(hypothesis: Hypothesis, diagnosis: Diagnosis, among: int) -> bool:
    return hypothesis.name in [reason.hypothesis.name for reason in diagnosis.reasons[:among]]


WAVES = (1.0, 1.5, 0.7, 1.1, 0.8, 1.6)
"""Factors by which times of busy GPUs scatter from size to size."""


def _degraded(hypothesis: Hypothesis, trial: Trial) -> Iterator[Floats]:
    """Yield the factors of a fault, once: the median of its variants that would be seen."""
    if hypothesis.shape:
        yield from _shaped(hypothesis.shape, trial)
        return
    effects = [trial.effect(changed) for changed in hypothesis.changed(trial.system)]
    seen = sorted((effect for effect in effects if effect is not None), key=np.median)
    yield from seen[len(seen) // 2 :][:1]


def _shaped(shape: str, trial: Trial) -> Iterator[Floats]:
    """Yield factors for 0.1 ms more, for about three times the time, or for both with 1 ms."""
    times = trial.found.measured
    factors = 1 + 100e-6 / times if shape == "constant" else 3 * np.resize(WAVES, len(times))
    if shape == "both":
        factors = factors + 1e-3 / times
    if median(factors[: len(factors) // 2]) >= SEEN:
        yield factors


def written() -> Iterator[tuple[Path, str]]:
    """Yield docs/analysis.md with each of its tables."""
    every = trials()
    yield block("docs/analysis.md", "verdicts", verdicts(every))
    yield block("docs/analysis.md", "causes", causes(every))
