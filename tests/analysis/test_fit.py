"""A curve as three numbers, or in pieces: they are found, and their intervals and errors hold what they promise."""

import itertools
import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import nnls

from collbench.analysis import curve_fit
from collbench.analysis.curve_fit import CONFIDENCE, FEWEST, GOOD, CurveFit, Unfit, crossings, fit, sign_changes
from tools.model.systems import published

SIZES = [float(8 * 4**k) for k in range(13)]  # 8 B to 128 MiB


def samples(
    seed: int, a: float, g: float, b: float, noise: float = 0.03, sizes: Sequence[float] = SIZES
) -> list[list[float]]:
    random = np.random.default_rng(seed)
    return [list((a + g * math.sqrt(size) + b * size) * np.exp(noise * random.standard_normal(9))) for size in sizes]


def test_coefficients_are_those_of_non_negative_least_squares() -> None:
    for terms, sizes in ((1, 4), (3, 13), (4, 4), (4, 13)):
        random = np.random.default_rng((terms, sizes))
        columns = random.normal(size=(terms, sizes, 400)) + 2 * random.random((1, sizes, 1))
        columns *= np.array([1.0, 1e3, 1e6, 1e6])[:terms, None, None]
        target = random.normal(size=(sizes, 400)) + random.random(400)
        found = curve_fit._nonnegative(columns, target)
        expected = np.array([nnls(columns[..., curve].T, target[:, curve])[0] for curve in range(400)]).T
        assert {tuple(curve) for curve in (expected > 0).T} == set(np.ndindex(*(2,) * terms)), (terms, sizes)
        assert ((found > 0) == (expected > 0)).all(), (terms, sizes)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-15), (terms, sizes)


def test_a_spoiled_size_counts_less() -> None:
    sizes = np.array(SIZES)
    terms = np.stack([np.ones(13), sizes], axis=1)
    seconds = np.stack([terms @ [1e-5, 1e-10]] * 2)
    seconds[1, 6] *= 10
    found = curve_fit.solve(terms[None], seconds)
    assert found == pytest.approx(np.array([[1e-5, 1e-10]] * 2), rel=1e-2)
    assert found[0] == pytest.approx([1e-5, 1e-10], rel=1e-9)
    every = samples(1, 10e-6, 20e-9, 5e-12, noise=0.01)
    every[6] = [10 * seconds for seconds in every[6]]
    spoiled = fit(SIZES, every)
    assert (spoiled.latency, spoiled.rate) == (pytest.approx(10e-6, rel=0.1), pytest.approx(2e11, rel=0.1))


def test_clean_numbers_are_found_again_and_none_is_negative() -> None:
    for a, g, b in ((10e-6, 20e-9, 5e-12), (10e-6, 0.0, 5e-12), (1e-6, 1e-9, 0.0), (0.0, 1e-8, 1e-10)):
        found = fit(SIZES, samples(0, a, g, b, noise=0.0))
        assert found.coefficients == pytest.approx([a, g, b], rel=1e-3, abs=1e-15)
    found = fit(SIZES, [[1e-5 * (1 - 0.01 * place)] for place in range(len(SIZES))])
    assert (found.coefficients >= 0).all()
    assert (found.draws >= 0).all()
    assert found.estimates["rate"].high == math.inf
    every = samples(0, 1e-6, 1e-9, 1e-10)
    first, second, turned = fit(SIZES, every), fit(SIZES, every), fit(SIZES[::-1], every[::-1])
    assert (first.draws == second.draws).all()
    assert turned.coefficients == pytest.approx(first.coefficients)


def test_intervals_cover_at_their_rate() -> None:
    covered, single = [], []
    for seed in range(40):
        found = fit(SIZES, samples(seed, 10e-6, 20e-9, 5e-12))
        for name, value in (("latency", 10e-6), ("rate", 1 / 5e-12)):
            covered.append(found.estimates[name].holds(value))
        few = fit(SIZES, [each[:1] for each in samples(seed, 10e-6, 20e-9, 5e-12, 0.05)])
        single.append(few.estimates["latency"].holds(10e-6))
    assert 0.80 <= np.mean(covered) < 1
    assert 0.80 <= np.mean(single) < 1


def test_a_size_that_was_left_out_is_covered_at_the_rate() -> None:
    covered, widths = [], []
    for seed in range(33):
        every, left = samples(seed, 10e-6, 20e-9, 5e-12, noise=0.1), seed % 11 + 1
        found = fit([*SIZES[:left], *SIZES[left + 1 :]], [*every[:left], *every[left + 1 :]])
        _, low, high = found.estimate(SIZES[left])
        covered.append(low <= np.median(every[left]) <= high)
        widths.append(math.log(high / low) / 2)
    assert np.mean(covered) >= CONFIDENCE - 0.05
    assert np.median(widths) < 0.25
    few = fit(SIZES[3:8], samples(0, 10e-6, 20e-9, 5e-12, sizes=SIZES[3:8]))
    _, low, high = few.estimate(SIZES[5])
    assert math.log(high / low) / 2 > 1.05 * np.abs(few.left_out).max()


def test_a_cache_that_ends_is_a_bend_and_noise_on_a_straight_curve_is_none() -> None:
    random = np.random.default_rng(3)
    times = [
        [(1e-6 + 1e-10 * size + 3e-10 * max(0.0, size - 2e6)) * math.exp(0.02 * random.standard_normal())] * 7
        for size in SIZES
    ]
    found = fit(SIZES, times)
    assert 1e6 < found.bends[0] < 4e6
    assert found.rate == pytest.approx(2.5e9, rel=0.1)
    assert not any(fit(SIZES, samples(seed, 1e-6, 0, 1e-10)).bends for seed in range(10))
    for seed in range(3):
        random = np.random.default_rng(seed)
        found = fit(SIZES, [[(1e-5 + 1e-10 * size) * math.exp(0.15 * random.standard_normal())] for size in SIZES])
        assert np.percentile(np.abs(found.residuals), 90) > GOOD
        assert not found.bends


def test_half_of_the_rate_is_reached_at_the_half_size() -> None:
    bent = [[1e-3 + 1e-10 * size + 3e-10 * max(0.0, size - 2e6)] for size in SIZES]
    for found in (fit(SIZES, samples(0, 10e-6, 20e-9, 5e-12)), fit(SIZES, bent)):
        half = found.half_size
        assert half / float(found.predict(half)) == pytest.approx(found.rate / 2, rel=1e-6)


def test_every_published_sweep_has_a_fit_and_the_error_of_pieces_is_bounded() -> None:
    sweeps = [sweep.rows for sweep in published() if len(sweep.rows) > 2]
    fits = [fit(*zip(*((nbytes, [seconds]) for nbytes, seconds in rows), strict=True)) for rows in sweeps]
    pieces = [found for found in fits if found.why_pieces]
    assert len(fits) > 100
    assert len(pieces) < len(fits) / 6
    for found in pieces:
        places = np.geomspace(found.sizes[0] / 16, found.sizes[-1] * 16, 2000)
        seconds = found.predict(places)
        assert (np.diff(seconds) >= -1e-9 * seconds[1:]).all()
        assert 1 <= len(found.pieces) <= len(found.sizes) / 3
        assert found.errors[0] < 0.40  # the median of the sizes
    *ninths, worst = sorted(found.errors[1] for found in pieces)  # one size in ten is further off
    assert ninths[-1] < 1.05
    assert worst < 1.15  # over four nodes of Alps with GDRCopy off: small messages are slow
    jumping = [found for found in pieces if len(found.sizes) >= FEWEST]
    off = np.concatenate([np.abs(found.residuals) for found in jumping])
    left_out = np.concatenate([np.expm1(np.abs(found.left_out)) for found in jumping])
    assert np.percentile(off, [50, 90]) == pytest.approx([0.087, 0.47], rel=0.1)
    assert np.percentile(left_out, [50, 90]) == pytest.approx([0.125, 0.67], rel=0.1)


def stepped(seed: int, at: float, by: float, noise: float) -> list[list[float]]:
    """Samples about 10 us + S / 1 TB/s below a size, and as many times that from it on."""
    every = samples(seed, 10e-6, 0, 1e-12, noise)
    return [[(by if size >= at else 1) * seconds for seconds in of] for size, of in zip(SIZES, every, strict=True)]


def test_a_protocol_that_changes_is_found_with_what_it_takes_on_either_side() -> None:
    for seed, place in itertools.product(range(3), (4, 6, 8)):
        found = fit(SIZES, stepped(seed, SIZES[place], 8, 0.03))
        (first, last, before, _), (begin, end, after, rate) = found.pieces
        assert (first, last, begin, end) == (SIZES[0], SIZES[place - 1], SIZES[place], SIZES[-1])
        assert (before, after) == (pytest.approx(10e-6, rel=0.05), pytest.approx(80e-6, rel=0.05))
        assert rate == pytest.approx(1e12 / 8, rel=0.1)
        assert (found.latency, found.rate) == pytest.approx((before, rate))
        _, low, high = found.estimates["rate"]
        assert low < rate < high
        assert low <= 1e12 / 8 <= high
        assert found.errors[0] < 0.03
        half = found.half_size
        assert half / float(found.predict(half)) == pytest.approx(rate / 2, rel=1e-6)


def test_noise_makes_no_pieces() -> None:
    assert not any(fit(SIZES, samples(seed, 10e-6, 0, 1e-10)).why_pieces for seed in range(20))
    steps = [fit(SIZES, stepped(seed, SIZES[6], 8, 0.3)).pieces for seed in range(20)]
    assert sum(len(pieces) == 2 and pieces[1][0] == SIZES[6] for pieces in steps) >= 19


def test_times_that_fall_are_pooled_and_never_extrapolated_below_zero_or_downwards() -> None:
    random = np.random.default_rng(0)
    for count in (2, 3, 4, 5, 13):
        for every in (
            [[1e-3 / 3**place] for place in range(count)],
            [[1e-6 * 10 ** random.uniform(0, 3)] for _ in range(count)],
        ):
            found = fit(SIZES[:count], every)
            seconds = found.predict(np.geomspace(1e-3, 1e15, 500))
            assert (seconds > 0).all()
            assert (np.diff(seconds) >= -1e-9 * seconds[1:]).all()
    falling = fit(SIZES, [[1e-3 / 3**place] for place in range(len(SIZES))])
    assert falling.rate == falling.half_size == math.inf
    assert falling.predict(1) == pytest.approx(falling.predict(1e12))


def test_the_rate_is_that_of_the_last_piece_and_there_is_none_if_it_is_flat() -> None:
    flat = 0
    for seed in range(40):
        steps = np.random.default_rng(seed).lognormal(0, 1, 10).cumprod()
        found = fit(SIZES, [[1e-6 * step] for step in (*steps, *[10 * steps.max()] * 3)])
        if found.pieces:
            assert found.rate == pytest.approx(found.pieces[-1][3])
            flat += len(found.pieces) > 2 and found.rate == found.half_size == math.inf
    assert flat >= 5


def test_two_sizes_are_a_straight_line_and_one_is_refused() -> None:
    line = fit(SIZES[8:10], [[10e-6 + 1e-10 * size] for size in SIZES[8:10]])
    assert line.pieces == [(SIZES[8], SIZES[9], pytest.approx(10e-6), pytest.approx(1e10))]
    assert (line.latency, line.rate, line.half_size) == pytest.approx((10e-6, 1e10, 1e5))
    assert line.estimates["latency"].interval == pytest.approx((0, float(line.predict(SIZES[8]))))
    assert line.estimates["rate"].interval == pytest.approx((SIZES[9] / float(line.predict(SIZES[9])), math.inf))
    _, low, high = line.estimate(SIZES[8])
    assert low < line.predict(SIZES[8]) / 4 < 4 * line.predict(SIZES[8]) < high  # two numbers from two sizes
    three = fit(SIZES[7:10], [[10e-6 + 1e-10 * size] for size in SIZES[7:10]])
    assert (three.latency, three.rate) == pytest.approx((10e-6, 1e10))
    for sizes in ([], SIZES[:1], SIZES[:1] * 2):
        with pytest.raises(Unfit, match="needs 2 sizes or more"):
            fit(sizes, [[1e-6]] * len(sizes))


def test_crossings_are_found_with_intervals() -> None:
    slow = fit(SIZES, samples(0, 10e-6, 0, 1e-10))
    quick = fit(SIZES, samples(1, 1e-6, 0, 1e-9))
    (found,) = crossings(slow, quick)
    assert found.nbytes.value == pytest.approx(1e4, rel=0.1)
    assert found.nbytes.low <= 1e4 <= found.nbytes.high < 1.5 * found.nbytes.low
    assert found.sure
    assert crossings(slow, fit(SIZES, samples(2, 20e-6, 0, 2e-10))) == []
    places = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert sign_changes(places, np.array([-1.0, 0.0, 1.0, 0.0, 1.0, 2.0])) == [2.0]
    assert sign_changes(places, np.array([-1.0, 0.0, -1.0, -1.0, 0.0, 0.0])) == []


def test_a_crossing_within_the_noise_or_what_the_form_cannot_follow_is_not_sure() -> None:
    first = fit(SIZES, samples(0, 1e-6, 0, 1e-10, noise=0.3))
    second = fit(SIZES, samples(1, 1.01e-6, 0, 0.99e-10, noise=0.3))
    found = crossings(first, second)
    assert found
    for crossing in found:
        assert (crossing.sure, *crossing.nbytes.interval) == (False, SIZES[0], SIZES[-1])
    uneven = [1.2 if place % 3 else 0.8 for place in range(len(SIZES))]
    lines = (10e-6, 1e-10, uneven), (1e-6, 1e-9, uneven[::-1])
    curves = [fit(SIZES, [[(a + b * size) * off] for size, off in zip(SIZES, by, strict=True)]) for a, b, by in lines]
    (found,) = crossings(*curves)
    assert found.nbytes.low < 0.6 * found.nbytes.value
    assert found.nbytes.high > 1.6 * found.nbytes.value


def crooked(seed: int) -> CurveFit | None:
    """A fit to a curve whose samples have two humps, a tail, or are few; None where nothing fits them."""
    random = np.random.default_rng(seed)
    a, g = random.choice([1e-6, 16e-6]), random.choice([0, 1e-9, 2e-8, 1e-7])
    b, count = random.choice([5e-12, 1e-10]), int(random.choice([7, 20, 60]))
    noises = (
        lambda: np.where(random.random(count) < 0.5, 1, 1.3),
        lambda: 1 + random.exponential(0.3, count),
        lambda: np.where(random.random(count) < 0.45, 0.8, 1) * (1 + 0.01 * random.standard_normal(count)),
        lambda: np.exp(0.3 * random.standard_normal(count)),
    )
    sizes = SIZES[: random.integers(5, 14)]
    try:
        return fit(sizes, [list((a + g * math.sqrt(size) + b * size) * noises[seed % 4]()) for size in sizes])
    except Unfit:
        return None


def test_every_number_of_crooked_curves_lies_in_its_own_interval_and_so_does_a_crossing() -> None:
    fits = [found for seed in (*range(8), 76, 92) if (found := crooked(seed))]
    assert len(fits) > 7
    for found in fits:
        for name, estimate in found.estimates.items():
            assert estimate.value == getattr(found, name)
            assert estimate.holds(estimate.value)
    crossed = [one for first, second in itertools.pairwise(fits) for one in crossings(first, second)]
    assert crossed
    assert all(one.nbytes.holds(one.nbytes.value) for one in crossed)


def _peak(sizes: Sequence[float], every: Sequence[Sequence[float]]) -> float:
    tracemalloc.start()
    fit(sizes, every)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def test_memory_stays_small_however_many_samples_and_sizes() -> None:
    random = np.random.default_rng(0)
    many = [list((1e-5 + 1e-9 * size) * np.exp(0.03 * random.standard_normal(60_000))) for size in SIZES[:5]]
    assert _peak(SIZES[:5], many) < 60
    sizes = [float(8 * place) for place in range(1, 301)]
    times = [(1e-5 + 1e-6 * size) * math.exp(0.2 * random.standard_normal()) for size in sizes]
    assert _peak(sizes, [[time] * 5 for time in times]) < 100
