"""Predicted steps on a described system: computing, waiting for the slowest GPU, communication."""

from collections.abc import Iterable, Sequence

from collbench.algorithms import implementations
from collbench.cases import Case, Sweep
from collbench.commands.step.rows import StepParts, StepPrediction
from collbench.commands.step.work import COMMUNICATE, COMPUTE, SEQUENTIAL, buckets, step_of
from collbench.errors import Unsupported
from collbench.measure.predicted import NAME, Predicted, topology_record
from collbench.model.predict import CONTENTION, NOISE, network_curve, on_ranks, slowest
from collbench.results import Result
from collbench.results.collectives import Skipped
from collbench.topology.system import System


class PredictedSteps(Predicted):
    """Predictions of a sweep's steps, or of the given cases, on a described system."""

    def __init__(self, system: System, sweep: Sweep, cases: Iterable[Case] = ()) -> None:
        every = ((case, step_of(case).communicators(sweep.implementations)) for case in cases or sweep.cases())
        results = [_step(system, case, name) for case, names in every for name in names]
        super().__init__(topology_record(on_ranks(system, sweep.ranks)), results)


def _step(system: System, case: Case, name: str) -> Result:
    try:
        for _, bucket in buckets(case):
            implementations()[name].refuse(bucket)
        return step_time(system, case, name)
    except Unsupported as error:
        return Skipped(case, name, NAME, str(error))


def step_time(system: System, case: Case, implementation: str, noise: float = NOISE) -> StepPrediction:
    """Return the predicted step on the case's ranks of the system, by its schedule.

    Sequential parts add up.  With overlap, a bucket is sent once it is computed and the previous one has arrived, and
    computing meanwhile takes CONTENTION longer.  Unsupported if the model does not know the collective.
    """
    schedule, computing = step_of(case).schedule, step_of(case).seconds
    if case.ranks == 1 or schedule == COMPUTE:
        return StepPrediction(case, implementation, StepParts(computing, 0.0, 0.0), computing, computing)
    sent = network_curve(on_ranks(system, case.ranks), [part for _, part in buckets(case)], implementation)
    waiting = 0.0 if schedule == COMMUNICATE else computing * slowest(case.ranks, noise)
    computed, exposed = _parts(schedule, computing, [bucket.seconds for bucket in sent])
    return StepPrediction(
        case,
        implementation,
        StepParts(computed, waiting, exposed),
        low=sum(_parts(schedule, computing, [bucket.low for bucket in sent])) + waiting,
        high=sum(_parts(schedule, computing, [bucket.high for bucket in sent])) + waiting,
        algorithm=sent[0].algorithm,
        protocol=sent[0].protocol,
        note=sent[0].note,
    )


def _parts(schedule: str, computing: float, buckets: Sequence[float]) -> tuple[float, float]:
    """Return the seconds of computing, and of communication after it; *buckets* are the seconds of each alone."""
    if schedule == COMMUNICATE:
        return 0.0, sum(buckets)
    if schedule == SEQUENTIAL:
        return computing, sum(buckets)
    # Only communication during computing slows it: all buckets but the last, at most.
    slowed = computing + CONTENTION * min(computing, sum(buckets[:-1]))
    end = 0.0
    for place, seconds in enumerate(buckets, 1):
        end = max(end, slowed * place / len(buckets)) + seconds
    return slowed, end - slowed
