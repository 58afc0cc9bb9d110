"""`python -m tools.gpu.processes --ranks 2 --out FOLDER`: several processes on real GPUs, and what came of it.

mpiexec starts the whole command.  Sharing one GPU proves the exchange of memory (CUDA IPC, handles and offsets) and of
NCCL's id; how fast that is means nothing.  Needs mpi4py and an MPI library with its mpiexec.  With --mps the processes
share the GPU through a CUDA MPS server of their own, where there is one.
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

from collbench.errors import CollbenchError, PlatformError, Unsupported
from collbench.platforms.cpu.mpi_libraries import own
from collbench.platforms.gpu import probe
from collbench.results import Measurement, Result, Skipped
from tools.gpu import refusals, said, scale, sweeps
from tools.gpu.places import ON_GPU

NOT_COME_TO = "not come to"
PATIENCE = 60  # seconds for MPI to start
SIZE = "import os; from mpi4py import MPI; os.write(1, b'%d ' % MPI.COMM_WORLD.size)"  # whole, whoever else writes
MPS = "nvidia-cuda-mps-control"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.processes", description="A process for every rank.")
    parser.add_argument("--ranks", type=int, default=0, help="that share the first GPU; 0: one on every GPU")
    parser.add_argument("--mps", action="store_true", help="through an MPS server")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("tested")
    try:
        with server() if chosen.mps else _none() as environment:
            found, defects = outcomes(scale.chosen().ranks(chosen.ranks), environment, chosen.out)
    except Unsupported as reason:
        return said.skip(reason)
    except CollbenchError as error:
        return said.wrong(str(error))
    for name, outcome in found.items():
        print(f"  {name:<24} {outcome}", flush=True)
    right = sum(outcome.startswith("ok") for outcome in found.values())
    said.key(f"{right} of {len(found)} implementations are right among processes")
    bad = any(outcome.startswith(said.WRONG) for outcome in found.values())
    return max(said.all_wrong(defects), said.BAD if bad else said.GOOD)


def outcomes(ranks: int, environment: Mapping[str, str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """For each implementation `ok`, `skipped: why` or `FAILED: what`, and how far a run came that was cut.

    Unsupported where nothing can be started.
    """
    count = ranks or len(probe.memories())
    if count < 2:
        raise Unsupported("there is one GPU only")
    start, changed = launcher(count)
    matrix = scale.chosen().processes if count == 2 else scale.chosen().crowded_processes
    command = ("sweep", "--impl", ",".join(scale.chosen().implementations), *matrix, "--no-plot")
    run = sweeps.run(command, folder, ranks, start=start, environment={**changed, **environment})
    here, cut = sweeps.here_of(run, gpus=1 if ranks else count, processes=count), sweeps.cut(run)
    rows = {way.name: [row for row in run.results if row.implementation == way.name] for way in ON_GPU}
    return {name: _verdict(found, here) if found or not cut else NOT_COME_TO for name, found in rows.items()}, cut


def launcher(processes: int) -> tuple[list[str], dict[str, str]]:
    """The command that starts collbench in so many processes, and its environment.

    Unsupported, with what to install, where none can, or where the processes would not know of each other.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise Unsupported("there is no mpi4py: pip install mpi4py mpich")
    try:
        library = own()
    except PlatformError as error:
        raise Unsupported(str(error)) from error
    # Not library.command, which may take MPICH's gforker: that one ends ranks that print anything beyond ASCII.
    command = [str(library.launcher), *library.kind.options, "-n", str(processes)]
    environment = library.environment(os.environ)
    if why := _obstacle(command, environment, processes):
        raise Unsupported(f"{library.launcher} starts no {processes} processes that find each other by mpi4py: {why}")
    return [*command, sys.executable, "-m", "collbench"], environment


def _obstacle(command: Sequence[str], environment: Mapping[str, str], processes: int) -> str:
    """Why MPI starts no world of so many processes, in a line; nothing if it does."""
    try:
        done = subprocess.run(
            [*command, sys.executable, "-c", SIZE],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing came of it in {PATIENCE} s"
    return "" if done.stdout.split() == [str(processes)] * processes else said.reason(done.stdout)


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
