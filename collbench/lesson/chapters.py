"""The chapters about training steps: what the model predicts, or runs say, as a number and a figure."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.cases import WEAK, Step, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.lesson.numbers import NUMBER, nearest
from collbench.measure.step_runs import Scaling, overlap_steps
from collbench.results.steps import Trained
from collbench.runfile.header import Header, TopologyPart
from collbench.runfile.store import NAME, Run
from collbench.topology import files
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    from collbench.measure.predicted import PredictedSteps
    from collbench.plots.axes import Figure
    from collbench.plots.kinds import Kind

_GRADIENTS, _NOISE, _SYSTEM = 2**30, 0.0022, "dgx-h100"  # as `collbench step` has them by default
_RANKS, _COUNTS = 64, (1, 8, 16, 32, 64, 128, 256, 512)
_BUCKETS = _GRADIENTS // 16, _GRADIENTS // 4, _GRADIENTS


@dataclass(frozen=True)
class Drawn:
    """What a chapter shows, and which answer that makes right."""

    fact: str = ""  # for the text
    svg: str = ""
    png: bytes = b""
    caption: str = ""
    right: Callable[[Sequence[str]], int] = lambda choices: 0  # the index of the right choice


def chapters(runs: Iterable[Run] = ()) -> dict[str, Drawn]:
    """Return what each chapter shows: figures of runs where there are any, else of predictions.

    Facts are of predictions, but for the strategies, of which there are none.
    """
    given = list(runs)
    return {"speed-up": _scaling(given), "overlap": _overlap(given), "asynchronous": _strategies(given)}


def _scaling(given: Sequence[Run]) -> Drawn:
    from collbench.analysis.scaling import curves
    from collbench.measure.predicted import PredictedSteps
    from collbench.plots.scaling import KIND

    system = files.load(_SYSTEM)
    scaling = Scaling(_sweep(_COUNTS[-1], (Step(0, 0, seconds=0.05),)), _COUNTS, (WEAK,))
    predicted = _run(PredictedSteps(system, scaling.sweep, _NOISE, scaling))
    last = curves(predicted.results)[0].last
    speedup = last.ranks * last.efficiency.value

    def right(choices: Sequence[str]) -> int:
        return nearest(speedup, [float(NUMBER.findall(choice)[0]) for choice in choices])

    shown = next((run for run in given if any(len(curve.points) > 1 for curve in curves(run.results))), predicted)
    fact = f"{speedup:.0f}x on {last.ranks} GPUs, {last.efficiency.value:.0%} of what {last.ranks} times one would be"
    return _drawn(KIND, shown, fact, right)


def _overlap(given: Sequence[Run]) -> Drawn:
    from collbench.analysis.overlap import overlaps
    from collbench.measure.predicted import PredictedSteps
    from collbench.plots.overlap import KIND

    system = files.load(_SYSTEM)
    steps = overlap_steps(Step(0, 0, seconds=0.1), system.platform, _BUCKETS)
    predicted = _run(PredictedSteps(system, _sweep(_RANKS, steps), _NOISE))
    best = min(overlaps(predicted.results), key=lambda each: each.row.typical)
    alone, exposed = format_seconds(best.communicate.typical), format_seconds(best.exposed.value)
    where = f"{_RANKS} H100, buckets of {format_size(best.step.bucket)}"
    fact = f"of {alone} of communication {exposed} stay exposed ({where})"
    return _drawn(KIND, next((run for run in given if overlaps(run.results)), predicted), fact)


def _strategies(given: Sequence[Run]) -> Drawn:
    from collbench.analysis.strategies import Effort, ranking
    from collbench.plots.losses import KIND

    run = next((run for run in given if any(isinstance(result, Trained) for result in run.results)), None)
    found = ranking(run.results) if run else None
    if not run or not found:
        return Drawn(right=lambda choices: 1)
    order = [entry for entry in found.ranked(Effort.SECONDS) if entry.arrived]
    times = [f"`{entry.name}` in {format_seconds(entry.mean(Effort.SECONDS).value)}" for entry in order]
    first = int(bool(order) and order[0].name == "asynchronous")
    return _drawn(KIND, run, f"A loss of {found.target:g} is reached by {', by '.join(times)}", lambda choices: first)


def _sweep(ranks: int, steps: tuple[Step, ...]) -> Sweep:
    allreduce, dtype, redop = COLLECTIVES["allreduce"], DATATYPES["float"], REDUCTIONS["sum"]
    return Sweep((allreduce,), (_GRADIENTS,), (dtype,), (redop,), ranks, ("nccl",), steps=steps)


def _run(predicted: "PredictedSteps") -> Run:
    header = Header(topology=TopologyPart.from_json(predicted.greeting.topology))
    return Run(Path(NAME), header, tuple(predicted.run()), complete=True)


def _drawn(kind: "Kind", run: Run, fact: str, right: Callable[[Sequence[str]], int] = lambda choices: 0) -> Drawn:
    """Return the first figure of a run."""
    from collbench.plots.kinds import PLAIN
    from collbench.plots.save import page_png

    _, figure = next(kind.figures([run], PLAIN, lambda reason: None))
    model = run.header.topology.model
    caption = f"{'Model' if model else 'Measured'}: {run.header.topology.name}"
    return Drawn(fact, svg(figure), page_png(figure), caption, right)


def svg(figure: "Figure") -> str:
    """Return a figure as the text of an SVG; the same figure gives the same text."""
    from collbench.plots.style import UNDATED, style

    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", metadata=UNDATED["svg"])
    return file.getvalue()
