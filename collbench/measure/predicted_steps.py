"""Steps that nobody carries out: a model says what they take on so many ranks of a described system."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import COMPUTE, Case, Sweep
from collbench.errors import Unsupported
from collbench.measure.predicted import NAME, topology_record
from collbench.measure.protocol import WorkerHello
from collbench.measure.scaled import Scaling
from collbench.model.steps import on_ranks, step_time
from collbench.results import Result, Skipped
from collbench.topology.system import System


class ModelledSteps:
    """The counterpart of Overlapped without any rank: the steps of a sweep on as much of a system.

    All is predicted on entering, so that a UsageError comes before anything is written.
    """

    def __init__(self, system: System, sweep: Sweep, noise: float) -> None:
        self._system, self._sweep, self._noise = system, sweep, noise
        self._results: list[Result] = []
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        self._results = [self._one(case, name) for case, name in self._rows()]
        largest = on_ranks(self._system, self._sweep.ranks)
        self.greeting = WorkerHello(topology_record(largest), {"numpy": np.__version__})
        return self

    def __exit__(self, *exception: Any) -> None:
        """There is nothing to end."""

    def run(self) -> Iterator[Result]:
        """Yield every result, in the order of measured ones."""
        yield from self._results

    def _rows(self) -> Iterator[tuple[Case, str]]:
        for case in self._sweep.cases():
            names = self._sweep.implementations
            alone = case.step and case.step.schedule == COMPUTE
            yield from ((case, name) for name in (names[:1] if alone else names))

    def _one(self, case: Case, name: str) -> Result:
        try:
            for _, bucket in case.buckets():
                implementations()[name].refuse(bucket)
            return step_time(self._system, case, name, self._noise)
        except Unsupported as error:
            return Skipped(case, name, NAME, str(error))


class ModelledScaling(ModelledSteps):
    """The counterpart of Scaled."""

    def __init__(self, system: System, scaling: Scaling, noise: float) -> None:
        super().__init__(system, scaling.sweep, noise)
        self._scaling = scaling

    def _rows(self) -> Iterator[tuple[Case, str]]:
        for mode in self._scaling.modes:
            for cases in self._scaling.cases(mode):
                for case in cases:
                    yield from ((case, name) for name in self._scaling.side(case.ranks).implementations)
