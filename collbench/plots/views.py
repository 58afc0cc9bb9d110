"""The y axes of figures against message size: what stands there for the time of an operation.

Another figure of the same panels is a row in QUANTITIES.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.roofline import share
from collbench.errors import unknown
from collbench.plots.panels import Drawn, Panel, line_of
from collbench.results import family
from collbench.units import format_seconds

Band = tuple[float, float]


@dataclass(frozen=True)
class Quantity:
    """The y axis of one figure: which value stands for seconds of an operation, and how it is written.

    A value is NaN where there is none, which leaves that point out.
    """

    name: str  # of the file
    heading: str  # what the figure is of
    scale: str
    value: Callable[[Panel, Drawn, float], float]
    label: Callable[[Sequence[Panel]], str]
    tick: Callable[[float], str]
    band: Callable[[Panel, Drawn], Band] | None = None  # where it is not simply the values of the ends in seconds
    intervals: tuple[str, str] = ("95 % interval", "nine in ten, predicted")  # what the legend calls a band
    level: float | None = None  # where a line across stands
    bounded: bool = False  # whether the bound is drawn where it is known
    beside: str = ""  # the view that stands right of it where there is one topology, unless it is a figure of its own
    lacking: Callable[[Panel], str] = lambda panel: ""  # why it cannot be drawn
    remark: Callable[[Panel], str] = lambda panel: ""  # what else the reader must know

    def middle(self, panel: Panel, result: Drawn) -> float:
        """The value of the time to quote."""
        return self.value(panel, result, result.typical)

    def between(self, panel: Panel, result: Drawn) -> Band:
        """Between which it should lie; NaN where nobody can tell."""
        if self.band:
            return self.band(panel, result)
        low, high = (self.value(panel, result, end) for end in result.band)
        return low, high


def _no_messages(panel: Panel) -> str:
    unsized = [result.case.collective for result in panel.results if not result.case.collective.sized]
    return f"no message has a size in a {unsized[0].name}" if unsized else ""


def _speedup(panel: Panel, result: Drawn, seconds: float) -> float:
    library = panel.library(result)
    return library.typical / seconds if library else math.nan


def _speedups(panel: Panel, result: Drawn) -> Band:
    """From the library at its fastest over this one at its slowest to the opposite; of predictions none.

    Both medians lie in their 95 % intervals at once with at least 90 %.  Two predictions are of one model, and how
    their errors go together nobody knows.
    """
    library = panel.library(result)
    if library is None or line_of(result).predicted:
        return math.nan, math.nan
    return library.band[0] / result.band[1], library.band[1] / result.band[0]


def _rate(rate: float) -> str:
    """Bytes per second in the unit that suits: 1e9 to a GB, as nccl-tests counts."""
    for scale, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= 0.9995 * scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate:.3g} B/s" if rate else "0"


def _over(row: Sequence[Panel]) -> str:
    libraries = (panel.library(result) for panel in row for result in panel.results)
    names = dict.fromkeys(family(library.implementation) for library in libraries if library)
    return f"speed-up over {' or '.join(names)}"


def _no_library(panel: Panel) -> str:
    if not panel.libraries:
        return "no library (nccl, mpi) was timed there to compare with"
    compared = any(panel.library(result) for result in panel.results)
    return "" if compared else "nothing has a time beside the library's for the same size"


QUANTITIES = (
    Quantity(
        name="bandwidth",
        heading="bandwidth",
        scale="log",  # small messages reach thousandths of what large ones do, and are to be seen too
        value=lambda panel, result, seconds: result.case.nbytes / seconds * (panel.factor or 1),
        bounded=True,
        beside="ratio",
        label=lambda row: f"{'bus' if row[0].factor else 'algorithm'} bandwidth",
        tick=_rate,
        lacking=_no_messages,
    ),
    Quantity(
        name="latency",
        heading="latency",
        scale="log",
        value=lambda panel, result, seconds: seconds,
        bounded=True,
        label=lambda row: "time per operation",
        tick=format_seconds,
    ),
    Quantity(
        name="ratio",
        heading="speed-up",
        scale="log",  # twice as fast is as far from 1 as half as fast
        value=_speedup,
        label=_over,
        tick=lambda ratio: f"{ratio:.3g}x",
        band=_speedups,
        intervals=("90 % interval", ""),
        level=1.0,
        lacking=_no_library,
    ),
    Quantity(
        name="bound",
        heading="share of the bound",
        scale="linear",
        value=lambda panel, result, seconds: share(result, panel.bound, seconds),
        label=lambda row: "bandwidth over its bound",
        tick=lambda share: f"{100 * share:.3g} %",
        level=1.0,
        lacking=lambda panel: "" if panel.bound else f"no bound is known: {panel.unbounded}",
        remark=lambda panel: str(panel.bound or ""),
    ),
)
DEFAULT = ("bandwidth", "latency")
SAMPLES = "samples"
"""What is no quantity against size: every sample of every row (samples.py draws it)."""
RATE = "bandwidth"
"""The view that can also be linear, from zero: how far apart the plateaus are."""


def named(names: Iterable[str]) -> list[str]:
    """Those that are meant, where `all` means all; UsageError for another name."""
    known, wanted = [*(quantity.name for quantity in QUANTITIES), SAMPLES], list(names)
    for name in wanted:
        if name not in (*known, "all"):
            raise unknown("--view", name, ("all", *known))
    return known if "all" in wanted else wanted


def chosen(names: Iterable[str], linear: bool = False) -> list[Quantity]:
    """The views of these names, or `all`, in the order of QUANTITIES; UsageError for another name.

    With `linear` the bandwidth has a linear axis.  A view that is a figure of its own stands beside no other.
    """
    wanted = named(names)
    views = [quantity for quantity in QUANTITIES if quantity.name in wanted]
    alone = {view.name for view in views}
    views = [replace(view, beside="") if view.beside in alone else view for view in views]
    return [replace(view, scale="linear") if linear and view.name == RATE else view for view in views]


def beside(view: Quantity) -> Quantity | None:
    """What stands right of it."""
    return next((other for other in QUANTITIES if other.name == view.beside), None)
