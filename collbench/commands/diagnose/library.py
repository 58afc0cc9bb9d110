"""`collbench.diagnose`: the curves of a run, each held against the model."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated

from collbench.analysis.diagnose import Diagnosis
from collbench.analysis.diagnose import diagnose as diagnose_curve
from collbench.analysis.fit import measured
from collbench.analysis.judgement import Correctness, Word, overall
from collbench.analysis.machine import RunFacts, placed, sized
from collbench.analysis.matching import unread
from collbench.errors import UsageError
from collbench.notebook import Shown
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.runs import RunOrPath, as_run
from collbench.requests.words import RunsMachine, RunsNodes
from collbench.results import by_key
from collbench.runfile.store import why_none
from collbench.topology.system import System


@dataclass(frozen=True)
class Diagnosed(Shown):
    """The curves of a run, each held against what the model expects of its machine."""

    SHOWN = ("word", "diagnoses", "correctness")
    TABLE = "diagnoses"
    facts: RunFacts  # what else is known of the machine, and was set
    cut_off: str  # a sentence on a run that stops before its end, or has lines that could not be read, else ""
    host: str
    curves: tuple[tuple[Diagnosis, System | None], ...]  # with the machine of as many ranks; None if it is not known
    correctness: Correctness  # of all rows, also of what has no curve since no row is right

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """The curves alone."""
        return [diagnosis for diagnosis, _ in self.curves]

    @property
    def word(self) -> Word:
        """WRONG if any row is; else the worst of the curves that could be judged."""
        return Word.WRONG if self.correctness.faults else overall(diagnosis.word for diagnosis in self.diagnoses)


@dataclass(frozen=True)
class DiagnoseRequest(Request):
    """A run, and what machine it is of."""

    run: Annotated[RunOrPath, Opt("", "A run or its path.")]
    on: RunsMachine = None
    _: KW_ONLY
    nodes: RunsNodes = None


@takes(DiagnoseRequest)
def diagnose(request: DiagnoseRequest) -> Diagnosed:
    """Hold every curve of a run against the model, and say what may be the reason where it is slow.

    Returns:
        Of each curve `word` is the answer, `measured` and `expected` have seconds by size, `sizes` are the judgements
        of all sizes, and `likely()` yields reasons, best explained first, each with what to do.  `correctness`
        counts what is right and names what is not, of a curve and of the run.

    Raises:
        UsageError: The run has no measurements, or the system does not exist.

    >>> import collbench
    >>> diagnosis, machine = collbench.diagnose("results/cpu-2-ranks").curves[0]
    >>> diagnosis.implementation, diagnosis.word.value
    ('mpi', 'UNKNOWN')

    """
    whole_run = as_run(request.run)
    curves = by_key(measured([whole_run]), lambda row: row.curve)
    correctness = Correctness.of(whole_run.results)
    if not curves and not correctness.faults:
        raise UsageError(f"nothing to diagnose: {why_none([whole_run])}")
    whole, nodes, why = placed(whole_run, request.on, request.nodes)
    facts = RunFacts.of(whole_run, why)
    if whole and why:
        facts = replace(facts, caveats=(*facts.caveats, why), unplaced=why)
    every = by_key((row for row in whole_run.cases if row.case.nbytes), lambda row: row.curve)  # also what is wrong
    diagnosed = []
    for key, rows in curves.items():
        part = sized(whole, rows[0].case.ranks, nodes) if whole else None
        diagnosis = diagnose_curve(rows, part, facts)
        diagnosed.append((replace(diagnosis, correctness=Correctness.of(every[key])), part))
    lost = f"the run was {whole_run.cut_off}" if whole_run.cut_off else unread(whole_run)
    return Diagnosed(facts, lost, whole_run.header.environment.host, tuple(diagnosed), correctness)
