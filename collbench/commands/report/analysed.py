"""Runs of a report with unusable rows set aside, and their analyses.

A run file may come from anywhere and hold any JSON.  Texts are sanitised when a file is read (host/sanitize.py).  Rows
without a time are set aside.
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

_MOST_CURVES = 40  # fitted and judged curves of a run, each of which takes a part of a second
_LONGEST = 300  # characters of a text
_MOST_GPUS = 1024  # of a header's machine; the analysis takes pairs of them


@dataclass(frozen=True)
class SafeRun:
    """A run with its usable results, and the others apart."""

    label: str  # unique in the report
    run: Run
    every: tuple[Result, ...]  # all results in the file's order, also unusable ones


def safe_text(value: str, longest: int = _LONGEST) -> str:
    """Return one line of printable text with a limited length."""
    return text(value, longest)


def untimed(result: Result) -> bool:
    """Return whether a checked result has no time, which makes it unusable."""
    return isinstance(result, Observed) and not result.wrong and not any(result.times)


def safe_runs(runs: Sequence[Run]) -> list[SafeRun]:
    """Return the runs of a report in order, with unique labels.

    A label is the name of the run's folder, or of a file with another name than usual; equal labels are numbered.
    """
    paths = [run.path.resolve() for run in runs]
    names = [safe_text(path.parent.name if path.name == NAME else path.stem, 60) or "run" for path in paths]
    safe = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        label = f"{name} ({names[:number].count(name)})" if names.count(name) > 1 else name
        every: list[Result] = []
        for result in run.results:
            every.append(replace(result, implementation=safe_text(result.implementation, 60) or "(no name)"))
        usable = tuple(result for result in every if not untimed(result))
        safe.append(SafeRun(label, replace(run, results=usable), tuple(every)))
    return safe


class CurveVerdict(NamedTuple):
    """The verdict of `collbench check` on one curve."""

    diagnosis: Diagnosis
    word: Word  # WRONG if a row is wrong; else the verdict on its times
    against: str  # the part of the system that the ranks fill; "" for none
    because: tuple[str, ...]


@dataclass(frozen=True)
class AnalysedRun(SafeRun):
    """A run and its analyses."""

    system: System | None  # the part of it that the ranks fill
    why_not: str  # reason for a missing system
    placed: bool  # whether the number of nodes is known, and not assumed
    curves: Sequence[FittedCurve]  # with their fits
    verdicts: tuple[CurveVerdict, ...]  # of the judged measured curves
    measured: int  # number of measured curves
    notes: tuple[str, ...]  # caveats of the run's numbers
    assumed: tuple[str, ...]  # assumptions on the machine, which make verdicts less certain

    @property
    def machine(self) -> str:
        """The machine's name in the header, with nodes and GPUs of the system unless the name has them."""
        name, system = self.run.header.topology.name or "unknown topology", self.system
        if not system or not self.placed or " nodes" in name or (system.nodes == 1 and f"{system.ranks} " in name):
            return name
        return f"{name}, {spread(system, system)}"


def analysed(safe: SafeRun, system_name: str | None, nodes: int | None = None) -> AnalysedRun:
    """Analyse a run; `system_name` is the preset or FILE.toml of its machine, `nodes` the number of its nodes.

    UsageError if the system does not exist or cannot have the ranks on these nodes; never for text of the run file.
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
    every = by_key(safe.run.cases, lambda row: row.curve)  # with wrong rows
    verdicts = []
    for key, samples in judged.items():
        verdicts.append(_verdict(samples, system, nodes, facts, fit_of.get(key), Correctness.of(every[key])))

    # Only assumptions on this system: the notes already have those of any run.
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
    """Return the named, described or discovered system (or None), its nodes, and the reason if there is none."""
    topology = run.header.topology
    if name:
        files.load(name)
    if topology.model and not name:
        nodes = None  # the described system has its own
    what = "system" if topology.model else "topology"
    try:
        if topology.system and not name:
            # Parsed like a user's file, which checks it.  A calibration would name a file of the run's machine.
            system = replace(topology.system, calibration="")
            system = files.parse(tomllib.loads(to_toml(system)), Path("the header"))
        elif len(topology.gpus) > _MOST_GPUS and not name:
            return None, nodes, f"more than {_MOST_GPUS} GPUs in one header"
        else:
            system = machine(run, name)
        if not nodes:
            nodes = stated_nodes(system, run)
            sized(system, max(1, topology.ranks), nodes)  # UsageError if the ranks do not fit
        return system, nodes, ""
    except CollbenchError as error:
        return None, nodes, safe_text(str(error), 600)
    except Exception as error:
        # A foreign header may describe an impossible machine, so any error is possible.
        return None, nodes, f"the header's {what} cannot be read ({safe_text(type(error).__name__)})"


def _verdict(
    rows: Sequence[Observed],
    system: System | None,
    nodes: int | None,
    facts: RunFacts,
    fit: CurveFit | None,
    correctness: Correctness,
) -> CurveVerdict:
    """Return the verdict of a curve against the system; no contents of a run file raise an error."""
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
        remark = f"its numbers cannot be analysed ({type(error).__name__})"
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
