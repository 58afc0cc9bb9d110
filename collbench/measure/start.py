"""How the ranks of a run are started: which launcher, with what arguments, and in which environment."""

import os
import sys
from pathlib import Path

from collbench.launcher import unlaunched
from collbench.measure import worker
from collbench.platforms import find_platform
from collbench.platforms.cpu.installed import Library, own
from collbench.runs.environment import Setting


def command(platform: str, ranks: int, library: Library | None = None) -> list[str]:
    """The command that starts them; on a CPU by the launcher of that library, or of the one that mpi4py loads."""
    python = [sys.executable, "-P", "-m", worker.__name__]  # -P: a copy in the working folder is not what was asked
    return [*(library or own()).command(ranks), *python] if find_platform(platform).process_per_rank else python


def mpiexec() -> str:
    """The launcher of the library that mpi4py loads."""
    return str(own().launcher)


def environment(platform: str, folder: Path, setting: Setting, library: Library | None = None) -> dict[str, str]:
    """Their environment, with what they must know to find their supervisor, and which MPI library to load."""
    changed = setting.applied(unlaunched(os.environ) | {"OMP_NUM_THREADS": "1"})
    if find_platform(platform).process_per_rank:
        changed = (library or own()).environment(changed)
    others = filter(None, changed.get("PYTHONPATH", "").split(os.pathsep))  # an empty entry is the working folder
    return changed | {
        worker.FOLDER: str(folder),
        worker.SUPERVISOR: str(os.getpid()),
        worker.PLATFORM: platform,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *others]),
    }
