"""Panels of figures by message size: results sorted into panels and lines, and the coloured lines.

A prediction is drawn over measurements on the same number of GPUs.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple, TypeGuard

from collbench.algorithms import is_library, libraries
from collbench.analysis.crossover import handicaps, library_of
from collbench.analysis.roofline import LinkRoofline, MemoryRoofline, roofline
from collbench.errors import UsageError
from collbench.present.figures import COLORS, COLOURED, TOLD_APART
from collbench.results import Measurement, Prediction, Reported, Result, Timed, by_key
from collbench.results.facts import labelled
from collbench.runfile.store import NAME, Run, scatter_in_words


class Combination(NamedTuple):
    """The subject of one figure; the rest of a case is the x axis or a panel."""

    collective: str
    dtype: str
    redop: str  # "" if it does not reduce
    place: str  # unusual properties such as `in-place`, or ""
    root: str  # "root3", or "" for rank 0


Drawn = Measurement | Reported | Prediction


class PlotLine(NamedTuple):
    """The subject of one line of a panel."""

    implementation: str
    predicted: bool
    library: str = ""  # called by the implementation; a line has points of one library only

    @property
    def label(self) -> str:
        """The line's name in the legend."""
        return labelled(self.implementation, self.library)

    @property
    def measured(self) -> "PlotLine":
        """The measured line, which has the colour of its prediction."""
        return self._replace(predicted=False)


@dataclass(frozen=True)
class Panel:
    """The right results of one combination on one topology."""

    topology: str
    ranks: int
    origin: str  # name of the run, for topologies of several runs
    factor: float  # shown bandwidth over algbw: the bus factor, or 0 without a bus
    platform: str  # cpu or gpu
    results: tuple[Drawn, ...]
    wrong: frozenset[str]  # implementations that also had wrong results
    expectation: str = ""  # the predicted system, if its predictions are drawn over measurements
    libraries: tuple[Drawn, ...] = ()  # results to compare the others with, drawn or not
    bound: LinkRoofline | MemoryRoofline | None = None  # by the line rate or by memory
    unbounded: str = ""  # reason for no bound
    tools: frozenset[str] = frozenset()  # names of other tools that reported results
    name: str = ""  # unique name on shared axes (--overlay)
    color: str = ""  # on shared axes

    @property
    def points(self) -> dict[tuple[PlotLine, int], Drawn]:
        """Results by line and size; a later result replaces an earlier one."""
        return {(line_of(result), result.case.nbytes): result for result in self.results}

    @property
    def predicted(self) -> bool:
        """Whether nothing in it was measured."""
        return all(line.predicted for line, _ in self.points)

    @property
    def place(self) -> str:
        """The topology and its ranks, unless its name has them: `4 ranks on ...`, `DGX H100, 8 GPUs`."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        if self.topology.startswith(ranks) or self.topology.endswith(f", {self.ranks} GPUs"):
            return self.topology
        return f"{self.topology}, {ranks}"

    @property
    def remarks(self) -> list[str]:
        """Remarks on the numbers, with the names of implementations unless they hold for all."""
        concerned: dict[str, set[str]] = {}
        for result in self.results:
            # The choices of `auto` differ by size and are in the table.  The title has shared GPUs.
            notes = [str(replace(result.note.brief, picked=""))]
            if isinstance(result, Reported):
                notes.append(f"reported by {', '.join(sorted(self.tools)) or 'another tool'}")
            for note in filter(None, notes):
                concerned.setdefault(note, set()).add(result.implementation)
        if self.wrong:
            concerned["wrong results not drawn"] = set(self.wrong)
        everybody = {line.implementation for line, _ in self.points}
        remarks = handicaps((*self.results, *self.libraries))
        if scatter := scatter_in_words(self.results):
            remarks.append(f"{scatter}: the medians are drawn")
        for note, names in concerned.items():
            remarks.append(note if names == everybody else f"{', '.join(sorted(names))}: {note}")
        if self.expectation:
            remarks.append(f"predicted: {self.expectation}")
        return remarks

    def library(self, result: Drawn) -> Timed | None:
        """Return the first library's time for the same case, predicted if the result is predicted.

        None for the library's own result, for an unsure one, and if there is no library.
        """
        alike = (library for library in self.libraries if library.case.nbytes == result.case.nbytes)
        library = library_of(alike, libraries(), result)
        return None if result.unsure or (library and library.implementation == result.implementation) else library


def line_of(result: Drawn) -> PlotLine:
    """Return the line of a result."""
    library = result.library if isinstance(result, Measurement) else ""
    return PlotLine(result.implementation, isinstance(result, Prediction), library)


def panels(runs: Sequence[Run], machine: str | None = None) -> dict[Combination, list[Panel]]:
    """Sort results into panels by combination; runs of one topology share a panel unless they have common points.

    A prediction is drawn over measurements on the same number of ranks if it is the only one.  `machine` is the system
    of the measured runs, and overrides their files.
    """
    rows: dict[Combination, list[Panel]] = {}
    for run in runs:
        for combination, panel in _panels_of(run, machine):
            row = rows.setdefault(combination, [])

            # A run without common points joins the panel of an earlier run of the same topology.
            for place, other in enumerate(row):
                same = _kind(other) == _kind(panel) and other.topology == panel.topology
                if same and other.predicted == panel.predicted and other.points.keys().isdisjoint(panel.points):
                    row[place] = _joined(other, panel)
                    break
            else:
                row.append(panel)
    return {combination: _laid_over(row) for combination, row in rows.items()}


def _laid_over(row: list[Panel]) -> list[Panel]:
    selected = []
    every = by_key(row, _kind)
    for panel in row:
        alike = every[_kind(panel)]
        predictions = [other for other in alike if other.predicted]

        if len(predictions) != 1 or len(alike) == 1:
            selected.append(panel)
        elif not panel.predicted:
            (expected,) = predictions
            both = _joined(panel, expected)
            selected.append(replace(both, expectation=expected.topology, bound=panel.bound or expected.bound))
    return selected


def _kind(panel: Panel) -> tuple[object, ...]:
    return panel.ranks, panel.platform, panel.factor


def _joined(one: Panel, other: Panel) -> Panel:
    return replace(
        one,
        results=one.results + other.results,
        wrong=one.wrong | other.wrong,
        libraries=one.libraries + other.libraries,
        tools=one.tools | other.tools,
    )


def _panels_of(run: Run, machine: str | None) -> Iterator[tuple[Combination, Panel]]:
    parts: dict[tuple[Combination, int], list[Drawn]] = {}
    for result in run.cases:
        if _drawable(result):
            case = result.case
            redop = case.redop.name if case.collective.reduces else ""
            root = f"root{case.root}" if case.root else ""
            place = "-".join(each.word(value) for each, value in case.unusual)
            combination = Combination(case.collective.name, case.dtype.name, redop, place, root)
            parts.setdefault((combination, case.ranks), []).append(result)
    topology, rows_of = run.header.topology, by_key(run.results, lambda result: result.case.kind)
    for (combination, ranks), results in parts.items():
        right = tuple(result for result in results if not result.wrong)
        if not right:
            continue
        panel = Panel(
            topology=topology.name or "unknown topology",
            ranks=ranks,
            origin=run.path.parent.name if run.path.name == NAME else run.path.stem,
            factor=0.0 if share_a_device(run, right) else right[0].case.collective.bus_factor(ranks),
            platform=topology.platform or right[0].platform,
            results=right,
            wrong=frozenset(result.implementation for result in results if result.wrong),
            libraries=tuple(result for result in right if is_library(result.implementation)),
            tools=frozenset(filter(None, [run.header.imported.tool])),
        )

        # The bound depends on the machine, which may be unknown.
        try:
            alike = replace(run, results=tuple(rows_of[right[0].case.kind]))
            yield combination, replace(panel, bound=roofline(alike, right[0].case, machine))
        except UsageError as reason:
            yield combination, replace(panel, unbounded=str(reason))


def _drawable(result: Result) -> TypeGuard[Drawn]:
    if isinstance(result, Prediction):
        return result.case.nbytes > 0
    return isinstance(result, Measurement | Reported) and result.case.nbytes > 0 and min(result.times, default=0) > 0


def share_a_device(run: Run, results: Iterable[Timed]) -> bool:
    """Return whether ranks share a GPU, without a bus between them."""
    return any(result.note.shared for result in results) or run.header.topology.shared


def only(row: Sequence[Panel], names: Collection[str]) -> list[Panel]:
    """Return the panels with only these implementations; their libraries stay available for comparison."""
    selected = []
    for panel in row:
        results = tuple(result for result in panel.results if result.implementation in names)
        if results:
            selected.append(replace(panel, results=results, wrong=panel.wrong & set(names)))
    return selected


def told_apart(rows: dict[Combination, list[Panel]], say: Callable[[str], None]) -> dict[Combination, list[Panel]]:
    """Return the panels and lines that a figure can hold; `say` gets the numbers left out."""
    lines = (line for row in rows.values() for panel in row for line, _ in panel.points)
    names = list(dict.fromkeys(line.implementation for line in lines))
    if len(names) > TOLD_APART:
        say(f"{len(names) - TOLD_APART} implementations are not drawn: the limit is {TOLD_APART}; choose with --impl")
        rows = {combination: only(row, names[:TOLD_APART]) for combination, row in rows.items()}
    if (most := max(map(len, rows.values()), default=0)) > TOLD_APART:
        say(f"{most - TOLD_APART} panels are not drawn: the limit is {TOLD_APART}; give fewer runs")
    return {combination: row[:TOLD_APART] for combination, row in rows.items() if row}


def overlaid(row: Sequence[Panel]) -> list[Panel]:
    """Return all panels of a figure with names and colours, to share their axes.

    All show the algorithm's bandwidth if one of them has no bus.  UsageError if there are more panels than colours.
    """
    if len(row) > len(COLORS):
        raise UsageError(
            f"--overlay has colours for {len(COLORS)} topologies, but there are {len(row)}; "
            "give fewer runs, or leave --overlay out"
        )
    # Names are made unique by topology, then ranks, then run, and at last by a number.
    several_ranks = len({panel.ranks for panel in row}) > 1
    topologies = [panel.place if several_ranks else panel.topology for panel in row]
    names = []
    for panel, topology in zip(row, topologies, strict=True):
        if one_topology(row):
            names.append(panel.origin)
        else:
            names.append(f"{topology}, {panel.origin}" if topologies.count(topology) > 1 else topology)
    for name in {name for name in names if names.count(name) > 1}:
        for number in range(1, names.count(name) + 1):
            names[names.index(name)] = f"{name} ({number})"
    buses = all(panel.factor for panel in row)
    return [
        replace(panel, name=name, color=color, factor=panel.factor if buses else 0.0)
        for panel, name, color in zip(row, names, COLORS, strict=False)
    ]


def one_topology(row: Sequence[Panel]) -> bool:
    """Return whether all panels have the same topology and ranks."""
    return len({panel.place for panel in row}) == 1


def coloured(row: Sequence[Panel], most: int = COLOURED) -> set[PlotLine]:
    """Return the `most` lines to colour, each with its prediction; marks on other lines always have a colour.

    The order is: libraries, lines that are fastest (at more sizes first), then lines nearest to the fastest.
    """
    ratios: dict[PlotLine, list[float]] = {}  # times over the shortest for the same case: 1 where a line wins
    for panel in row:
        fastest: dict[tuple[bool, int], float] = {}
        for (line, size), result in panel.points.items():
            if not (result.note.picked or result.unsure):
                key = line.predicted, size
                fastest[key] = min(result.typical, fastest.get(key, math.inf))
        for (line, size), result in panel.points.items():
            of_line, least = ratios.setdefault(line.measured, []), fastest.get((line.predicted, size))
            if least is not None and result.typical > 0 and not result.unsure:
                of_line.append(max(1.0, result.typical / least))
    marks = {line for line in ratios if only_marks(row, line)}

    def rank(line: PlotLine) -> tuple[bool, int, float, PlotLine]:
        distance = fmean(map(math.log, ratios[line])) if ratios[line] else math.inf
        return not is_library(line.implementation), -ratios[line].count(1.0), distance, line

    chosen = marks.union(sorted(ratios.keys() - marks, key=rank)[:most])
    return {line for panel in row for line, _ in panel.points if line.measured in chosen}


def only_marks(row: Iterable[Panel], line: PlotLine) -> bool:
    """Return whether all points of a line are on other lines, like those of `auto`, so that marks suffice."""
    picked = []
    for panel in row:
        points = {(other.implementation, other.predicted, size) for other, size in panel.points}
        results = [result for result in panel.results if line_of(result).measured == line.measured]
        picked += [(each.note.picked, line_of(each).predicted, each.case.nbytes) in points for each in results]
    return bool(picked) and all(picked)
