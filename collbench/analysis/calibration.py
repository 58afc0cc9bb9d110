"""Calibration of the model by runs, and its file."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from collbench.algorithms import is_path
from collbench.analysis.fit import measured
from collbench.analysis.machine import machine, sized
from collbench.errors import UsageError, write_file
from collbench.model import nccl_terms
from collbench.model.equation import Calibration, Terms, calibrate
from collbench.results import by_key, family
from collbench.runfile.store import Run
from collbench.topology.files import to_toml
from collbench.topology.system import System

FEWEST = 4  # sizes of the library
LIBRARY = "nccl"  # the library of the model's equation


def calibration(runs: Sequence[Run], name: str | None, nodes: int | None = None) -> tuple[System, Calibration]:
    """Return the machine of runs, and the factors that calibrate the model to their times.

    The machine is `name`, or that of the first run's header.  Ranks are spread over `nodes`, or over as few nodes as
    they fill.  UsageError if the machine is unknown or there are too few sizes of the library.
    """
    rows = [row for row in measured(runs) if family(row.implementation) == LIBRARY and not is_path(row.implementation)]
    system = machine(runs[0], name)
    sizes = {row.case.nbytes for row in rows}
    if len(sizes) < FEWEST:
        raise UsageError(
            f"a calibration needs {FEWEST} sizes or more of `{LIBRARY}`, and the runs have {len(sizes)}; "
            f"measure them with `collbench sweep --impl {LIBRARY}`"
        )

    # Pair each curve with the terms of the uncalibrated model.
    plain = replace(system, calibration="")
    curves: list[tuple[Terms, list[tuple[float, float]]]] = []
    for (collective, ranks), of_curve in by_key(rows, lambda row: (row.case.collective.name, row.case.ranks)).items():
        times = [(max(1.0, float(row.case.nbytes)), row.typical) for row in of_curve]
        curves.append((nccl_terms.terms(sized(plain, ranks, nodes), collective), times))

    # Return a system with all measured nodes, or the described one if it is large enough.
    most = max(row.case.ranks for row in rows)
    if nodes:
        plain = plain.of(nodes)
    elif most > plain.ranks:
        plain = sized(plain, most)
    return plain, calibrate(curves)


def write_calibration(path: Path, runs: Sequence[Run], name: str | None, nodes: int | None = None) -> Path:
    """Calibrate, and write the system with its factors; UsageError if it cannot be written."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: the name of a calibration must end in .toml, so that `--on FILE.toml` accepts it")
    system, factors = calibration(runs, name, nodes)
    ratios = [(nbytes, round(ratio, 4)) for nbytes, ratio in factors.ratios]
    rounded = {name: round(value, 4) for name, value in asdict(factors).items() if name != "ratios"}
    text = to_toml(system, rounded | {"ratios": ratios})
    write_file(path, text, "-o")
    return path
