"""What stands along y in a figure against message size: bandwidth, time, speed-up, share of the bound; and the bound.

Another view is a class here and an entry in VIEWS.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from collbench.analysis.roofline import LinkRoofline, share
from collbench.errors import unknown
from collbench.plots.panels import Drawn, Panel, line_of
from collbench.results import family
from collbench.units import format_seconds

Band = tuple[float, float]


@dataclass(frozen=True)
class View(ABC):
    """The y axis of a figure: which value stands for the seconds of an operation, and how it is written."""

    name: ClassVar[str]  # of the file and for --view
    heading: ClassVar[str]  # what the figure is of
    level: ClassVar[float | None] = None  # where a line across stands
    bounded: ClassVar[bool] = False  # whether the bound is drawn where it is known
    scale: str = "log"
    companion: str = ""  # the view drawn right of it for one topology, unless it has a figure of its own

    @abstractmethod
    def value(self, panel: Panel, result: Drawn, seconds: float) -> float:
        """Return the value if the operation took so long; NaN, which leaves the point out, where there is none."""

    @abstractmethod
    def label(self, row: Sequence[Panel]) -> str:
        """Return the name of the axis."""

    @abstractmethod
    def tick(self, value: float) -> str:
        """Return a value as text."""

    def middle(self, panel: Panel, result: Drawn) -> float:
        """Return the value of the time to quote."""
        return self.value(panel, result, result.typical)

    def band(self, panel: Panel, result: Drawn) -> Band:
        """Return between which values it should lie; NaN where that is not known."""
        low, high = (self.value(panel, result, end) for end in result.band)
        return low, high

    def interval(self, predicted: bool) -> str:
        """Return what the legend calls a band."""
        return "nine in ten, predicted" if predicted else "95 % interval"

    def lacking(self, panel: Panel) -> str:
        """Return why the view cannot be drawn of the panel; empty if it can."""
        return ""

    def remark(self, panel: Panel) -> str:
        """Return what else the reader must know."""
        return ""


class _Bandwidth(View):
    """Bus bandwidth; the algorithm's where no bus lies between the ranks.

    The axis is logarithmic, since small messages reach thousandths of what large ones do, and are to be seen too.
    """

    name = "bandwidth"
    heading = "bandwidth"
    bounded = True

    def value(self, panel: Panel, result: Drawn, seconds: float) -> float:
        return result.case.nbytes / seconds * (panel.factor or 1)

    def label(self, row: Sequence[Panel]) -> str:
        return f"{'bus' if row[0].factor else 'algorithm'} bandwidth"

    def tick(self, value: float) -> str:
        """1e9 bytes/s are a GB/s, as nccl-tests counts."""
        for scale, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
            if value >= 0.9995 * scale:
                return f"{value / scale:.3g} {unit}"
        return f"{value:.3g} B/s" if value else "0"

    def lacking(self, panel: Panel) -> str:
        unsized = [result.case.collective for result in panel.results if not result.case.collective.sized]
        return f"no message has a size in a {unsized[0].name}" if unsized else ""


class _Latency(View):
    """Seconds of an operation."""

    name = "latency"
    heading = "latency"
    bounded = True

    def value(self, panel: Panel, result: Drawn, seconds: float) -> float:
        return seconds

    def label(self, row: Sequence[Panel]) -> str:
        return "time per operation"

    def tick(self, value: float) -> str:
        return format_seconds(value)


class _Speedup(View):
    """The library's time over the implementation's.

    The axis is logarithmic, since twice as fast is as far from 1 as half as fast.
    """

    name = "ratio"
    heading = "speed-up"
    level = 1.0

    def value(self, panel: Panel, result: Drawn, seconds: float) -> float:
        library = panel.library(result)
        return library.typical / seconds if library else math.nan

    def band(self, panel: Panel, result: Drawn) -> Band:
        """Return the band of a ratio, from fastest over slowest to slowest over fastest; None for predictions.

        Both medians lie in their 95 % intervals at once with at least 90 %.  Two predictions are of one model, and how
        their errors go together is not known.
        """
        library = panel.library(result)
        if library is None or line_of(result).predicted:
            return math.nan, math.nan
        return library.band[0] / result.band[1], library.band[1] / result.band[0]

    def interval(self, predicted: bool) -> str:
        return "90 % interval"

    def label(self, row: Sequence[Panel]) -> str:
        libraries = (panel.library(result) for panel in row for result in panel.results)
        names = dict.fromkeys(family(library.implementation) for library in libraries if library)
        return f"speed-up over {' or '.join(names)}"

    def tick(self, value: float) -> str:
        return f"{value:.3g}x"

    def lacking(self, panel: Panel) -> str:
        if not panel.libraries:
            return "no library (nccl, mpi) was timed there to compare with"
        compared = any(panel.library(result) for result in panel.results)
        return "" if compared else "no implementation and the library have a time for the same size"


class _ShareOfBound(View):
    """The bandwidth over the most that the interconnect or the memory allows."""

    name = "bound"
    heading = "share of the bound"
    level = 1.0

    def value(self, panel: Panel, result: Drawn, seconds: float) -> float:
        return share(result, panel.bound, seconds)

    def label(self, row: Sequence[Panel]) -> str:
        return "bandwidth over its bound"

    def tick(self, value: float) -> str:
        return f"{100 * value:.3g} %"

    def lacking(self, panel: Panel) -> str:
        return "" if panel.bound else f"no bound is known: {panel.unbounded}"

    def remark(self, panel: Panel) -> str:
        return str(panel.bound or "")


VIEWS: tuple[View, ...] = (_Bandwidth(companion="ratio"), _Latency(), _Speedup(), _ShareOfBound(scale="linear"))
SAMPLES = "samples"
"""The view that is no quantity against size: every sample of every row (samples.py draws it)."""


def named(names: Iterable[str]) -> list[str]:
    """Return the names that are meant, where `all` means all of them.

    Raises:
        UsageError: One of them is no view.

    """
    known, requested = [*(view.name for view in VIEWS), SAMPLES], list(names)
    for name in requested:
        if name not in (*known, "all"):
            raise unknown("--view", name, ("all", *known))
    return known if "all" in requested else requested


def chosen(names: Iterable[str], linear: bool = False) -> list[View]:
    """Return the views of these names, in the order of VIEWS; with `linear` the bandwidth has a linear axis.

    A view with a figure of its own is not drawn next to another.
    """
    requested = named(names)
    views = []
    for view in VIEWS:
        if view.name in requested:
            scale = "linear" if linear and isinstance(view, _Bandwidth) else view.scale
            views.append(replace(view, scale=scale, companion="" if view.companion in requested else view.companion))
    return views


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

    The bound of memory is the time of a copy of as many bytes as the case must move, measured in turn with the samples
    of each row.  Else it is what the line rate of the data sheet allows, in the units of the view: a bus bandwidth
    above that rate where switches add, since bus bandwidth counts the bytes of a ring.
    """
    if not view.bounded:
        return None
    first = panel.results[0]
    is_rate = view.value(panel, first, 2.0) < view.value(panel, first, 1.0)
    by_size = {result.case.nbytes: result for result in panel.results}
    values: dict[int, float] = {}
    for result in sorted(panel.results, key=lambda result: result.case.nbytes):
        if result.floor:
            values[result.case.nbytes] = view.value(panel, result, result.floor)
    if values:
        return Limit("memory copy", "memory copy, in the same run", values, is_rate, True)
    bound = panel.bound
    if not isinstance(bound, LinkRoofline):
        return None
    least = _SHORTEST * min(result.typical for result in panel.results)
    for size in sorted(by_size):
        if is_rate or bound.seconds(size) >= least:
            values[size] = view.value(panel, by_size[size], bound.seconds(size))
    legend = f"bound by {bound.where} (line rate {bound.line / 1e9:.4g} GB/s)"
    return Limit("bound", legend, values, is_rate, False) if values else None
