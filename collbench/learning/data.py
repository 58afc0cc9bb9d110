"""What a job learns from: samples of every rank and samples held out, and by seed the first weights."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Job
from collbench.learning.network import outputs, parts

Samples = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and what is wanted of them, a row for each."""

HELD_OUT = 1024  # samples that nobody learns from: the loss is that on these
_NOISE = 0.3  # standard deviation of what is added to every output that is learnt from
_UNITS = 4  # of the teacher, so that a few hundred samples tell what it is
_GAIN = 3.0  # how much larger its outputs are than a fresh network's
_WEIGHTS, _TEACHER, _UNSEEN, _LESSONS, _ORDER = range(5)  # what random numbers are drawn for


@dataclass(frozen=True)
class Data:
    """The data of a job; the same on every process and machine."""

    job: Job

    @cached_property
    def first(self) -> NDArray[np.float32]:
        """The weights that all ranks begin with."""
        return _network(self.job, np.random.default_rng((_WEIGHTS, self.job.seed)), 1.0)

    @cached_property
    def _teacher(self) -> tuple[Job, NDArray[np.float32]]:
        draws, job = np.random.default_rng(_TEACHER), replace(self.job, hidden=_UNITS)
        weights = _network(job, draws, _GAIN)
        parts(job, weights)[1][:] = draws.normal(size=_UNITS) / 2
        return job, weights

    @cached_property
    def held_out(self) -> Samples:
        """Without noise."""
        inputs = np.random.default_rng(_UNSEEN).normal(size=(HELD_OUT, self.job.inputs))
        return self._answered(inputs.astype(np.float32), 0.0, np.random.default_rng(0))

    def of_rank(self, rank: int) -> Samples:
        """What a rank learns from."""
        draws = np.random.default_rng((_LESSONS, rank))
        inputs = draws.normal(size=(self.job.samples, self.job.inputs)).astype(np.float32)
        return self._answered(inputs, _NOISE, draws)

    def _answered(self, inputs: NDArray[np.float32], noise: float, draws: np.random.Generator) -> Samples:
        answers = outputs(*self._teacher, inputs)
        return inputs, (answers + noise * draws.normal(size=answers.shape)).astype(np.float32)


class Lessons:
    """The batches of one rank: its samples in the seed's order, again and again."""

    def __init__(self, job: Job, rank: int) -> None:
        order = np.random.default_rng((_ORDER, job.seed, rank)).permutation(job.samples)
        inputs, wanted = (part[order] for part in Data(job).of_rank(rank))
        self._job = job
        self._inputs, self._wanted = np.concatenate([inputs, inputs]), np.concatenate([wanted, wanted])

    def batch(self, step: int) -> Samples:
        """That of a step."""
        start = step * self._job.batch % self._job.samples
        rows = slice(start, start + self._job.batch)
        return self._inputs[rows], self._wanted[rows]


@lru_cache(maxsize=256)
def lessons(job: Job, rank: int) -> Lessons:
    """Those of a rank, made once."""
    return Lessons(job, rank)


def _network(job: Job, draws: np.random.Generator, gain: float) -> NDArray[np.float32]:
    weights = np.zeros(job.weights, np.float32)
    first, _, second, _ = parts(job, weights)
    first[:] = draws.normal(size=first.shape) / np.sqrt(job.inputs)
    second[:] = gain * draws.normal(size=second.shape) / np.sqrt(job.hidden)
    return weights
