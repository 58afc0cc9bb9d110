"""What the report says above the curves: title and status of each run, whether it passed, and its verdict.

The verdict says which implementation is fastest where, and where the time goes.
"""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

from collbench.algorithms import libraries
from collbench.analysis import crossover
from collbench.analysis.judgement import Correctness, Word, not_judged, overall
from collbench.analysis.matching import unread
from collbench.commands.report.analysed import AnalysedRun, SafeRun, safe_text
from collbench.commands.report.sections import by_run, listed
from collbench.plots.sections import PagePart, Section, section_of
from collbench.results import Timed, by_key
from collbench.runfile.rounds import scatter_in_words
from collbench.runfile.store import INTERRUPTED
from collbench.units import format_rate, format_seconds, format_size

FIRST = 6  # sentences of a command's part in the verdict; later ones stay with their tables


# ---- title and status


class Claim(NamedTuple):
    """Whether a run passed in one respect: its word is a class of report.css, too."""

    subject: str  # Results or Speed
    word: str  # of the list of judgement.Word
    sentence: str


def title_of(runs: Sequence[AnalysedRun], commands: Sequence[Section]) -> str:
    """Return the title of the page: collectives, or what commands call their results, and machines."""
    subjects = []
    for run in runs:
        for result in run.every:
            section = section_of(result, commands)
            subjects.append(section.subject if section and section.subject else result.case.collective.name)
    machines = [run.machine for run in runs]
    return f"{listed(subjects) or 'collectives'}: {listed(machines, '; ')}"


def about(run: AnalysedRun) -> dict[str, Any]:
    """Return what stands of a run below the title: whether it passed, what its numbers are, what is missing, facts."""
    header = run.run.header
    facts = [f"{len(run.every):,} row{'' if len(run.every) == 1 else 's'}"]
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
    """Return how a run's numbers came to be known: `measured`, `imported`, `predicted`, or `no numbers`."""
    origins = {result.origin for result in run.every}
    return [status for status in ("measured", "imported", "predicted") if status in origins] or ["no numbers"]


def _claims(run: AnalysedRun) -> list[Claim]:
    """Return whether all results are right, as far as they could be read, and as fast as expected."""
    correctness = Correctness.of(run.every)
    if not correctness.total:
        return [Claim("Results", "UNKNOWN", "not judged: nothing was measured")]
    lost = [reason for reason in (run.run.cut_off, unread(run.run)) if reason]
    if run.odd:
        lost.append(f"{len(run.odd)} not usable, without a time")
    word = Word.UNKNOWN if correctness.unchecked or lost else Word.OK
    sentence = safe_text("; ".join([correctness.in_words(), *lost]), 600)
    return [Claim("Results", (Word.WRONG if correctness.faults else word).value, sentence), _speed(run)]


def _speed(run: AnalysedRun) -> Claim:
    """Return whether all curves are as fast as expected, by the one that is worst."""
    curves = run.verdicts
    if not run.system or not curves:
        none = "no time of these rows can be held against the model"
        return Claim("Speed", "UNKNOWN", f"not judged: {run.why_not if curves else none}")

    # The sentence is of the curve that is off most among those with the worst word.
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


# ---- the verdict


def verdict(
    analysed: Sequence[AnalysedRun], parts: Sequence[tuple[str, PagePart]], which: PagePart | None
) -> list[tuple[str, PagePart]]:
    """Return sentences about all runs side by side, then about each.

    Args:
        analysed: The runs.
        parts: What commands say of the runs, by the labels that `by_run` gives them.
        which: The interconnects of the runs.

    """

    def of_run(run: AnalysedRun) -> PagePart:
        label = run.label if len(analysed) > 1 else ""
        sentences: list[str] = []
        for name, part in parts:
            if name == label:
                sentences += part.words[:FIRST]
        sentences += _fastest(run)
        return PagePart(sentences or ["no row has a time of a collective that is known to be right"])

    together = [("all runs", PagePart(which.words[:1]))] if which else []
    return together + by_run(analysed, of_run)


def _fastest(run: AnalysedRun) -> Iterator[str]:
    """Yield which implementation is fastest where and by how much; of an implementation alone, what it takes.

    That is of the kind of case with the most points, measured before predicted.
    """
    groups = by_key(crossover.rivals(run.run.results), lambda row: (row.predicted, row.case.kind))
    if not groups:
        return
    predicted, kind = max(groups, key=lambda key: (not key[0], len(groups[key])))
    rows = groups[predicted, kind]
    if len({row.implementation for row in rows}) == 1:
        yield _alone(rows)
        return
    disturbed = crossover.disturbed_rivals(run.run.results)
    ranges = [span for _, spans in crossover.winners(rows, disturbed) for span in spans]
    yield f"{kind.title}: {crossover.fastest_in_words(ranges, predicted)}"
    yield from map(crossover.in_words, crossover.best_of(crossover.contests(rows, libraries())))
    yield from crossover.handicaps(rows)


def _alone(rows: Sequence[Timed]) -> str:
    """Return `nccl takes 13.2 us at 8 B, 8.02 ms at 2 GiB (267.8 GB/s algorithm bandwidth)`."""
    sizes = {row.case.nbytes: row for row in rows}
    ends = [sizes[size] for size in sorted({min(sizes), max(sizes)})]
    times = ", ".join(f"{format_seconds(row.typical)} at {format_size(row.case.nbytes)}" for row in ends)
    case, last = rows[0].case, ends[-1]
    rate = f" ({format_rate(last.algbw)} GB/s algorithm bandwidth)" if case.collective.sized else ""
    return f"{case.title}: {last.implementation} {'should take' if last.predicted else 'takes'} {times}{rate}"
