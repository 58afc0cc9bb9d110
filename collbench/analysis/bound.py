"""What a machine allows a collective at most, whatever the algorithm: by the rates of its links, or of its memory.

Links have data sheets.  What the memory between ranks on CPUs carries nobody states: it is measured along with every
case whose buffers do not fit into the caches (collbench/measure/floor.py).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from collbench.analysis.machine import discovered, machine, sized
from collbench.analysis.traffic import carried
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.results import Measurement, Result, Timed
from collbench.runfile.store import Run
from collbench.topology.system import System
from collbench.topology.topology import from_record
from collbench.units import format_seconds, format_size


@dataclass(frozen=True)
class Bound:
    """Nothing is faster over the busiest line, whatever the algorithm."""

    rate: float  # bytes of the array per second
    line: float  # bytes/s of one direction of it
    per_byte: float  # bytes over it for each byte of the array, by the algorithm that sends least
    where: str

    def seconds(self, nbytes: int) -> float:
        """The least time of an array of so many bytes."""
        return nbytes / self.rate

    def __str__(self) -> str:
        return f"line: {self.line / 1e9:.4g} GB/s, {self.where}"


@dataclass(frozen=True)
class MemoryBound:
    """Nothing is faster than all ranks' cores moving the fewest bytes that must go through memory, as measured."""

    case: Case  # of some size
    floors: Mapping[int, float]  # seconds by size; of no size that caches may hold

    def seconds(self, nbytes: int) -> float:
        """The least time of an array of so many bytes; NaN where caches may hold it."""
        return self.floors.get(nbytes, math.nan)

    def __str__(self) -> str:
        size = max(self.floors)
        read, written = replace(self.case, nbytes=size).traffic
        return (
            f"bound: {format_seconds(self.floors[size])} at {format_size(size)}, in which all ranks' cores "
            f"read {format_size(read)} and write {format_size(written)} of memory"
        )


def measured_bound(results: Iterable[Result], kind: Case) -> MemoryBound | None:
    """The bound of all cases of that kind by what was measured along with them; None where nothing was."""
    floors: dict[int, list[float]] = {}
    for result in results:
        if (
            isinstance(result, Measurement)
            and result.right
            and not result.disturbed
            and result.floor
            and result.case.kind == kind
        ):
            floors.setdefault(result.case.nbytes, []).append(result.floor)
    return MemoryBound(kind, {nbytes: median(every) for nbytes, every in floors.items()}) if floors else None


def share(result: Timed, limit: Bound | MemoryBound | None, seconds: float) -> float:
    """What of the bound an operation attains that takes so long: against what was measured beside it, if that was."""
    least = result.floor if isinstance(result, Measurement) else None
    return (least or (limit.seconds(result.case.nbytes) if limit else math.nan)) / seconds


def in_words(result: Timed) -> str:
    """`96 % of the bound`; nothing where no floor was measured along with it."""
    measured = isinstance(result, Measurement) and result.floor and result.right
    return f"{100 * share(result, None, result.typical):.0f} % of the bound" if measured else ""


def bound(run: Run, case: Case, name: str | None = None) -> Bound | MemoryBound:
    """The bound of a case: by what was measured along with its kind, else by the line rate of a data sheet.

    The system is the described one of a predicted run, the one that `name` names, or the one discovered.  UsageError
    with the reason where nothing is known: ranks on CPUs that sent nothing large, ranks that share a GPU, MIG slices,
    nodes joined by who knows what.
    """
    if measured := measured_bound(run.results, case.kind):
        return measured
    if case.ranks < 2:
        raise UsageError("one rank sends nothing")
    if case.collective.parts > 1:
        raise UsageError(f"nothing says over which links a {case.collective.name} goes; see --view latency")
    system = described(run) or _measured_on(run, case.ranks, name)
    algorithms = ("ring", "tree", "nvls") if system.adds else ("ring", "tree")
    loads = [carried(system, case, algorithm) for algorithm in algorithms]
    least = min(loads, key=lambda load: load.per_byte / load.line)
    return Bound(least.line / least.per_byte, least.line, least.per_byte, least.where)


def described(run: Run) -> System | None:
    """The system that a run was predicted for; None if it was measured."""
    record = run.header.topology.system
    try:
        system: System | None = from_record(System, record) if record else None
    except (TypeError, ValueError):  # by a later collbench, perhaps
        return None
    return system


def _measured_on(run: Run, ranks: int, name: str | None) -> System:
    topology = discovered(run)
    if topology and not topology.gpus:
        raise UsageError("ranks on CPUs are bound by memory beyond their caches alone, and no message was that large")
    if topology and topology.shared:
        raise UsageError("ranks that share a GPU have no line between them")
    if topology and topology.sliced:
        raise UsageError("MIG slices share a GPU's memory and slot, and no data sheet says what a slice has of them")
    return sized(machine(run, name), ranks)
