"""Fit of times against sizes: T = a + g*sqrt(S) + b*S, or straight pieces.

No coefficient is negative.  `a` is the time of an empty message, `b` the time per byte of large messages, and `g` the
filling of a pipeline: with d stages and the best piece size, a pipelined transfer takes (sqrt(d*alpha) +
sqrt(S*beta))^2, with a mixed term in sqrt(S).  Residuals are relative, since times span six decades.  Large residuals
count less than their square.

On CPUs the time per byte grows when the array no longer fits a cache.  If the three numbers miss by much, a fourth is
tried, c*max(0, S - C), with the bend C between the sizes; it stays if it halves the misfit.  If that still misses by
much, or there are fewer than four sizes, the curve consists of pieces a + b*S (Hockney, 1994).  Libraries change
algorithm or protocol between sizes, and times jump there.  Where times jump down, the sizes around take their mean
(isotonic regression), since the curve never falls.

Many curves are solved at once.  Inner arrays have shape (terms, sizes, curves): NumPy is fast along the long last axis.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collbench.errors import CollbenchError
from collbench.notebook import Shown
from collbench.results import Observed
from collbench.stats import Estimate, student
from collbench.units import format_seconds, format_size

Floats = npt.NDArray[np.float64]

NOISY = 0.10  # scatter of times on a quiet machine, around neighbours, a median or a fit
_ROUNDS = 8  # of reweighting; weights of clean data converge after three
_HUBER = 1.345  # standard deviations: 95 % as efficient as least squares on normal residuals (Huber, 1964)


def solve(terms: Floats, seconds: Floats) -> Floats:
    """Return coefficients (curves, terms) of curves (curves, sizes); the terms are (curves or 1, sizes, terms).

    Iteratively reweighted Gauss-Newton steps minimize logarithms of ratios, so that twice and half the time are equally
    far off.  A large residual counts less than its square.
    """
    columns, measured = np.ascontiguousarray(terms.transpose(2, 1, 0)), np.ascontiguousarray(seconds.T)
    fitted, off, weights = measured, np.zeros_like(measured), np.ones_like(measured)

    # Each round weights the sizes by their distance from the curve of the round before.
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        coefficients = _nonnegative(columns * (root / fitted), (1 + off) * root)
        fitted = np.maximum((columns * coefficients[:, None]).sum(axis=0), 0.1 * measured)
        off = np.log(measured / fitted)
        far = np.abs(off)
        weights = np.minimum(1, _HUBER * np.maximum(1.4826 * np.median(far, axis=0), 1e-9) / np.maximum(far, 1e-300))
    return coefficients.T


def _nonnegative(columns: Floats, target: Floats) -> Floats:
    """Return for each curve the x >= 0 that minimizes the squares of `columns @ x - target`."""
    scale = np.sqrt((columns**2).sum(axis=1))  # columns span six decades, like the sizes
    whole = np.concatenate([columns / scale[:, None], target[None]]).T  # (curves, sizes, terms and target)
    reduced = np.asarray(np.linalg.qr(whole, mode="r"))
    upper, right = reduced[:, : len(columns), :-1], reduced[:, : len(columns), -1]
    answer = np.linalg.solve(upper, right[..., None])[..., 0]

    # The few curves with a negative x are solved again with the constraint, one by one.
    for curve in np.nonzero((answer < 0).any(axis=1))[0]:
        from scipy.optimize import nnls  # takes a while to load

        answer[curve] = nnls(upper[curve], right[curve])[0]
    coefficients: Floats = answer.T / scale
    return coefficients


FEWEST = 4  # sizes: one more than the three numbers
WORST = 0.40  # largest 90th percentile of relative residuals of a curve of three numbers
FEWEST_TO_BEND = 8  # sizes that a bend needs, with its five numbers
GOOD = 0.10  # largest such percentile without a search for a bend
DRAWS = 400
PIECE, ERRORS = ("first", "last", "latency", "rate"), ("median", "p90", "median_left_out", "p90_left_out")
CONFIDENCE = 0.90


class Unfit(CollbenchError):
    """Data that cannot be fitted; the message says why."""


@dataclass(frozen=True, eq=False)
class CurveFit(Shown):
    """The three numbers or the pieces of a curve, with its data and bootstrap replicates."""

    SHOWN = ("latency", "rate", "half_size", "why_pieces")
    coefficients: Floats  # a in s, g in s/sqrt(byte), b in s/byte; for each bend also c in s/byte
    bends: tuple[float, ...]  # bytes from which on a byte takes c more; c may be negative at the end of a piece
    sizes: Floats  # bytes, ascending
    seconds: Floats  # medians
    draws: Floats  # (DRAWS, coefficients) of bootstrap replicates, with the same bends
    left_out: Floats  # log of measured over fitted time, by a fit to all other sizes
    why_pieces: str = ""  # why the curve is in pieces

    def predict(self, nbytes: float | Floats) -> Floats:
        """Return the fitted seconds at sizes in bytes."""
        return np.asarray(_terms(np.asarray(nbytes, float), *self.bends) @ self.coefficients)

    @property
    def pieces(self) -> list[tuple[float, float, float, float]]:
        """The values of PIECE in bytes, seconds and bytes per second for each piece; [] for a single curve."""
        ends = [float(self.sizes[0]), *self.bends, float(self.sizes[-1])] if self.why_pieces else []
        pieces = []
        for first, last in zip(ends[::2], ends[1::2], strict=True):
            start, end = self.predict(np.array([first, last])).tolist()
            rate = (last - first) / (end - start) if end > (1 + 1e-9) * start else math.inf
            pieces.append((first, last, max(0.0, start - first / rate), rate))
        return pieces

    @property
    def errors(self) -> tuple[float, ...]:
        """The values of ERRORS: relative errors of all sizes, and of each size against a fit to the others."""
        both = np.abs(self.residuals), np.expm1(np.abs(self.left_out))
        return tuple(float(error) for errors in both for error in np.percentile(errors, [50, 90]))

    @property
    def residuals(self) -> Floats:
        """Measured over fitted time, minus one."""
        return np.asarray(self.seconds / self.predict(self.sizes) - 1)

    @property
    def latency(self) -> float:
        """Seconds of an empty message."""
        return float(self.coefficients[0])

    @property
    def rate(self) -> float:
        """The limit of algbw in bytes per second; infinite if time does not grow with the size."""
        return _inverse(float(_last(self.coefficients)))

    @property
    def half_size(self) -> float:
        """Bytes from which on algbw is at least half of the rate (n 1/2); infinite if it never is."""
        return float(_half_size(self.coefficients, self.bends))

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Latency, rate and half size, with intervals from the replicates."""
        _, slow, quick = _estimate(float(_last(self.coefficients)), _last(self.draws))
        return {
            "latency": _estimate(self.latency, self.draws[:, 0]),
            "rate": Estimate(self.rate, _inverse(quick), _inverse(slow)),
            "half_size": _estimate(self.half_size, _half_size(self.draws, self.bends)),
        }

    @cached_property
    def spread(self) -> float:
        """Root mean square of the logarithms of ratios at sizes that were left out of the fit."""
        return float(np.sqrt(np.mean(self.left_out**2)))

    def estimate(self, nbytes: float) -> Estimate:
        """Return the expected seconds of a size that was not measured, with an interval.

        The interval comes from the residuals of left-out sizes, so it covers effects that the form cannot follow (a
        cache's edge, another protocol).  It is the wider of two: Student's t, which is wide for few sizes, and a
        distribution-free order statistic (the jackknife of Barber, Candes, Ramdas and Tibshirani, 2021).
        """
        count = len(self.left_out)
        normal = student(0.5 + CONFIDENCE / 2, count - 1) * self.spread * math.sqrt(1 + 1 / count)
        place = math.ceil(CONFIDENCE * (count + 1)) - 1
        reach = max(normal, float(np.sort(np.abs(self.left_out))[min(place, count - 1)]))
        middle = float(self.predict(nbytes))
        return Estimate(middle, middle * math.exp(-reach), middle * math.exp(reach))


MOST = 64
"""Most sizes of a fit; from more sizes, this many are chosen evenly."""
MOST_CURVES = 64  # fitted curves of a run; a curve of pure noise takes a quarter of a second
_OUT = 32  # most sizes that are left out in turn, and most bends that are tried; half as many pieces
_DRAWN = 1024  # samples that are resampled one by one; of more, the place of the median is drawn (a beta variate)


def fit(sizes: Sequence[float], samples: Sequence[Sequence[float]]) -> CurveFit:
    """Fit the medians of samples (seconds; one or more sequences per size in bytes), or raise Unfit."""
    size = np.unique(np.asarray(sizes, float))
    size = size[_evenly(len(size), MOST)]
    if len(size) < 2:
        raise Unfit("a curve needs 2 sizes or more")
    owners, flat = np.repeat(sizes, list(map(len, samples))), np.concatenate(samples).astype(float)
    every = [flat[owners == nbytes] for nbytes in size]
    seconds = np.array([np.median(sample) for sample in every])
    if not ((seconds > 1e-12) & (seconds < 1e12)).all():
        raise Unfit("a time is zero, negative or impossible; the clock may be too coarse for this size")
    if len(size) < FEWEST:
        return _in_pieces(size, seconds, every, f"a single curve needs {FEWEST} sizes")
    (coefficients,), (bend,), (far,) = _describe(size[None], seconds[None])
    if far > WORST:
        return _in_pieces(size, seconds, every, f"a single curve misses one size in ten by {far:.0%} or more")
    terms = _terms(size, bend)
    central = coefficients[: terms.shape[1]]
    draws = solve(terms[None], _replicates(terms @ central, int((central > 0).sum()), every))
    return CurveFit(central, (float(bend),) if bend < math.inf else (), size, seconds, draws, _left_out(size, seconds))


def _in_pieces(sizes: Floats, seconds: Floats, samples: list[Floats], why: str) -> CurveFit:
    """Fit the fewest pieces within a standard error of the least error of sizes left out (Breiman et al., 1984)."""
    # With two sizes, each predicts the other one by its own time.
    left_out = np.log(seconds / seconds[::-1])[:, None]
    if len(sizes) > 2:
        left_out = np.array([_left_out_of_pieces(sizes, seconds, out) for out in _evenly(len(sizes), _OUT)])

    off = np.abs(left_out)
    best = off[:, off.mean(axis=0).argmin()]
    number = int(np.argmax(off.mean(axis=0) <= best.mean() + best.std() / math.sqrt(len(best))))
    cut = cuts(sizes, seconds)[number]
    bends, (central,) = join(sizes, _rising(seconds[None]), cut)
    draws = join(sizes, _rising(_replicates(_terms(sizes, *bends) @ central, 2 * number + 2, samples)), cut)[1]
    # Two sizes leave no error: all of the time may be due to rate, or to latency.
    if len(sizes) == 2:
        draws = np.resize([[0, 0, seconds[1] / sizes[1]], [seconds[0], 0, 0]], (DRAWS, 3))
    return CurveFit(central, bends, sizes, seconds, draws, left_out[:, number], why)


def _left_out_of_pieces(sizes: Floats, seconds: Floats, out: int) -> list[float]:
    """Return the error of a size against fits of the other sizes by one piece, two pieces, and so on."""
    others, times = np.delete(sizes, out), np.delete(seconds, out)
    rising = _rising(times[None])
    joined = [join(others, rising, cut) for cut in cuts(others, times)]
    return [math.log(seconds[out] / (_terms(sizes[out], *bends) @ row)) for bends, (row,) in joined]


def _terms(nbytes: Floats, *bends: float) -> Floats:
    columns = [np.ones_like(nbytes), np.sqrt(nbytes), nbytes]
    columns += [np.maximum(0, nbytes - bend) for bend in bends if math.isfinite(bend)]
    return np.stack(columns, axis=-1)


def _describe(sizes: Floats, seconds: Floats) -> tuple[Floats, Floats, Floats]:
    """Return coefficients (curves, 4), bends, and 90th percentiles of relative residuals of curves (curves, sizes)."""
    straight = _terms(sizes)
    coefficients = np.pad(solve(straight, seconds), ((0, 0), (0, 1)))
    bends, misfits = np.full(len(seconds), np.inf), _misfits(straight, coefficients[:, :3], seconds)
    (crooked,) = np.nonzero(misfits > GOOD)
    if sizes.shape[1] < FEWEST_TO_BEND or not len(crooked):
        return coefficients, bends, misfits

    # Try a bend at three places between neighbouring sizes, with enough sizes on both sides.
    steps = pairwise(sizes[0][2:-1])
    places = np.array([low * (high / low) ** (i / 3) for low, high in steps for i in range(3)])
    if len(places) > 3 * _OUT:
        places = places[_evenly(len(places), _OUT)]
    terms = np.concatenate([_terms(sizes[crooked], place) for place in places])
    every = np.tile(seconds[crooked], (len(places), 1))
    trials = solve(terms, every)
    off = _misfits(terms, trials, every).reshape(len(places), len(crooked))
    trials = trials.reshape(len(places), len(crooked), -1)

    # Keep the best bend (the last of equal ones) if it halves the misfit.
    best = len(places) - 1 - off[::-1].argmin(axis=0)
    for column, (curve, place) in enumerate(zip(crooked, best, strict=True)):
        if off[place, column] <= misfits[curve] / 2:
            coefficients[curve], bends[curve] = trials[place, column], places[place]
            misfits[curve] = off[place, column]
    return coefficients, bends, misfits


def _misfits(terms: Floats, coefficients: Floats, seconds: Floats) -> Floats:
    fitted = np.einsum("cst,ct->cs", terms, coefficients)
    return np.asarray(np.percentile(np.abs(seconds / fitted - 1), 90, axis=1))


def _replicates(fitted: Floats, used: int, samples: list[Floats]) -> Floats:
    """Return bootstrap times (DRAWS, sizes): resampled medians, and residuals drawn from all sizes."""
    random = np.random.default_rng(0)
    seconds = np.array([np.median(sample) for sample in samples])
    off = np.log(seconds / fitted)
    off = (off - off.mean()) * math.sqrt(len(off) / max(1, len(off) - used))
    medians = []
    for sample in samples:
        half = (len(sample) + 1) / 2
        if len(sample) > _DRAWN:
            drawn = np.sort(sample)[(len(sample) * random.beta(half, half, size=(DRAWS, 1))).astype(int)]
        else:
            drawn = sample[random.integers(len(sample), size=(DRAWS, len(sample)))]
        medians.append(np.log(np.median(drawn, axis=1)))
    noise = np.stack(medians, axis=1) - np.log(seconds)

    # Residuals include the noise of the medians; do not count it twice.
    explained = float(np.mean(noise**2)) / max(float(np.mean(off**2)), 1e-300)
    dealt = random.choice(off, size=noise.shape) * math.sqrt(max(0.0, 1 - explained))
    return np.asarray(fitted * np.exp(dealt + noise))


def _left_out(sizes: Floats, seconds: Floats) -> Floats:
    """Return the logarithmic error of each size against a fit to the other sizes, with its own bend."""
    out = _evenly(len(sizes), _OUT)
    others = np.array([np.delete(np.arange(len(sizes)), place) for place in out])
    coefficients, bends, _ = _describe(sizes[others], seconds[others])
    rows = zip(sizes[out], bends, coefficients, strict=True)
    fitted = [_terms(size, bend) @ row[: _terms(size, bend).size] for size, bend, row in rows]
    return np.asarray(np.log(seconds[out] / np.maximum(fitted, 1e-3 * seconds[out])))


def _evenly(count: int, most: int) -> npt.NDArray[np.int_]:
    """Return at most `most` places, evenly from the first to the last."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def _last(coefficients: Floats) -> Floats:
    """Return the seconds per byte beyond all bends; exactly 0 if the slopes cancel."""
    slopes = coefficients[..., 2:]
    return np.where(slopes.sum(axis=-1) > 1e-12 * np.abs(slopes).max(axis=-1), slopes.sum(axis=-1), 0.0)


def _half_size(coefficients: Floats, bends: Sequence[float]) -> Floats:
    """Return the size from which S / T(S) is half of its limit 1/B: 2*B*S = T(S), quadratic in sqrt(S)."""
    (a, g, b, *changes), end = np.moveaxis(coefficients, -1, 0), _last(coefficients)
    half = _positive_root(2 * end - b, g, a)
    for bend, change in zip(bends, changes, strict=True):
        a, b = a - change * bend, b + change
        beyond = _positive_root(2 * end - b, g, a)
        half = np.where((beyond >= bend) & (beyond < np.inf), beyond, half)
    return half


def _positive_root(square: Floats, linear: Floats, constant: Floats) -> Floats:
    """Return S with square*S - linear*sqrt(S) - constant = 0; inf if there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.maximum(0, linear * linear + 4 * square * constant)
        return np.where(square > 0, ((linear + np.sqrt(inside)) / (2 * square)) ** 2, np.inf)


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else math.inf


def _estimate(value: float, values: Floats) -> Estimate:
    """Return a value with the middle share of its replicates as interval, widened to include the value.

    Order statistics allow infinite replicates.  Coefficients are not negative, so replicates of one near zero shift the
    others to one side, and their middle share may miss the value.
    """
    share = [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]
    low, high = np.quantile(values, share, method="nearest")
    return Estimate(value, min(value, float(low)), max(value, float(high)))


_GRID = 512  # places at which two curves are compared: 4 % apart in a sweep of 30 octaves


class Crossing(NamedTuple):
    """A size in bytes where the faster of two curves changes."""

    nbytes: Estimate
    sure: bool  # whether nearly all replicates have it; else the interval has all common sizes


def crossings(first: CurveFit, second: CurveFit) -> list[Crossing]:
    """Return the crossings of two curves within their common sizes; replicates include errors of left-out sizes."""
    low, high = max(first.sizes[0], second.sizes[0]), min(first.sizes[-1], second.sizes[-1])
    if low >= high:
        return []
    places = np.geomspace(low, high, _GRID)
    random = np.random.default_rng(0)
    gaps = _replicates_off(first, places, random) - _replicates_off(second, places, random)
    crossed = []
    for sign in (1, -1):
        # In each replicate, the crossing in the same direction nearest to that of the fits counts.
        replicates = [sign_changes(places, sign * gap) for gap in gaps]
        for root in sign_changes(places, sign * (first.predict(places) - second.predict(places))):
            near = [min(roots, key=lambda size: abs(math.log(size / root))) for roots in replicates if roots]
            sure = len(near) > CONFIDENCE * len(replicates)
            crossed.append(Crossing(_estimate(root, np.array(near if sure else [low, high])), sure))
    return sorted(crossed)


def _replicates_off(curve: CurveFit, places: Floats, random: np.random.Generator) -> Floats:
    """Return replicates of a curve, each with the error of a random left-out size."""
    off = random.choice(curve.left_out, size=(len(curve.draws), 1))
    return np.asarray(np.exp(off) * (curve.draws @ _terms(places, *curve.bends).T))


def sign_changes(places: Floats, gap: Floats) -> list[float]:
    """Return the sizes where a difference becomes positive, by linear interpolation; zeros are left out."""
    places, gap = places[gap != 0], gap[gap != 0]
    at = np.flatnonzero((gap[:-1] < 0) & (gap[1:] > 0))
    share = gap[at] / (gap[at] - gap[at + 1])
    return [float(size) for size in places[at] + share * (places[at + 1] - places[at])]


def cuts(sizes: Floats, seconds: Floats) -> list[list[int]]:
    """Return the best cuts into one piece, two pieces, and so on, by dynamic programming.

    A cut is the list of places where pieces begin, plus the number of sizes.  Each piece has at least two sizes.
    Errors are logarithms of ratios.
    """
    count, place = len(sizes), np.arange(len(sizes))
    first, last = place[:, None, None], place[:, None]
    inside = (np.minimum(first, last) <= place) & (place <= np.maximum(first, last))
    latency, per_byte = _lines(sizes, _rising(seconds[None])[0], inside)
    off = np.abs(np.log(seconds / (latency[..., None] + per_byte[..., None] * sizes)))

    # Cost of a piece between any two places: the errors of the best line through its sizes.
    cost = np.full((count + 1, count + 1), np.inf)
    cost[:-1, 1:] = np.where((last > first)[..., 0], (off * inside).sum(axis=-1), np.inf)

    # Each turn adds a last piece to the best cuts with one piece less.
    best, begins, every = cost[0], [[0]] * (count + 1), []
    for _ in range(min(count, _OUT) // 2):
        every.append([*begins[-1], count])
        ways = best[:, None] + cost
        best, begins = ways.min(axis=0), [[*begins[before], int(before)] for before in ways.argmin(axis=0)]
    return every


def join(sizes: Floats, seconds: Floats, cut: list[int]) -> tuple[tuple[float, ...], Floats]:
    """Return the bends at the ends of pieces, and the coefficients of each of the rising curves (curves, sizes)."""
    place, ends = np.arange(len(sizes)), np.array([(low, high - 1) for low, high in pairwise(cut)])
    inside = (ends[:, :1] <= place) & (place <= ends[:, 1:])
    latency, per_byte = _lines(sizes, seconds, inside[:, None])

    # Times at both ends of each piece (pieces, curves, first and last) must not fall from one piece to the next.
    at_ends = latency[..., None] + per_byte[..., None] * sizes[ends][:, None]
    times = np.maximum.accumulate(at_ends.transpose(1, 0, 2).reshape(len(seconds), -1), axis=1)
    changes = np.diff(np.diff(times) / np.diff(sizes[ends.ravel()]), axis=1, prepend=0)
    start = np.stack([latency[0], np.zeros(len(seconds))], axis=1)
    return tuple(sizes[ends.ravel()][1:-1].tolist()), np.concatenate([start, changes], axis=1)


def _rising(seconds: Floats) -> Floats:
    """Return the nearest times that never fall with size, by least squares of the logarithms of ratios."""
    from scipy.optimize import isotonic_regression  # takes a while to load

    return np.exp([isotonic_regression(curve).x for curve in np.log(seconds)])


def _lines(sizes: Floats, seconds: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return a, b >= 0 of the line a + b*S with the least squares of relative errors over the sizes `inside`."""
    # The normal equations of a + b*S, with weights that make the errors relative.
    weights = inside / seconds**2
    one, size, square = ((weights * sizes**power).sum(axis=-1) for power in range(3))
    time, product = ((weights * seconds * sizes**power).sum(axis=-1) for power in range(2))
    determinant = np.maximum(one * square - size**2, 1e-12 * one * square)
    latency, per_byte = (time * square - product * size) / determinant, (product * one - time * size) / determinant

    # A negative a or b, or one that is 0 up to rounding, becomes 0, and the other one is fitted alone.
    flat, through_zero = per_byte * size <= 1e-9 * latency * one, latency <= 0
    latency = np.where(flat, time / one, np.where(through_zero, 0, latency))
    return latency, np.where(flat, 0, np.where(through_zero, product / square, per_byte))


def curve_remarks(rows: Sequence[Observed], known: CurveFit | None = None) -> Iterator[str]:
    """Yield remarks on a curve without a model of its machine; `known` is its fit, if there is one."""
    notes = dict.fromkeys(filter(None, (str(row.note.brief) for row in rows)))
    if notes:
        yield f"remarks on its rows: {'; '.join(notes)}"

    # With few samples, the noise is unknown and the interval infinite.
    wide = [row for row in rows if NOISY < row.relative_halfwidth < math.inf]
    if wide:
        worst = max(wide, key=lambda row: row.relative_halfwidth)
        most = f"{worst.relative_halfwidth:.0%}" if worst.relative_halfwidth < 10 else "more than 999%"
        where = f"{format_size(worst.case.nbytes)} by {most}"
        yield f"noisy: {len(wide)} of {len(rows)} sizes uncertain by more than {NOISY:.0%} ({where})"
    for before, after in pairwise(rows):
        if (1 + NOISY) * after.percentile(100) < before.percentile(0):
            smaller, larger = (format_size(row.case.nbytes) for row in (before, after))
            yield f"{larger} takes less time than {smaller}: the algorithm changes, or {smaller} was disturbed"
    yield from _against_fit(rows, known)


def _against_fit(rows: Sequence[Observed], known: CurveFit | None) -> Iterator[str]:
    try:
        fitted = known or fit([row.case.nbytes for row in rows], [row.times for row in rows])
    except Unfit as error:
        yield f"no fit: {error}"
        return
    rate = f"{fitted.rate / 1e9:.3g} GB/s" if math.isfinite(fitted.rate) else "no size large enough to show a rate"
    pieces = f" (pieces: {len(fitted.pieces)})" if fitted.pieces else ""
    latency = format_seconds(fitted.latency) if fitted.latency > 0 else "unknown without smaller sizes"
    yield f"fitted by itself{pieces}: latency {latency}, {rate}"
    far = []
    for row in rows:
        expected = fitted.estimate(row.case.nbytes)
        off = row.typical / expected.value - 1
        if abs(off) > NOISY and not expected.holds(row.typical):
            far.append(f"{format_size(row.case.nbytes)} {off:+.0%}")
    if far:
        yield f"far from that fit: {', '.join(far)}"
