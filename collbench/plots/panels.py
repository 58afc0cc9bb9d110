"""The panels of figures against message size: results sorted into panels and lines, and the lines that have a colour.

A prediction for as many GPUs is laid over what was measured on them, since that is what it is for.
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
    place: str  # unusual properties, as in `in-place`, or ""
    root: str  # "root3", or "" for rank 0


Drawn = Measurement | Reported | Prediction


class PlotLine(NamedTuple):
    """The subject of one line of a panel."""

    implementation: str
    predicted: bool
    library: str = ""  # that the implementation calls, so that no line mixes the points of two

    @property
    def label(self) -> str:
        """Name of the line in the legend."""
        return labelled(self.implementation, self.library)

    @property
    def measured(self) -> "PlotLine":
        """The line of what was measured, which shares its colour with its prediction."""
        return self._replace(predicted=False)


@dataclass(frozen=True)
class Panel:
    """The right results of one combination on one topology."""

    topology: str
    ranks: int
    origin: str  # name of the run, for topologies that several runs have
    factor: float  # bandwidth to show over algbw: the bus factor, or 0 where there is no bus to speak of
    platform: str  # cpu or gpu
    results: tuple[Drawn, ...]
    wrong: frozenset[str]  # implementations that also had wrong results
    expectation: str = ""  # the system whose predictions are laid over measurements of another name
    libraries: tuple[Drawn, ...] = ()  # results that the others are compared with, drawn or not
    bound: LinkRoofline | MemoryRoofline | None = None  # what the line rate or the memory allow
    unbounded: str = ""  # why that is not known
    tools: frozenset[str] = frozenset()  # names of other tools that reported results
    name: str = ""  # what tells it from the others that share its axes (--overlay); and its colour
    color: str = ""

    @property
    def points(self) -> dict[tuple[PlotLine, int], Drawn]:
        """Each result by line and size; the later of two for the same case."""
        return {(line_of(result), result.case.nbytes): result for result in self.results}

    @property
    def predicted(self) -> bool:
        """Whether nothing in it was measured."""
        return all(line.predicted for line, _ in self.points)

    @property
    def place(self) -> str:
        """The topology and its ranks, unless its name says them: `4 ranks on ...`, `DGX H100, 8 GPUs`."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        if self.topology.startswith(ranks) or self.topology.endswith(f", {self.ranks} GPUs"):
            return self.topology
        return f"{self.topology}, {ranks}"

    @property
    def remarks(self) -> list[str]:
        """What a reader must know of these numbers, and of which implementations unless it is all."""
        concerned: dict[str, set[str]] = {}
        for result in self.results:
            # What `auto` picks differs by size, and the table says it there.  That ranks share a GPU is in the title.
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
        """Return the library's time for the same case, predicted if the result is; the first of several libraries.

        None for a result of that library, for one that was disturbed, and where there is none.
        """
        alike = (library for library in self.libraries if library.case.nbytes == result.case.nbytes)
        library = library_of(alike, libraries(), result)
        return None if result.disturbed or (library and library.implementation == result.implementation) else library


def line_of(result: Drawn) -> PlotLine:
    """Return the line that a result is a point of."""
    library = result.library if isinstance(result, Measurement) else ""
    return PlotLine(result.implementation, isinstance(result, Prediction), library)


def panels(runs: Sequence[Run], machine: str | None = None) -> dict[Combination, list[Panel]]:
    """Sort results into panels, figure by figure; runs of one topology share a panel unless both measured the same.

    A prediction is laid over what was measured on as many ranks, if there is only one such prediction.  `machine` is
    the system that measured runs are of, whatever their files say.
    """
    rows: dict[Combination, list[Panel]] = {}
    for run in runs:
        for combination, panel in _panels_of(run, machine):
            row = rows.setdefault(combination, [])

            # A run that complements an earlier one of the same topology goes into its panel.
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

        # A prediction is laid over measurements only where it is the only one of its kind.
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
    """Yield the panels of a run; results of several numbers of ranks have a panel each."""
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

        # The bound depends on the machine, which a run file may not know.
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
    """Return whether ranks live on one GPU, where no bus lies between them and bus bandwidth means nothing."""
    return any(result.note.shared for result in results) or run.header.topology.shared


def only(row: Sequence[Panel], names: Collection[str]) -> list[Panel]:
    """Return the panels with these implementations alone; what they are compared with stays known."""
    selected = []
    for panel in row:
        results = tuple(result for result in panel.results if result.implementation in names)
        if results:
            selected.append(replace(panel, results=results, wrong=panel.wrong & set(names)))
    return selected


def told_apart(rows: dict[Combination, list[Panel]], say: Callable[[str], None]) -> dict[Combination, list[Panel]]:
    """Return as much as one figure can hold; `say` gets how much is left out."""
    lines = (line for row in rows.values() for panel in row for line, _ in panel.points)
    names = list(dict.fromkeys(line.implementation for line in lines))
    if len(names) > TOLD_APART:
        say(f"{len(names) - TOLD_APART} implementations are not drawn: {TOLD_APART} are the most; choose with --impl")
        rows = {combination: only(row, names[:TOLD_APART]) for combination, row in rows.items()}
    if (most := max(map(len, rows.values()), default=0)) > TOLD_APART:
        say(f"{most - TOLD_APART} panels are not drawn: {TOLD_APART} are the most; give fewer runs")
    return {combination: row[:TOLD_APART] for combination, row in rows.items() if row}


# ---- panels whose lines share their axes (--overlay)


def overlaid(row: Sequence[Panel]) -> list[Panel]:
    """Return all panels of a figure with names and colours, to share their axes.

    They show one kind of bandwidth: the algorithm's, if one of them has no bus to speak of.  UsageError if there are
    more panels than colours.
    """
    if len(row) > len(COLORS):
        raise UsageError(
            f"--overlay can tell {len(COLORS)} topologies apart by colour, and these are {len(row)}; "
            "give fewer runs, or leave --overlay out"
        )
    # What tells them apart: the topology, the ranks where they differ, the run, and a number at last.
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
    """Return whether all panels are of one topology, so that it need not be said of each."""
    return len({panel.place for panel in row}) == 1


# ---- lines that have a colour (--lines)


def coloured(row: Sequence[Panel], most: int = COLOURED) -> set[PlotLine]:
    """Return the lines that a reader looks for first, at most `most` of what was measured, each with its prediction.

    The libraries that others are compared with come first, then the fastest at some size, those at most sizes first,
    then those that are nearest to the fastest over all sizes.  Marks on other lines always have their colour.
    """
    ratios: dict[PlotLine, list[float]] = {}  # times over the least of all lines for the same case: 1 where a line wins
    for panel in row:
        fastest: dict[tuple[bool, int], float] = {}
        for (line, size), result in panel.points.items():
            if not result.note.picked:
                key = line.predicted, size
                fastest[key] = min(result.typical, fastest.get(key, math.inf))
        for (line, size), result in panel.points.items():
            own, least = ratios.setdefault(line.measured, []), fastest.get((line.predicted, size))
            if least is not None and result.typical > 0:
                own.append(max(1.0, result.typical / least))
    marks = {line for line in ratios if only_marks(row, line)}

    def rank(line: PlotLine) -> tuple[bool, int, float, PlotLine]:
        distance = fmean(map(math.log, ratios[line])) if ratios[line] else math.inf
        return not is_library(line.implementation), -ratios[line].count(1.0), distance, line

    chosen = marks.union(sorted(ratios.keys() - marks, key=rank)[:most])
    return {line for panel in row for line, _ in panel.points if line.measured in chosen}


def only_marks(row: Iterable[Panel], line: PlotLine) -> bool:
    """Return whether all points of a line lie on other lines, as those of `auto`, which picks an implementation.

    Such a line needs only marks on those others.
    """
    picked = []
    for panel in row:
        points = {(other.implementation, other.predicted, size) for other, size in panel.points}
        own = [result for result in panel.results if line_of(result).measured == line.measured]
        picked += [(each.note.picked, line_of(each).predicted, each.case.nbytes) in points for each in own]
    return bool(picked) and all(picked)
