"""`make results`: measures the committed runs anew, those of a GPU only if they are named, and says what follows.

Each run replaces its folder in results/ once it is whole.  Then the lessons are written anew, and what must be
copied by hand is printed: where the README's table is, and what constants of collbench/platforms/cost.py would
follow.  Those there are fitted to another machine (results/cpu-2-ranks-epyc); tests/test_cost.py says whether `auto`
chooses well by them here too.
Wants a machine on which nothing else runs, for a quarter of an hour; runs of described systems are predicted.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from collbench.algorithms import implementations
from collbench.platforms.cost import Cost, Hardware, Wait
from collbench.results import Measurement
from collbench.runfile.store import read
from tools import ROOT

RESULTS = ROOT / "results"

RUNS = {
    "cpu-2-ranks": "sweep --op allreduce --on cpu",
    "cpu-2-ranks-libraries": "sweep --op allreduce --on cpu --mpi {mpi}",
    "cpu-2-ranks-explained": "explain --on cpu -b 8 -e 128M -f 256",
    "cpu-4-ranks-yield": "sweep --on cpu --ranks 4 -e 128 -f 16 --impl mpi,ring-flags --spin yield",
    "cpu-4-ranks-busy": "sweep --on cpu --ranks 4 -e 128 -f 16 --impl mpi,ring-flags --spin busy",
    "cpu-4-ranks-scale": "step scale --on cpu --ranks 1,2,4 --mode both --budget 4",
    "cpu-2-ranks-overlap": "step overlap --on cpu",
    "cpu-2-ranks-narrow": "sweep --on cpu --impl mpi,auto,narrow -b 4K -e 64M",
    "cpu-4-ranks-bits": (
        "verify --bits --on cpu -g 2,3,4 -e 64K --impl mpi,ring-flags,one-shot-ll,two-shot,auto,narrow"
    ),
    "cpu-4-ranks-pairs": "scan --pairs --on cpu --ranks 4 --impl mpi",
    "cpu-2-ranks-jitter": "step scale --on cpu --ranks 2",
    "cpu-2-ranks-jitter-slow": "step scale --on cpu --ranks 2 --slow-rank 1:1.5",
    "cpu-2-ranks-styles-even": "step strategies --on cpu --target 0.28",
    "cpu-2-ranks-styles": "step strategies --on cpu --slow-rank 1 --target 0.28",
    "dgx-h100-scale": "step scale --on dgx-h100 --ranks 8..4096",
    "dgx-h100-overlap": "step overlap --on dgx-h100 --ranks 64",
    "dgx-h100-narrow": "predict dgx-h100 --impl library,two-shot,narrow -b 4K -e 4G",
    "dgx-a100-train": (
        "train --model gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536 --scale 8..8192 "
        "--compare-interconnects dgx-h100,ethernet-100g-tcp,gb200-nvl72 --price 2.5"
    ),
    "pcie4-4090-p2p-narrow": "predict pcie4-4090-p2p --impl library,two-shot,narrow -b 4K -e 4G",
}
"""The command that measures each run, by its folder; `{mpi}` stands for the libraries."""
ON_ONE_GPU = {
    "nvidia-h100-1-gpu-4-ranks": "sweep --op allreduce --on gpu --ranks 4 --impl library,ladder -b 8 -e 256M -f 4",
    "nvidia-h100-1-gpu-4-ranks-three": (
        "sweep --op allreduce,broadcast,allgather --on gpu --ranks 4 "
        "--impl nccl,ring-host,ring-pipelined,one-shot-ll,two-shot -b 1K -e 256M -f 16"
    ),
    "nvidia-h100-1-gpu-4-ranks-explained": "explain --impl ladder,narrow -b 64K -e 16M -f 256 --on gpu --ranks 4",
}


def measure(folder: str, line: str, libraries: str) -> None:
    """Into a folder beside, so that a run that fails leaves the old one."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as scratch:
        place = Path(scratch, folder)
        arguments = [word.format(mpi=libraries) for word in line.split()]
        command = [sys.executable, "-P", "-m", "collbench", *arguments, "--out", folder]  # which the run file keeps
        print(f"\n$ collbench {' '.join(arguments)}", flush=True)
        subprocess.run(command, check=True, cwd=scratch, env=dict(os.environ, PYTHONPATH=str(ROOT)))
        old = RESULTS / folder
        committed = {path.name for path in old.iterdir()} if old.is_dir() else {path.name for path in place.iterdir()}
        for path in place.iterdir():
            if path.name not in committed:  # of a long list of pictures those that a document shows
                path.unlink()
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)


def rungs_of(folder: str, changed: str = "ring-pipelined") -> list[Measurement]:
    """The rows of a committed run that have costs, but of the implementation that has changed since then."""
    known = {name for name, way in implementations().items() if way.cost and name != changed}
    rows = read(RESULTS / folder).results
    return [row for row in rows if isinstance(row, Measurement) and row.implementation in known]


def _cost(row: Measurement) -> Cost:
    cost = implementations()[row.implementation].cost
    assert cost
    return cost(row.case)


def fitted(measured: list[Measurement]) -> Hardware:
    """The constants with the least squares of relative errors; packets set the pace where there are any."""
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
    """What `FITTED` and `_TURN` in collbench/platforms/cost.py would be by these runs."""
    found = fitted(rungs_of("cpu-2-ranks"))
    (crowded,) = (row for row in rungs_of("cpu-4-ranks-yield") if row.case.nbytes == 8)
    turn = crowded.typical / (_cost(crowded).steps * found.waits[Wait.FLAG])
    waits = ", ".join(f"{wait}: {seconds:.3g}" for wait, seconds in found.waits.items())
    return f"waits {{{waits}}}, memory {found.memory:.4g}, packets {found.packets:.4g}; _TURN {turn:.3g}"


def main() -> None:
    """All of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="default: all but those of a GPU")
    parser.add_argument("--mpi", default="mpich,openmpi", help="libraries, as for `collbench sweep --mpi`")
    options = parser.parse_args()
    for folder in options.folders or RUNS:
        measure(folder, (RUNS | ON_ONE_GPU)[folder], options.mpi)
    print(f"\ncollbench/platforms/cost.py: {constants()}")
    subprocess.run([sys.executable, "-m", "tools.pages", "lesson"], check=True, cwd=ROOT)
    print("README.md: its table is what the first sweep printed, its factors are in docs/lesson.md")


if __name__ == "__main__":
    main()
