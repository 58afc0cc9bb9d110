"""What a collective really sends over the busiest kind of link, beside its bus bandwidth."""

from dataclasses import dataclass

from collbench.cases import Case
from collbench.model.schedule import SCHEDULES
from collbench.results import Observed, Prediction
from collbench.topology.system import System
from collbench.units import format_rate, format_size


@dataclass(frozen=True)
class Traffic:
    """One direction: bytes for each byte of the array, and what the line carries at most."""

    per_byte: float
    line: float  # bytes/s
    where: str


def traffic(system: System, prediction: Prediction) -> Traffic:
    """What the algorithm that the library would choose sends."""
    return carried(system, prediction.case, prediction.algorithm)


def carried(system: System, case: Case, algorithm: str) -> Traffic:
    """Between nodes if there are several, else out of a GPU; of one of NCCL's algorithms.

    A ring carries the bus factor.  Switches that add take the array once and hand a GPU's share round: S*(1 + 1/n).
    A tree's edges carry S up and S down, 2*(N-1)/N*S a node on average.  An all-to-all sends each node's GPUs' parts.
    """
    ranks, nodes = case.ranks, system.nodes
    factor = case.collective.bus_factor(ranks)
    schedule = SCHEDULES.get(case.collective.name)  # what was measured need not have a model
    if nodes > 1 and system.nics:
        if schedule and schedule.leaving:
            factor = schedule.leaving(ranks, system.gpus)
        elif algorithm in ("tree", "nvlstree"):
            factor = 2 * (nodes - 1) / nodes
        return Traffic(factor, system.nics.rate * system.nics.per_node, "a node's network cards")
    if algorithm == "nvls" and schedule and schedule.both_ways:
        factor = 1 + 1 / ranks
    return Traffic(factor, system.promised, "a GPU's slot" if system.meets_over_pcie else "a GPU's NVLinks")


def in_words(system: System, measured: Observed, expected: Prediction) -> list[str]:
    """What went over the line at one size, what is usual there, and why busbw may be above it."""
    wire = traffic(system, expected)
    rate, usual = (wire.per_byte * measured.case.nbytes / seconds for seconds in (measured.typical, expected.seconds))
    words = [
        f"on the wire at {format_size(measured.case.nbytes)}: {format_rate(rate)} GB/s each way through {wire.where}, "
        f"{rate / wire.line:.0%} of the line's {format_rate(wire.line)}; usual there: {usual / wire.line:.0%}"
    ]
    bus = measured.case.collective.bus_factor(measured.case.ranks)
    if measured.busbw > wire.line and wire.per_byte < bus:
        words.append(
            f"busbw, {format_rate(measured.busbw)}, may be above the line: it counts {bus:.3g} bytes for each byte of "
            f"the array, as a ring sends, and {expected.algorithm} sends {wire.per_byte:.3g}"
        )
    return words
