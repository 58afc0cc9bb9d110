"""Which core each rank is bound to: cores in the order of hwloc, idle ones first, hardware threads of one core last.

The scheduler moves ranks that are not bound, and next to a busy program it puts two of them on one core, where each
waits for the other's time slice: milliseconds where an operation takes a microsecond.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from collbench.topology.discover_cpu import cpu_list, read_text

_LOOK = 0.1  # seconds between two readings of /proc/stat, which counts in hundredths of a second
_BUSY = 0.3  # share of that time from which on a core is in use by another program


def choose(ranks: int) -> tuple[int, ...]:
    """Return a core for each of so many ranks on this machine, by rank; empty where there are not enough cores.

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
    return order(usable, {core: share / 100 for core, share in zip(online, shares, strict=False)})


def order(usable: Collection[int], busy: Mapping[int, float], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the usable cores in the order in which ranks should take them.

    First comes one hardware thread of every physical core, of these the idle ones first; otherwise neighbours in the
    topology follow each other (packages, then caches from the largest to the smallest), as `hwloc-bind` numbers them.

    Args:
        usable: Numbers of the cores (hardware threads) that this process may run on.
        busy: Share of time in which each of them is in use by other programs, between 0 and 1.
        root: The folder that stands for `/` (tests describe other machines).

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
