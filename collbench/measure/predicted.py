"""A run that nobody carries out: a model says what each case should take on a described system."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Self

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case, Sweep
from collbench.errors import Unsupported
from collbench.measure.protocol import WorkerHello
from collbench.model.predict import network_curve
from collbench.results import Result
from collbench.results.collectives import Prediction, Skipped
from collbench.topology.system import System

NAME = "model"  # of the platform, in rows of a run file


class Modelled:
    """The counterpart of Supervisor without any rank; the sweep is on all ranks of the system, which may be a part.

    `what_ifs` change the network between its nodes (collbench.model.network.what_if).  Everything is predicted on
    entering, so that a UsageError (an impossible what-if, a calibration that is not there) comes before anything is
    written.
    """

    def __init__(self, system: System, sweep: Sweep, what_ifs: tuple[str, ...] = ()) -> None:
        self.system = system
        self.what_ifs = what_ifs
        self._sweep = sweep
        self._results: list[Result] = []
        # No variable of this process changes a prediction.
        self.greeting = WorkerHello(topology_record(self.system, what_ifs), {"numpy": np.__version__})

    def __enter__(self) -> Self:
        self._results = list(self._predict())
        return self

    def __exit__(self, *exception: object) -> None:
        """There is nothing to end."""

    def run(self) -> Iterator[Result]:
        """Yield every result, in the order of a measured sweep."""
        yield from self._results

    def _predict(self) -> Iterator[Result]:
        """Yield the predictions of all sizes of a kind of case at once."""
        for _, cases in groupby(self._sweep.cases(), lambda case: case.kind):
            kind = list(cases)
            curves = [self._curve(kind, name) for name in self._sweep.implementations]
            for results in zip(*curves, strict=True):
                yield from results

    def _curve(self, cases: Sequence[Case], name: str) -> Sequence[Result]:
        try:
            for case in cases:
                implementations()[name].refuse(case)
            return network_curve(self.system, cases, name, self.what_ifs)
        except Unsupported:  # of some sizes, perhaps
            return [self._single(case, name) for case in cases]

    def _single(self, case: Case, name: str) -> Prediction | Skipped:
        try:
            implementations()[name].refuse(case)
            return network_curve(self.system, [case], name, self.what_ifs)[0]
        except Unsupported as error:
            return Skipped(case, name, NAME, str(error))


def topology_record(system: System, what_ifs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what connects the ranks, for the run file's header; `model` says that nothing was measured."""
    return {
        "name": ", ".join([system.title, *(f"what if {what_if}" for what_if in what_ifs)]),
        "shared": False,
        "platform": system.platform,
        "ranks": system.ranks,
        "model": True,
        "system": asdict(system),
        "what_ifs": list(what_ifs),
    }
