"""Carries training jobs out: every strategy once for a seed, a few steps first, and every update checked afterwards."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from collbench.cases import Case, Job, Sampling
from collbench.commands.step.strategies import Strategy, strategies
from collbench.commands.step.strategies.network import first_weights, held_out, loss
from collbench.commands.step.strategies.trainer import Training, Update, check_copies, check_order, check_update
from collbench.errors import Unsupported
from collbench.measure.checks import SEEDS
from collbench.measure.clocks import DIGITS
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.scheduling import RunQueue
from collbench.results import CheckFailure, Note, Result, Skipped, Trained
from collbench.results.facts import Scheduling
from collbench.results.steps import Point

FIRST = 4  # steps that are made and checked before any that count
TURN = 15  # steps of a turn: a slow rank makes some in it, and a machine's load hardly changes
POINTS = 50  # of a loss curve, about


def train(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat
) -> Iterator[Result]:
    """*Collective*: yield a result of each strategy, in an order that turns with the seed, as drift should favour none.

    They take turns, A B B A, some steps at a time, so that whatever else the machine does meets them all alike.

    Raises:
        CaseFailed: Ranks waited in vain; the platform must then be opened anew.

    """
    assert case.job
    start, steps = case.job.seed % len(names), case.job.steps
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
    """Return a run that is ready to train, after a few steps that were right; a result where nothing is left to do."""
    assert case.job
    alive()
    short = replace(case, job=replace(case.job, steps=min(FIRST, case.job.steps)))
    try:
        training = _prepare(short, strategy, platform, sampling, alive)
        _go(training, training.job.steps)
        result = _finish(strategy, training)
        if result.wrong or sampling.check_only:
            return replace(result, case=case)
        return _prepare(case, strategy, platform, sampling, alive)
    except Unsupported as reason:
        return Skipped(case, strategy.name, platform.name, str(reason))


def _prepare(
    case: Case, strategy: Strategy, platform: Platform, sampling: Sampling, alive: Callable[[], None]
) -> Training:
    platform.checker.fill(case, SEEDS[0])  # so that the content of the guards is known
    with platform.team.agreeing():
        return strategy.prepare(case, platform, sampling.timeout, alive)


def _go(training: Training, until: int) -> None:
    """*Collective*: train from a meeting on; the second one lets no rank compute before all have begun.

    The moments of updates become seconds of training: the time between two turns does not count.
    """
    platform, first = training.platform, len(training.updates)
    gc.collect()
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
    # Ranks with copies may be on several machines, and have a clock each; those that share one copy have one clock.
    turns = [(begun, ended)] if training.copied else platform.team.exchange((begun, ended))
    start = min(begun for begun, _ in turns)
    for number, update in enumerate(training.updates[first:], first):
        training.updates[number] = update._replace(moment=training.seconds + update.moment - start)
    training.seconds += max(ended for _, ended in turns) - start


def _finish(strategy: Strategy, training: Training) -> Trained:
    """*Collective*: check what became of a run, and return its result."""
    platform = training.platform
    updates = [] if training.copied and training.rank else training.updates  # rank 0 speaks for all copies
    reports = platform.team.exchange((updates, training.digests(), sum(training.computed), training.spoils))
    lists, copies, computing, spoils = zip(*reports, strict=True)
    updates = sorted((update for own in lists for update in own), key=lambda update: update.version)
    failure = platform.checker.overrun(training.case) or _check(strategy, training, updates, copies)
    training.closing.close()
    steps = [0] * training.ranks
    ages: list[int] = []
    for update in updates:
        ages += [update.before - update.read] * len(update.ranks)
        for rank in update.ranks:
            steps[rank] += update.steps
    return Trained(
        case=training.case,
        implementation=strategy.name,
        platform=platform.name,
        points=() if failure else tuple(_loss_curve(training.job, updates)),
        seconds=updates[-1].moment,
        steps=tuple(steps),
        computing=tuple(round(seconds, DIGITS) for seconds in computing),
        age=float(np.mean(ages)) if ages else 0.0,
        mismatch=failure,
        note=platform.note | Note.of(*(operation.library for operation in training.operations)),
        scheduling=None if failure else Scheduling.of_ranks(spoils),
    )


def _check(
    strategy: Strategy, training: Training, updates: Sequence[Update], copies: Sequence[Sequence[bytes]]
) -> CheckFailure | None:
    """*Collective*: return the first update that is not what it must be; the ranks share the work."""
    job, ranks, team = training.job, training.ranks, training.platform.team
    failure = check_order(job, ranks, updates, strategy.lag(job))
    failure = failure or check_copies(updates, copies)
    if failure:
        return failure
    versions = {0: first_weights(job)} | {update.version: update.weights for update in updates}
    found = None
    with team.agreeing():
        for update in updates[training.rank :: ranks]:
            if found := check_update(job, ranks, update, versions):
                break
    every = [failure for failure in team.exchange(found) if failure]
    return min(every, key=lambda failure: int(failure.update), default=None)


def _loss_curve(job: Job, updates: Sequence[Update]) -> Iterator[Point]:
    """Yield losses of the first weights and of others spread evenly to the last."""
    yield Point(0, 0.0, loss(job, first_weights(job), *held_out(job)))
    for place in sorted(set(np.linspace(0, len(updates), POINTS + 1).round().astype(int).tolist()))[1:]:
        update = updates[place - 1]
        yield Point(update.version, round(update.moment, DIGITS), loss(job, update.weights, *held_out(job)))
