"""The bandwidth that a machine's links allow a collective at most, whatever the algorithm."""

from dataclasses import dataclass

from collbench.analysis.machine import discovered, machine, sized
from collbench.analysis.traffic import carried
from collbench.cases import Case
from collbench.errors import UsageError
from collbench.runs.file import Run
from collbench.topology.system import System
from collbench.topology.topology import from_record


@dataclass(frozen=True)
class Bound:
    """Nothing is faster over the busiest line, whatever the algorithm."""

    rate: float  # bytes of the array per second
    line: float  # bytes/s of one direction of it
    per_byte: float  # bytes over it for each byte of the array, by the algorithm that sends least
    where: str

    def __str__(self) -> str:
        return f"bound: {self.line / 1e9:.4g} GB/s, {self.where}"


def bound(run: Run, case: Case, name: str | None = None) -> Bound:
    """The bound of a case by the line rate of the system of a run: its data sheet's, never a measured one.

    The system is the described one of a predicted run, the one that `name` names, or the one discovered.  UsageError
    with the reason where no line rate is known: ranks on CPUs, ranks that share a GPU, nodes joined by who knows what.
    """
    if case.ranks < 2:
        raise UsageError("one rank sends nothing")
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
        raise UsageError("nothing says what the memory between ranks on CPUs carries at most")
    if topology and topology.shared:
        raise UsageError("ranks that share a GPU have no line between them")
    return sized(machine(run, name), ranks)
