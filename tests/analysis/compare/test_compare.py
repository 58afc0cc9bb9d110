"""Comparing runs of made-up noise whose truth is known: chance is not called a change, and a change is found."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.analysis.compare import compare
from collbench.analysis.comparison import Comparison, Together
from collbench.analysis.judgement import Word
from collbench.results import Measurement
from collbench.runfile.schema import Header, Interleaved
from collbench.runfile.store import Run
from tests.conftest import case

SIZES = tuple(8 * 4**step for step in range(13))
NAMES = ("mpi", "ring-flags")
CASES = [case(nbytes=nbytes) for nbytes in SIZES]
CHANGED = (Word.SLOW, Word.FAST)


def noise(generator: np.random.Generator, shape: tuple[int, ...], memory: float = 0.3) -> Any:
    """Factors as machines show them: 3 % lognormal, each sample like the one before, one in twenty disturbed."""
    found = generator.normal(size=shape)
    for place in range(1, shape[-1]):
        found[..., place] = memory * found[..., place - 1] + math.sqrt(1 - memory**2) * found[..., place]
    disturbed = generator.random(shape) < 0.05
    return np.exp(0.03 * found) * np.where(disturbed, 1 + generator.exponential(0.5, shape), 1)


def run(samples: Any, header: dict[str, Any] | None = None, rounds: tuple[int, ...] = ()) -> Run:
    results = [
        Measurement(
            CASES[place], NAMES[which], "cpu", 1, tuple(samples[which, place] * (1e-6 + size / 1e9)), rounds=rounds
        )
        for place, size in enumerate(SIZES[: samples.shape[1]])
        for which in range(samples.shape[0])
    ]
    return Run(Path("run.jsonl"), Header.from_json(header or {}), tuple(results), True)


def runs(count: int, samples: int, seed: int, **how: Any) -> list[tuple[Any, Any]]:
    """Factors of so many pairs of runs that differ by chance only."""
    both = noise(np.random.default_rng(seed), (count, 2, len(NAMES), len(SIZES), samples), **how)
    return [(base, new) for base, new in both]


def called(found: Comparison) -> bool:
    return any(row.word in CHANGED for row in (*found.rows, *found.together))


def called_by_chance(pairs: int, samples: int, memory: float) -> int:
    return sum(called(compare(run(base), run(new))) for base, new in runs(pairs, samples, seed=1, memory=memory))


def test_runs_that_differ_by_chance_are_rarely_called_different_and_always_alike() -> None:
    assert called_by_chance(25, 24, 0.5) <= 3
    ((base, new),) = runs(1, 24, seed=8)
    one, other = (compare(run(base), run(new)) for _ in range(2))
    assert one == other


@pytest.mark.full
def test_runs_that_differ_by_chance_are_called_different_one_time_in_twenty() -> None:
    for samples, memory in ((7, 0.0), (24, 0.5), (48, 0.3)):
        assert called_by_chance(150, samples, memory) <= 12, (samples, memory)


@pytest.mark.full
def test_all_sizes_together_are_called_different_by_chance_one_time_in_twenty() -> None:
    for memory in (0.0, 0.5):
        found = [shifted(np.random.default_rng((14, seed)), 1.0, memory) for seed in range(100)]
        assert sum(any(whole.word in CHANGED for whole in comparison.together) for comparison in found) <= 8, memory


def test_a_tenth_is_found_in_the_right_direction_and_equal_is_said_to_be_equal() -> None:
    for change, expected in ((1.10, Word.SLOW), (1 / 1.10, Word.FAST)):
        found = [
            row.word is expected
            for base, new in runs(6, 48, seed=2, memory=0.0)
            for row in compare(run(base), run(new * change)).rows
        ]
        assert np.mean(found) >= 0.95, expected
    said = [row.word for base, new in runs(4, 96, seed=4, memory=0.0) for row in compare(run(base), run(new)).rows]
    assert np.mean([word is Word.OK for word in said]) >= 0.95


def shifted(generator: np.random.Generator, change: float, memory: float = 0.0) -> Comparison:
    """Two runs in which the machine was 4 % off at each size, and `change` of the second implementation."""
    ((base, new),) = runs(1, 24, seed=int(generator.integers(2**31)))
    shifts = generator.normal(size=(2, len(NAMES), len(SIZES), 1))
    for place in range(1, len(SIZES)):
        shifts[:, :, place] = memory * shifts[:, :, place - 1] + math.sqrt(1 - memory**2) * shifts[:, :, place]
    factors = np.exp(0.04 * shifts)
    factors[1, 1] *= change
    return compare(run(base * factors[0]), run(new * factors[1]))


def test_all_sizes_together_tell_what_no_size_alone_does() -> None:
    found = [shifted(np.random.default_rng((13, seed)), 1.15) for seed in range(12)]
    assert all(any("scatter" in remark for remark in comparison.remarks) for comparison in found)
    rows = [
        row.word is Word.SLOW for comparison in found for row in comparison.rows if row.base.implementation == NAMES[1]
    ]
    assert np.mean(rows) < 0.3
    wholes = [{curve.implementation: curve for curve in comparison.together} for comparison in found]
    assert np.mean([whole[NAMES[1]].word is Word.SLOW for whole in wholes]) >= 0.8
    assert not any(whole[NAMES[0]].word in CHANGED for whole in wholes)
    assert np.mean([any(isinstance(e, Together) for e in comparison.regressions) for comparison in found]) >= 0.8


def interleaved(generator: np.random.Generator, change: float, rounds: int, drift: float = 0.2) -> Comparison:
    """Halves of one run whose rounds are up to `drift` slower, alike in both halves."""
    shape = (len(NAMES), len(SIZES), rounds)
    common = np.exp(drift * np.cumsum(generator.normal(size=shape), axis=-1) / math.sqrt(rounds))
    halves = noise(generator, (2, *shape, 7), memory=0.0) * common[..., None]
    halves[1] *= change
    header = {"interleaved": {"id": "one", "setting": ""}}
    base, new = (run(half.reshape(*shape[:2], -1), header, (7,) * rounds) for half in halves)
    return compare(base, replace(new, header=Header(interleaved=Interleaved(id="one", setting="A=B"))))


def test_drift_neither_fools_paired_rounds_nor_hides_a_tenth_from_them() -> None:
    generator = np.random.default_rng(6)
    assert sum(called(interleaved(generator, 1.0, 3)) for _ in range(12)) <= 1
    found = [interleaved(np.random.default_rng((7, seed)), 1.10, 6) for seed in range(4)]
    assert np.mean([row.word is Word.SLOW for comparison in found for row in comparison.rows]) >= 0.95
    base, new = found[0].base, found[0].new
    unpaired = compare(replace(base, header=Header()), replace(new, header=Header()))
    assert np.mean([row.word is Word.SLOW for row in unpaired.rows]) < 0.5
