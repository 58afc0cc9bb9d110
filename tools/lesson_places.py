"""Times of other machines for the lesson, predicted or measured: collbench/commands/lesson/assets/places.json."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.algorithms import choose, find, implementations
from collbench.commands.lesson import ASSETS
from collbench.commands.lesson.content import MODEL, LessonMachine
from collbench.commands.lesson.numbers import COMMITTED, EARLIER, Numbers, allreduce, constants_of
from collbench.errors import Unsupported
from collbench.model.predict import network_curve, on_ranks
from collbench.results import Prediction
from collbench.runfile.store import read
from collbench.topology import files
from collbench.topology.system import System, launched_in_graph
from tools import ONE_H100, ROOT

SIZES = tuple(2**power for power in range(3, 28))  # 8 B to 128 MiB
MEASURED = {
    "one-h100": ("one H100 shared by {} ranks", ONE_H100, ""),
    EARLIER: ("one H100 shared by {} ranks", "nvidia-h100-1-gpu-4-ranks", ""),
    COMMITTED: ("two cores of an Intel Xeon", "cpu-2-ranks", "cpu-2-ranks-explained"),
}
"""By the machine's name in the lesson's texts: the name on the page, the run in results/, and the run of explain."""
EXPLAINED_SIZES = (2**11, 2**19)  # sizes of the shares of time that the texts name


@dataclass(frozen=True)
class Described:
    """Some ranks of a described system, and how their operations are launched."""

    system: str
    name: str
    ranks: int = 8
    graph: bool = False

    def load(self) -> System:
        part = on_ranks(files.load(self.system), self.ranks)
        return launched_in_graph(part) if self.graph else part


DESCRIBED = {
    "dgx-h100": Described("dgx-h100", "8 H100 with NVLink, each operation launched"),
    "dgx-h100-graph": Described("dgx-h100", "8 H100 with NVLink, in a CUDA graph", graph=True),
    "dgx-b200-graph": Described("dgx-b200", "8 B200 with NVLink, in a CUDA graph", graph=True),
    "pcie4-l40s": Described("pcie4-l40s", "8 L40S over PCIe (of hand-written kernels a bound)"),
    "pcie4-l40s-no-p2p": Described("pcie4-l40s-no-p2p", "8 L40S over PCIe that cannot reach each other's memory"),
    "dgx-h100-2-nodes": Described("dgx-h100", "16 H100 in two nodes", ranks=16),
}
"""Machines with predicted times."""


def written() -> Iterator[tuple[Path, str]]:
    """Yield the file and its text, with a line for each curve."""
    places = {place: predicted(described) for place, described in DESCRIBED.items()}
    places |= {place: measured(*how) for place, how in MEASURED.items()}
    text = msgspec.json.encode(places).decode()
    yield ASSETS / "places.json", text.replace("},", "},\n").replace('"curves":{', '"curves":{\n') + "\n"


def predicted(described: Described) -> LessonMachine:
    system = described.load()
    rows = (row for name in choose("library,ladder", system.platform) for row in _curve(system, name))
    return _place(described.name, f"{MODEL}: {described.name}", system.ranks, Numbers.of(rows))


def measured(name: str, run: str, explained: str) -> LessonMachine:
    """Return the times of a run, without `auto`, and the shares of time of the run of explain."""
    found = read(ROOT / "results" / run)
    name, ranks = name.format(found.header.topology.ranks), found.header.topology.ranks
    rows = [row for row in found.results if row.implementation != "auto" and find(row.implementation)]
    date = found.header.started[:10]
    place = _place(name, f"measured on {name}, committed run of {date}", ranks, Numbers.of(rows), f"results/{run}")
    shares: dict[str, dict[int, dict[str, float]]] = {}
    known = Numbers.of(read(ROOT / "results" / explained).results).shares if explained else {}
    for (implementation, nbytes), parts in known.items():
        if nbytes in EXPLAINED_SIZES and implementation != "auto":
            shares.setdefault(implementation, {})[nbytes] = {part: _short(share) for part, share in parts.items()}
    return replace(place, date=date, shares=shares)


def _place(name: str, source: str, ranks: int, says: Numbers, run: str = "") -> LessonMachine:
    curves = {}
    for implementation, times in says.curves().items():
        curves[implementation] = {size: _short(seconds) for size, seconds in times.items()}
    return LessonMachine(name, source, ranks, *map(_short, constants_of(says) or ()), says.library, curves, run)


def _short(number: float) -> float:
    return float(f"{number:.7g}")


def _curve(system: System, name: str) -> Iterator[Prediction]:
    for nbytes in SIZES:
        case = allreduce(nbytes, system.ranks)
        try:
            implementations()[name].refuse(case)
            yield from network_curve(system, [case], name)
        except Unsupported:
            continue
