"""What the parts of the page say of each run, but for its summary, its curves and the table of all rows.

`templates/sections.html` lays it out.
"""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from collbench.algorithms import libraries
from collbench.analysis.crossover import contests, disturbed_rivals, format_span, in_words, rivals, winners
from collbench.analysis.fit import COLUMNS, pieces_in_words
from collbench.analysis.interconnects import Table, left_out, of_run, tables
from collbench.analysis.machine import discovered
from collbench.analysis.matching import several_machines
from collbench.commands.report.analysed import AnalysedRun, SafeRun, safe_text
from collbench.commands.step import columns as step_tables
from collbench.commands.step import overlap, scaling, stragglers
from collbench.commands.step import trained as strategies
from collbench.commands.step.columns import StepResult
from collbench.commands.step.rows import StepPrediction, StepTimes, Trained
from collbench.commands.train import plans as analysis
from collbench.commands.train.rows import PlannedStep
from collbench.errors import CollbenchError
from collbench.plots.kinds import PLAIN, kinds
from collbench.present.columns import Column, Row
from collbench.present.figures import Figure
from collbench.results import PARTS, Explanation, Result, by_key
from collbench.runfile.store import Run
from collbench.topology import render
from collbench.units import format_figure, format_seconds, format_size

SECTIONS = {
    "verdict": "Verdict",
    "curves": "Curves",
    "which": "Which interconnect",
    "steps": "Steps and training",
    "plans": "Plans of a training run",
    "spent": "Where the time goes",
    "crossovers": "Crossovers",
    "fits": "Latency and bandwidth",
    "verdicts": "Are the numbers right?",
    "machine": "The machine",
    "environment": "Environment",
    "table": "All rows",
}
"""Titles of the parts of the page by their names, in its order."""
MOST = 60  # rows of a table, sentences and explanations of a run
_MOST_TABLES = 40  # of crossovers or interconnects
_LONGEST_ANCHOR = 80
_WIDEST = 84  # columns of a topology in words
_MOST_LINES = 200  # of a topology in words
_MOST_MACHINES = 4  # with a picture
STEPPED = (StepTimes, StepPrediction, Trained)


class Anchors:
    """Names of places that can be linked to: of plain letters, and no two alike; the same texts give the same names."""

    def __init__(self) -> None:
        self._taken = {*SECTIONS}

    def new(self, *words: str) -> str:
        """Return a name made of these words, numbered where it is taken."""
        plain = re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:_LONGEST_ANCHOR] or "figure"
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}-{count}"
        self._taken.add(name)
        return name


class TextTable(NamedTuple):
    """A caption, the names of the columns, and rows of texts unless the template knows better."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> "TextTable":
        """Return the table of rows, whose texts may come from any file."""
        cells = [tuple(safe_text(column.cell(row), 120) for column in columns) for row in rows]
        return cls(safe_text(caption, 120), [column.name or column.key for column in columns], cells)

    @property
    def dense(self) -> "TextTable":
        """The table without columns in which no row has anything; the first, which names the rows, always stays."""
        filled = [place for place in range(len(self.heading)) if not place or any(row[place] for row in self.rows)]
        rows = [tuple(row[place] for place in filled) for row in self.rows]
        return TextTable(self.caption, [self.heading[place] for place in filled], rows)


class Picture(NamedTuple):
    """A figure as the page holds it."""

    address: str  # that holds all of it
    words: str
    anchor: str


class Part(NamedTuple):
    """What a part of the page says of a run; nothing of it need be there."""

    words: Sequence[str] = ()
    tables: Sequence[Any] = ()  # a TextTable each
    pictures: Sequence[Picture] = ()
    left_out: int = 0  # for which there is no room
    notes: Sequence[str] = ()


def by_run(analysed: Sequence[AnalysedRun], part_of: Callable[[AnalysedRun], Part]) -> list[tuple[str, Part]]:
    """Return a part of the page for each run of which it has anything to say, with its label if there are several."""
    parts = [(run.label if len(analysed) > 1 else "", part_of(run)) for run in analysed]
    return [(label, part) for label, part in parts if any(part)]


def listed(names: Iterable[str], between: str = ", ") -> str:
    """Return the first three different names, and how many more there are."""
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return between.join(different[:3]) + more


# ---- pictures that `collbench plot` draws


def pictures(run: Run, rows: tuple[type, ...], room: int, anchors: Anchors) -> tuple[list[Picture], int]:
    """Return the figures that are drawn of such rows alone, as many as fit into `room` bytes, and how many do not."""
    drawn: list[Picture] = []
    left_out = 0
    for kind in kinds().values():
        if not set(kind.rows) <= set(rows):
            continue
        try:
            for stem, figure in kind.figures([run], PLAIN, lambda reason: None):
                address = _address(figure)
                room -= len(address)
                if room >= 0:
                    drawn.append(Picture(address, stem, anchors.new("figure", stem)))
                else:
                    left_out += 1
        except CollbenchError:  # what cannot be drawn has its tables
            continue
    return drawn, left_out


def _address(figure: Figure) -> str:
    """Return the address that holds a figure."""
    from collbench.present.figures import page_png

    return f"data:image/png;base64,{base64.b64encode(page_png(figure)).decode()}"


# ---- crossovers, explained operations, fits, verdicts


def crossovers(analysed: AnalysedRun) -> Part:
    """Return who is fastest where, and each hand-written implementation against the library in words."""
    timed = rivals(analysed.run.results)
    rows_of = by_key(timed, lambda row: row.case.kind)
    found = []
    for case, ranges in winners(timed, disturbed_rivals(analysed.run.results)):
        # An implementation without rivals is fastest everywhere, which says nothing.
        if len({row.implementation for row in rows_of[case.kind]}) > 1:
            rows = [(format_span(span.first, span.last), " or ".join(span.names)) for span in ranges]
            found.append(TextTable(f"Fastest: {case.title}", ("size", "implementation"), rows))
    words = [in_words(contest) for contest in contests(timed, libraries())]
    left_out = max(0, len(words) - MOST) + max(0, len(found) - _MOST_TABLES)
    return Part(words[:MOST], found[:_MOST_TABLES], left_out=left_out)


def explained(analysed: AnalysedRun) -> list[Explanation]:
    """Return the explanations of a run that are more than a time."""
    return [result for result in analysed.run.results if isinstance(result, Explanation) and result.tracks]


def spent(analysed: AnalysedRun, anchors: Anchors) -> Part:
    """Return a table for each case of the first explanations, after its anchor: where the time of operations goes."""
    tables = []
    for case, results in by_key(explained(analysed)[:MOST], lambda result: result.case).items():
        rows = []
        for result in results:
            shares = {part: result.share(part) for part in PARTS}
            name = ", ".join(filter(None, (result.implementation, result.altered)))
            rows.append((name, format_seconds(result.seconds), shares))
        caption = f"{case.title}, {format_size(case.nbytes)}"
        table = TextTable(caption, ("implementation", "time", "shares", *PARTS), rows)
        tables.append((anchors.new("spent", caption), table))
    return Part(tables=tables)


def fits(analysed: AnalysedRun) -> Part:
    """Return latency and bandwidth of each curve that has a fit, its pieces if it has any, and why others have none."""
    fitted = by_key((curve for curve in analysed.curves if curve.fit), lambda curve: curve.case.title)
    unfit = [curve for curve in analysed.curves if not curve.fit]
    reasons = [f"{curve.case.title}, {curve.implementation}: no fit, {curve.reason}." for curve in unfit]
    for curve in analysed.curves:
        if pieces := [*pieces_in_words(curve)]:
            reasons.append(f"{curve.case.title}, {pieces[0]}:{';'.join(pieces[1:])}.")
    tables = [TextTable.of(f"Fitted: {title}", COLUMNS, of_kind) for title, of_kind in fitted.items()]
    return Part(reasons, tables)


def verdicts(analysed: AnalysedRun) -> Part:
    """Return what `collbench diagnose` says of each curve: rows are CurveVerdict; words, why it has no machine."""
    if not analysed.verdicts:  # nothing was measured, as the run's status says
        return Part(notes=analysed.notes)
    curves = []
    for curve in analysed.verdicts:
        # The reason for no system stands above the table already.
        because = tuple(reason for reason in curve.because if reason != analysed.why_not)
        curves.append(curve._replace(because=because))
    heading = ["implementation", "verdict", *(["because"] if any(curve.because for curve in curves) else [])]
    tables = []
    for (kind, against), alike in by_key(curves, lambda curve: (curve.diagnosis.title, curve.against)).items():
        tables.append(TextTable(f"{kind}, against {against}" if against else kind, heading, alike))
    unknown = [] if analysed.system else [f"{analysed.why_not}."]
    return Part(unknown, tables, notes=analysed.notes)


# ---- interconnects side by side


def which(runs: Sequence[SafeRun]) -> Part | None:
    """Return runs of several machines side by side: which is fastest, tables, and what is compared in the notes.

    None where all runs are of one machine, or have no size of a case in common.
    """
    if not several_machines(run.run.header for run in runs):
        return None
    every = [of_run(run.label, run.run) for run in runs]
    found = tables(every)[:_MOST_TABLES]
    if not found:
        return None
    sentences = []
    for table in found:
        sentences += [f"{table.title}: {line}" if len(found) > 1 else line for line in table.verdict()]
    sentences += dict.fromkeys(table.unlike for table in found if table.unlike)
    sentences += [f"left out: {safe_text(reason)}" for reason in left_out(every, found)]
    who = []
    for one in every:
        if any(one in table.interconnects for table in found):
            who.append(f"{one.name}, {one.origin}: {safe_text('; '.join((one.title, *one.remarks)))}")
    return Part(sentences, [_interconnect_table(table) for table in found], notes=who)


def _interconnect_table(table: Table) -> TextTable:
    """Return a row for each size: the time of each, after the first with its ratio to that: `13.2 us (0.9x)`."""
    first, *others = (one.name for one in table.interconnects)
    heading = ("size", first, *(f"{name} (vs {first})" for name in others), "fastest")
    rows = []
    for line in table.lines[:MOST]:
        cells = []
        for cell in line.cells:
            ratio = f" ({cell.ratio})" if cell and cell.ratio else ""
            cells.append(f"{format_seconds(cell.row.typical)}{ratio}" if cell else "")
        rows.append((format_size(line.nbytes), *cells, str(line.ranking)))
    return TextTable(table.title, heading, rows)


# ---- steps and training, in the commands' words


def steps(analysed: AnalysedRun, room: int, anchors: Anchors) -> Part:
    """Return what is said of the steps and the training of a run, with pictures of at most *room* bytes."""
    tables: list[TextTable] = []
    words: list[str] = []
    for part in _OF_STEPS:
        found = part(analysed.run.results)
        tables += found.tables
        words += found.words
    drawn, left_out = pictures(analysed.run, STEPPED, room, anchors) if tables else ([], 0)
    return Part([safe_text(line, 600) for line in words[:MOST]], tables[:MOST], drawn, left_out)


def _scaling(results: Sequence[Result]) -> Part:
    tables, words = [], []
    for curve in scaling.curves(results):
        rows = [StepResult(point.row, results) for point in curve.points[:MOST]]
        tables.append(TextTable.of(f"{curve.mode} scaling, {curve.name}", step_tables.SCALING.columns, rows))
        words += scaling.verdict(curve)
    return Part(words, tables)


def _overlap(results: Sequence[Result]) -> Part:
    rows = [StepResult(found.row, results) for found in overlap.overlaps(results)[:MOST]]
    return Part(overlap.verdicts(results), [TextTable.of("Overlap", step_tables.OVERLAP.columns, rows)] if rows else [])


def _stragglers(results: Sequence[Result]) -> Part:
    """Return the ranks that cost most, by each row alone; the verdict in words is by all rows."""
    tables = []
    for result, moments in stragglers.straggler_rows(results)[:MOST]:
        ranks, most = stragglers.costliest(moments), step_tables.MOST_LATE
        more = f"; {len(ranks) - most} ranks cost less" if len(ranks) > most else ""
        caption = f"Late ranks, {result.label}: {moments.count:,} steps, {step_tables.noise(moments)}{more}"
        tables.append(TextTable.of(caption, step_tables.LATE_RANKS, ranks[:most]))
    return Part(stragglers.verdicts(results), tables)


def _strategies(results: Sequence[Result]) -> Part:
    if not (found := strategies.ranking(results)):
        return Part()
    caption, rows = f"Strategies: to loss {found.target:g}", strategies.ranked_rows(found)[:MOST]
    return Part([*strategies.verdict(found)], [TextTable.of(caption, strategies.ranking_columns(found), rows)])


_OF_STEPS = (_scaling, _overlap, _stragglers, _strategies)
"""What is said of steps and training; another thing to say of them is one more function."""


# ---- plans of a training run


def plans(analysed: AnalysedRun, room: int, anchors: Anchors) -> Part:
    """Return what a run plans, with pictures of so many bytes; nothing where it has no plans."""
    results = analysed.run.results
    layouts, scale, systems = (analysis.planned(results, name) for name in ("layout", "scale", "interconnect"))
    priced = [row for row in analysis.planned(results, "cost") if row.price > 0]
    curve, best = analysis.scaled(scale), analysis.front(priced)
    least = min((row.typical / row.tokens for row in systems), default=1.0)
    efficiency = Column("efficiency", curve.efficiency, "{:.1%}".format) if curve else None
    slower = Column[PlannedStep]("time of a token", lambda row: f"{format_figure(row.typical / row.tokens / least)}x")
    paid = [
        Column("time", analysis.duration_text),
        Column("cost", analysis.cost_text),
        Column[PlannedStep]("worth it", lambda row: "yes" if row in best else "no"),
    ]
    tables = [
        _planned("Layouts", layouts, analysis.columns("sent,memory")),
        _planned("Scaling", curve.rows if curve else (), [efficiency] if efficiency else []),
        _planned("Interconnects", systems, [*analysis.columns("sent"), slower]),
        _planned("Cost", priced, paid),
    ]
    tables = [table for table in tables if table.rows]
    drawn, left_out = pictures(analysed.run, (PlannedStep,), room, anchors) if tables else ([], 0)
    return Part([safe_text(line, 600) for line in analysis.verdicts(results)[:MOST]], tables, drawn, left_out)


def _planned(what: str, rows: Sequence[PlannedStep], more: Sequence[Column[PlannedStep]]) -> TextTable:
    """Return a table of plans: the columns that all such tables have, and some of its own."""
    columns = [*analysis.columns("layout,system,GPUs,step,nine in ten,MFU,tokens/s"), *more]
    return TextTable.of(f"{what}, predicted", columns, rows[:MOST])


# ---- the machine and its environment


def machines(analysed: Sequence[AnalysedRun], anchors: Anchors) -> list[tuple[str, Part]]:
    """Return every machine of the runs once, after its name: a picture of the first few, what is not known, words."""
    from collbench.plots.system import figure

    parts: dict[object, tuple[str, Part]] = {}
    for run in analysed:
        words = "\n".join(_topology_lines(run))
        key = (run.system, words, run.why_not)
        if key in parts:
            continue
        name, drawn = run.machine, []
        notes = [f"No picture: {run.why_not}."] if run.why_not else []
        if run.system and len(parts) < _MOST_MACHINES:
            drawn.append(Picture(_address(figure(run.system)), name, anchors.new("figure", name)))
        if run.system and run.system.guesses:
            notes.append(f"Assumed: {'; '.join(map(safe_text, run.system.guesses))}.")
        parts[key] = name, Part([words] if words else [], pictures=drawn, notes=notes)
    return list(parts.values())


def _topology_lines(run: AnalysedRun) -> list[str]:
    """Return the topology in lines; none where the header does not know it."""
    try:
        topology = discovered(run.run)
        if topology and topology.devices:  # a predicted run has none
            lines = islice(render.topology_lines(topology, _WIDEST), _MOST_LINES)
            return [line[: 2 * _WIDEST] for line in lines]
        return list(render.system_lines(run.system, _WIDEST)) if run.system else []
    except Exception:  # any type may stand in a foreign header
        return []


def environment(analysed: AnalysedRun) -> Part:
    """Return host, versions and variables of a run; nothing where its file says nothing."""
    header = analysed.run.header
    known = header.environment
    rows = [("host", known.host), ("system", known.system)]
    rows += list(known.versions.items())[:MOST]
    rows += [(f"${name}", value) for name, value in list(known.variables.items())[:MOST]]
    rows.append(("command", safe_text(" ".join(header.command))))
    rows = [(name, value) for name, value in rows if value]
    return Part(tables=[TextTable(f"Environment of {analysed.label}", ("what", "value"), rows)] if rows else [])
