"""Several processes on real GPUs: mpiexec starts the whole command, and its run file tells what came of it.

Sharing one GPU proves the exchange of memory (CUDA IPC, handles and offsets) and of NCCL's id; how fast that is means
nothing.  Needs mpi4py and an mpiexec besides what the other checks need.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import PlatformError, Unsupported
from collbench.measurement import Measurement, Skipped
from collbench.platforms import gpu_probe
from collbench.store import read
from collbench.supervisor import mpiexec
from tests.gpu.checks import ON_GPU

OPTIONS = ("--op", "allreduce,broadcast,allgather,reducescatter", "-b", "4", "-e", "256K", "-f", "60", "-n", "2")
PATIENCE = 280  # seconds for all of it


@dataclass(frozen=True)
class Arrangement:
    """So many processes on the first GPU, or one on each."""

    processes: int | None

    def __str__(self) -> str:
        return f"{self.processes} processes on 1 GPU" if self.processes else "a process on every GPU"


ARRANGEMENTS = (Arrangement(2), Arrangement(None))


def outcomes(arrangement: Arrangement) -> dict[str, str]:
    """For each implementation `ok`, `skipped: reason` or `FAILED: what`; Unsupported where nothing can be started."""
    if importlib.util.find_spec("mpi4py") is None:
        raise Unsupported("there is no mpi4py: pip install mpi4py mpich")
    try:
        launcher = mpiexec()
    except PlatformError as error:
        raise Unsupported(str(error)) from error
    count = arrangement.processes or len(gpu_probe.memories())
    if count < 2:
        raise Unsupported("there is one GPU only")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        command = [launcher, "-n", str(count), sys.executable, "-m", "collbench", "sweep", "--on", "gpu", *OPTIONS]
        done = subprocess.run(
            [*command, "--no-plot", "--out", str(folder)],
            env=_environment(arrangement),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode not in (0, 1) or not (folder / "run.jsonl").exists():
            return {"collbench sweep": f"FAILED: exit status {done.returncode}: {done.stderr.strip()[-400:]}"}
        results = read(folder).results
    return {
        each.name: _verdict([result for result in results if result.implementation == each.name]) for each in ON_GPU
    }


def _verdict(results: list[Measurement | Skipped | object]) -> str:
    """One wrong or failed case decides; skipped is only what never ran."""
    for each in results:
        if isinstance(each, Measurement) and each.mismatch:
            return f"FAILED: {each.case.collective.name} {each.case.nbytes} B: {each.mismatch}"
        if not isinstance(each, Measurement | Skipped):
            return f"FAILED: {getattr(each, 'reason', each)}"
    right = sum(isinstance(each, Measurement) for each in results)
    reasons = sorted({each.reason for each in results if isinstance(each, Skipped)})
    if right:
        return f"ok, {right} cases"
    return f"skipped: {'; '.join(reasons)}" if reasons else "FAILED: nothing was measured"


def _environment(arrangement: Arrangement) -> dict[str, str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": visible} if arrangement.processes else dict(os.environ)
