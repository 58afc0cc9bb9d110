"""What a curve shows by itself, without a model of its machine: sizes out of line, noise, ranks without a core."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from collbench.analysis.curve_fit import CurveFit, Unfit, fit
from collbench.results import Observed
from collbench.units import format_seconds, format_size

NOISY = 0.10  # how far times scatter on a machine at rest: about neighbours, a median or a fit


def curve_remarks(rows: Sequence[Observed], known: CurveFit | None = None) -> Iterator[str]:
    """Return what a curve, by ascending size, says without any model of its machine, a sentence each.

    `known` is the fit to just these rows, if there is one.
    """
    notes = dict.fromkeys(filter(None, (str(row.note.brief) for row in rows)))
    if notes:
        yield f"remarks on its rows: {'; '.join(notes)}"

    # With few samples nothing is known of their noise: their interval is infinite.
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
    rate = f"{fitted.rate / 1e9:.3g} GB/s" if math.isfinite(fitted.rate) else "no size large enough to see a rate"
    pieces = f" (pieces: {len(fitted.pieces)})" if fitted.pieces else ""
    latency = format_seconds(fitted.latency) if fitted.latency > 0 else "not seen without smaller sizes"
    yield f"fitted by itself{pieces}: latency {latency}, {rate}"
    far = []
    for row in rows:
        expected = fitted.estimate(row.case.nbytes)
        off = row.typical / expected.value - 1
        if abs(off) > NOISY and not expected.holds(row.typical):
            far.append(f"{format_size(row.case.nbytes)} {off:+.0%}")
    if far:
        yield f"far from that fit: {', '.join(far)}"
