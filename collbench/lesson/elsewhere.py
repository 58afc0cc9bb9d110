"""What is known of other machines: numbers that others published, curves of the model, and what was measured there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from collbench.algorithms import choose, implementations
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import Unsupported
from collbench.lesson import table
from collbench.lesson.content import MODEL, Place
from collbench.lesson.numbers import Numbers, ratio
from collbench.results import Measurement, Prediction
from collbench.topology import files
from collbench.topology.system import System, launched_in_graph

_SIZES = tuple(2**power for power in range(3, 28))  # 8 B to 128 MiB


@dataclass(frozen=True)
class Published:
    """A number that somebody published."""

    value: str  # with its unit, as a text quotes it
    what: str  # that was measured
    source: str


@cache
def published() -> Mapping[str, Published]:
    """Return every published number by its key."""
    texts = table("published")
    shared, found = texts["shared"], {key: Published(**each) for key, each in texts["p"].items()}
    return {key: replace(each, source=shared.get(each.source, each.source)) for key, each in found.items()}


def engines() -> str:
    """Return a Markdown table: NCCL's time over that of inference engines' fastest kernel, by machine and size."""
    measured = table("published")["engines"]
    lines = [f"| | {' | '.join(measured['sizes'])} |", "|---|" + "---|" * len(measured["sizes"])]
    for row in measured["rows"]:
        factors = (ratio(nccl / kernel) for nccl, kernel in zip(row["nccl"], row["kernel"], strict=True))
        lines.append(f"| {row['machine']}, {row['launch']} | {' | '.join(factors)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Described:
    """Some ranks of a described system, and how their operations are launched."""

    system: str
    name: str
    ranks: int = 8
    graph: bool = False

    def load(self) -> System:
        """Return that part of the system."""
        from collbench.model.steps import on_ranks  # takes a while to import

        part = on_ranks(files.load(self.system), self.ranks)
        return launched_in_graph(part) if self.graph else part


PLACES = {
    "dgx-h100": _Described("dgx-h100", "8 H100 with NVLink, each operation launched"),
    "dgx-h100-graph": _Described("dgx-h100", "8 H100 with NVLink, in a CUDA graph", graph=True),
    "dgx-b200-graph": _Described("dgx-b200", "8 B200 with NVLink, in a CUDA graph", graph=True),
    "pcie4-l40s": _Described("pcie4-l40s", "8 L40S over PCIe (of hand-written kernels a bound)"),
    "pcie4-l40s-no-p2p": _Described("pcie4-l40s-no-p2p", "8 L40S over PCIe that cannot reach each other's memory"),
    "dgx-h100-2-nodes": _Described("dgx-h100", "16 H100 in two nodes", ranks=16),
}
"""Where else the model says what implementations take."""


@cache
def measured() -> Mapping[str, Any]:
    """Return the machines whose times the package brings, by place (assets/measured.toml)."""
    return table("measured")


def source(place: str) -> str:
    """Return where the numbers of a place come from."""
    return f"{MODEL}: {PLACES[place].name}" if place in PLACES else f"measured on {measured()[place]['name']}"


def _measured(place: str) -> Iterator[Measurement]:
    machine = measured()[place]
    for name, times in machine["microseconds"].items():
        for nbytes, time in zip(machine["bytes"], times, strict=False):  # some end earlier
            yield Measurement(allreduce(nbytes, machine["ranks"]), name, "gpu", launches=1, seconds=(1e-6 * time,))


@cache
def numbers(place: str) -> Numbers:
    """Return the times of all-reduces in a place: by the model in PLACES, else as they were measured there."""
    if place not in PLACES:
        return Numbers.of(_measured(place))
    system = PLACES[place].load()
    return Numbers.of(row for name in choose("library,ladder", system.platform) for row in _curve(system, name))


def _curve(system: System, name: str) -> Iterator[Prediction]:
    from collbench.model.predict import network_curve  # takes a while to import

    for nbytes in _SIZES:
        case = allreduce(nbytes, system.ranks)
        try:
            implementations()[name].refuse(case)
            yield from network_curve(system, [case], name)
        except Unsupported:
            continue


def allreduce(nbytes: int, ranks: int) -> Case:
    """Return the sum of so many bytes of float."""
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, False)


@cache
def places() -> tuple[Place, ...]:
    """Return the curves of all places."""
    machines = {place: (described.name, described.ranks) for place, described in PLACES.items()}
    machines |= {place: (machine["name"], machine["ranks"]) for place, machine in measured().items()}
    found = []
    for place, (name, ranks) in machines.items():
        says = numbers(place)
        found.append(Place(name, source(place), ranks, *constants(says), says.library, says.curves()))
    return tuple(found)


def constants(measured: Numbers) -> tuple[float, float]:
    """Return seconds of a step, and bytes/s of a link: the least time of one step, and the most bytes in a time.

    A step is the least that `one-shot-ll` takes, where it was measured, since it has one.
    """
    rows = measured.timed.items()
    single = [row.typical for (name, _), row in rows if name == "one-shot-ll"]
    least = min(single or [row.typical for _, row in rows])
    rates = [row.case.nbytes * link_of(name, row.case) / row.typical for (name, _), row in rows]
    return least, max(rates)


def link_of(name: str, case: Case) -> float:
    """Return the bytes through the busiest link for a byte of the array; unknown: those of an ideal ring."""
    found = implementations().get(name)
    if found and found.cost:
        return found.cost(case).link
    return case.collective.bus_factor(case.ranks)
