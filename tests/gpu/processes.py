# ruff: noqa: T201 - a program of its own, which prints
"""`python -m tests.gpu.processes --ranks 2`: several processes on real GPUs, and what came of it by their run file.

mpiexec starts the whole command.  Sharing one GPU proves the exchange of memory (CUDA IPC, handles and offsets) and of
NCCL's id; how fast that is means nothing.  Needs mpi4py and an mpiexec.  With --mps the processes share the GPU through
a CUDA MPS server of their own, where there is one.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from collbench.errors import PlatformError, Unsupported
from collbench.measure.start import mpiexec
from collbench.measurement import Measurement, Result, Skipped
from collbench.platforms.gpu import probe
from collbench.runs.file import Run, read
from tests.gpu import refusals, said, scale
from tests.gpu.places import ON_GPU

PATIENCE = 200  # seconds for all of it
MPS = "nvidia-cuda-mps-control"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.gpu.processes", description="A process for every rank.")
    parser.add_argument("--ranks", type=int, default=0, help="that share the first GPU; 0: one on every GPU")
    parser.add_argument("--mps", action="store_true", help="through an MPS server")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("tested")
    try:
        with server() if chosen.mps else _none() as environment:
            found = outcomes(scale.chosen().ranks(chosen.ranks), environment)
    except Unsupported as reason:
        return said.skip(reason)
    for name, outcome in found.items():
        print(f"  {name:<24} {outcome}", flush=True)
    right = sum(outcome.startswith("ok") for outcome in found.values())
    said.key(f"{right} of {len(found)} implementations are right among processes")
    return said.BAD if any(outcome.startswith(said.WRONG) for outcome in found.values()) else said.GOOD


def outcomes(ranks: int, environment: Mapping[str, str]) -> dict[str, str]:
    """For each implementation `ok`, `skipped: why` or `FAILED: what`; Unsupported where nothing can be started."""
    count = ranks or len(probe.memories())
    if count < 2:
        raise Unsupported("there is one GPU only")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        names = ",".join(scale.chosen().implementations)
        command = [*launcher(count), "sweep", "--on", "gpu", "--impl", names, *scale.chosen().processes, "--no-plot"]
        status = subprocess.run(
            [*command, "--out", str(folder)],
            env={**os.environ, **environment, **(first_gpu() if ranks else {})},
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        ).returncode
        if status not in (0, 1) or not (folder / "run.jsonl").exists():
            return {"collbench sweep": f"{said.WRONG}exit status {status}, and no run file: the lines above say why"}
        run = read(folder)
    here = here_of(run, gpus=1 if ranks else count, processes=count)
    return {way.name: _verdict([row for row in run.results if row.implementation == way.name], here) for way in ON_GPU}


def launcher(processes: int) -> list[str]:
    """The command that starts collbench in so many processes; Unsupported, with what to install, where none can."""
    if importlib.util.find_spec("mpi4py") is None:
        raise Unsupported("there is no mpi4py: pip install mpi4py mpich")
    try:
        return [mpiexec(), "-n", str(processes), sys.executable, "-m", "collbench"]
    except PlatformError as error:
        raise Unsupported(str(error)) from error


def here_of(run: Run, gpus: int, processes: int = 1) -> refusals.Here:
    """What decides about refusals, from a run file."""
    versions = run.header.environment.versions
    ranks = run.header.sweep.ranks
    return refusals.Here(ranks, gpus, processes, refusals.nccl_number(versions.get("nccl", "")))


def _verdict(results: Sequence[Result], here: refusals.Here) -> str:
    """One wrong or failed case decides, or a refusal that may not be; skipped is only what never ran."""
    for result in results:
        if isinstance(result, Measurement) and result.mismatch:
            return f"{said.WRONG}{result.case.collective.name} {result.case.nbytes} B: {result.mismatch}"
        if not isinstance(result, Measurement | Skipped):
            return f"{said.WRONG}{getattr(result, 'reason', result)}"
    if defects := refusals.unjust_of(results, here):
        return f"{said.WRONG}{defects[0]}"
    right = sum(isinstance(result, Measurement) for result in results)
    reasons = sorted({result.reason for result in results if isinstance(result, Skipped)})
    if right:
        return f"ok, {right} cases"
    return f"{said.SKIP}{'; '.join(reasons)}" if reasons else f"{said.WRONG}nothing was measured"


def first_gpu() -> dict[str, str]:
    """The environment in which only the first GPU is seen."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


@contextmanager
def _none() -> Iterator[dict[str, str]]:
    """The environment of processes that take turns on a GPU."""
    yield {}


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """An MPS server that ends with this program: the environment of its clients; Unsupported where there is none.

    It runs in the foreground, so that it dies with the process group, and has pipes and logs of its own, so that it
    meets no other server.
    """
    control = shutil.which(MPS)
    if not control:
        raise Unsupported(f"there is no {MPS} on the path, so no MPS")
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        daemon = subprocess.Popen([control, "-f"], env=environment, stdin=subprocess.DEVNULL)
        try:
            if not _answers(control, environment):
                raise Unsupported(f"{MPS} does not start here")
            yield places
        finally:
            subprocess.run([control], input="quit\n", env=environment, text=True, timeout=20, check=False)
            daemon.terminate()
            daemon.wait(20)


def _answers(control: str, environment: Mapping[str, str]) -> bool:
    """Whether the server takes orders within some seconds."""
    ask = [control]
    for _ in range(20):
        done = subprocess.run(
            ask,
            input="get_server_list\n",
            env=dict(environment),
            text=True,
            capture_output=True,
            timeout=20,
            check=False,
        )
        if done.returncode == 0:
            return True
        time.sleep(0.25)
    return False


if __name__ == "__main__":
    sys.exit(main())
