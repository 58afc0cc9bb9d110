"""Made-up sweeps over message sizes, and what is read back from the figures drawn of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from collbench.cases import Case, SizeRange
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.plots import curves
from collbench.plots.kinds import PlotRequest
from collbench.present import figures as styles
from collbench.present.figures import SCREEN
from collbench.results import Measurement, Mismatch, Prediction, Result
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from tests.conftest import ROOT

SIZES = SizeRange(8, 2**27, 4).sizes
WRONG = Mismatch(rank=1, index=3, chunk=0, got="1", expected="2", wrong=7)
COMMITTED = ROOT / "results" / "cpu-2-ranks" / "run.jsonl"


def case(nbytes: int, collective: str = "allreduce", dtype: str = "float", ranks: int = 4, **fields: Any) -> Case:
    meaning = COLLECTIVES[collective]
    redop = REDUCTIONS["sum"] if meaning.reduces else NONE
    return Case(meaning, nbytes, DATATYPES[dtype], redop, fields.get("root", 0), ranks, fields.get("in_place", False))


def measured(implementation: str, of: Case, samples: int = 9, **fields: Any) -> Measurement:
    """Samples spread by 20 % around 2 us plus 10 GB/s; hand-written implementations take twice as long."""
    seconds = (2e-6 + of.nbytes / 10e9) * (1 if implementation in ("nccl", "mpi") else 2)
    spread = tuple(seconds * (0.9 + 0.2 * sample / max(1, samples - 1)) for sample in range(samples))
    return Measurement(of, implementation, fields.pop("platform", "cpu"), 64, spread, **fields)


def run(*results: Result, topology: str = "2 sockets", name: str = "a", **fields: Any) -> Run:
    header = Header.from_json({"topology": {"name": topology, **fields}})
    return Run(Path(f"runs/{name}/run.jsonl"), header, results, True)


def sweep(*implementations: str, sizes: Sequence[int] = SIZES, **fields: Any) -> list[Measurement]:
    return [measured(name, case(size), **fields) for size in sizes for name in implementations]


def predicted(*implementations: str, ranks: int = 4, system: str = "DGX", platform: str = "cpu") -> Run:
    """A run of a model, which expects twice of what is measured, within a third."""
    results = []
    for of in (case(size, ranks=ranks) for size in SIZES):
        for name in implementations:
            seconds = 2 * measured(name, of).typical
            results.append(Prediction(of, name, seconds, seconds / 1.5, seconds * 1.5, "ring", "ll"))
    return run(*results, topology=system, name=system, platform=platform)


def drawn(kind: str, *runs: Run, said: list[str] | None = None, **request: Any) -> Figure:
    say = [].append if said is None else said.append
    return dict(curves.figures(runs, PlotRequest(views=[kind.split("-")[-1]], **request), say))[kind]


def laid_out(kind: str, *runs: Run, **request: Any) -> Figure:
    """The same as it will be when written, which takes ten times as long."""
    figure = drawn(kind, *runs, **request)
    with styles.style(request.get("style", SCREEN)):
        figure.draw_without_rendering()
    return figure


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def bands(axes: Axes) -> list[PolyCollection]:
    return [shape for shape in axes.collections if isinstance(shape, PolyCollection) and shape.get_paths()]


def corners(band: PolyCollection) -> set[tuple[int, float]]:
    return {(round(x), y) for x, y in band.get_paths()[0].vertices.tolist()}  # type: ignore[union-attr]


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def title(axes: Axes) -> str:
    return axes.get_title(loc="left")


def ticks(axes: Axes, which: str) -> list[Any]:
    """The tick labels that one sees, once the figure is laid out."""
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis = axes.xaxis if which == "x" else axes.yaxis
    shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in shown if label.get_visible() and label.get_text()]
