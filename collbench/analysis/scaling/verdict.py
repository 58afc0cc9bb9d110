"""A scaling in words: how much of the ranks is used, whether that is healthy, and what would help."""

from collections.abc import Iterator

from collbench.analysis.rounds import Estimate
from collbench.analysis.scaling.advice import parts, remedies
from collbench.analysis.scaling.laws import best, fits
from collbench.analysis.scaling.points import Curve, Point
from collbench.cases import STRONG

THRESHOLD = 0.75
"""Efficiency from which on scaling counts as healthy: what practitioners expect at least of 64 ranks."""

USUAL = {8: (0.95, 0.98), 64: (0.75, 0.88), 256: (0.70, 0.80)}
"""Efficiencies that practitioners quote for data-parallel training, by the number of GPUs."""

HEALTHY, POOR, INCONCLUSIVE = "healthy", "poor", "inconclusive"
_MOST = 3  # remedies that are named
_UNEVEN = 0.05  # of a rank's share of the products: more than that is worth a word


def judged(efficiency: Estimate, threshold: float) -> str:
    """HEALTHY or POOR where all of the interval is; INCONCLUSIVE where the threshold lies in it, or there is none."""
    if not efficiency.known:
        return INCONCLUSIVE
    if efficiency.low >= threshold:
        return HEALTHY
    return POOR if efficiency.high < threshold else INCONCLUSIVE


def lines(curve: Curve, threshold: float = THRESHOLD) -> list[str]:
    """The verdict on the most ranks, the laws that fit, and what would help where it is not healthy."""
    point = curve.last
    said = [_verdict(curve, point, threshold)]
    said.append(_laws(curve))
    if judged(point.efficiency, threshold) != HEALTHY:
        said += _advice(curve, point)
    return said


def _verdict(curve: Curve, point: Point, threshold: float) -> str:
    speedup, efficiency = curve.speedup(point), point.efficiency
    own = parts(curve, point)
    whole = own.computing + own.waiting + own.exposed
    base = "" if curve.base.ranks == 1 else f" (taking {curve.base.ranks} ranks for perfect)"
    slower = own.computing / own.alone - 1
    shares = [f"communication is {own.exposed / whole:.0%} of the step", f"waiting {own.waiting / whole:.0%}"]
    shares += [f"computing takes {slower:.0%} longer than alone"] if slower > 0.02 else []
    word = judged(efficiency, threshold)
    against = f"healthy is {threshold:.0%} and more"
    return (
        f"{curve.name}, {curve.mode}: {point.ranks:,} ranks give {speedup.text('x')}{base}: "
        f"{efficiency.value:.0%}, {word} ({against}); {', '.join([*shares, *_unshared(curve, point)])}"
    )


def _unshared(curve: Curve, point: Point) -> Iterator[str]:
    """A word on strong scaling whose ranks make notably more products, or fewer, than their share."""
    first, own = curve.base.row.case.step, point.row.case.step
    if curve.mode == STRONG and first and own and own.products:
        fair = first.products * curve.base.ranks / point.ranks
        if abs(own.products / fair - 1) > _UNEVEN:
            yield f"products cannot be shared evenly: a rank makes {own.products}, its share is {fair:.3g}"


def _laws(curve: Curve) -> str:
    if all(curve.speedup(point).value < 1 for point in curve.more):
        return "no law of scaling: more ranks do less a second than one"
    fitted = fits(curve)
    told = []
    for one in fitted:
        values = ", ".join(f"{name} {value.text()}" for name, value in zip(one.law.parameters, one.values, strict=True))
        left = "exact, as many points as parameters" if one.residual is None else f"residual {one.residual:.2%}"
        told.append(f"{one.law.name}: {values}, {left}")
    nearest = best(fitted)
    return "; ".join(told) + (f"; nearest is {nearest.law.name}" if nearest and len(fitted) > 1 else "")


def _advice(curve: Curve, point: Point) -> list[str]:
    named = remedies(curve, point)[:_MOST]
    told = [f"{remedy.words}: {'at most ' if remedy.at_best else ''}{value:.0%}" for remedy, value in named]
    return [f"what would help most: {'; '.join(told)}"] if told else []
