"""Nodes of a fleet that stand out: each is held against the median of those that are alike, by robust statistics.

For each size, and for the median over all sizes, a node's logarithm of time is measured in units of the spread between
nodes: Tukey's biweight midvariance, which outliers hardly change.  Student's t with 0.7 (n - 1) degrees of freedom (F.
Mosteller and J. Tukey, Data Analysis and Regression, 1977, chapter 10) says how far is too far, for all nodes and sizes
together (Bonferroni).  Times have longer tails than that, by disturbances; so as many sizes of a node must stand out as
would by chance in hardly any fleet, if single sizes do as often as among the others.  docs/fleet.md has how often that
errs.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.runfile.fleet import Curve, Figure, Node
from collbench.stats import student
from collbench.units import format_size

FEWEST = 5
"""Alike nodes from which on anything is concluded."""
ERROR = 0.05
"""How often any node of a fleet is named that is like all others: half for single sizes, half for all together."""
SLOWER = 0.05
"""The usual share of time from which on a difference matters."""
_FLOOR = 2e-3  # least spread: printed times of three digits are no closer
_MEDIAN = 1.253  # standard error of a median over that of a mean (normal, many)

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Outlier:
    """A node that is slower or faster than those that are alike, or than it was itself."""

    node: str
    curve: Curve
    ratio: float  # of times, the median over the sizes below; above 1 is slower
    low: float  # 95 % interval, of all nodes that are named together
    high: float
    sizes: tuple[int, ...]  # in bytes at which it stands out; empty: all sizes taken together do
    measured: int  # sizes
    against: str = "than the fleet's median"

    @property
    def slower(self) -> bool:
        """Whether it is slower, and not faster."""
        return self.ratio > 1

    @property
    def words(self) -> str:
        """`9.8 % slower (8.1 to 11.4 %) than the fleet's median, at 7 of 9 sizes, from 1 MiB on`."""
        ends = sorted(100 * (end - 1 if self.slower else 1 - end) for end in (self.low, self.high))
        share = f"{100 * abs(self.ratio - 1):.1f} % {'slower' if self.slower else 'faster'}"
        if not self.sizes:
            where = f"over all {self.measured} sizes together" if self.measured > 1 else "at its size"
        elif len(self.sizes) == self.measured:
            where = f"at all {self.measured} sizes"
        else:
            first = format_size(self.sizes[0])
            where = f"at {len(self.sizes)} of {self.measured} sizes, " + (
                f"from {first} on" if self.sizes[1:] else first
            )
        return f"{share} ({ends[0]:.1f} to {ends[1]:.1f} %) {self.against}, {where}"


@dataclass(frozen=True, eq=False)
class Group:
    """Alike nodes: the times of a curve by node and size, NaN where a node has none."""

    curve: Curve
    nodes: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes
    times: Array  # seconds; of a change between two nights, ratios of times
    errors: Array  # standard errors of the logarithms of times; 0 where not known
    outliers: tuple[Outlier, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether there are so many nodes at each size that anything can be concluded."""
        return bool(np.count_nonzero(np.isfinite(self.times), axis=0).min() >= FEWEST)

    @property
    def medians(self) -> Array:
        """The fleet's median time at each size."""
        return np.asarray(np.nanmedian(self.times, axis=0))

    @property
    def ratios(self) -> Array:
        """Times over the fleet's median at each size, by node and size."""
        return self.times / self.medians

    @property
    def spreads(self) -> Array:
        """Robust standard deviation between nodes at each size, relative to the median."""
        return _spread(np.log(self.ratios))

    @property
    def busbw(self) -> Array:
        """Bus bandwidth of the median times in bytes per second."""
        return np.array(
            [self.curve.busbw(size, seconds) for size, seconds in zip(self.sizes, self.medians, strict=True)]
        )


def groups(nodes: Sequence[Node], slower: float = SLOWER) -> list[Group]:
    """Return nodes by what they have in common, the largest group first, with their outliers.

    Args:
        nodes: The fleet.
        slower: Share of the median time by which a node must differ at least to be named.

    """
    return _judged(_alike({node.name: node.curves for node in nodes}), slower, "than the fleet's median")


def changes(before: Sequence[Node], after: Sequence[Node], slower: float = SLOWER) -> list[Group]:
    """Return how the times of nodes changed between two nights; outliers changed otherwise than the fleet's median."""
    old = {node.name: node.curves for node in before}
    changed: dict[str, dict[Curve, dict[int, Figure]]] = {}
    for node in after:
        for curve, figures in node.curves.items():
            earlier = old.get(node.name, {}).get(curve, {})
            ratios = {size: _over(figures[size], earlier[size]) for size in figures.keys() & earlier.keys()}
            if ratios:
                changed.setdefault(node.name, {})[curve] = ratios
    return _judged(_alike(changed), slower, "than before")


def _over(new: Figure, old: Figure) -> Figure:
    return Figure(new.seconds / old.seconds, math.hypot(new.error, old.error))


def _alike(curves: Mapping[str, Mapping[Curve, Mapping[int, Figure]]]) -> list[Group]:
    by_curve: dict[Curve, dict[str, Mapping[int, Figure]]] = {}
    for name, every in curves.items():
        for curve, figures in every.items():
            by_curve.setdefault(curve, {})[name] = figures
    found = []
    for curve, nodes in by_curve.items():
        counts = Counter(size for figures in nodes.values() for size in figures)
        common = {size for size, count in counts.items() if count >= FEWEST} or set(counts)
        alike = {name: figures for name, figures in nodes.items() if not common.isdisjoint(figures)}
        others = {name: figures for name, figures in nodes.items() if name not in alike}
        found += [_group(curve, common, alike)] + ([_group(curve, set(counts) - common, others)] if others else [])
    return sorted(found, key=lambda group: (-len(group.nodes), group.curve.title))


def _group(curve: Curve, chosen: Set[int], nodes: Mapping[str, Mapping[int, Figure]]) -> Group:
    sizes, none = sorted(chosen), Figure(math.nan)
    table = np.array([[figures.get(size, none) for size in sizes] for figures in nodes.values()])
    return Group(curve, tuple(nodes), tuple(sizes), table[:, :, 0], table[:, :, 1])


def _judged(found: Sequence[Group], slower: float, against: str) -> list[Group]:
    tests = sum(group.times.size for group in found if group.enough)
    nodes = sum(len(group.nodes) for group in found if group.enough)
    judged = []
    for group in found:
        outliers = _outliers(group, nodes, tests, slower, against) if group.enough else ()
        judged.append(Group(group.curve, group.nodes, group.sizes, group.times, group.errors, tuple(outliers)))
    return judged


def _outliers(group: Group, nodes: int, tests: int, slower: float, against: str) -> Iterator[Outlier]:
    """Yield the nodes that stand out, where so many nodes and single times are tested in all."""
    logs = np.log(group.ratios)
    freedom = 0.7 * (len(group.nodes) - 1)
    # A node whose own times are less sure than usual is held against that.
    excess = np.maximum(0.0, group.errors**2 - np.nanmedian(group.errors, axis=0) ** 2)
    scores = logs / np.sqrt(_spread(logs) ** 2 + excess)
    together = np.nanmedian(scores, axis=1)
    together /= _spread(together[:, None], 0.1)
    limit = student(1 - ERROR / 4 / tests, freedom)
    far = {sign: sign * scores > limit for sign in (1, -1)}
    single = {sign: _beyond_chance(far[sign], np.isfinite(scores), nodes) for sign in far}
    whole = np.abs(together) > student(1 - ERROR / 4 / nodes, freedom)
    reach = student(1 - ERROR / 2 / nodes, freedom)
    noise = _noise(logs)
    for row in np.flatnonzero(single[1] | single[-1] | whole).tolist():
        known = np.isfinite(logs[row])
        sign = next((sign for sign in single if single[sign][row]), 1 if together[row] > 0 else -1)
        same = far[sign][row]
        chosen = same if same.any() else known
        middle = float(np.median(logs[row, chosen]))
        error = math.hypot(_error(logs[row], noise, group.errors[row], chosen), _of_median(logs, chosen))
        if abs(middle) < max(math.log1p(slower), reach * error):  # too little, or the node's sizes disagree
            continue
        ratio, low, high = map(math.exp, (middle, middle - reach * error, middle + reach * error))
        sizes = tuple(size for size, found in zip(group.sizes, same, strict=True) if found)
        measured = int(np.count_nonzero(known))
        yield Outlier(group.nodes[row], group.curve, ratio, low, high, sizes, measured, against)


def _beyond_chance(far: Marks, known: Marks, nodes: int) -> Marks:
    """Return the nodes of which so many sizes stand out as would by chance in a few fleets only.

    Sizes stand out by chance as often as those of the nodes of which fewer do, and once more: so slow nodes do not hide
    each other.
    """
    from scipy.special import bdtrc  # 0.1 s, which no help should wait for

    count, sizes, chance = far.sum(axis=1), known.sum(axis=1), np.ones(len(far))
    for many in np.unique(count[count > 0]):
        fewer, same = count < many, count == many
        rate = (count[fewer].sum() + 1) / (sizes[fewer].sum() + 1)
        chance[same] = bdtrc(many - 1.0, sizes[same], rate)
    return np.asarray(nodes * chance < ERROR / 4)


def _spread(values: Array, floor: float = _FLOOR) -> Array:
    """Return the square root of Tukey's biweight midvariance of each column (D. Lax, 1985); NaN counts as missing."""
    away = values - np.nanmedian(values, axis=0)
    units = away / (9 * np.maximum(np.nanmedian(np.abs(away), axis=0), floor / 9))
    inside = np.abs(units) < 1  # False of NaN
    away, squares = np.where(inside, away, 0.0), np.where(inside, units, 0.0) ** 2
    above = np.sum(away**2 * (1 - squares) ** 4, axis=0)
    below = np.sum(np.where(inside, (1 - squares) * (1 - 5 * squares), 0.0), axis=0)
    count = np.count_nonzero(np.isfinite(values), axis=0)
    return np.asarray(np.maximum(np.sqrt(count * above) / np.abs(below), floor))


def _noise(logs: Array) -> Array:
    """Return how far the sizes of a node scatter around the node's median, at each size; of a single size all of it."""
    sizes = logs.shape[1]
    if sizes == 1:
        return _spread(logs)
    residuals = logs - np.nanmedian(logs, axis=1, keepdims=True)
    return _spread(residuals) * math.sqrt(sizes / (sizes - 1))


def _error(logs: Array, noise: Array, errors: Array, chosen: Marks) -> float:
    """Return the standard error of the median over the chosen sizes of a node: usual, stated or seen."""
    count = int(np.count_nonzero(chosen))
    usual = math.sqrt(float(np.mean(np.maximum(noise, errors)[chosen] ** 2)))
    away = np.abs(logs[chosen] - np.median(logs[chosen]))
    scatter = 1.4826 * float(np.median(away))  # as a standard deviation; a single disturbed size does not count
    return (_MEDIAN if count > 2 else 1.0) * max(usual, scatter) / math.sqrt(count)


def _of_median(logs: Array, chosen: Marks) -> float:
    """Return the standard error of the fleet's median, the same for all nodes."""
    return _MEDIAN * float(np.mean(_spread(logs)[chosen])) / math.sqrt(len(logs))
