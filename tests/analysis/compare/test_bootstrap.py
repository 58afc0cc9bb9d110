"""The block bootstrap against its definition: blocks resampled one by one, and how long samples remember."""

import math

import numpy as np
import pytest

from collbench.analysis.compare import bootstrap
from collbench.analysis.compare.bootstrap import Floats
from tests.analysis.compare.test_compare import noise


def alternating(count: int) -> Floats:
    """Samples of which none is like the one before."""
    return 1 + 0.1 * (np.arange(count) % 2)


@pytest.mark.parametrize("count", [40, 60, 61, 100])
def test_a_resample_is_of_whole_blocks(count: int) -> None:
    """Its median is that of all their samples, in logarithms, and its distance from the centre grows by b / (b - 1)."""
    samples = np.exp(0.1 * np.random.default_rng(count).normal(size=count))
    medians, blocks = bootstrap.log_medians(samples, 3)
    assert blocks == bootstrap.block_count(samples)
    divided = [np.log(samples[np.arange(count) * blocks // count == block]) for block in range(blocks)]
    drawn = bootstrap._drawn(blocks, 3).astype(int).T
    assert drawn.shape == (1000, blocks)
    assert set(drawn.sum(axis=1)) == {blocks}
    centre = math.log(np.median(samples))
    for median, times in zip(medians[:100], drawn, strict=False):
        resample = np.concatenate([part for part, often in zip(divided, times, strict=True) for _ in range(often)])
        expected = centre + (np.median(resample) - centre) * math.sqrt(blocks / (blocks - 1))
        assert median == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("samples", "blocks"),
    [
        (alternating(5), 5),  # not more than there are samples
        (alternating(10), 7),  # at least seven
        (alternating(343), 49),  # the cube root of their number in a block
        (alternating(2000), 100),  # not more than a hundred
        (np.repeat(alternating(32), 8), 31),  # 256 samples that remember for 4.05 have 8.1 in a block
    ],
)
def test_blocks_last_as_long_as_samples_remember(samples: Floats, blocks: int) -> None:
    """Within what leaves enough of them, and not too many."""
    assert bootstrap.block_count(samples) == blocks


@pytest.mark.parametrize(
    ("sides", "memory"),
    [
        ("+-" * 8, 1.0),
        ("++--" * 4, 1 + 2 * 1 / 16),  # neighbours: 8 pairs alike, 7 not; the ones after them: 14 pairs, none alike
        ("+" * 8 + "-" * 8, 1 + 2 * (13 + 10 + 7) / 16),  # no further than a quarter of the samples
        ("0" * 16, 1.0),
    ],
)
def test_memory_is_the_autocorrelation_time_of_the_sides(sides: str, memory: float) -> None:
    """One, and twice each correlation above and below the median as long as there is any."""
    assert bootstrap.memory(np.array([5.0 + {"+": 1, "-": -1, "0": 0}[side] for side in sides])) == pytest.approx(
        memory
    )


def test_of_many_samples_some_order_statistics_do() -> None:
    """Medians of 5000 uniform samples stay in the middle, 0.5 / sqrt(5000) from each other."""
    samples = 1 + np.random.default_rng(0).permutation(5000) / 5000
    medians = np.exp(bootstrap.log_medians(samples, 0)[0])
    assert np.median(medians) == pytest.approx(1.5, abs=0.002)
    assert np.std(medians) == pytest.approx(0.5 / math.sqrt(5000), rel=0.25)


def test_samples_that_remember_widen_the_interval() -> None:
    """A block lasts longer than they do."""
    generator = np.random.default_rng(9)
    fresh, alike = (noise(generator, (200,), memory) for memory in (0.0, 0.9))
    assert bootstrap.memory(alike) > 3 > 1.5 > bootstrap.memory(fresh)
    assert bootstrap.block_count(alike) < bootstrap.block_count(fresh)
    repeated = np.repeat(fresh[:40], 5)  # two hundred samples that are forty
    assert np.std(bootstrap.log_medians(repeated, 0)[0]) > 1.5 * np.std(bootstrap.log_medians(fresh, 0)[0])


def test_a_bootstrapped_median_is_as_uncertain_as_a_median() -> None:
    """The spread of 400 real medians of 60 samples against what each of some of them says of itself."""
    samples = np.exp(0.03 * np.random.default_rng(10).normal(size=(400, 60)))
    real = np.std(np.log(np.median(samples, axis=1)))
    said = np.mean([np.std(bootstrap.log_medians(sample, 0)[0]) for sample in samples[:100]])
    assert said == pytest.approx(real, rel=0.15)


def test_streams_are_independent() -> None:
    """Else the errors of both runs would cancel."""
    samples = np.exp(0.03 * np.random.default_rng(11).normal(size=60))
    one, other = (bootstrap.log_medians(samples, stream)[0] for stream in (0, 1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.15
