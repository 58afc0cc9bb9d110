"""What NCCL says in its log of what it ran, and why it could not do something.

NCCL chooses algorithm, protocol and channels for each operation, falls back in silence, and tells of it in its log
only.  A log slows what it tells of, so it is switched on for one operation that is not timed and off again: NCCL reads
NCCL_DEBUG anew after ncclResetDebugInit (tried with the libraries of 2.27 to 2.32).
"""

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from collbench.platforms.gpu.nccl.functions import NcclFunctions
from collbench.platforms.interface import NOT_SAID, Ran

PLANNING = "TUNING,COLL"  # subsystems that tell what is run
STARTING = "INIT,REG,NVLS,ALLOC"  # that tell why memory cannot be registered
RESET = "ncclResetDebugInit"  # a function, after which NCCL reads the variables again
_FILE = "NCCL_DEBUG_FILE"

_PLAN = re.compile(
    r"NCCL INFO (?P<operation>\w+)(?: \[(?P<path>[\w ]+)\])?: (?P<nbytes>\d+) Bytes -> "
    r"(?:Algo (?P<algorithm>\w+) proto (?P<protocol>\w+) channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
    r"|Kernel (?P<kernel>\w+) nchannels (?P<channels>\d+)|.*)"
)
"""Lines of NCCL 2.24 and newer; 2.31 adds the size of clusters at the end."""
_PATHS = {"Symmetric": "symm", "Copy Engine": "ce", "Hierarchical CE": "ce"}
_TIMINGS = re.compile(r"NCCL INFO Init timings - .*?(total [\d.]+ \(.*?\))")
_WARNING = re.compile(r"NCCL WARN (.*)")
_REFUSAL = re.compile(r"NCCL INFO (.*(?:\b[Ss]ymmetric\b.*\bnot support|symmetricSupport 0).*)")


def what_ran(log: str) -> Ran:
    """Return what the last operation in a log ran as; nothing where the log does not say it.

    Of operations that are made of sends and receives NCCL says nothing.
    """
    plans = list(_PLAN.finditer(log))
    if not plans:
        return NOT_SAID
    plan = plans[-1]
    if plan["algorithm"]:
        channels = int(plan["high"]) - int(plan["low"]) + 1
        return Ran(plan["algorithm"].lower().replace("_", ""), plan["protocol"].lower(), channels)
    if plan["path"] not in _PATHS:
        return NOT_SAID

    # A symmetric kernel has the name of its operation before its own.
    kernel = (plan["kernel"] or "").partition("_")[2]
    return Ran(_PATHS[plan["path"]], kernel, int(plan["channels"]) if plan["channels"] else None)


def why_not(log: str) -> str:
    """Return NCCL's last warning of a log, else its last line on symmetric memory that is not supported."""
    for pattern in (_WARNING, _REFUSAL):
        if reasons := pattern.findall(log):
            return str(reasons[-1]).strip()
    return "its log does not say why"


def init_timings(log: str) -> str:
    """Return how NCCL itself divides the time that a communicator took to start; "" where it does not say."""
    timings = _TIMINGS.search(log)
    return f"NCCL of its first start, in seconds: {timings[1]}" if timings else ""


@contextmanager
def logging(functions: NcclFunctions, subsystems: str) -> Iterator[StringIO]:
    """Switch NCCL's log of these subsystems on inside, and write it to what this gives once that is over.

    It stays empty where the user has NCCL write to a file of his own, which NCCL would begin anew.
    """
    log, users, reset = StringIO(), dict(os.environ), functions.find(RESET)
    if users.get(_FILE) or not reset:
        yield log
        return
    with tempfile.TemporaryDirectory(prefix="collbench-nccl-") as folder:
        path = Path(folder, "log")
        shown = filter(None, (subsystems, users.get("NCCL_DEBUG_SUBSYS", "INIT") if users.get("NCCL_DEBUG") else ""))
        os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": ",".join(shown), _FILE: str(path)})
        reset()
        try:
            yield log
        finally:
            for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", _FILE):
                os.environ.pop(name)
                if name in users:
                    os.environ[name] = users[name]
            reset()
            if path.exists():
                log.write(path.read_text(encoding="utf-8", errors="replace"))
            if users.get("NCCL_DEBUG"):
                sys.stdout.write(log.getvalue())  # what the user has asked for is not lost
                sys.stdout.flush()
            elif settle := functions.find("ncclCommGetAsyncError"):
                # 2.30 to 2.32 break at the process's end if they have logged nothing since: nobody sees this warning.
                settle(None, ctypes.byref(ctypes.c_int()))
