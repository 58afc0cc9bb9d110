"""Other activity on the machine during a run, as Linux reports it.

Sources: proc(5) for /proc/loadavg and /proc/stat, the kernel's Documentation/accounting/psi.rst for /proc/pressure/cpu,
Documentation/admin-guide/pm/cpufreq.rst for governor and clocks, and Documentation/admin-guide/cputopology.rst for the
threads of a core.  Values that a kernel or a container hides are not reported.
"""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.host.launcher import launched
from collbench.topology.discover_cpu import read_text

BUSY = 0.25  # share of cores that other programs use before a run; a shell and an editor use less
WAITED = 0.10  # share of time in which a runnable program had no core
STOLEN = 0.01  # share of all cores' time
CLOCKS = 1.1  # the fastest clock seen, over the slowest
STEAL = 7  # index of the field in /proc/stat


@dataclass(frozen=True)
class _Glance:
    """Counters that only grow."""

    at: float  # seconds, monotonic
    waited: float | None  # seconds in which a program waited for a core
    spent: float  # ticks of all cores
    stolen: float  # of these, ticks that the hypervisor gave to others
    clocks: tuple[int, ...]  # kHz, of the cores that show it


class MachineWatch:
    """Reads the machine's counters when it is created and when `reasons` is called."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        # All of the launcher's cores, since it may have bound this process to one.
        self._cores = sorted(os.sched_getaffinity(os.getppid() if launched() else 0))
        self._load = self._loaded()
        self._first = self._look()

    def reasons(self, ranks: int = 1) -> Iterator[str]:
        """Yield causes that may have disturbed samples of `ranks` ranks since the start, one clause each."""
        cores, whole = len(self._cores), self._whole_cores()
        if self._load is not None and self._load > BUSY * cores:
            yield f"other programs ran (load {self._load:.1f} on {cores} cores)"
        if ranks > cores:
            yield f"{ranks} ranks on {cores} cores take turns"
        elif ranks > whole:
            yield f"{ranks} ranks share {whole} cores as hardware threads (SMT)"

        # Counters that have grown since the first reading.
        now = self._look()
        seconds = now.at - self._first.at
        if now.waited is not None and self._first.waited is not None and seconds > 0:
            share = (now.waited - self._first.waited) / seconds
            if share > WAITED:
                yield f"a program waited for a core {min(share, 1):.0%} of the time"
        spent = now.spent - self._first.spent
        if spent > 0 and (share := (now.stolen - self._first.stolen) / spent) > STOLEN:
            yield f"the hypervisor took {share:.0%} of the cores' time (steal)"
        governor = read_text(self._root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        if governor and governor != "performance":
            yield f"governor `{governor}` lets clocks change (cpupower frequency-set -g performance)"
        clocks = (*self._first.clocks, *now.clocks)
        if clocks and max(clocks) > CLOCKS * min(clocks):
            yield f"clocks were {min(clocks) / 1e6:.1f} to {max(clocks) / 1e6:.1f} GHz"

    def _whole_cores(self) -> int:
        siblings = set()
        for core in self._cores:
            file = self._root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            siblings.add(read_text(file) or core)
        return len(siblings)

    def _look(self) -> _Glance:
        pressure = re.search(r"^some .*total=(\d+)", read_text(self._root / "proc/pressure/cpu"), re.MULTILINE)
        waited = int(pressure[1]) / 1e6 if pressure else None
        _, *fields = read_text(self._root / "proc/stat").partition("\n")[0].split() or [""]
        ticks = [int(field) for field in fields if field.isdecimal()]
        clocks = []
        for core in self._cores:
            clock = read_text(self._root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
            if clock.isdecimal() and int(clock):
                clocks.append(int(clock))
        return _Glance(time.monotonic(), waited, sum(ticks[: STEAL + 1]), sum(ticks[STEAL : STEAL + 1]), tuple(clocks))

    def _loaded(self) -> float | None:
        """Return the mean number of running or runnable programs over the last minute."""
        load = re.match(r"\d+\.\d+\b", read_text(self._root / "proc/loadavg"))
        return float(load[0]) if load else None
