"""What a measured curve says without any model of its machine: sizes out of line, noise, ranks without a core."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from collbench import stats
from collbench.algorithms import implementations
from collbench.analysis.fit.curve import CurveFit, Unfit, fit
from collbench.errors import Unsupported
from collbench.platforms import platforms
from collbench.results import Observed
from collbench.units import format_seconds, format_size

WIDE = 0.10  # half the interval of a median, relative
APART = 2.0  # a measured time over the expected one that is worth a remark


def remarks(rows: Sequence[Observed], known: CurveFit | None = None) -> Iterator[str]:
    """One sentence each, of one curve by ascending size; `known` is the fit to just these rows, if there is one."""
    yield from dict.fromkeys(f"the rows say: {row.note}" for row in rows if str(row.note))
    wide = [row for row in rows if _halfwidth(row) > WIDE]
    if wide:
        worst = max(wide, key=_halfwidth)
        where = f"{format_size(worst.case.nbytes)}, ± {_halfwidth(worst):.0%}"
        yield f"noisy samples at {len(wide)} of {len(rows)} sizes (worst at {where}): something else ran"
    falling = [(a, b) for a, b in pairwise(rows) if b.percentile(100) < a.percentile(0)]
    for before, after in falling:
        smaller, larger = (format_size(row.case.nbytes) for row in (before, after))
        yield f"{larger} takes less than {smaller}: another algorithm there, or one of both was disturbed"
    yield from _against_own_fit(rows, known)
    yield from _against_costs(rows)


def _halfwidth(row: Observed) -> float:
    halfwidth = row.relative_halfwidth
    return halfwidth if math.isfinite(halfwidth) else 0.0  # with few samples nothing is known of their noise


def _against_own_fit(rows: Sequence[Observed], known: CurveFit | None) -> Iterator[str]:
    try:
        own = known or fit([row.case.nbytes for row in rows], [row.times for row in rows])
    except Unfit as error:
        yield f"its own curve has no fit: {error}"
        return
    yield f"by its own curve: latency {format_seconds(own.latency)}, {_rate(own)}"
    for row, off in zip(rows, own.residuals.tolist(), strict=True):
        low, high = own.prediction_interval(row.case.nbytes)
        if not low <= row.typical <= high:
            yield f"{format_size(row.case.nbytes)} is {off:+.0%} off that curve, out of line with the other sizes"


def _rate(own: CurveFit) -> str:
    return f"{own.rate / 1e9:.3g} GB/s" if math.isfinite(own.rate) else "no size large enough to see a rate"


def _against_costs(rows: Sequence[Observed]) -> Iterator[str]:
    """Hand-written rungs on CPUs, by counts of waits and bytes and the constants of one CPU."""
    way, kind = implementations().get(rows[0].implementation), platforms().get(rows[0].platform)
    if not kind or not kind.fitted or not way or not way.cost or any(row.note.oversubscribed for row in rows):
        return
    try:
        ratios = [row.typical / kind.fitted.seconds(way.cost(row.case), row.case.nbytes) for row in rows]
    except (Unsupported, TypeError):
        return
    typical = stats.percentile(ratios, 50)
    words = "about as fast as" if 1 / APART < typical < APART else f"{typical:.2g} times the time of"
    yield f"small and large together: {words} the CPU that the costs of hand-written rungs were fitted to"
