"""The model brought to a machine by all of its measured curves together, written as a file for `--on FILE.toml`."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from collbench.analysis.fit.curve import FEWEST
from collbench.analysis.fit.runs import measured
from collbench.analysis.machine import machine, sized
from collbench.errors import UsageError, writing
from collbench.model import choice
from collbench.model.calibrate import calibrate
from collbench.model.equation import Calibration, Terms
from collbench.results import Observed
from collbench.runfile.store import Run
from collbench.topology.files import to_toml
from collbench.topology.system import System

LIBRARY = "nccl"  # whose times the model's equation describes


def calibration(runs: Sequence[Run], name: str | None, nodes: int | None = None) -> tuple[System, Calibration]:
    """The machine and its factors, each number of ranks spread over `nodes` of it, or on as few as they fill.

    UsageError if the runs cannot carry them.
    """
    rows = [row for row in measured(runs) if row.implementation == LIBRARY]
    system = machine(runs[0], name)
    sizes = {row.case.nbytes for row in rows}
    if len(sizes) < FEWEST:
        raise UsageError(
            f"a calibration needs {FEWEST} sizes or more of `{LIBRARY}`, and the runs have {len(sizes)}; "
            f"measure them with `collbench sweep --impl {LIBRARY}`"
        )
    curves = _curves(replace(system, calibration=""), rows, nodes)
    return replace(_whole(system, rows, nodes), calibration=""), calibrate(curves)


def _whole(system: System, rows: Sequence[Observed], nodes: int | None) -> System:
    """What the file is of: as many whole nodes as were measured, or as it is said to have if those are enough."""
    most = max(row.case.ranks for row in rows)
    if nodes:
        return system.of(nodes)
    return system if most <= system.ranks else sized(system, most)


def _curves(
    system: System, rows: Sequence[Observed], nodes: int | None
) -> list[tuple[Terms, list[tuple[float, float]]]]:
    """What the equation knows of each collective and number of ranks, and the times measured for it."""
    groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows:
        key = row.case.collective.name, row.case.ranks
        groups.setdefault(key, []).append((max(1.0, float(row.case.nbytes)), row.typical))
    return [(choice.terms(sized(system, ranks, nodes), name), times) for (name, ranks), times in groups.items()]


def write(path: Path, runs: Sequence[Run], name: str | None, nodes: int | None = None) -> Path:
    """Fit, and write the system with its factors; UsageError if it cannot be written."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a calibration's name must end in .toml, for `--on FILE.toml` to take it")
    system, factors = calibration(runs, name, nodes)
    text = to_toml(system, {name: round(value, 4) for name, value in asdict(factors).items()})
    with writing(path, "-o"):
        path.write_text(text, encoding="utf-8")
    return path
