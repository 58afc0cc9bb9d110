"""What else this machine did while a run was measured, as far as Linux tells: load, waiting, stolen time, frequency.

Sources: proc(5) for /proc/loadavg and /proc/stat, the kernel's Documentation/accounting/psi.rst for /proc/pressure/cpu,
Documentation/admin-guide/pm/cpufreq.rst for governor and clocks, and Documentation/admin-guide/cputopology.rst for the
threads of a core.  What a kernel or a container does not show is not reported.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.host.launcher import launched
from collbench.results import Outcome, Result
from collbench.topology.discover_cpu import read_text

BUSY = 0.25  # of the cores that other programs use before a run: more than a shell and an editor take
WAITED = 0.10  # of the time in which something that could run had no core
STOLEN = 0.01  # of all cores' time
CLOCKS = 1.1  # the fastest clock seen, over the slowest
STEAL = 7  # the field of /proc/stat's line, counted from 0


def disturbed_in_words(results: Sequence[Result]) -> str:
    """Return how many rows had ranks off their cores, and what to do about them; nothing where there are none."""
    disturbed = [result for result in results if result.disturbed]
    if not disturbed:
        return ""
    bound = any(result.scheduling and max(map(len, result.scheduling.cores), default=1) == 1 for result in disturbed)
    others, helps = ("", "Close them") if bound else (" or other ranks", "Close them, leave out --bind none,")
    rows = sum(result.outcome is not Outcome.SKIPPED for result in results)
    return left_out_in_words(len(disturbed), rows, others, helps)


def left_out_in_words(disturbed: int, rows: int, others: str = "", helps: str = "Close them") -> str:
    """Return how many of these rows other programs (and these others) disturbed, and what helps."""
    was, are = ("was", "is") if disturbed == 1 else ("were", "are")
    return (
        f"{disturbed} of {rows} rows {was} disturbed by other programs{others} and {are} left out of comparisons. "
        f"{helps} and run again."
    )


def all_disturbed(results: Iterable[Result]) -> str:
    """Return that all rows with a time were disturbed, and what to do about it; nothing where that is not so."""
    timed = [result.disturbed for result in results if result.outcome is not Outcome.SKIPPED]
    return "all rows were disturbed by other programs: close them and run again" if timed and all(timed) else ""


@dataclass(frozen=True)
class _Glance:
    """Counters that only grow."""

    at: float  # seconds, monotonic
    waited: float | None  # seconds in which something waited for a core
    spent: float  # ticks of all cores
    stolen: float  # ticks of them that the hypervisor gave to others
    clocks: tuple[int, ...]  # kHz, of the cores that show it


class Watch:
    """Looks at the machine when it is made, and again when it is asked for reasons."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cores = sorted(os.sched_getaffinity(os.getppid() if launched() else 0))  # before anybody binds it
        self._load = self._loaded()
        self._first = self._look()

    def reasons(self, ranks: int = 1) -> Iterator[str]:
        """Yield what may have spoiled samples of so many ranks here since then, a clause each."""
        cores = self._cores
        if self._load is not None and self._load > BUSY * len(cores):
            yield f"other programs ran (load {self._load:.1f} on {len(cores)} cores)"
        if ranks > len(cores):
            yield f"{ranks} ranks on {len(cores)} cores take turns"
        elif ranks > (whole := self._whole(cores)):
            yield f"{ranks} ranks share {whole} cores as hardware threads (SMT)"
        yield from self._since(self._look())

    def _since(self, now: _Glance) -> Iterator[str]:
        seconds = now.at - self._first.at
        if now.waited is not None and self._first.waited is not None and seconds > 0:
            share = (now.waited - self._first.waited) / seconds
            if share > WAITED:
                yield f"{min(share, 1):.0%} of the time something waited for a core"
        spent = now.spent - self._first.spent
        if spent > 0 and (share := (now.stolen - self._first.stolen) / spent) > STOLEN:
            yield f"the hypervisor took {share:.0%} of the cores' time (steal)"
        governor = read_text(self._root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        if governor and governor != "performance":
            yield f"governor `{governor}` lets clocks change (cpupower frequency-set -g performance)"
        clocks = (*self._first.clocks, *now.clocks)
        if clocks and max(clocks) > CLOCKS * min(clocks):
            yield f"clocks were {min(clocks) / 1e6:.1f} to {max(clocks) / 1e6:.1f} GHz"

    def _whole(self, cores: Collection[int]) -> int:
        """Cores that these hardware threads belong to."""
        folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        return len({read_text(self._root / folder.format(core)) or str(core) for core in cores})

    def _look(self) -> _Glance:
        waited = re.search(r"^some .*total=(\d+)", read_text(self._root / "proc/pressure/cpu"), re.MULTILINE)
        words = read_text(self._root / "proc/stat").partition("\n")[0].split()[1:]
        ticks = [int(word) for word in words if word.isdecimal()]
        stolen = ticks[STEAL] if len(ticks) > STEAL else 0
        folder = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
        shown = [read_text(self._root / folder.format(core)) for core in self._cores]
        clocks = tuple(int(word) for word in shown if word.isdecimal() and int(word))
        waits = int(waited[1]) / 1e6 if waited else None
        return _Glance(time.monotonic(), waits, sum(ticks[: STEAL + 1]), stolen, clocks)

    def _loaded(self) -> float | None:
        """Return the mean number of programs that ran or were ready to, over the last minute."""
        word = (read_text(self._root / "proc/loadavg").split() or [""])[0]
        return float(word) if re.fullmatch(r"\d+\.\d+", word) else None
