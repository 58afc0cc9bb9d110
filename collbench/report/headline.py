"""The verdict of each run, which stands first: are the numbers right, who is fastest where, where the time goes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from collbench.algorithms import libraries
from collbench.analysis.crossover import contests, format_span, winners
from collbench.analysis.diagnose import Health
from collbench.report.sanitize import plain
from collbench.report.sections import AnalysedRun, by_run, distinct, listed
from collbench.report.subject import Subject, subject_of
from collbench.report.which import Which
from collbench.results import PARTS, Explanation, Outcome
from collbench.units import format_rate, format_seconds, format_size

MOST_RANGES = 6  # told in full
FIRST = 6  # sentences of steps, plans or explanations that stand here; those behind stay with their tables
_ORDER = (Health.SLOW, Health.FASTER, Health.AS_EXPECTED, Health.UNKNOWN)


class Worded(Protocol):
    """A part of the page that has words of its own."""

    @property
    def words(self) -> list[str]: ...  # noqa: D102


class Headline(NamedTuple):
    """Sentences about one run."""

    sentences: list[str]


def headlines(
    analysed: Sequence[AnalysedRun], parts: Sequence[tuple[str, Worded]], between: Which | None
) -> list[tuple[str, Headline]]:
    """Of all runs side by side, then of each by its label; `parts` have the words of its steps and plans."""

    def of_run(one: AnalysedRun) -> Headline:
        label = one.run.label if len(analysed) > 1 else ""
        words = [line for name, part in parts if name == label for line in part.words[:FIRST]]
        told = [*_spoilt(one), *words, *_fastest(one), *_right(one), *_spent(one)]
        return Headline(told or ["no row has a time that is known to be right"])

    together = [("all runs", Headline(between.sentences[:1]))] if between else []
    return together + by_run(analysed, of_run)


def _spoilt(one: AnalysedRun) -> Iterator[str]:
    """How many rows are not as they should be."""
    outcomes = [result.outcome for result in one.run.every]
    counts = {
        "wrong": outcomes.count(Outcome.WRONG),
        "failed": outcomes.count(Outcome.FAILED),
        "not usable": len(one.run.odd) + len(one.run.unread),
    }
    if told := [f"{count:,} {name}" for name, count in counts.items() if count]:
        yield f"of {len(outcomes) + len(one.run.unread):,} rows {', '.join(told)}"


def _right(one: AnalysedRun) -> Iterator[str]:
    """What `collbench diagnose` says of the curves, those that are slow first."""
    if one.verdicts.silence:
        return
    if one.system is None:
        yield f"unknown whether that is right for the machine: {one.why_not}"
        return
    for health in _ORDER:
        curves = [curve for curve in one.verdicts.curves if curve.verdict is health]
        because = next((curve.because[0] for curve in curves if curve.because), "")
        if curves:
            names = listed(distinct(curve.implementation for curve in curves))
            yield f"{health.value} for {plain(one.system.title)}: {names}{f'; {because}' if because else ''}"


def _fastest(one: AnalysedRun) -> Iterator[str]:
    """Who is fastest where and by how much; of one implementation alone, what it takes."""
    subject = subject_of([one.run])
    if subject is None:
        return
    if len(subject.names) == 1:
        yield _alone(subject)
        return
    ranges = [span for _, spans in winners(subject.rows) for span in spans]
    be = "should be fastest" if subject.predicted else "fastest"
    parts = [str(span) for span in ranges]
    if len(ranges) == 1:
        where = f"at every size, {format_span(ranges[0].first, ranges[0].last)}"
        yield f"{subject.kind.title}: {be} {where}: {' or '.join(ranges[0].names)}"
    else:
        shown = parts if len(parts) <= MOST_RANGES else [*parts[:3], f"others in {len(parts) - 5} ranges", *parts[-2:]]
        yield f"{subject.kind.title}: {be}: {'; '.join(shown)}"
    yield from _against_library(subject)


def _alone(subject: Subject) -> str:
    """`nccl takes 13.2 us at 8 B, 8.02 ms at 2 GiB (267.8 GB/s)`."""
    curve = subject.curve(subject.names[0])
    ends = [curve[0], curve[-1]] if len(curve) > 1 else curve
    told = [f"{format_seconds(row.typical)} at {format_size(row.case.nbytes)}" for row in ends]
    verb = "should take" if subject.predicted else "takes"
    rate = f", which is {format_rate(ends[-1].algbw)} GB/s of the array" if subject.kind.collective.sized else ""
    return f"{subject.kind.title}: {subject.names[0]} {verb} {', '.join(told)}{rate}"


def _against_library(subject: Subject) -> Iterator[str]:
    """The best gain over the library, or that there is none, over all contests."""
    every = contests(subject.rows, libraries())
    for library in dict.fromkeys(contest.library for contest in every):
        own = [contest for contest in every if contest.library == library]
        known = [(point, contest.challenger) for contest in own for point in contest.points if point.sign]
        best = max(known, key=lambda pair: pair[0].ratio, default=None)
        if best is None:
            yield f"none is told apart from {library}, the library, at any size"
        elif best[0].sign > 0:
            yield f"the largest gain over {library}, the library, is that of {best[1]}: {best[0]}"
        else:
            yield f"none is faster than {library}, the library, at any size, as far as intervals tell"


def _spent(one: AnalysedRun) -> Iterator[str]:
    """What takes most of the time of the first explained operations."""
    explained = [result for result in one.run.run.results if isinstance(result, Explanation) and result.tracks]
    for result in explained[:FIRST]:
        most = max(PARTS, key=result.share)
        yield (
            f"{result.implementation}, {format_size(result.case.nbytes)}: {format_seconds(result.seconds)}, "
            f"of which most goes to {most}, {result.share(most):.0%}"
        )
