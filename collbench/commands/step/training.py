"""Runs training jobs: every strategy once per seed, after a check against plain SGD."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from collbench import algorithms
from collbench.cases import Case, Sampling, Sweep
from collbench.commands.step.rows import LossPoint, Trained
from collbench.commands.step.strategies import Strategy, strategies
from collbench.commands.step.strategies.trainer import (
    Snapshot,
    Training,
    check_weights,
    first_weights,
    held_out,
    loss,
    plain_sgd,
)
from collbench.commands.step.work import SgdJob, job_of
from collbench.errors import Unsupported
from collbench.measure.checks import SEEDS
from collbench.measure.clocks import DIGITS
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs
from collbench.platforms.processes import RunQueue
from collbench.results import Note, Result, Skipped
from collbench.results.disturbed import Scheduling

FIRST = 4  # untimed first steps, checked against plain SGD
TURN = 15  # steps of a turn: enough for a slow rank to progress, and short against changes of load


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return the memory needs of a sweep's strategies and of the implementations that they use."""
    chosen = [strategies()[name] for name in sweep.implementations]
    fifos = dict(
        algorithms.needs(sorted({name for strategy in chosen for name in strategy.uses}), sweep.ranks, platform).fifos
    )
    for strategy in chosen:
        if nbytes := max(strategy.window_nbytes(job_of(case)) for case in sweep.cases()):
            fifos[strategy.name] = nbytes
    return Needs(fifos)


def measure(
    case: Case,
    names: Sequence[str],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield a result of each strategy, in an order that rotates with the seed.

    Strategies take turns of some steps in the order A B B A, so that load and drift affect all equally.  CaseFailed if
    ranks time out; the platform must then be reopened.
    """
    start, steps = job_of(case).seed % len(names), job_of(case).steps
    runs: list[tuple[Strategy, Training]] = []
    for name in (*names[start:], *names[:start]):
        tried = _try(case, strategies()[name], platform, sampling, partial(heartbeat, name))
        if isinstance(tried, Training):
            runs.append((strategies()[name], tried))
        else:
            yield tried
    order = list(runs)
    for until in (*range(TURN, steps, TURN), steps):
        for strategy, training in order:
            heartbeat(strategy.name)
            _go(training, until)
        order.reverse()
    for strategy, training in runs:
        heartbeat(strategy.name)
        yield _finish(strategy, training)


def _try(
    case: Case, strategy: Strategy, platform: Platform, sampling: Sampling, alive: Callable[[], None]
) -> Training | Trained | Skipped:
    """Return a run ready to train, after a few correct steps; a result if the check failed or nothing more is asked."""
    alive()
    # With every=1 and staleness=0 all strategies make the steps of synchronous SGD.
    together = replace(job_of(case), steps=min(FIRST, job_of(case).steps), every=1, staleness=0)
    try:
        training = _prepare(replace(case, work=together), strategy, platform, sampling, alive)
        _go(training, together.steps)
        result = _finish(strategy, training, plain_sgd(together, case.ranks))
        if result.wrong or sampling.check_only:
            return replace(result, case=case)
        return _prepare(case, strategy, platform, sampling, alive)
    except Unsupported as reason:
        return Skipped(case, strategy.name, platform.name, str(reason))


def _prepare(
    case: Case, strategy: Strategy, platform: Platform, sampling: Sampling, alive: Callable[[], None]
) -> Training:
    platform.checker.fill(case, SEEDS[0])  # sets the guards to known content
    with platform.team.agreeing():
        return strategy.prepare(case, platform, sampling.timeout, alive)


def _go(training: Training, until: int) -> None:
    """*Collective*: train after two barriers; the second keeps ranks from computing before all have begun.

    The moments of snapshots become seconds of training, without the time between turns.
    """
    platform, first = training.platform, len(training.snapshots)
    gc.collect()  # now rather than in the turn
    platform.launcher.synchronize()
    begun = time.perf_counter()
    platform.launcher.synchronize()
    with platform.team.agreeing():
        with RunQueue() as waited:
            ended = training.go(until)
        training.spoils.append(waited.spoiled and not platform.note.oversubscribed)
        platform.compute.refuse_given_up()
        for operation in training.operations:
            if operation.refuse:
                operation.refuse()
    # Ranks with copies may be on several machines with separate clocks; ranks that share weights share a clock.
    turns = [(begun, ended)] if training.copied else platform.team.exchange((begun, ended))
    start = min(begun for begun, _ in turns)
    for number, snapshot in enumerate(training.snapshots[first:], first):
        training.snapshots[number] = snapshot._replace(moment=training.seconds + snapshot.moment - start)
    training.seconds += max(ended for _, ended in turns) - start


def _finish(strategy: Strategy, training: Training, expected: NDArray[np.float64] | None = None) -> Trained:
    """*Collective*: check a finished run, and return its result.

    The weights must equal *expected*; by default the initial weights minus all gradients.
    """
    platform, job = training.platform, training.job
    snapshots = [] if training.copied and training.rank else training.snapshots  # rank 0 speaks for all copies
    own = (snapshots, training.digest(), training.gradients, training.age, training.computed, training.spoils)
    lists, digests, gradients, ages, computed, spoils = zip(*platform.team.exchange(own), strict=True)
    snapshots = sorted(chain.from_iterable(lists), key=lambda weights: weights.version)
    if expected is None:
        expected = first_weights(job) - job.rate / training.ranks * sum(gradients)
    steps = tuple(map(len, computed))
    failure = platform.checker.overrun(training.case) or check_weights(job, snapshots, steps, digests, expected)
    return Trained(
        case=training.case,
        implementation=strategy.name,
        platform=platform.name,
        points=() if failure else tuple(_loss_curve(job, snapshots)),
        seconds=snapshots[-1].moment if snapshots else 0.0,
        steps=steps,
        computing=tuple(round(sum(seconds), DIGITS) for seconds in computed),
        age=sum(ages) / max(1, sum(steps)),
        mismatch=failure,
        note=platform.note | Note.of(*(operation.library for operation in training.operations)),
        scheduling=None if failure else Scheduling.of_ranks(spoils),
    )


def _loss_curve(job: SgdJob, snapshots: Sequence[Snapshot]) -> Iterator[LossPoint]:
    yield LossPoint(0, 0.0, loss(job, first_weights(job), *held_out(job)))
    for version, moment, weights in snapshots:
        yield LossPoint(version, round(moment, DIGITS), loss(job, weights, *held_out(job)))
