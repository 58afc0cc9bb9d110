"""How the ranks of a run are started: which launcher, with what arguments, and in which environment."""

import os
import shutil
import sys
from pathlib import Path

from collbench.errors import PlatformError
from collbench.launcher import unlaunched
from collbench.measure import worker
from collbench.platforms import find_platform
from collbench.runs.environment import Setting

SCRATCH = "scratch"  # within the folder of a run, for whatever its processes need for a moment
_HERE = ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost")
"""For Hydra, MPICH's mpiexec: ranks are its children on this machine, whatever batch system or files name others."""


def command(platform: str, ranks: int) -> list[str]:
    """The command that starts them."""
    python = [sys.executable, "-P", "-m", worker.__name__]  # -P: a copy in the working folder is not what was asked
    return [mpiexec(), *_HERE, "-n", str(ranks), *python] if find_platform(platform).process_per_rank else python


def mpiexec() -> str:
    """The launcher that belongs to the MPI library mpi4py loads: the mpich wheel's, beside our own Python."""
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not path:
        raise PlatformError("no mpiexec beside this Python or on the path; fix: pip install mpich mpi4py")
    return path


def environment(platform: str, folder: Path, setting: Setting) -> dict[str, str]:
    """Their environment, with what they must know to find their supervisor."""
    changed = setting.applied(unlaunched(os.environ) | {"OMP_NUM_THREADS": "1"})
    others = filter(None, changed.get("PYTHONPATH", "").split(os.pathsep))  # an empty entry is the working folder
    return changed | {
        worker.FOLDER: str(folder),
        worker.SUPERVISOR: str(os.getpid()),
        worker.PLATFORM: platform,
        "TMPDIR": str(folder / SCRATCH),  # what a killed compiler or MPI leaves there goes with the folder
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *others]),
    }
