"""Runs of the real command by the programs of this folder, and what is wrong with their rows."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from collbench.commands.step.rows import StepTimes
from collbench.errors import CaseFailed
from collbench.platforms.gpu import probe
from collbench.results import Explanation, Failed, Measurement
from collbench.runfile.schema import to_sweep
from collbench.runfile.store import INTERRUPTED, Run, read
from tools.gpu import bounded, refusals
from tools.gpu.places import ON_GPU

COURTESY = 8.0  # seconds to end, once interrupted
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

    `counts` are several numbers of ranks, for a command that takes so many.  Where time runs out (bounded.py) the run
    ends early; `defects` tells how far it came.  CaseFailed if there is no run file.  Output passes through.
    """
    where = ("--ranks", counts or str(ranks or len(probe.memories())))
    status = in_time(
        [*start, *command, "--on", "gpu", *where, "--out", str(folder)],
        {**os.environ, **(environment or {}), **(first_gpu() if ranks else {})},
    )
    if status not in (0, 1, None) or not (folder / "run.jsonl").exists():
        raise CaseFailed(
            f"collbench {command[0]} {how_it_ended(status)}, and left no run file to read: its lines above say why"
        )
    return read(folder)


def how_it_ended(status: int | None) -> str:
    """In words: by an exit status as from `in_time`."""
    return "ran out of time" if status is None else f"ended with exit status {status}"


def sharing(ranks: int) -> tuple[str, ...]:
    """Options of collbench for ranks that share a GPU, which is the first one by what `run` and `printed` set."""
    return ("--on", "gpu", "--ranks", str(ranks))


def printed(command: Sequence[str]) -> tuple[int | None, str]:
    """Of `collbench COMMAND` on the first GPU: exit status, as from `in_time`, and output, which is passed on."""
    with tempfile.TemporaryFile("w+") as output:
        status = in_time([sys.executable, "-m", "collbench", *command], {**os.environ, **first_gpu()}, output)
        output.seek(0)
        text = output.read()
    sys.stdout.write(text)
    sys.stdout.flush()
    return status, text


def in_time(command: Sequence[str], environment: Mapping[str, str], output: IO[str] | None = None) -> int | None:
    """The exit status of a command; None if it had to be interrupted, for want of time, or even ended."""
    with subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            return process.wait(bounded.seconds_left())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(COURTESY)
            return None
        finally:
            process.kill()


def defects(found: Run, ranks: int = 0, processes: int = 1) -> list[str]:
    """What is wrong with a run: an end that is missing, failed and wrong rows, refusals that may not be."""
    gpus = 1 if ranks else len(probe.memories())
    said = cut(found)
    for result in found.results:
        where = f"{result.implementation}, {result.case.collective.name} of {result.case.nbytes} B"
        if isinstance(result, Failed):
            said.append(f"{where}: {result.reason}")
        elif isinstance(result, Measurement | StepTimes) and result.mismatch:
            said.append(f"{where}: {result.mismatch}")
    return said + refusals.unjust_of(found.results, here_of(found, gpus, processes))


def cut(found: Run) -> list[str]:
    """How far a run came that did not come to its own end; nothing about any other."""
    if found.complete and (found.status or 0) < INTERRUPTED:
        return []
    sweep = to_sweep(found.header.sweep)
    rows = len(list(sweep.cases())) * len(sweep.implementations)
    if any(result.case.ranks != sweep.ranks for result in found.results):  # `step scale` goes from one to many
        return [f"the run was ended after {len(found.results)} rows"]
    return [f"the run was ended after {len(found.results)} of {rows} rows"]


def here_of(run: Run, gpus: int, processes: int = 1) -> refusals.Here:
    """What decides about refusals, from a run file."""
    versions = run.header.environment.versions
    return refusals.Here(run.header.sweep.ranks, gpus, processes, refusals.nccl_number(versions.get("nccl", "")))


def first_gpu() -> dict[str, str]:
    """The environment in which only the first GPU is seen."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


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
