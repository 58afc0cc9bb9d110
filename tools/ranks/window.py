"""A rank of a shared window: `mpiexec -n N python -m tools.ranks.window HOW BYTES`.

Each rank writes its number into the parts of all others, reads its own part, and prints it as a line of JSON.
"""

import ctypes
import json
import mmap
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from mpi4py import MPI

from collbench.errors import PlatformError
from collbench.platforms.cpu import window
from collbench.platforms.layout import view
from collbench.platforms.mpi_processes import MpiProcesses

COMM = MPI.COMM_WORLD
ME = COMM.Get_rank()


def failing(error: OSError) -> Callable[..., NoReturn]:
    def fail(*_: Any) -> NoReturn:
        raise error

    return fail


def arrange(how: str) -> None:
    """Make functions fail as in a sandbox, or by limits on address space and files."""
    if "foreign" in how and ME == 0:
        window._identity = lambda fd: (-1, -1)  # type: ignore[assignment]
    if "nomap" in how and COMM.Get_size() - 1 == ME:
        window.mmap.mmap = failing(OSError(12, "Cannot allocate memory"))  # type: ignore[assignment, misc]
    if "nofile" in how and ME == 0:
        window.os.ftruncate = failing(OSError(27, "File too large"))  # type: ignore[assignment]


def holds(line: str, addresses: Iterable[int]) -> bool:
    """Return whether one of these addresses lies in a mapping, a line of /proc/self/maps."""
    first, end = (int(number, 16) for number in line.split()[0].split("-"))
    return any(first <= address < end for address in addresses)


def exchange(shared: window.Window, nbytes: int) -> dict[str, Any]:
    """Write into the last line of every rank's part, and return what arrived in this rank's part."""
    last = nbytes - 128
    for rank in shared.bases:
        ctypes.c_uint8.from_address(shared.bases[rank] + last + ME).value = 100 + ME
    COMM.Barrier()
    names = [line for line in Path("/proc/self/maps").read_text().splitlines() if holds(line, shared.bases.values())]
    came = view(shared.bases[ME] + last, COMM.Get_size()).tolist()
    aligned = all(base % mmap.PAGESIZE == 0 for base in shared.bases.values())
    return {"came": came, "ranks": sorted(shared.bases), "aligned": aligned, "names": names}


def main() -> None:
    how, nbytes = sys.argv[1], int(sys.argv[2])
    arrange(how)
    try:
        shared = window.Window(MpiProcesses(COMM), nbytes)
    except PlatformError as error:
        said: dict[str, Any] = {"error": str(error)}
    else:
        said = exchange(shared, nbytes)
        if how == "hold":
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            time.sleep(60)
        shared.close()
    every = COMM.gather(said)
    if ME == 0:
        sys.stdout.write(json.dumps(every) + "\n")


if __name__ == "__main__":
    main()
