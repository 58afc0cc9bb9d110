"""Rooflines: upper bounds of a machine for any algorithm, and the traffic of its busiest link.

The rates of links are in data sheets.  The rate of memory between ranks on CPUs is in none, so it is measured with
every case that exceeds the caches (collbench/measure/floor.py).
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
    """The roofline of a data sheet: the least time of an algorithm's traffic over the busiest kind of link."""

    per_byte: float  # bytes over the link in one direction per byte of the array
    line: float  # rate of the link, bytes/s
    where: str

    def seconds(self, nbytes: int) -> float:
        """Return the least time of an array of `nbytes` bytes."""
        return nbytes / (self.line / self.per_byte)

    def __str__(self) -> str:
        return f"line: {self.line / 1e9:.4g} GB/s, {self.where}"


def traffic(system: System, case: Case, algorithm: str) -> LinkRoofline:
    """Return the traffic of an algorithm of NCCL between nodes if there are several, else out of a GPU.

    A ring sends the bus factor.  Switches that add receive the array once and return a GPU's share to all: S*(1 + 1/n).
    A tree's edges carry S up and S down, 2*(N-1)/N*S per node on average.  An all-to-all sends the parts of each node's
    GPUs.
    """
    from collbench.model.schedule import SCHEDULES  # a slow import that sweeps on CPUs do not need

    ranks, nodes = case.ranks, system.nodes
    factor = 1.0 if case.collective.flights else case.collective.bus_factor(ranks)  # a message is sent once
    schedule = SCHEDULES.get(case.collective.name)  # None for a collective without a model
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
    """Return the measured and the usual traffic of the link at one size in words, and why busbw may exceed it."""
    wire = traffic(system, expected.case, expected.algorithm)
    sent = wire.per_byte * measured.case.nbytes
    rate, usual = sent / measured.typical, sent / expected.seconds
    words = [
        f"at {format_size(measured.case.nbytes)}, {format_rate(rate)} GB/s go through {wire.where} in each direction: "
        f"{rate / wire.line:.0%} of their {format_rate(wire.line)} (usual: {usual / wire.line:.0%})"
    ]

    # Trees, and switches that add, send less than busbw counts.
    bus = measured.case.collective.bus_factor(measured.case.ranks)
    if expected.algorithm and measured.busbw > wire.line and wire.per_byte < bus:
        words.append(
            f"busbw may be above that: it counts {bus:.3g} sent bytes per byte of the array, as in a ring; "
            f"{expected.algorithm} sends {wire.per_byte:.3g}"
        )
    return words


@dataclass(frozen=True)
class MemoryRoofline:
    """The roofline of memory: the time of all cores to move the fewest bytes that an operation must move."""

    case: Case  # of any size
    copy_times: Mapping[int, float]  # measured seconds by size, for sizes that exceed the caches

    def seconds(self, nbytes: int) -> float:
        """Return the least time of an array of `nbytes` bytes; NaN if caches may hold it."""
        return self.copy_times.get(nbytes, math.nan)

    def __str__(self) -> str:
        size = max(self.copy_times)
        read, written = replace(self.case, nbytes=size).traffic
        return (
            f"roofline: {format_seconds(self.copy_times[size])} at {format_size(size)} to read {format_size(read)} "
            f"and write {format_size(written)} of memory"
        )


def measured_roofline(results: Iterable[Result], kind: Case) -> MemoryRoofline | None:
    """Return the roofline of a kind of case from copies measured with its rows; None without any."""
    times: dict[int, list[float]] = {}
    for result in results:
        if not isinstance(result, Measurement) or result.case.kind != kind:
            continue
        if result.right and not result.disturbed and result.floor:
            times.setdefault(result.case.nbytes, []).append(result.floor)
    return MemoryRoofline(kind, {nbytes: median(every) for nbytes, every in times.items()}) if times else None


def roofline(run: Run, case: Case, name: str | None = None) -> LinkRoofline | MemoryRoofline:
    """Return the roofline of a case: from copies measured with its kind, else from a data sheet.

    The system is that of a predicted run, the system `name`, or the discovered one.  UsageError if the roofline is
    unknown: ranks on CPUs without large messages, ranks that share a GPU, MIG slices, or an unknown network.
    """
    measured = measured_roofline(run.results, case.kind)
    if measured:
        return measured
    if case.ranks < 2:
        raise UsageError("one rank sends nothing")
    if case.collective.parts > 1:
        raise UsageError(f"the links of a {case.collective.name} are unknown; see --view latency")
    system = run.header.topology.system  # of a predicted run
    if not system:
        if run.header.topology.platform == "cpu":
            raise UsageError("no message exceeds the caches, and only then is memory the bound of ranks on CPUs")
        from collbench.analysis.machine import machine, sized, stated_nodes

        whole = machine(run, name)
        system = sized(whole, case.ranks, stated_nodes(whole, run))
    return link_roofline(system, case)


def link_roofline(system: System, case: Case) -> LinkRoofline:
    """Return the roofline of a system's links, by the algorithm with the least traffic over the busiest link."""
    sharp = system.nics is not None and system.nics.sharp
    algorithms = ("ring", "tree", *["nvls"] * system.adds, *["collnet"] * sharp)
    loads = [traffic(system, case, algorithm) for algorithm in algorithms]
    return min(loads, key=lambda load: load.per_byte / load.line)


def share(result: Timed, limit: LinkRoofline | MemoryRoofline | None, seconds: float) -> float:
    """Return the attained fraction of the roofline; the result's own measured roofline counts first."""
    if result.floor:
        return result.floor / seconds
    return (limit.seconds(result.case.nbytes) if limit else math.nan) / seconds


def share_in_words(result: Timed) -> str:
    """Return `96 % of the roofline`; empty without a copy time measured with the operation."""
    if not (result.floor and result.right):
        return ""
    return f"{100 * share(result, None, result.typical):.0f} % of the roofline"
