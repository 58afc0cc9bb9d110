"""What most parts of the page say of each run; `templates/sections.html` lays it out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from collbench.algorithms import libraries
from collbench.analysis.crossover import contests, format_span, in_words, rivals, winners
from collbench.analysis.fit import HEADING, Curve, columns
from collbench.cases import Case
from collbench.report.anchors import Anchors
from collbench.report.sanitize import Sound
from collbench.report.verdicts import RunVerdicts
from collbench.results import PARTS, Explanation
from collbench.topology.system import System
from collbench.units import format_seconds, format_size

MOST_CONTESTS = 60  # in words, of a run
MOST_SPENT = 60  # explanations of a run
MOST_KINDS = 40  # of cases of a run whose winners are listed


@dataclass(frozen=True)
class AnalysedRun:
    """A run and what its analyses say."""

    run: Sound
    system: System | None
    why_not: str  # there is no system
    curves: Sequence[Curve]  # with their fits
    verdicts: RunVerdicts


class TextTable(NamedTuple):
    """A caption, the names of the columns, and rows of texts unless the template knows better."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]

    @property
    def dense(self) -> "TextTable":
        """Without columns in which no row of texts has anything; the first, which names the rows, always stays."""
        kept = [place for place in range(len(self.heading)) if not place or any(row[place] for row in self.rows)]
        rows = [tuple(row[place] for place in kept) for row in self.rows]
        return TextTable(self.caption, [self.heading[place] for place in kept], rows)


Part = TypeVar("Part", bound=tuple[Any, ...])


def by_run(analysed: Sequence[AnalysedRun], part_of: Callable[[AnalysedRun], Part]) -> list[tuple[str, Part]]:
    """What a part of the page says of each run that it says anything of, with the run's label if there are several."""
    parts = [(one.run.label if len(analysed) > 1 else "", part_of(one)) for one in analysed]
    return [(label, part) for label, part in parts if any(part)]


class Crossovers(NamedTuple):
    """Who wins where, and each hand-written implementation against the library in words."""

    winners: list[TextTable]
    contests: list[str]
    left_out: int  # of both


def crossovers(analysed: AnalysedRun) -> Crossovers:
    """By the times of the run."""
    timed = rivals(analysed.run.run.results)
    names: dict[Case, set[str]] = {}
    for row in timed:
        names.setdefault(row.case.kind, set()).add(row.implementation)
    # One alone wins everywhere, which says nothing.
    fastest = [(case, ranges) for case, ranges in winners(timed) if len(names[case.kind]) > 1]
    tables = [
        TextTable(
            f"Fastest: {case.title}",
            ("size", "implementation"),
            [(format_span(these.first, these.last), " or ".join(these.names)) for these in ranges],
        )
        for case, ranges in fastest[:MOST_KINDS]
    ]
    words = [in_words(contest) for contest in contests(timed, libraries())]
    left_out = max(0, len(words) - MOST_CONTESTS) + max(0, len(fastest) - MOST_KINDS)
    return Crossovers(tables, words[:MOST_CONTESTS], left_out)


class Spent(NamedTuple):
    """Where the time of explained operations goes: rows of (implementation, time, share of each part)."""

    tables: list[tuple[str, TextTable]]  # each after the place that it can be linked to by


def spent(analysed: AnalysedRun, anchors: Anchors) -> Spent:
    """The first explanations of the run that are more than a time; a table for each case."""
    explained = [result for result in analysed.run.run.results if isinstance(result, Explanation)]
    looked_into = [result for result in explained if result.tracks][:MOST_SPENT]
    tables = []
    for case in distinct(result.case for result in looked_into):
        rows = [
            (result.implementation, format_seconds(result.seconds), {part: result.share(part) for part in PARTS})
            for result in looked_into
            if result.case == case
        ]
        caption = f"{case.title}, {format_size(case.nbytes)}"
        table = TextTable(caption, ("implementation", "time", "shares", *PARTS), rows)
        tables.append((anchors.new("spent", caption), table))
    return Spent(tables)


class Fits(NamedTuple):
    """Latency and bandwidth of each curve that has a fit, and why others have none."""

    tables: list[TextTable]
    reasons: list[str]


def fits(analysed: AnalysedRun) -> Fits:
    """A table for each kind of case."""
    tables = []
    for case in distinct(curve.case for curve in analysed.curves if curve.fit):
        rows = [columns(curve) for curve in analysed.curves if curve.fit and curve.case == case]
        tables.append(TextTable(f"Fitted: {case.title}", ("implementation", *HEADING[1:]), rows))
    reasons = [
        f"{curve.case.title}, {curve.implementation}: no fit, {curve.reason}."
        for curve in analysed.curves
        if not curve.fit
    ]
    return Fits(tables, reasons)


class Verdicts(NamedTuple):
    """What `collbench diagnose` says of each curve: rows are CurveVerdict."""

    notes: Sequence[str]
    unknown: str  # why there is no verdict, or none that compares with the machine
    tables: list[TextTable]


def verdicts(analysed: AnalysedRun) -> Verdicts:
    """A table for each kind of case."""
    judged, system = analysed.verdicts, analysed.system
    if judged.silence:  # nothing was measured: the run's status says that
        return Verdicts(judged.notes, "", [])
    curves = [  # without the reason that stands above the table already
        curve._replace(because=tuple(reason for reason in curve.because if reason != analysed.why_not))
        for curve in judged.curves
    ]
    against = f", against {system.title}" if system else ""
    tables = [
        TextTable(
            f"{kind}{against}",
            ("implementation", "verdict", *(["because"] if any(curve.because for curve in curves) else [])),
            [curve for curve in curves if curve.kind == kind],
        )
        for kind in distinct(curve.kind for curve in curves)
    ]
    return Verdicts(judged.notes, "" if system else f"{analysed.why_not}.", tables)


Value = TypeVar("Value")


def distinct(values: Iterable[Value]) -> list[Value]:
    """Without repetitions, in their order."""
    return list(dict.fromkeys(values))


def listed(names: Sequence[str], between: str = ", ") -> str:
    """A few of them, and how many more there are."""
    shown = list(names[:3])
    return between.join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
