"""Runs made safe to calculate with, and what the analyses say of them: machine, fits, whether numbers are right.

A run file may come from anywhere, and hold whatever JSON can.  Texts are sanitised where a file is read
(host/sanitize.py).  Rows that were checked and not timed are set aside.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from collbench.analysis.curve_fit import CurveFit, curve_remarks
from collbench.analysis.diagnose import Diagnosis, diagnose
from collbench.analysis.fit import FittedCurve, curves, measured
from collbench.analysis.judgement import Correctness, Word
from collbench.analysis.machine import RunFacts, assumptions, machine, sized, spread, stated_nodes, trimmed
from collbench.analysis.reasons import settings
from collbench.errors import CollbenchError
from collbench.host.sanitize import text
from collbench.results import Observed, Result, by_key
from collbench.runfile.store import NAME, Run
from collbench.topology import files
from collbench.topology.files import to_toml
from collbench.topology.system import System

_MOST_CURVES = 40  # of a run that are fitted and judged: each takes a part of a second
_MOST_UNREAD = 100  # rows of a file that are no results, which are shown
_LONGEST = 300  # characters of a text
_MOST_GPUS = 1024  # of a header's machine: pairs of them are counted


@dataclass(frozen=True)
class SafeRun:
    """A run with its usable results; the others with what is wrong with them."""

    label: str  # tells it from the other runs of the report
    run: Run
    odd: tuple[Result, ...]  # results that were checked, and not timed
    every: tuple[Result, ...]  # usable and odd results, in the file's order

    @property
    def unread(self) -> tuple[str, ...]:
        """Line and reason of rows that were no results at all, as many as can be looked at."""
        return self.run.left_out[:_MOST_UNREAD]

    @property
    def machine(self) -> str:
        """Name of the machine in the header."""
        return self.run.header.topology.name or "unknown topology"


def safe_text(value: object, longest: int = _LONGEST) -> str:
    """Return any value as text of one line: cut where it is long, without characters that no text should hold."""
    try:
        return text(value if isinstance(value, str) else repr(value), longest)
    except (ValueError, RecursionError):  # integers of more digits than Python writes; nests too deep
        return "(not shown)"


def safe_runs(runs: Sequence[Run]) -> list[SafeRun]:
    """Return the runs of a report, in its order, each under a label of its own.

    A label is the name of the folder, or of a file that is called otherwise; numbered where two are alike.
    """
    paths = [run.path.resolve() for run in runs]
    names = [safe_text(path.parent.name if path.name == NAME else path.stem, 60) or "run" for path in paths]
    safe = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        label = f"{name} ({names[:number].count(name)})" if names.count(name) > 1 else name
        every: list[Result] = []
        usable: list[Result] = []
        odd: list[Result] = []
        for result in run.results:
            # A column has room for so much of a name.
            row = replace(result, implementation=safe_text(result.implementation, 60) or "(no name)")
            untimed = isinstance(row, Observed) and not row.wrong and not any(row.times)
            every.append(row)
            (odd if untimed else usable).append(row)
        safe.append(SafeRun(label, replace(run, results=tuple(usable)), tuple(odd), tuple(every)))
    return safe


class CurveVerdict(NamedTuple):
    """The verdict of `collbench check` on one curve."""

    diagnosis: Diagnosis
    word: Word  # WRONG if a row is; else what its times say
    against: str  # the part of the system that as many ranks fill; "" for none
    because: tuple[str, ...]


@dataclass(frozen=True)
class AnalysedRun(SafeRun):
    """A run and what its analyses say."""

    system: System | None  # the part of it that the ranks fill
    why_not: str  # why there is no system
    placed: bool  # whether it is known, and not supposed, over how many nodes the ranks are spread
    curves: Sequence[FittedCurve]  # with their fits
    verdicts: tuple[CurveVerdict, ...]  # of measured curves, as many as are judged
    measured: int  # curves
    notes: tuple[str, ...]  # what spoils the numbers of the run
    assumed: tuple[str, ...]  # of the machine, which makes verdicts less sure

    @property
    def machine(self) -> str:
        """The machine's name in the header, with the nodes and GPUs of the system where that does not say them."""
        name, system = super().machine, self.system
        if not system or not self.placed or " nodes" in name or (system.nodes == 1 and f"{system.ranks} " in name):
            return name
        return f"{name}, {spread(system, system)}"


def analysed(safe: SafeRun, system_name: str | None, nodes: int | None = None) -> AnalysedRun:
    """Analyse a run; `system_name` is a preset or FILE.toml that its machine is known to be, `nodes` those it ran on.

    UsageError if there is no such system, or it cannot have the ranks on so many nodes; never for text of the run file.
    """
    stated = nodes
    system, nodes, why_not = _system_of(safe.run, system_name, nodes)
    rows = by_key(measured([safe.run]), lambda row: row.curve)
    judged = dict(list(rows.items())[:_MOST_CURVES])
    few = tuple(result for result in safe.run.cases if result.curve in judged)
    fits = curves([replace(safe.run, results=few)])
    facts = RunFacts.of(safe.run, why_not)
    notes = [*facts.caveats, *(f"{setting} was set" for setting in settings(facts))]
    why = trimmed(safe.run) if system and not nodes else ""
    if why:
        facts = replace(facts, unplaced=why)
    fit_of = {(curve.case, curve.implementation): curve.fit for curve in fits}
    every = by_key(safe.run.cases, lambda row: row.curve)  # also what is wrong
    verdicts = []
    for key, samples in judged.items():
        verdicts.append(_verdict(samples, system, nodes, facts, fit_of.get(key), Correctness.of(every[key])))

    # Only what is assumed of this system: what holds of any run stands among the notes already.
    assumed: list[str] = []
    if system and safe.run.header.topology.ranks:
        whole, system = system, sized(system, safe.run.header.topology.ranks, nodes)
        every_run = len([*assumptions(safe.run)])
        assumed = [*assumptions(safe.run, whole, spread(whole, system), stated)][every_run:]
    if len(rows) > len(judged):
        notes.append(f"{len(rows) - len(judged)} more curves are not judged here; `collbench check` judges them all")
    return AnalysedRun(
        **vars(safe),
        system=system,
        why_not=why_not,
        placed=bool(nodes) or safe.run.header.topology.model,
        curves=fits,
        verdicts=tuple(verdicts),
        measured=len(rows),
        notes=tuple(map(safe_text, [*notes, *assumed])),
        assumed=tuple(assumed),
    )


def _system_of(run: Run, name: str | None, nodes: int | None) -> tuple[System | None, int | None, str]:
    """Return the machine as a System, as named, described or discovered, and its nodes; else None, and why."""
    topology = run.header.topology
    if name:
        files.load(name)
    if topology.model and not name:
        nodes = None  # the described system has its own
    what = "system" if topology.model else "topology"
    try:
        if topology.system and not name:
            # Read like a user's file, so that it is no odder than those.  A calibration would name a file of the
            # machine that the run comes from.
            system = replace(topology.system, calibration="")
            system = files.parse(tomllib.loads(to_toml(system)), Path("the header"))
        elif len(topology.gpus) > _MOST_GPUS and not name:
            return None, nodes, f"more than {_MOST_GPUS} GPUs in one header"
        else:
            system = machine(run, name)
        if not nodes:
            nodes = stated_nodes(system, run)
            sized(system, max(1, topology.ranks), nodes)  # UsageError where the ranks cannot lie so on it
        return system, nodes, ""
    except CollbenchError as error:
        return None, nodes, safe_text(str(error), 600)
    except Exception as error:
        # A foreign header may describe what no machine has, so any error may come of it.
        return None, nodes, f"the header's {what} cannot be read ({safe_text(type(error).__name__)})"


def _verdict(
    rows: Sequence[Observed],
    system: System | None,
    nodes: int | None,
    facts: RunFacts,
    fit: CurveFit | None,
    correctness: Correctness,
) -> CurveVerdict:
    """Return the verdict of a curve against the system; never an error, whatever the run file holds."""
    rows = sorted(rows, key=lambda row: row.case.nbytes)
    try:
        part = sized(system, rows[0].case.ranks, nodes) if system else None
        diagnosis = diagnose(rows, part, facts)
        whole_fit = fit if fit and len(fit.sizes) == len(rows) else None
        because = tuple(map(safe_text, _because(diagnosis, correctness, whole_fit)))
        word = Word.WRONG if correctness.faults else diagnosis.word
        return CurveVerdict(diagnosis, word, part.title if part else "", because)
    except CollbenchError as error:
        remark = safe_text(str(error))
    except (ArithmeticError, ValueError) as error:  # sizes and times that no machine has
        remark = f"its numbers cannot be calculated with ({type(error).__name__})"
    unknown = Diagnosis(rows[0].implementation, tuple(rows), (), Word.UNKNOWN, remark)
    return CurveVerdict(unknown, Word.WRONG if correctness.faults else Word.UNKNOWN, "", (remark,))


def _because(diagnosis: Diagnosis, correctness: Correctness, fit: CurveFit | None) -> Iterator[str]:
    if correctness.faults:
        yield correctness.in_words(named=False)
    if diagnosis.remark:
        yield diagnosis.remark
    yield from diagnosis.choices
    if diagnosis.word in (Word.FAST, Word.OK):
        yield str(diagnosis.sight) + (f" ({diagnosis.assumed})" if diagnosis.assumed else "")
    for number, (why, fix) in enumerate(diagnosis.likely()):
        yield f"{'or' if number else 'likely'}: {why}"
        yield f"to do: {fix}"
    if diagnosis.unexplained:
        yield diagnosis.unexplained
    if not diagnosis.expected:
        yield from curve_remarks(diagnosis.measured, fit)
