"""Runs on a described system: the model predicts each case."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case, Sweep
from collbench.errors import Unsupported
from collbench.measure.protocol import Ranks, WorkerHello
from collbench.model.predict import changed, network_curve
from collbench.results import Result
from collbench.results.collectives import Skipped
from collbench.runfile.schema import TopologyPart
from collbench.topology.system import System

NAME = "model"  # of the platform, in rows of a run file


class Predicted(Ranks):
    """Results of a model, or plans, in place of a Session's ranks.

    They are created before the Session, so a UsageError (an impossible what-if, a missing calibration) comes before
    anything is written.
    """

    def __init__(self, topology: TopologyPart, results: Sequence[Result]) -> None:
        self._topology, self._results = topology, results

    def start(self, stack: ExitStack) -> WorkerHello:
        """Return the hello of a prediction; no environment variable changes it."""
        return WorkerHello(self._topology, {"numpy": np.__version__})

    def run(self) -> Iterator[Result]:
        """Yield every result, in the order of measurements."""
        yield from self._results


class Modelled(Predicted):
    """A sweep on all ranks of the system, which may be a part; `what_ifs` change its network (model/network.py)."""

    def __init__(self, system: System, sweep: Sweep, what_ifs: tuple[str, ...] = ()) -> None:
        results: list[Result] = []

        # All sizes of a kind are predicted at once, which is faster; results come case by case.
        for _, cases in groupby(sweep.cases(), lambda case: case.kind):
            sizes = list(cases)
            curves = [_curve(system, sizes, name, what_ifs) for name in sweep.implementations]
            for of_case in zip(*curves, strict=True):
                results += of_case
        super().__init__(topology_record(changed(system, what_ifs), what_ifs), results)


def _curve(system: System, cases: Sequence[Case], name: str, what_ifs: tuple[str, ...]) -> Sequence[Result]:
    try:
        for case in cases:
            implementations()[name].refuse(case)
        return network_curve(system, cases, name, what_ifs)
    except Unsupported as error:
        if len(cases) == 1:
            return [Skipped(cases[0], name, NAME, str(error))]

        # Some sizes may still be possible.
        return [_curve(system, [case], name, what_ifs)[0] for case in cases]


def topology_record(system: System, what_ifs: tuple[str, ...] = ()) -> TopologyPart:
    """Return what connects the ranks, for the run file's header; `model` says that nothing was measured."""
    name = ", ".join([system.title, *(f"what if {what_if}" for what_if in what_ifs)])
    return TopologyPart(
        name=name, platform=system.platform, ranks=system.ranks, model=True, system=system, what_ifs=what_ifs
    )
