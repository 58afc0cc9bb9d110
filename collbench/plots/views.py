"""Views: the y axis of figures by message size, and bounds.

A new view is an entry in VIEWS.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from collbench.analysis.roofline import LinkRoofline, share
from collbench.errors import unknown
from collbench.plots.panels import Drawn, Panel, line_of
from collbench.results import family
from collbench.units import format_seconds

Band = tuple[float, float]


class View(NamedTuple):
    """The y axis of a figure: the value for the seconds of an operation, and its text."""

    name: str  # of the file and for --view
    heading: str  # subject of the figure; empty: the label of its y axis
    value: Callable[[Panel, Drawn, float], float]  # for given seconds; NaN leaves the point out
    label: Callable[[Sequence[Panel]], str]  # name of the axis
    tick: Callable[[float], str]  # a value as text
    lacking: Callable[[Panel], str] = lambda panel: ""  # reason for not drawing the panel; empty: it can be drawn
    remark: Callable[[Panel], str] = lambda panel: ""  # added to the panel's title
    ratio: bool = False  # to the library, whose interval counts as well
    interval: str = "95 % interval"  # name of a measured band in the legend
    level: float | None = None  # value of a horizontal line
    bounded: bool = False  # whether known bounds are drawn
    scale: str = "log"
    companion: str = ""  # view at its right for one topology, unless that has its own figure

    def middle(self, panel: Panel, result: Drawn) -> float:
        """Return the value of the typical time."""
        return self.value(panel, result, result.typical)

    def band(self, panel: Panel, result: Drawn) -> Band:
        """Return the ends of the value's band; NaN if unknown.

        The band of a ratio goes from fastest over slowest to slowest over fastest: both medians are in their 95 %
        intervals with a probability of at least 90 %.  Errors of two predictions are correlated in an unknown way.
        """
        if not self.ratio:
            return self.value(panel, result, result.band[0]), self.value(panel, result, result.band[1])
        library = panel.library(result)
        if library is None or line_of(result).predicted:
            return math.nan, math.nan
        return library.band[0] / result.band[1], library.band[1] / result.band[0]


def _rate(value: float) -> str:
    """Return bytes/s as text; a GB/s is 1e9, as in nccl-tests."""
    for scale, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} B/s" if value else "0"


def _without_size(panel: Panel) -> str:
    collective = panel.results[0].case.collective
    return "" if collective.sized else f"messages of a {collective.name} have no size"


def _speedup(panel: Panel, result: Drawn, seconds: float) -> float:
    library = panel.library(result)
    return library.typical / seconds if library else math.nan


def _over_whom(row: Sequence[Panel]) -> str:
    libraries = (panel.library(result) for panel in row for result in panel.results)
    names = dict.fromkeys(family(library.implementation) for library in libraries if library)
    return f"speed-up over {' or '.join(names)}"


def _without_library(panel: Panel) -> str:
    if not panel.libraries:
        return "no library (nccl, mpi) was timed there to compare with"
    compared = any(panel.library(result) for result in panel.results)
    return "" if compared else "no implementation and the library have a time for the same size"


# Logarithmic axes show small messages, with thousandths of the bandwidth of large ones, and put twice and half as fast
# at equal distances from 1.
VIEWS: tuple[View, ...] = (
    View(
        name="bandwidth",  # of the bus, or of the algorithm if no bus connects the ranks
        heading="",
        value=lambda panel, result, seconds: result.case.nbytes / seconds * (panel.factor or 1),
        label=lambda row: f"{'bus' if row[0].factor else 'algorithm'} bandwidth",
        tick=_rate,
        lacking=_without_size,
        bounded=True,
        companion="ratio",
    ),
    View(
        name="latency",
        heading="latency",
        value=lambda panel, result, seconds: seconds,
        label=lambda row: "time per operation",
        tick=format_seconds,
        bounded=True,
    ),
    View(
        name="ratio",
        heading="speed-up",
        value=_speedup,
        label=_over_whom,
        tick=lambda value: f"{value:g}x",
        lacking=_without_library,
        ratio=True,
        interval="90 % interval",
        level=1.0,
    ),
    View(
        name="bound",
        heading="share of the bound",
        value=lambda panel, result, seconds: share(result, panel.bound, seconds),
        label=lambda row: "bandwidth over its bound",
        tick=lambda value: f"{100 * value:.3g} %",
        lacking=lambda panel: "" if panel.bound else f"no bound is known: {panel.unbounded}",
        remark=lambda panel: str(panel.bound or ""),
        level=1.0,
        scale="linear",
    ),
)


def named(names: Iterable[str]) -> list[str]:
    """Return the names of views, with `all` expanded; UsageError for an unknown name."""
    known, requested = [view.name for view in VIEWS], list(names)
    for name in requested:
        if name not in (*known, "all"):
            raise unknown("--view", name, ("all", *known))
    return known if "all" in requested else requested


def chosen(names: Iterable[str]) -> list[View]:
    """Return the views of these names, in the order of VIEWS, without companions that have their own figure."""
    requested = named(names)
    views = [view for view in VIEWS if view.name in requested]
    return [view._replace(companion="") if view.companion in requested else view for view in views]


class Limit(NamedTuple):
    """A bound in the units of a view."""

    name: str
    legend: str  # text in the legend
    values: Mapping[int, float]  # by size, in rising order
    is_rate: bool  # whether y is a rate, so that the bound is above the lines
    measured: bool  # only at its sizes

    @property
    def last(self) -> float:
        """The value at its largest size."""
        return list(self.values.values())[-1]


_SHORTEST = 0.3  # of the shortest time in a panel; shorter bounds are not drawn


def limit(panel: Panel, view: View) -> Limit | None:
    """Return the bound of a panel; None if it is unknown, or the view does not show it.

    The memory bound is the time of a copy of the case's bytes, measured in turn with the samples of each row.  Else the
    bound is the data sheet's line rate.  As bus bandwidth, which counts a ring's bytes, it exceeds this rate if
    switches add.
    """
    if not view.bounded:
        return None
    results, bound = sorted(panel.results, key=lambda result: result.case.nbytes), panel.bound
    is_rate = view.value(panel, results[0], 2.0) < view.value(panel, results[0], 1.0)
    values = {row.case.nbytes: view.value(panel, row, row.floor) for row in results if row.floor}
    if values:
        return Limit("memory copy", "memory copy, in the same run", values, is_rate, True)
    if not isinstance(bound, LinkRoofline):
        return None

    # A bound far below all times would only stretch the axis.
    least = _SHORTEST * min(result.typical for result in results)
    for result in results:
        seconds = bound.seconds(result.case.nbytes)
        if is_rate or seconds >= least:
            values[result.case.nbytes] = view.value(panel, result, seconds)
    legend = f"bound by {bound.where} (line rate {bound.line / 1e9:.4g} GB/s)"
    return Limit("bound", legend, values, is_rate, False) if values else None
