"""Runs of the real command by the programs of this folder, and what is wrong with their rows."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.errors import CaseFailed
from collbench.measurement import Explanation, Failed, Measurement
from collbench.platforms.gpu import probe
from collbench.runs.file import Run, read
from collbench.step_times import StepTimes
from tests.gpu import refusals
from tests.gpu.places import ON_GPU
from tests.gpu.processes import first_gpu, here_of

Times = dict[tuple[str, int], float]
"""Seconds of an operation by collective and size in bytes."""


def run(
    command: Sequence[str],
    folder: Path,
    ranks: int = 0,
    start: Sequence[str] = (sys.executable, "-m", "collbench"),
    environment: Mapping[str, str] | None = None,
    counts: str = "",
) -> Run:
    """A run file of `collbench COMMAND` on ranks that share the first GPU, or one on every GPU if there are 0.

    `counts` are several numbers of ranks, for a command that takes so many.  CaseFailed if the command ends without a
    run file.  Its output passes through.
    """
    where = ("--ranks", counts or str(ranks or len(probe.memories())))
    done = subprocess.run(
        [*start, *command, "--on", "gpu", *where, "--out", str(folder)],
        env={**os.environ, **(first_gpu() if ranks else {}), **(environment or {})},
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode not in (0, 1) or not (folder / "run.jsonl").exists():
        raise CaseFailed(f"collbench {command[0]} ended with exit status {done.returncode}: its lines above say why")
    return read(folder)


def defects(found: Run, ranks: int = 0, processes: int = 1) -> list[str]:
    """What is wrong with a run: an end that is missing, failed and wrong rows, refusals that may not be."""
    gpus = 1 if ranks else len(probe.memories())
    said = [] if found.complete else ["the run has no end"]
    for result in found.results:
        where = f"{result.implementation}, {result.case.collective.name} of {result.case.nbytes} B"
        if isinstance(result, Failed):
            said.append(f"{where}: {result.reason}")
        elif isinstance(result, Measurement | StepTimes) and result.mismatch:
            said.append(f"{where}: {result.mismatch}")
    return said + refusals.unjust_of(found.results, here_of(found, gpus, processes))


def names(library: bool = True) -> str:
    """For --impl: all that run on a GPU, with libraries or without."""
    return ",".join(way.name for way in ON_GPU if library or not way.library)


def require_right(found: Run, processes: int = 1) -> None:
    """CaseFailed, with the first defect, unless all rows of a run on every GPU are right."""
    if said := defects(found, processes=processes):
        raise CaseFailed(said[0])


def medians(found: Run, implementation: str) -> Times:
    """Seconds of one implementation's operations."""
    rows = [
        result
        for result in found.results
        if isinstance(result, Measurement) and result.implementation == implementation
    ]
    return {(row.case.collective.name, row.case.nbytes): row.typical for row in rows if row.right}


def mean(runs: Sequence[Times]) -> Times:
    """Of the cases that all runs have."""
    return {key: sum(run[key] for run in runs) / len(runs) for key in runs[0] if all(key in run for run in runs)}


def explanations(found: Run) -> list[Explanation]:
    """Those of a run."""
    return [result for result in found.results if isinstance(result, Explanation)]


def disagreements(one: Times, other: Times, most: float) -> list[str]:
    """Cases whose two times differ by more than a share of the second one, or that only one of two runs has."""
    said = [f"{name} of {nbytes} B is in one run only" for name, nbytes in sorted(set(one) ^ set(other))]
    for name, nbytes in sorted(set(one) & set(other)):
        ratio = one[name, nbytes] / other[name, nbytes]
        if abs(ratio - 1) > most:
            said.append(f"{name} of {nbytes} B: {ratio:.3f} of the other's time, more than {most:.0%} apart")
    return said if one or other else ["neither run has a time"]
