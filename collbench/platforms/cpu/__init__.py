"""CPUs: a process for each rank, started by mpiexec and bound to a core.

The scheduler moves ranks that are not bound, and next to a busy program it puts two of them on one core, where each
waits for the other's time slice: milliseconds where an operation takes a microsecond.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from collbench.errors import PlatformError
from collbench.platforms import PlatformKind
from collbench.platforms.cost import FITTED
from collbench.platforms.cpu import window
from collbench.topology.discover_cpu import cpu_list, discover, read_text
from collbench.units import format_size

_RANKS_OF_A_CORE = 64  # each takes a third of a second of a core to start
_PROCESS = 48 * 2**20  # bytes of a rank without any message
_LOOK = 0.1  # seconds between two readings of /proc/stat, which counts in hundredths of a second
_BUSY = 0.3  # share of that time from which on a core is in use by another program


def refuse_too_large(nbytes: int, ranks: int) -> None:
    """PlatformError if the windows of all ranks do not fit, before anything is started."""
    needed, room = ranks * nbytes, window.room()
    if needed > room.free:
        raise PlatformError(
            f"{ranks} ranks need {format_size(needed)} of shared memory and {room.where} has {format_size(room.free)} "
            f"left: lower -e or --ranks, or {room.fix}"
        )


def most_ranks() -> tuple[int, str]:
    """Return how many ranks this process's cores start in time and its memory holds."""
    cores, room = len(os.sched_getaffinity(0)), window.room()
    each = f"a rank takes {format_size(_PROCESS)}, and {room.where} has {format_size(room.free)} left"
    return min(
        (_RANKS_OF_A_CORE * cores, f"{cores} cores start {_RANKS_OF_A_CORE} ranks each in time"),
        (max(2, room.free // _PROCESS), each),
    )


def choose_cores(ranks: int) -> tuple[int, ...]:
    """Return a core of this machine for each of `ranks` ranks, by rank; empty where there are not enough cores.

    All ranks that one command starts are bound to the same cores, so the load is looked at once.
    """
    cores = _preferred()
    return cores[:ranks] if ranks <= len(cores) else ()


@cache
def _preferred() -> tuple[int, ...]:
    usable = os.sched_getaffinity(0)

    # With a single core there is nothing to choose, and the look at the load takes its time.
    if len(usable) < 2:
        return tuple(usable)
    import psutil

    try:
        shares = psutil.cpu_percent(_LOOK, percpu=True)
    except OSError:  # no /proc
        shares = []

    # Shares come in the order of the cores that are online, whose numbers may have gaps.
    online = sorted(cpu_list(read_text(Path("/sys/devices/system/cpu/online")))) or range(len(shares))
    return core_order(usable, {core: share / 100 for core, share in zip(online, shares, strict=False)})


def core_order(usable: Collection[int], busy: Mapping[int, float], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the *usable* cores (hardware threads) in the order in which ranks should take them.

    First comes one hardware thread of every physical core, of these the idle ones first; otherwise neighbours in the
    topology follow each other (packages, then caches from the largest to the smallest), as `hwloc-bind` numbers them.
    *busy* is the share of time (0 to 1) in which other programs use a core.  *root* stands for `/`, for tests.
    """
    siblings = {core: _siblings(root, core) & set(usable) for core in usable}

    # A second thread of a core comes last, since the two share its time; a core counts as busy with either thread.

    def rank_of(core: int) -> tuple[object, ...]:
        thread = sorted(siblings[core]).index(core)
        in_use = any(busy.get(thread, 0.0) > _BUSY for thread in siblings[core])
        return thread, in_use, _place(root, core), core

    return tuple(sorted(usable, key=rank_of))


def _siblings(root: Path, core: int) -> set[int]:
    """Return the hardware threads of a core's physical core; itself alone where nothing is known."""
    folder = root / f"sys/devices/system/cpu/cpu{core}/topology"
    return {core, *cpu_list(read_text(folder / "thread_siblings_list"))}


def _place(root: Path, core: int) -> Sequence[int]:
    """Return where a core is, from the outermost group to the innermost: the lowest core of each group it is in."""
    folder = root / f"sys/devices/system/cpu/cpu{core}"
    caches = sorted((folder / "cache").glob("index*"), key=lambda path: read_text(path / "level"), reverse=True)
    groups = [folder / "topology/core_siblings_list", *(path / "shared_cpu_list" for path in caches)]
    members = [cpu_list(read_text(path)) for path in groups]
    return [min(group, default=core) for group in members] + [min(_siblings(root, core))]


PLATFORM = PlatformKind(
    name="cpu",
    module=f"{__name__}.platform",
    preference=2,
    process_per_rank=True,
    startup=60.0,  # kernels are compiled once for each machine
    discover=lambda ranks: (discover(ranks), ""),
    default_ranks=lambda: 2,  # the same on every machine, so that default sweeps compare; the fewest that communicate
    most_ranks=most_ranks,
    refuse_too_large=refuse_too_large,
    cores=choose_cores,
    spins=True,
    steadier="end other programs, fewer ranks than cores",
    apart="cores and memory of their own for all ranks",
    fitted=FITTED,
)
