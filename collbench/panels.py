"""What to draw: results sorted into figures and panels, and how each implementation looks in all of them.

How an implementation looks everywhere is its row in LOOKS; a prediction looks the same, but hollow and dashed.
A prediction of as many GPUs is laid over what was measured on them, since that is what it is for.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeGuard

from collbench.measurement import Measurement, Observed, Prediction, Reported, Result
from collbench.store import NAME, Run


class Look(NamedTuple):
    """How a line is drawn; marker and dashes tell lines apart where colours can't, as in grey print."""

    color: str
    marker: str
    linestyle: str
    linewidth: float = 1.5
    markerfacecolor: str = "auto"

    @property
    def predicted(self) -> "Look":
        """The same implementation where it is predicted."""
        return self._replace(linestyle="--", linewidth=1.2, markerfacecolor="white")


# Libraries are solid and thick.  Colours are Okabe and Ito's without yellow, which is lost on white, and four
# more that keep their distance under simulated protanopia, deuteranopia and tritanopia.
LOOKS = {
    "nccl": Look("#000000", "o", "-", 2.4),
    "mpi": Look("#0072B2", "s", "-", 2.4),
    "ring-host": Look("#A0A0A0", "v", "--"),
    "ring-events": Look("#E69F00", "^", "-."),
    "ring-flags": Look("#D55E00", "D", "--"),
    "ring-pipelined": Look("#009E73", "P", "-."),
    "ring-ll": Look("#56B4E9", "X", "-"),
    "one-shot": Look("#882255", "<", "--"),
    "one-shot-ll": Look("#CC79A7", ">", "-"),
    "two-shot": Look("#332288", "p", "-."),
    "nvls": Look("#7A4A00", "*", ":"),
    "parameter-server": Look("#F0A3C0", "h", ":"),
}


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name, libraries first; a name without a fixed one gets what clashes least."""
    wanted = set(names)
    chosen = {name: look for name, look in LOOKS.items() if name in wanted}
    colors = [look.color for look in LOOKS.values()]
    spare = [Look(*parts) for parts in product(colors, "hdoX^", ("--", "-.", ":"))]
    for name in sorted(wanted - set(LOOKS)):
        first = zlib.crc32(name.encode()) % len(spare)  # so that a name tends to keep its look between runs
        chosen[name] = min(spare[first:] + spare[:first], key=lambda look: _clashes(look, chosen.values()))
    return chosen


def _clashes(look: Look, others: Iterable[Look]) -> int:
    """How alike a look is to the others: colour before marker before dashes, one twin before many cousins."""
    likeness = (sum(weight * (look[part] == other[part]) for part, weight in enumerate((4, 2, 1))) for other in others)
    return sum(each**3 for each in likeness)


class Combination(NamedTuple):
    """What one figure is about; the rest of a case is the x axis or a panel."""

    collective: str
    dtype: str
    redop: str  # "" if it does not reduce
    place: str  # "in-place" or ""
    root: str  # "root3", or "" for rank 0


Drawn = Measurement | Reported | Prediction


class Line(NamedTuple):
    """What one line of a panel is of."""

    implementation: str
    predicted: bool


@dataclass(frozen=True)
class Panel:
    """The right results of one combination on one topology, and which implementations also had wrong ones."""

    topology: str
    ranks: int
    origin: str  # tells runs of one topology apart where they cannot share a panel
    factor: float  # bandwidth to show over algbw: the bus factor, or 0 where there is no bus to speak of
    platform: str  # what the ranks live on
    results: tuple[Drawn, ...]
    wrong: frozenset[str]
    expectation: str = ""  # the system whose predictions are laid over measurements of another name

    @property
    def points(self) -> dict[tuple[Line, int], Drawn]:
        """Each result by line and size; of one measured twice in a run, the later."""
        return {(line_of(result), result.case.nbytes): result for result in self.results}

    @property
    def predicted(self) -> bool:
        """Whether nothing in it was measured."""
        return all(line.predicted for line, _ in self.points)

    @property
    def remarks(self) -> list[str]:
        """What a reader must know of these numbers, and of which implementations unless it is all."""
        concerned: dict[str, set[str]] = {}
        for result in self.results:
            concerned.setdefault(result.note, set()).add(result.implementation)
        concerned.pop("", None)
        concerned |= {"wrong results not drawn": set(self.wrong)} if self.wrong else {}
        every = {line.implementation for line, _ in self.points}
        told = [note if names == every else f"{', '.join(sorted(names))}: {note}" for note, names in concerned.items()]
        return [*told, f"predicted: {self.expectation}"] if self.expectation else told


def line_of(result: Drawn) -> Line:
    """The line that a result is a point of."""
    return Line(result.implementation, isinstance(result, Prediction))


def panels(runs: Sequence[Run], apart: bool = False) -> dict[Combination, list[Panel]]:
    """What to draw, figure by figure; runs of one topology share a panel unless both measured the same.

    A prediction is laid over what was measured on as many ranks, unless it is to stand `apart` or there are several.
    """
    found = _by_topology(runs)
    return found if apart else {combination: _laid_over(row) for combination, row in found.items()}


def _laid_over(row: list[Panel]) -> list[Panel]:
    kept = []
    for panel in row:
        others = [other for other in row if other.predicted != panel.predicted and _alike(other, panel)]
        rivals = [other for other in row if other.predicted and _alike(other, panel)]
        if not others or len(rivals) > 1:
            kept.append(panel)
        elif not panel.predicted:
            (expected,) = rivals
            kept.append(replace(panel, results=panel.results + expected.results, expectation=expected.topology))
    return kept


def _alike(one: Panel, other: Panel) -> bool:
    return (one.ranks, one.platform, one.factor) == (other.ranks, other.platform, other.factor)


def _by_topology(runs: Sequence[Run]) -> dict[Combination, list[Panel]]:
    found: dict[Combination, list[Panel]] = {}
    for combination, panel in (part for run in runs for part in _panels_of(run)):
        row = found.setdefault(combination, [])
        for place, other in enumerate(row):
            same = _alike(other, panel) and (other.topology, other.predicted) == (panel.topology, panel.predicted)
            if same and other.points.keys().isdisjoint(panel.points):
                row[place] = replace(other, results=other.results + panel.results, wrong=other.wrong | panel.wrong)
                break
        else:
            row.append(panel)
    return found


def _panels_of(run: Run) -> Iterator[tuple[Combination, Panel]]:
    parts: dict[tuple[Combination, int], list[Drawn]] = {}
    for result in run.results:
        if _drawable(result):
            case = result.case
            redop = case.redop.name if case.collective.reduces else ""
            place, root = "in-place" if case.in_place else "", f"root{case.root}" if case.root else ""
            combination = Combination(case.collective.name, case.dtype.name, redop, place, root)
            parts.setdefault((combination, case.ranks), []).append(result)
    for (combination, ranks), results in parts.items():
        right = tuple(result for result in results if not _wrong(result))
        wrong = frozenset(result.implementation for result in results if _wrong(result))
        if right:
            origin = run.path.parent.name if run.path.name == NAME else run.path.stem
            factor = 0.0 if share_a_device(run, right) else right[0].case.collective.bus_factor(ranks)
            topology = str(_topology(run).get("name", "unknown topology"))
            platform = str(_topology(run).get("platform", right[0].platform))
            yield combination, Panel(topology, ranks, origin, factor, platform, right, wrong)


def _drawable(result: Result) -> TypeGuard[Drawn]:
    if isinstance(result, Prediction):
        return result.case.nbytes > 0
    return isinstance(result, Measurement | Reported) and result.case.nbytes > 0 and min(result.times, default=0) > 0


def _wrong(result: Drawn) -> bool:
    return isinstance(result, Observed) and not result.right


def share_a_device(run: Run, results: Iterable[Drawn]) -> bool:
    """Whether ranks live on one GPU, where no bus lies between them and bus bandwidth means nothing."""
    noted = any(result.platform == "gpu" and "share" in result.note for result in results)
    return noted or _topology(run).get("shared") is True


def _topology(run: Run) -> dict[str, Any]:
    """What the header says connects the ranks; files from elsewhere may say nothing."""
    topology = run.header.get("topology")
    return topology if isinstance(topology, dict) else {}
