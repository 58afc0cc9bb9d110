"""A scaling that nobody carries out: a model says what the step takes on so many ranks of a described system."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.implementations import implementations
from collbench.measure.greeting import Greeting
from collbench.measure.predicted import NAME, topology_record
from collbench.measure.scaled import Scaling
from collbench.measurement import Result, Skipped
from collbench.model.steps import on_ranks, step_time
from collbench.topology.system import System


class ModelledScaling:
    """The counterpart of Scaled without any rank.

    All is predicted on entering, so that a UsageError comes before anything is written.
    """

    def __init__(self, system: System, scaling: Scaling, noise: float) -> None:
        self._system, self._scaling, self._noise = system, scaling, noise
        self._results: list[Result] = []
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        self._results = list(self._predict())
        largest = on_ranks(self._system, self._scaling.ranks[-1])
        self.greeting = Greeting(topology_record(largest), {"numpy": np.__version__})
        return self

    def __exit__(self, *exception: Any) -> None:
        """There is nothing to end."""

    def run(self) -> Iterator[Result]:
        """Yield every result, in the order of a measured scaling."""
        yield from self._results

    def _predict(self) -> Iterator[Result]:
        for mode in self._scaling.modes:
            for cases in self._scaling.cases(mode):
                for case in cases:
                    for name in self._scaling.side(case.ranks).implementations:
                        yield self._one(case, name)

    def _one(self, case: Case, name: str) -> Result:
        try:
            implementations()[name].refuse(case)
            return step_time(self._system, case, name, self._noise)
        except Unsupported as error:
            return Skipped(case, name, NAME, str(error))
