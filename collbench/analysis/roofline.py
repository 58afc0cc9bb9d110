"""The most that a machine allows a collective, whatever the algorithm, and the traffic of its busiest link.

Links have data sheets.  What the memory between ranks on CPUs carries is stated nowhere: it is measured along with
every case whose buffers do not fit into the caches (collbench/measure/floor.py).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from collbench.cases import Case
from collbench.errors import UsageError
from collbench.results import Measurement, Observed, Prediction, Result, Timed
from collbench.runfile.store import Run
from collbench.topology.system import System
from collbench.units import format_rate, format_seconds, format_size


@dataclass(frozen=True)
class LinkRoofline:
    """The roofline of a data sheet: what an algorithm sends over the busiest kind of link takes as long at least."""

    per_byte: float  # bytes over it, in one direction, for each byte of the array
    line: float  # bytes/s that it carries at most
    where: str

    def seconds(self, nbytes: int) -> float:
        """Return the least time of an array of so many bytes."""
        return nbytes / (self.line / self.per_byte)

    def __str__(self) -> str:
        return f"line: {self.line / 1e9:.4g} GB/s, {self.where}"


def traffic(system: System, case: Case, algorithm: str) -> LinkRoofline:
    """Return what an algorithm of NCCL sends between nodes if there are several, else out of a GPU.

    A ring carries the bus factor.  Switches that add take the array once and hand a GPU's share to all: S*(1 + 1/n).
    A tree's edges carry S up and S down, 2*(N-1)/N*S a node on average.  An all-to-all sends each node's GPUs' parts.
    """
    from collbench.model.schedule import SCHEDULES  # here, as below: a sweep that knows the rate of memory needs none

    ranks, nodes = case.ranks, system.nodes
    factor = 1.0 if case.collective.flights else case.collective.bus_factor(ranks)  # a message is sent once
    schedule = SCHEDULES.get(case.collective.name)  # what was measured need not have a model
    if nodes > 1 and system.nics:
        if schedule and schedule.leaving:
            factor = schedule.leaving(ranks, system.gpus)
        elif algorithm == "collnet" and schedule and schedule.both_ways:
            factor = 1.0  # SHARP: the array leaves a node once
        elif algorithm in ("tree", "nvlstree"):
            factor = 2 * (nodes - 1) / nodes
        return LinkRoofline(factor, system.nics.rate * system.nics.per_node, "a node's network cards")
    if algorithm == "nvls" and schedule and schedule.both_ways:
        factor = 1 + 1 / ranks
    return LinkRoofline(factor, system.promised, "a GPU's slot" if system.meets_over_pcie else "a GPU's NVLinks")


def traffic_in_words(system: System, measured: Observed, expected: Prediction) -> list[str]:
    """Say what went over the link at one size, what is usual there, and why busbw may be above it."""
    wire = traffic(system, expected.case, expected.algorithm)
    sent = wire.per_byte * measured.case.nbytes
    rate, usual = sent / measured.typical, sent / expected.seconds
    words = [
        f"at {format_size(measured.case.nbytes)} {format_rate(rate)} GB/s each way go through {wire.where}: "
        f"{rate / wire.line:.0%} of their {format_rate(wire.line)} (usual: {usual / wire.line:.0%})"
    ]

    # A tree, or switches that add, send less than busbw counts.
    bus = measured.case.collective.bus_factor(measured.case.ranks)
    if expected.algorithm and measured.busbw > wire.line and wire.per_byte < bus:
        words.append(
            f"busbw may be above that: it counts {bus:.3g} bytes sent for each byte of the array, as a ring sends; "
            f"{expected.algorithm} sends {wire.per_byte:.3g}"
        )
    return words


@dataclass(frozen=True)
class MemoryRoofline:
    """The roofline of memory: nothing is faster than all cores moving the fewest bytes that must go through it."""

    case: Case  # of some size
    copy_times: Mapping[int, float]  # measured seconds by size; of no size that caches may hold

    def seconds(self, nbytes: int) -> float:
        """Return the least time of an array of so many bytes; NaN where caches may hold it."""
        return self.copy_times.get(nbytes, math.nan)

    def __str__(self) -> str:
        size = max(self.copy_times)
        read, written = replace(self.case, nbytes=size).traffic
        return (
            f"roofline: {format_seconds(self.copy_times[size])} at {format_size(size)} to read {format_size(read)} "
            f"and write {format_size(written)} of memory"
        )


def measured_roofline(results: Iterable[Result], kind: Case) -> MemoryRoofline | None:
    """Return the roofline of all cases of that kind by what was measured along with them; None where nothing was."""
    times: dict[int, list[float]] = {}
    for result in results:
        if not isinstance(result, Measurement) or result.case.kind != kind:
            continue
        if result.right and not result.disturbed and result.floor:
            times.setdefault(result.case.nbytes, []).append(result.floor)
    return MemoryRoofline(kind, {nbytes: median(every) for nbytes, every in times.items()}) if times else None


def roofline(run: Run, case: Case, name: str | None = None) -> LinkRoofline | MemoryRoofline:
    """Return the roofline of a case: by what was measured along with its kind, else by the rate of a data sheet.

    The system is the described one of a predicted run, the one of `name`, or the one discovered.  UsageError where
    nothing is known: ranks on CPUs that sent nothing large, ranks that share a GPU, MIG slices, an unknown network.
    """
    measured = measured_roofline(run.results, case.kind)
    if measured:
        return measured
    if case.ranks < 2:
        raise UsageError("one rank sends nothing")
    if case.collective.parts > 1:
        raise UsageError(f"nothing says over which links a {case.collective.name} goes; see --view latency")
    system = run.header.topology.system  # that the run was predicted for
    if not system:
        if run.header.topology.platform == "cpu":
            why = "ranks on CPUs are bound by memory beyond their caches alone, and no message was that large"
            raise UsageError(why)
        from collbench.analysis.machine import machine, sized, stated_nodes

        whole = machine(run, name)
        system = sized(whole, case.ranks, stated_nodes(whole, run))
    return link_roofline(system, case)


def link_roofline(system: System, case: Case) -> LinkRoofline:
    """Return what the links of a system allow at most, by the algorithm that sends least over the busiest one."""
    sharp = system.nics is not None and system.nics.sharp
    algorithms = ("ring", "tree", *["nvls"] * system.adds, *["collnet"] * sharp)
    loads = [traffic(system, case, algorithm) for algorithm in algorithms]
    return min(loads, key=lambda load: load.per_byte / load.line)


def share(result: Timed, limit: LinkRoofline | MemoryRoofline | None, seconds: float) -> float:
    """Return the fraction of the roofline that an operation of so many seconds attains.

    A measurement of the same run counts before the roofline of its kind.
    """
    if result.floor:
        return result.floor / seconds
    return (limit.seconds(result.case.nbytes) if limit else math.nan) / seconds


def share_in_words(result: Timed) -> str:
    """Return `96 % of the roofline`; empty where no copy time was measured along with the operation."""
    if not (result.floor and result.right):
        return ""
    return f"{100 * share(result, None, result.typical):.0f} % of the roofline"
