"""`make results`: measure the committed CPU runs anew, write the lesson from them, and print the constants that follow.

A run replaces its folder in results/ when it is complete.  Runs of described systems are predicted, runs of a GPU are
measured only if they are named.  The constants of collbench/platforms/cost.py are fitted to another machine
(results/cpu-2-ranks-epyc); tests/test_cost.py checks that `auto` chooses well by them on the new runs, too.  This takes
a quarter of an hour on a machine without other work.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from collbench.algorithms import implementations
from collbench.platforms.cost import Cost, Hardware, Wait
from collbench.results import Measurement
from collbench.runfile.store import read
from tools import ROOT

RESULTS = ROOT / "results"

_LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RUNS, ON_ONE_GPU = _LISTED["runs"], _LISTED["runs-of-one-gpu"]


def measure(folder: str, line: str, libraries: str) -> None:
    """Measure a run in a scratch folder, and replace the committed one; a run that fails leaves the old one."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as scratch:
        place = Path(scratch, folder)
        arguments = [word.format(mpi=libraries) for word in line.split()]
        command = [sys.executable, "-P", "-m", "collbench", *arguments, "--out", folder]  # the run file keeps this name
        print(f"\n$ collbench {' '.join(arguments)}", flush=True)
        subprocess.run(command, check=True, cwd=scratch, env=dict(os.environ, PYTHONPATH=str(ROOT)))
        old = RESULTS / folder
        committed = {path.name for path in old.iterdir()} if old.is_dir() else {path.name for path in place.iterdir()}
        for path in place.iterdir():
            if path.name not in committed:  # only the pictures that a document shows
                path.unlink()
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)


def rungs_of(folder: str, changed: str = "ring-pipelined") -> list[Measurement]:
    """Return the rows of a committed run with a cost, except for the implementation that has changed since then."""
    known = {name for name, way in implementations().items() if way.cost and name != changed}
    rows = read(RESULTS / folder).results
    return [row for row in rows if isinstance(row, Measurement) and row.implementation in known]


def _cost(row: Measurement) -> Cost:
    cost = implementations()[row.implementation].cost
    assert cost
    return cost(row.case)


def fitted(measured: list[Measurement]) -> Hardware:
    """Return the constants with the smallest squares of relative errors; packets limit costs that have packets."""
    names = [wait for wait in Wait if wait is not Wait.EVENT]
    rows = []
    for sample in measured:
        cost = _cost(sample)
        row = [cost.steps * (cost.wait is name) for name in names]
        row += [0, sample.case.nbytes * cost.packets] if cost.packets else [sample.case.nbytes * cost.memory, 0]
        rows.append([value / sample.typical for value in row])
    *waits, memory, packets = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0].tolist()
    return Hardware(0.0, dict(zip(names, waits, strict=True)), memory=1 / memory, packets=1 / packets)


def constants() -> str:
    """Return the values of `FITTED` and `_TURN` in collbench/platforms/cost.py for these runs."""
    found = fitted(rungs_of("cpu-2-ranks"))
    (crowded,) = (row for row in rungs_of("cpu-4-ranks-yield") if row.case.nbytes == 8)
    turn = crowded.typical / (_cost(crowded).steps * found.waits[Wait.FLAG])
    waits = ", ".join(f"{wait}: {seconds:.3g}" for wait, seconds in found.waits.items())
    return f"waits {{{waits}}}, memory {found.memory:.4g}, packets {found.packets:.4g}; _TURN {turn:.3g}"


@click.command()
@click.argument("folders", nargs=-1)
@click.option("--mpi", default="mpich,openmpi", show_default=True, help="Libraries, as for `collbench sweep --mpi`.")
def main(folders: Sequence[str], mpi: str) -> None:
    """Measure these runs anew, or all except for those of a GPU."""
    for folder in folders or RUNS:
        measure(folder, (RUNS | ON_ONE_GPU)[folder], mpi)
    print(f"\ncollbench/platforms/cost.py: {constants()}")
    subprocess.run([sys.executable, "-m", "tools.pages", "lesson", "readme"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
