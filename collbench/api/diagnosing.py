"""Whether the times of a run are right, as `collbench diagnose` says."""

from dataclasses import dataclass

from collbench.analysis.diagnose import Diagnosis, RunFacts
from collbench.analysis.diagnose import diagnose as diagnosed
from collbench.analysis.fit import measured
from collbench.analysis.machine import machine, remarks, sized
from collbench.api.reading import RunOrPath, as_run
from collbench.errors import UsageError
from collbench.results import Observed
from collbench.runfile.store import Run, why_none
from collbench.topology.system import System


@dataclass(frozen=True)
class Diagnosed:
    """The curves of a run, each held against what the model expects of its machine."""

    facts: RunFacts  # what else is known of the machine, and was set
    cut_off: str  # words for a run that stops before its end; else none
    curves: tuple[tuple[Diagnosis, System | None], ...]  # with the machine as so many ranks have it; None: not known


def diagnose(run: RunOrPath, system: str | None = None, *, nodes: int | None = None) -> Diagnosed:
    """Hold every curve of a run against the model: as expected, slow, faster than modelled, or unknown, and why.

    `system` names the machine (a preset or FILE.toml) where the run file does not say it, `nodes` how many its ranks
    are spread over.  Of a curve, `verdict` is one word, `measured` and `expected` have seconds by size, and `likely()`
    yields reasons, best explained first, each with what to do.

    Errors: UsageError for a run without right measurements, and for a system that does not exist.

    >>> import collbench
    >>> diagnosis, machine = collbench.diagnose("results/cpu-2-ranks").curves[0]
    >>> diagnosis.implementation, diagnosis.verdict.value
    ('mpi', 'unknown')
    """
    whole_run = as_run(run)
    curves: dict[object, list[Observed]] = {}
    for row in measured([whole_run]):
        curves.setdefault((row.case.kind, row.implementation), []).append(row)
    if not curves:
        raise UsageError(f"nothing to diagnose: {why_none([whole_run])}")
    whole, why = _system(whole_run, system)
    facts = RunFacts(whole_run.header.environment.variables, remarks(whole_run), why)
    held = []
    for rows in curves.values():
        part = sized(whole, rows[0].case.ranks, nodes) if whole else None
        held.append((diagnosed(rows, part, facts), part))
    return Diagnosed(facts, whole_run.cut_off, tuple(held))


def _system(run: Run, name: str | None) -> tuple[System | None, str]:
    """The machine as named or as discovered; else none, and why."""
    try:
        return machine(run, name), ""
    except UsageError as error:
        if name:
            raise
        return None, str(error)
