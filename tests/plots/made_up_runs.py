"""Made-up results by the kind of figure that is drawn of them, most by two implementations; and runs of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from collbench.algorithms import implementations
from collbench.collectives import find_collective
from collbench.commands.step.rows import Point, Series, StepTimes, Trained
from collbench.commands.step.work import Job, Step
from collbench.datatypes import LEARNT, Lost, Study
from collbench.results import Explanation, Measurement, Result
from collbench.results.collectives import MOVED, PHASES, WAITED, Span, Track
from collbench.runfile.header import Header
from collbench.runfile.store import Run
from tests.commands.step.made_up_steps import quiet, series
from tests.commands.train.made_up_plans import PLANS
from tests.conftest import case, measurement

STUDY = Study(1000, LEARNT, Lost(0.5, 0.1, 0.02), Lost(0.6, 0.2, 0.0004))


def steps(name: str, ranks: int, seconds: float, step: Step, rounds: int = 8) -> StepTimes:
    """Rounds of one step, two thirds of which are computing."""
    one = Series((0.0,) * ranks, ((seconds / 1.5,),) * ranks, ((seconds,),) * ranks)
    whole = case(nbytes=4096, ranks=ranks, work=step)
    return StepTimes(whole, name, "cpu", series=(one,) * rounds, rounds=(1,) * rounds)


def scaled() -> list[Result]:
    """Weak, on one, two and four ranks."""
    many = [steps(name, ranks, 1.1 + ranks / 10, Step(12, 64)) for ranks in (2, 4) for name in ("mpi", "auto")]
    return [steps("mpi", 1, 1.0, Step(12, 64, "compute")), *many]


def overlapped() -> list[Result]:
    """Two sizes of bucket."""
    rows: list[Result] = [steps("mpi", 2, 6.0, Step(8, 64, "compute"))]
    for name in ("mpi", "auto"):
        rows += [steps(name, 2, 4.0, Step(8, 64, "communicate")), steps(name, 2, 10.0, Step(8, 64))]
        rows += [steps(name, 2, 7.0 + size / 4096, Step(8, 64, "thread", size)) for size in (1024, 4096)]
    return rows


def late(ranks: int = 3, slow: float = 1.5, steps: int = 1600, parts: int = 16) -> list[Result]:
    """Rank 1 computes so many times as long as the others."""
    computing = quiet(np.random.default_rng(1), ranks, steps)
    computing[1] *= slow
    made = tuple(series(part) for part in np.array_split(computing, parts, axis=1))
    row = StepTimes(case(ranks=ranks, work=Step(10, 64)), "mpi", "cpu", made, clock=2e-6)
    return [row, replace(row, implementation="auto")]


def raced() -> list[Result]:
    """The ring is twice as slow."""

    def one(style: str, seed: int, step: float) -> Trained:
        points = [Point(2 * n, n * step * (1 + seed / 100), max(0.1, 4 * 0.5 ** (n / 10))) for n in range(0, 101, 2)]
        job = Job(seed=seed, steps=100)
        return Trained(case(work=job), style, "cpu", tuple(points), 100 * step, (100, 100), (0.4, 0.8))

    return [one(style, seed, step) for style, step in (("ring", 4e-3), ("local-sgd", 2e-3)) for seed in range(1, 5)]


def explained() -> list[Result]:
    """A hop of each of two ranks."""
    spans = (Span(WAITED, 0.0, 1e-6), Span(MOVED, 1e-6, 1e-7))
    tracks = tuple(Track(rank, 0, 0.0, 1.9e-6, dict.fromkeys(PHASES, 1e-7), spans) for rank in (0, 1))
    return [Explanation(case(), name, "cpu", 2e-6, 2.1e-6, tracks) for name in ("ring-flags", "two-shot")]


def narrow() -> list[Result]:
    """Wires that are up to twice as fast as what is exact."""

    def one(name: str, seconds: float, study: Study | None) -> Measurement:
        whole = replace(case(nbytes=4096), collective=find_collective("allreduce"))
        return Measurement(whole, name, "cpu", 1, (seconds,) * 7, errors=study)

    wires = [name for name, way in implementations().items() if way.wire]
    return [*(one(name, 1e-6 + place / 1e7, STUDY) for place, name in enumerate(wires)), one("two-shot", 2e-6, None)]


def swept() -> list[Result]:
    """Three sizes."""
    return [measurement(name, (1e-6,) * 7, nbytes=size) for size in (64, 256, 1024) for name in ("mpi", "ring-flags")]


MADE_UP = {
    "curves": swept(),
    "wires": narrow(),
    "scaling": scaled(),
    "overlap": overlapped(),
    "lateness": late(),
    "losses": raced(),
    "timeline": explained(),
    **PLANS,
}
"""By the name of the kind; a kind without any is missed by tests/plots/test_kinds.py."""


def run(*results: Result, name: str = "run.jsonl") -> Run:
    """A run that was read from a file of that name."""
    header = Header.from_json({"topology": {"name": "2 sockets"}})
    return Run(Path(name), header, results, True)
