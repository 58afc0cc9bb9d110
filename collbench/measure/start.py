"""How the ranks of a run are started: which launcher, with what arguments, and in which environment."""

import os
import re
import signal
import sys
from pathlib import Path

from collbench.isolation import isolated
from collbench.launcher import unlaunched
from collbench.measure import worker
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library, own
from collbench.runfile.environment import Setting

SCRATCH = "scratch"  # within the folder of a run, for whatever its processes need for a moment
UNHEARD = {
    "UCX_TLS": "self,sm",
    "FI_TCP_IFACE": "lo",
    "OMPI_MCA_btl": "^tcp",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "PMIX_MCA_ptl_tcp_if_include": "lo",
}
"""Nothing on the network is to reach ranks of one machine: by default MPI libraries listen on every address for ranks
that never come.  What the user has set of the same library stays as it is.  A process that starts no MPI gets none of
them: NCCL's plugins read some, and the run file would keep what nothing heeded."""
_ENDED = re.compile(
    r"EXIT STRING: .+? \(signal (\d+)\)|^\[\d+\]\d+:Return code = \d+, signaled with (.+)$", re.MULTILINE
)
_COURTESY = (signal.SIGINT, signal.SIGQUIT)  # by which the launcher asks the other ranks to follow


def command(platform: str, ranks: int, library: Library | None = None) -> list[str]:
    """The command that starts them; on a CPU by the launcher of that library, or of the one that mpi4py loads."""
    python = [sys.executable, "-P", "-m", worker.__name__]  # -P: a copy in the working folder is not what was asked
    return [*(library or own()).command(ranks), *python] if find_platform(platform).process_per_rank else python


def mpiexec() -> str:
    """The launcher of the library that mpi4py loads."""
    return str(own().launcher)


def signal_of(printed: str) -> int | None:
    """By which signal a rank was ended, as the launcher printed it; None if it says nothing of one."""
    found = [int(one) if one else _number(word) for one, word in _ENDED.findall(printed)]
    return next((one for one in found if one not in _COURTESY), next(iter(found), None))


def _number(word: str) -> int:
    return next((one for one in signal.valid_signals() if signal.strsignal(one) == word.strip()), 0)


def environment(platform: str, folder: Path, setting: Setting, library: Library | None = None) -> dict[str, str]:
    """Their environment, with what they must know to find their supervisor, and which MPI library to load."""
    given, by_mpi = unlaunched(os.environ), find_platform(platform).process_per_rank
    changed = setting.applied((_unheard(given) if by_mpi else given) | {"OMP_NUM_THREADS": "1"})
    if by_mpi:
        changed = (library or own()).environment(changed)
    changed = isolated(changed)
    others = filter(None, changed.get("PYTHONPATH", "").split(os.pathsep))
    return changed | {
        worker.FOLDER: str(folder),
        worker.SUPERVISOR: str(os.getpid()),
        worker.PLATFORM: platform,
        "TMPDIR": str(folder / SCRATCH),  # what a killed compiler or MPI leaves there goes with the folder
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *others]),
    }


def _unheard(given: dict[str, str]) -> dict[str, str]:
    """With what keeps MPI libraries off the network, unless the user told the library which network to take."""
    said = tuple(
        name.partition("_")[0] for name in given if re.match(r"UCX_(TLS|NET_DEVICES)$|FI_(PROVIDER|TCP)", name)
    )
    return {name: value for name, value in UNHEARD.items() if name.partition("_")[0] not in said} | given
