"""The y axis of a figure against message size: bandwidth, time, speed-up, share of the bound; and the bound.

Another view is an entry in VIEWS.
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
    """The y axis of a figure: which value stands for the seconds of an operation, and how it is written."""

    name: str  # of the file and for --view
    heading: str  # what the figure is of; empty: what its y axis is
    value: Callable[[Panel, Drawn, float], float]  # of so many seconds; NaN, which leaves the point out: there is none
    label: Callable[[Sequence[Panel]], str]  # name of the axis
    tick: Callable[[float], str]  # a value as text
    lacking: Callable[[Panel], str] = lambda panel: ""  # why it cannot be drawn of the panel; empty: it can
    remark: Callable[[Panel], str] = lambda panel: ""  # what else the reader must know
    ratio: bool = False  # to the library, whose interval counts as well
    interval: str = "95 % interval"  # what the legend calls a measured band
    level: float | None = None  # where a line across stands
    bounded: bool = False  # whether the bound is drawn where it is known
    scale: str = "log"
    companion: str = ""  # the view drawn right of it for one topology, unless it has a figure of its own

    def middle(self, panel: Panel, result: Drawn) -> float:
        """Return the value of the time to quote."""
        return self.value(panel, result, result.typical)

    def band(self, panel: Panel, result: Drawn) -> Band:
        """Return between which values it should lie; NaN where that is not known.

        That of a ratio is from fastest over slowest to slowest over fastest: both medians lie in their 95 % intervals
        at once with at least 90 %.  Two predictions are of one model, and how their errors go together is not known.
        """
        if not self.ratio:
            return self.value(panel, result, result.band[0]), self.value(panel, result, result.band[1])
        library = panel.library(result)
        if library is None or line_of(result).predicted:
            return math.nan, math.nan
        return library.band[0] / result.band[1], library.band[1] / result.band[0]


def _rate(value: float) -> str:
    """Return bytes/s as text: 1e9 are a GB/s, as nccl-tests counts."""
    for scale, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} B/s" if value else "0"


def _without_size(panel: Panel) -> str:
    collective = panel.results[0].case.collective
    return "" if collective.sized else f"no message has a size in a {collective.name}"


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


# Small messages reach thousandths of the bandwidth of large ones, and are to be seen too; twice as fast is as far from
# 1 as half as fast: such axes are logarithmic.
VIEWS: tuple[View, ...] = (
    View(
        name="bandwidth",  # of the bus; the algorithm's where no bus lies between the ranks
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
    """Return the names that are meant, where `all` means all of them; UsageError if one of them is no view."""
    known, requested = [view.name for view in VIEWS], list(names)
    for name in requested:
        if name not in (*known, "all"):
            raise unknown("--view", name, ("all", *known))
    return known if "all" in requested else requested


def chosen(names: Iterable[str]) -> list[View]:
    """Return the views of these names, in the order of VIEWS.

    A view with a figure of its own is not drawn next to another.
    """
    requested = named(names)
    views = [view for view in VIEWS if view.name in requested]
    return [view._replace(companion="") if view.companion in requested else view for view in views]


# ---- what no implementation can pass


class Limit(NamedTuple):
    """A bound in the units of a view."""

    name: str
    legend: str  # what it is, in the legend
    values: Mapping[int, float]  # by size, in rising order
    is_rate: bool  # whether y is a rate, so that the bound is above the lines
    measured: bool  # at its sizes alone

    @property
    def last(self) -> float:
        """The value at the largest size that has one."""
        return list(self.values.values())[-1]


_SHORTEST = 0.3  # of the least time in a panel: a shorter bound, of bytes that nobody waits for, says nothing


def limit(panel: Panel, view: View) -> Limit | None:
    """Return what bounds the panel; None where nothing is known, or the view does not show it.

    The bound of memory is the time of a copy of the case's bytes, measured in turn with the samples of each row.  Else
    it is the data sheet's line rate, in the units of the view: as bus bandwidth, which counts a ring's bytes, more than
    that rate where switches add.
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

    # Of times, a bound far below all of them would stretch the axis and say nothing.
    least = _SHORTEST * min(result.typical for result in results)
    for result in results:
        seconds = bound.seconds(result.case.nbytes)
        if is_rate or seconds >= least:
            values[result.case.nbytes] = view.value(panel, result, seconds)
    legend = f"bound by {bound.where} (line rate {bound.line / 1e9:.4g} GB/s)"
    return Limit("bound", legend, values, is_rate, False) if values else None
