"""Steps of made-up ranks that leave every collective together: what each computes is all that differs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collbench.commands.step.rows import LossPoint, Series, StepParts, StepPrediction, StepTimes, Trained
from collbench.commands.step.stragglers import Finding, Floats, RankStatistics, StepArrays
from collbench.commands.step.work import SgdJob, Step
from collbench.results import Note, Result
from collbench.results.facts import GemmMismatch
from tests.conftest import case

USUAL = 1e-3  # seconds of computing
LEAVING = 1e-4  # seconds of communication

LATE = Series(begun=(0.0, 0.5), computed=((2.0, 6.0), (3.0, 8.0)), done=((4.0, 9.0), (5.0, 9.5)))
"""Rank 1 computes last in both steps, a second and two after rank 0."""
STEP = Step(12, 256, "thread", 4096, ((1, 1.5),))
MEASURED = StepTimes(
    case(nbytes=65536, work=STEP),
    "two-shot",
    "cpu",
    series=(LATE, LATE),
    note=Note.of("4 threads on 2 cores"),
    rounds=(1, 1),
    clock=1e-7,
    library="MPICH 5",
)
LATER = StepPrediction(
    case(ranks=8, work=Step(0, 0, seconds=0.1)), "nccl", StepParts(0.1, 1e-4, 3e-3), 0.1, 0.2, "ring", "ll"
)
WRONG = StepTimes(case(work=STEP), "mpi", "cpu", series=(), mismatch=GemmMismatch(1, 9, 2, 3, "1", "2", wrong=4))
"""Rows as run files have them: measured, predicted, and wrong."""


def series(computing: Floats, late_to_leave: Floats | float = 0.0) -> Series:
    """Of ranks that compute so long, (ranks, steps); `late_to_leave` is by rank, after the collective."""
    ends = np.cumsum(computing.max(axis=0) + LEAVING + np.max(late_to_leave))
    starts = np.concatenate([[0.0], ends[:-1]])
    leave = np.broadcast_to(np.asarray(late_to_leave), (len(computing),))
    done = ends + (leave - leave.max())[:, None]
    begun = np.concatenate([np.zeros((len(computing), 1)), done[:, :-1]], axis=1)
    assert (begun.max(axis=0) <= starts + 1e-12).all()
    return Series(
        (0.0,) * len(computing),
        tuple(map(tuple, (begun + computing).tolist())),
        tuple(map(tuple, np.maximum(done, begun + computing).tolist())),
    )


def quiet(generator: np.random.Generator, ranks: int, steps: int) -> Floats:
    return USUAL * (1 + 0.01 * np.abs(generator.standard_normal((ranks, steps))))


def disturbed(generator: np.random.Generator, ranks: int, steps: int, share: float = 0.4) -> Floats:
    """The same, and now and then somebody else takes half of a rank's core for tens of milliseconds."""
    computing = quiet(generator, ranks, steps)
    for rank in range(ranks):
        place = 0
        while place < steps:
            calm, busy = generator.exponential(60 * (1 - share)), generator.exponential(60 * share)
            start, place = int(place + calm), int(place + calm + busy) + 1
            computing[rank, start:place] *= generator.uniform(1.2, 2.5)
    return computing


def steps_of(computing: Floats, parts: int = 16, **more: Any) -> StepArrays:
    return StepArrays.of([series(part, **more) for part in np.array_split(computing, parts, axis=1)])


def ranks_that_are(finding: Finding, statistics: Sequence[RankStatistics]) -> list[int]:
    return [one.rank for one in statistics if one.finding is finding]


def steps(name: str, ranks: int, seconds: float, step: Step, rounds: int = 8) -> StepTimes:
    one = Series((0.0,) * ranks, ((seconds / 1.5,),) * ranks, ((seconds,),) * ranks)
    whole = case(nbytes=4096, ranks=ranks, work=step)
    return StepTimes(whole, name, "cpu", series=(one,) * rounds, rounds=(1,) * rounds)


def scaled() -> list[Result]:
    many = [steps(name, ranks, 1.1 + ranks / 10, Step(12, 64)) for ranks in (2, 4) for name in ("mpi", "auto")]
    return [steps("mpi", 1, 1.0, Step(12, 64, "compute")), *many]


def overlapped() -> list[Result]:
    rows: list[Result] = [steps("mpi", 2, 6.0, Step(8, 64, "compute"))]
    for name in ("mpi", "auto"):
        rows += [steps(name, 2, 4.0, Step(8, 64, "communicate")), steps(name, 2, 10.0, Step(8, 64))]
        rows += [steps(name, 2, 7.0 + size / 4096, Step(8, 64, "thread", size)) for size in (1024, 4096)]
    return rows


def late(ranks: int = 3, slow: float = 1.5, steps: int = 1600, parts: int = 16) -> list[Result]:
    computing = quiet(np.random.default_rng(1), ranks, steps)
    computing[1] *= slow
    made = tuple(series(part) for part in np.array_split(computing, parts, axis=1))
    row = StepTimes(case(ranks=ranks, work=Step(10, 64)), "mpi", "cpu", made, clock=2e-6)
    return [row, replace(row, implementation="auto")]


def raced() -> list[Result]:
    def one(style: str, seed: int, step: float) -> Trained:
        points = [
            LossPoint(2 * n, n * step * (1 + seed / 100), max(0.1, 4 * 0.5 ** (n / 10))) for n in range(0, 101, 2)
        ]
        job = SgdJob(seed=seed, steps=100)
        return Trained(case(work=job), style, "cpu", tuple(points), 100 * step, (100, 100), (0.4, 0.8))

    return [one(style, seed, step) for style, step in (("ring", 4e-3), ("local-sgd", 2e-3)) for seed in range(1, 5)]


MADE_UP = {"scaling": scaled(), "lateness": late(), "losses": raced()}
"""By the name of the kind of figure."""
