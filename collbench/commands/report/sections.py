"""Sections of the page, other than the curves and the table of all rows.

The head of the page has title, status, claims and a verdict.  `templates/sections.html` lays out the parts below the
curves.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import geometric_mean
from typing import Any, NamedTuple

from collbench.algorithms import references
from collbench.analysis import crossover
from collbench.analysis.fit import COLUMNS, pieces_in_words
from collbench.analysis.headers import several_machines
from collbench.analysis.interconnects import InterconnectTable, left_out, of_run, tables
from collbench.analysis.judgement import Correctness, Word, not_judged, overall, shortened
from collbench.analysis.machine import discovered
from collbench.commands.report.analysed import AnalysedRun, SafeRun, safe_text
from collbench.errors import CollbenchError
from collbench.plots.kinds import MOST, PLAIN, PagePart, Picture, Section, TextTable, kinds, section_of
from collbench.present.figures import page_svg
from collbench.results import Timed, by_key
from collbench.runfile.store import INTERRUPTED, Run, scatter_in_words
from collbench.topology import render
from collbench.units import counted, format_rate, format_seconds, format_size

FIRST = 6  # sentences of a command's part that move into the verdict


SECTIONS = {
    "verdict": "Verdict",
    "curves": "Curves",
    "which": "Which interconnect",
    "crossovers": "Crossovers",
    "fits": "Latency and bandwidth",
    "verdicts": "Are the numbers right?",
    "machine": "The machine",
    "environment": "Environment",
    "table": "All rows",
}
"""Titles of the parts of the page by name, in order; the parts of commands follow `which`."""
_MOST_TABLES = 40  # of crossovers or interconnects
_LONGEST_ANCHOR = 80
_WIDEST = 84  # columns of a topology in words
_MOST_LINES = 200  # of a topology in words


class Claim(NamedTuple):
    """The verdict on one aspect of a run; its word is also a class of report.css."""

    subject: str  # Results or Speed
    word: str  # of judgement.Word
    sentence: str


def title_of(runs: Sequence[AnalysedRun], commands: Sequence[Section]) -> str:
    """Return the title of the page: collectives, or the subjects of commands' results, and machines."""
    subjects = []
    for run in runs:
        for result in run.every:
            section = section_of(result, commands)
            subjects.append(section.subject if section and section.subject else result.case.collective.name)
    machines = [run.machine for run in runs]
    words = shortened([*dict.fromkeys(subjects)]) or "collectives"
    return f"{words}: {shortened([*dict.fromkeys(machines)], '; ')}"


def about(run: AnalysedRun) -> dict[str, Any]:
    """Return the lines on a run below the title: claims, origins of its numbers, missing parts, facts."""
    header = run.run.header
    facts = [counted(len(run.every), "row")]
    ranks = sorted({result.case.ranks for result in run.every})
    if len(ranks) > 1:
        facts.append(f"on {ranks[0]:,} to {ranks[-1]:,} ranks")
    if tool := " ".join(filter(None, (header.imported.tool, header.imported.version))):
        facts.append(safe_text(", ".join(filter(None, (f"from {tool}", header.imported.file))), 120))
    if header.started:
        facts.append(f"started {safe_text(header.started, 40)}")
    if header.resumed:
        facts.append(f"resumed {safe_text(', '.join(header.resumed), 100)}")
    partial = "" if header.imported.complete else "partial: the log was cut off"
    if not run.run.complete:
        partial = "partial: the run was cut off"
    elif (run.run.status or 0) >= INTERRUPTED:
        partial = "partial: the run was interrupted"
    return {"run": run, "claims": _claims(run), "statuses": statuses(run), "partial": partial, "facts": facts}


def statuses(run: SafeRun) -> list[str]:
    """Return the origins of a run's numbers: `measured`, `imported`, `predicted`, or `no numbers`."""
    origins = {result.origin for result in run.every}
    return [status for status in ("measured", "imported", "predicted") if status in origins] or ["no numbers"]


def _claims(run: AnalysedRun) -> list[Claim]:
    correctness = Correctness.of(run.every)
    if not correctness.total:
        return [Claim("Results", "UNKNOWN", "not judged: nothing was measured")]
    lost = [reason for reason in (run.run.cut_off, run.run.unread) if reason]
    if untimed := len(run.every) - len(run.run.results):
        lost.append(f"{untimed} not usable, without a time")
    word = Word.UNKNOWN if correctness.unchecked or lost else Word.OK
    sentence = safe_text("; ".join([correctness.in_words(), *lost]), 600)
    return [Claim("Results", (Word.WRONG if correctness.faults else word).value, sentence), _speed(run)]


def _speed(run: AnalysedRun) -> Claim:
    curves = run.verdicts
    if not run.system or not curves:
        none = "no time of these rows can be compared with the model"
        return Claim("Speed", "UNKNOWN", f"not judged: {run.why_not if curves else none}")

    # The sentence is on the curve with the largest deviation among those with the worst word.
    word = overall(curve.diagnosis.word for curve in curves)
    alike = [curve for curve in curves if curve.diagnosis.word is word]
    telling = max(alike, key=lambda curve: curve.diagnosis.off)
    diagnosis = telling.diagnosis
    parts = [diagnosis.remark]
    if scatter := scatter_in_words(diagnosis.measured):
        parts.append(f"{scatter}, the slowest are judged")
    if word is Word.OK:
        ratio = geometric_mean([size.ratio.value for size in diagnosis.sizes])
        parts += [f"typically {ratio:.2f}x the expected time", str(diagnosis.sight)]
    count = f", in {len(alike)} of {run.measured} curves" if run.measured > 1 else ""
    against = f", against {telling.against}" if telling.against else ""
    words = f"{'; '.join(filter(None, parts))} ({diagnosis.implementation}, {diagnosis.title}{against}{count})"
    unknown = not_judged((curve.diagnosis.name, curve.diagnosis.word) for curve in curves)
    words = "; ".join([words, *(unknown if word is not Word.UNKNOWN else ()), *run.assumed])
    return Claim("Speed", word.value, safe_text(words, 600))


def verdict(
    analysed: Sequence[AnalysedRun], parts: Sequence[tuple[str, PagePart]], which: PagePart | None
) -> list[tuple[str, PagePart]]:
    """Return sentences on all runs side by side, then on each.

    *parts* are the commands' parts of the runs, by the labels of `by_run`; *which* compares the runs' interconnects.
    """

    def of_run(run: AnalysedRun) -> PagePart:
        label = run.label if len(analysed) > 1 else ""
        sentences: list[str] = []
        for name, part in parts:
            if name == label:
                sentences += part.words[:FIRST]
        sentences += _fastest(run)
        return PagePart(sentences or ["no row has a time of a collective with a checked result"])

    together = [("all runs", PagePart(which.words[:1]))] if which else []
    return together + by_run(analysed, of_run)


def _fastest(run: AnalysedRun) -> Iterator[str]:
    """Yield the fastest implementations by size and their lead, or the times of a single implementation.

    The sentences are on the kind of case with the most points, preferably measured.
    """
    groups = by_key(crossover.rivals(run.run.results), lambda row: (row.predicted, row.case.kind))
    if not groups:
        return
    predicted, kind = max(groups, key=lambda key: (not key[0], len(groups[key])))
    rows = groups[predicted, kind]
    if len({row.implementation for row in rows}) == 1:
        yield _alone(rows)
        return
    unsure = crossover.unsure_rivals(run.run.results)
    ranges = [span for _, spans in crossover.winners(rows, unsure) for span in spans]
    yield f"{kind.title}: {crossover.fastest_in_words(ranges, predicted)}"
    yield from map(crossover.in_words, crossover.best_of(crossover.contests(rows, references())))
    yield from crossover.handicaps(rows)


def _alone(rows: Sequence[Timed]) -> str:
    """Return `nccl takes 13.2 us at 8 B, 8.02 ms at 2 GiB (267.8 GB/s algorithm bandwidth)`."""
    sizes = {row.case.nbytes: row for row in rows}
    ends = [sizes[size] for size in sorted({min(sizes), max(sizes)})]
    times = ", ".join(f"{format_seconds(row.typical)} at {format_size(row.case.nbytes)}" for row in ends)
    case, last = rows[0].case, ends[-1]
    rate = f" ({format_rate(last.algbw)} GB/s algorithm bandwidth)" if case.collective.sized else ""
    return f"{case.title}: {last.implementation} {'should take' if last.predicted else 'takes'} {times}{rate}"


@dataclass
class Anchors:
    """Unique anchors of plain letters, which depend only on the texts."""

    taken: set[str]  # at first the names of the page's parts

    def new(self, *words: str) -> str:
        """Return an anchor made of these words, numbered if it is used."""
        plain = re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:_LONGEST_ANCHOR] or "figure"
        name, count = plain, 1
        while name in self.taken:
            count += 1
            name = f"{plain}-{count}"
        self.taken.add(name)
        return name


def by_run(analysed: Sequence[AnalysedRun], part_of: Callable[[AnalysedRun], PagePart]) -> list[tuple[str, PagePart]]:
    """Return (label, part) of each run with a non-empty part; the label is empty for a single run."""
    parts = [(run.label if len(analysed) > 1 else "", part_of(run)) for run in analysed]
    return [(label, part) for label, part in parts if any(part)]


def said(analysed: AnalysedRun, section: Section, room: int, anchors: Anchors) -> PagePart:
    """Return a command's part of a run: tables with anchors, and pictures of at most *room* bytes."""
    part = section.part(analysed.run.results)
    shown = part.tables and section.drawn
    drawn, left_out = _pictures(analysed.run, section.rows, room, anchors) if shown else ([], 0)
    words = [safe_text(line, 600) for line in part.words[:MOST]]
    listed = part.tables[:MOST]
    tables = [(anchors.new(section.name, table.caption) if table.linked else "", table) for table in listed]
    return PagePart(words, tables, drawn, left_out)


def _pictures(run: Run, rows: tuple[type, ...], room: int, anchors: Anchors) -> tuple[list[Picture], int]:
    """Return the figures of these rows alone that fit into `room` bytes, and the number of the others."""
    drawn: list[Picture] = []
    left_out = 0
    for kind in kinds(frozenset(row.__name__ for row in rows)).values():
        if not set(kind.rows) <= set(rows):
            continue
        try:
            for stem, figure in kind.figures([run], PLAIN, lambda reason: None):
                address = page_svg(figure)
                room -= len(address)
                if room >= 0:
                    drawn.append(Picture(address, stem, anchors.new("figure", stem)))
                else:
                    left_out += 1
        except CollbenchError:
            continue  # the tables have the numbers
    return drawn, left_out


def crossovers(analysed: AnalysedRun) -> PagePart:
    """Return tables of the fastest implementations by size, and sentences on hand-written ones against the library."""
    timed = crossover.rivals(analysed.run.results)
    rows_of = by_key(timed, lambda row: row.case.kind)
    fastest = []
    for case, ranges in crossover.winners(timed, crossover.unsure_rivals(analysed.run.results)):
        # A single implementation has no table.
        if len({row.implementation for row in rows_of[case.kind]}) > 1:
            rows = [(crossover.format_span(span.first, span.last), " or ".join(span.names)) for span in ranges]
            fastest.append(TextTable(f"Fastest: {case.title}", ("size", "implementation"), rows))
    words = [crossover.in_words(contest) for contest in crossover.contests(timed, references())]
    left_out = max(0, len(words) - MOST) + max(0, len(fastest) - _MOST_TABLES)
    return PagePart(words[:MOST], fastest[:_MOST_TABLES], left_out=left_out)


def fits(analysed: AnalysedRun) -> PagePart:
    """Return latency and bandwidth of each fitted curve, its pieces, and reasons for missing fits."""
    fitted = by_key((curve for curve in analysed.curves if curve.fit), lambda curve: curve.case.title)
    unfit = [curve for curve in analysed.curves if not curve.fit]
    reasons = [f"{curve.case.title}, {curve.implementation}: no fit, {curve.reason}." for curve in unfit]
    for curve in analysed.curves:
        if pieces := [*pieces_in_words(curve)]:
            reasons.append(f"{curve.case.title}, {pieces[0]}:{';'.join(pieces[1:])}.")
    tables = [TextTable.of(f"Fitted: {title}", COLUMNS, of_kind) for title, of_kind in fitted.items()]
    return PagePart(reasons, tables)


def verdicts(analysed: AnalysedRun) -> PagePart:
    """Return the verdicts of `collbench check`: rows are CurveVerdict; the sentence is the reason for no system."""
    if not analysed.verdicts:  # nothing was measured
        return PagePart(notes=analysed.notes)
    curves = []
    for curve in analysed.verdicts:
        # The reason for no system is above the table.
        because = tuple(reason for reason in curve.because if reason != analysed.why_not)
        curves.append(curve._replace(because=because))
    heading = ["implementation", "verdict", *(["because"] if any(curve.because for curve in curves) else [])]
    tables = []
    for (kind, against), alike in by_key(curves, lambda curve: (curve.diagnosis.title, curve.against)).items():
        tables.append(TextTable(f"{kind}, against {against}" if against else kind, heading, alike))
    unknown = [] if analysed.system else [f"{analysed.why_not}."]
    return PagePart(unknown, tables, notes=analysed.notes)


def which(runs: Sequence[SafeRun]) -> PagePart | None:
    """Return runs of several machines side by side: sentences, tables, and notes on each run.

    None if all runs are of one machine, or have no case and size in common.
    """
    if not several_machines(run.run.header for run in runs):
        return None
    every = [of_run(run.label, run.run) for run in runs]
    compared = tables(every)[:_MOST_TABLES]
    if not compared:
        return None
    sentences = []
    for table in compared:
        start = f"{table.title}: " if len(compared) > 1 else ""
        sentences += [f"{start}{line}" for line in table.verdict()]
    sentences += dict.fromkeys(table.unlike for table in compared if table.unlike)
    sentences += [f"left out: {safe_text(reason)}" for reason in left_out(every, compared)]
    names = {run.name for table in compared for run in table.interconnects}
    shown = [run for run in every if run.name in names]
    notes = [f"{run.name}, {run.origin}: {safe_text('; '.join((run.title, *run.remarks)))}" for run in shown]
    return PagePart(sentences, [_interconnect_table(table) for table in compared], notes=notes)


def _interconnect_table(table: InterconnectTable) -> TextTable:
    """Return a row for each size with the times of all; those after the first have a ratio: `13.2 us (0.9x)`."""
    first, *others = (interconnect.name for interconnect in table.interconnects)
    heading = ("size", first, *(f"{name} (vs {first})" for name in others), "fastest")
    rows = []
    for line in table.lines[:MOST]:
        cells = []
        for cell in line.cells:
            ratio = f" ({cell.ratio})" if cell and cell.ratio else ""
            cells.append(f"{format_seconds(cell.row.typical)}{ratio}" if cell else "")
        rows.append((format_size(line.nbytes), *cells, str(line.ranking)))
    return TextTable(table.title, heading, rows)


def machines(analysed: Sequence[AnalysedRun]) -> list[tuple[str, PagePart]]:
    """Return the distinct machines of the runs by name: topology, and notes on unknown or assumed properties."""
    parts: dict[object, tuple[str, PagePart]] = {}
    for run in analysed:
        words = "\n".join(_topology_lines(run))
        key = (run.system, words, run.why_not)
        if key in parts:
            continue
        notes = [f"Not known as a system: {run.why_not}."] if run.why_not else []
        if run.system and run.system.guesses:
            notes.append(f"Assumed: {'; '.join(map(safe_text, run.system.guesses))}.")
        parts[key] = run.machine, PagePart([words] if words else [], notes=notes)
    return list(parts.values())


def _topology_lines(run: AnalysedRun) -> list[str]:
    """Return the topology in lines; none if the header lacks it."""
    try:
        topology = discovered(run.run)
        if topology and topology.devices:  # a predicted run has none
            lines = islice(render.topology_lines(topology, _WIDEST), _MOST_LINES)
            return [line[: 2 * _WIDEST] for line in lines]
        return list(render.system_lines(run.system, _WIDEST)) if run.system else []
    except Exception:  # a foreign header may connect missing devices
        return []


def environment(analysed: AnalysedRun) -> PagePart:
    """Return host, versions and variables of a run; empty if its file has none."""
    header = analysed.run.header
    environment = header.environment
    rows = [("host", environment.host), ("system", environment.system)]
    rows += list(environment.versions.items())[:MOST]
    rows += [(f"${name}", value) for name, value in list(environment.variables.items())[:MOST]]
    rows.append(("command", safe_text(" ".join(header.command))))
    rows = [(name, value) for name, value in rows if value]
    return PagePart(tables=[TextTable(f"Environment of {analysed.label}", ("what", "value"), rows)] if rows else [])
