"""What to draw: results sorted into figures and panels.

A prediction of as many GPUs is laid over what was measured on them, since that is what it is for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeGuard

from collbench.algorithms import is_library, libraries
from collbench.analysis.crossover import library_of
from collbench.analysis.roofline import LinkRoofline, MemoryRoofline, roofline
from collbench.errors import UsageError
from collbench.plots.styles import TOLD_APART
from collbench.results import Measurement, Prediction, Reported, Result, Timed, labelled
from collbench.runfile.store import NAME, Run


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
    library: str = ""  # that it calls, so that no line mixes the points of two

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return labelled(self.implementation, self.library)


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
    libraries: tuple[Drawn, ...] = ()  # what the others are compared with, drawn or not
    bound: LinkRoofline | MemoryRoofline | None = None  # what the lines or the memory allow
    unbounded: str = ""  # why that is not known
    tools: frozenset[str] = frozenset()  # what reported, where nobody here measured

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
            own = str(replace(result.note, picked=""))  # what `auto` picks differs by size, and the table says it there
            for note in filter(None, (own, self._reported(result))):
                concerned.setdefault(note, set()).add(result.implementation)
        concerned |= {"wrong results not drawn": set(self.wrong)} if self.wrong else {}
        every = {line.implementation for line, _ in self.points}
        told = [note if names == every else f"{', '.join(sorted(names))}: {note}" for note, names in concerned.items()]
        return [*told, f"predicted: {self.expectation}"] if self.expectation else told

    def _reported(self, result: Drawn) -> str:
        tools = ", ".join(sorted(self.tools)) or "another tool"
        return f"reported by {tools}" if isinstance(result, Reported) else ""

    def library(self, result: Drawn) -> Timed | None:
        """The library's time for the same case, expected if this one is; of several libraries the first that has one.

        None for that library itself, and where there is none.
        """
        library = library_of(self.libraries, libraries(), result)
        return None if library and library.implementation == result.implementation else library


def line_of(result: Drawn) -> Line:
    """The line that a result is a point of."""
    library = result.library if isinstance(result, Measurement) else ""
    return Line(result.implementation, isinstance(result, Prediction), library)


def panels(runs: Sequence[Run], apart: bool = False, machine: str | None = None) -> dict[Combination, list[Panel]]:
    """What to draw, figure by figure; runs of one topology share a panel unless both measured the same.

    A prediction is laid over what was measured on as many ranks, unless it is to stand `apart` or there are several.
    `machine` names the system that measured runs are of, whatever their files say.
    """
    rows = _by_topology(runs, machine)
    return rows if apart else {combination: _laid_over(row) for combination, row in rows.items()}


def _laid_over(row: list[Panel]) -> list[Panel]:
    kept = []
    for panel in row:
        others = [other for other in row if other.predicted != panel.predicted and _alike(other, panel)]
        rivals = [other for other in row if other.predicted and _alike(other, panel)]
        if not others or len(rivals) > 1:
            kept.append(panel)
        elif not panel.predicted:
            (expected,) = rivals
            both = _joined(panel, expected)
            kept.append(replace(both, expectation=expected.topology, bound=panel.bound or expected.bound))
    return kept


def _alike(one: Panel, other: Panel) -> bool:
    return (one.ranks, one.platform, one.factor) == (other.ranks, other.platform, other.factor)


def _joined(one: Panel, other: Panel) -> Panel:
    """One panel of what two hold."""
    return replace(
        one,
        results=one.results + other.results,
        wrong=one.wrong | other.wrong,
        libraries=one.libraries + other.libraries,
        tools=one.tools | other.tools,
    )


def _by_topology(runs: Sequence[Run], machine: str | None) -> dict[Combination, list[Panel]]:
    rows: dict[Combination, list[Panel]] = {}
    for combination, panel in (part for run in runs for part in _panels_of(run, machine)):
        row = rows.setdefault(combination, [])
        for place, other in enumerate(row):
            same = _alike(other, panel) and (other.topology, other.predicted) == (panel.topology, panel.predicted)
            if same and other.points.keys().isdisjoint(panel.points):
                row[place] = _joined(other, panel)
                break
        else:
            row.append(panel)
    return rows


def _panels_of(run: Run, machine: str | None) -> Iterator[tuple[Combination, Panel]]:
    parts: dict[tuple[Combination, int], list[Drawn]] = {}
    for result in run.results:
        if _drawable(result):
            case = result.case
            redop = case.redop.name if case.collective.reduces else ""
            place, root = "in-place" if case.in_place else "", f"root{case.root}" if case.root else ""
            combination = Combination(case.collective.name, case.dtype.name, redop, place, root)
            parts.setdefault((combination, case.ranks), []).append(result)
    for (combination, ranks), results in parts.items():
        right = tuple(result for result in results if not result.wrong)
        wrong = frozenset(result.implementation for result in results if result.wrong)
        if right:
            panel = _panel(run, ranks, right, wrong)
            yield combination, _bounded(panel, run, machine)


def _panel(run: Run, ranks: int, right: tuple[Drawn, ...], wrong: frozenset[str]) -> Panel:
    topology = run.header.topology
    return Panel(
        topology=topology.name or "unknown topology",
        ranks=ranks,
        origin=run.path.parent.name if run.path.name == NAME else run.path.stem,
        factor=0.0 if share_a_device(run, right) else right[0].case.collective.bus_factor(ranks),
        platform=topology.platform or right[0].platform,
        results=right,
        wrong=wrong,
        libraries=tuple(result for result in right if is_library(result.implementation)),
        tools=frozenset(filter(None, [run.header.imported.tool])),
    )


def _bounded(panel: Panel, run: Run, machine: str | None) -> Panel:
    try:
        return replace(panel, bound=roofline(run, panel.results[0].case, machine))
    except UsageError as reason:
        return replace(panel, unbounded=str(reason))


def only(row: Sequence[Panel], names: Collection[str]) -> list[Panel]:
    """The panels with these implementations alone, if they have any; what they are compared with stays known."""
    kept = [
        replace(
            panel,
            results=tuple(result for result in panel.results if result.implementation in names),
            wrong=panel.wrong & set(names),
        )
        for panel in row
    ]
    return [panel for panel in kept if panel.results]


def _drawable(result: Result) -> TypeGuard[Drawn]:
    if isinstance(result, Prediction):
        return result.case.nbytes > 0
    return isinstance(result, Measurement | Reported) and result.case.nbytes > 0 and min(result.times, default=0) > 0


def told_apart(rows: dict[Combination, list[Panel]], say: Callable[[str], None]) -> dict[Combination, list[Panel]]:
    """As much as one figure can hold, and a word on the rest."""
    lines = (line for row in rows.values() for panel in row for line, _ in panel.points)
    names = list(dict.fromkeys(line.implementation for line in lines))
    if len(names) > TOLD_APART:
        say(f"{len(names) - TOLD_APART} implementations are not drawn: {TOLD_APART} are the most; choose with --impl")
        rows = {combination: only(row, names[:TOLD_APART]) for combination, row in rows.items()}
    if (most := max(map(len, rows.values()), default=0)) > TOLD_APART:
        say(f"{most - TOLD_APART} panels are not drawn: {TOLD_APART} are the most; give fewer runs")
    return {combination: row[:TOLD_APART] for combination, row in rows.items() if row}


def share_a_device(run: Run, results: Iterable[Timed]) -> bool:
    """Whether ranks live on one GPU, where no bus lies between them and bus bandwidth means nothing."""
    return any(result.note.shared for result in results) or run.header.topology.shared
