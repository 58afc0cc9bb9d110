"""`python -m tools.gpu.measure` from a checkout with a GPU: sweeps to commit under results/.

Ranks sharing one GPU, and a rank on every GPU where there are several; or one of these, with --ranks, into a folder of
one's own with --out.  Exit status of the worst sweep: said.py.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.platforms.gpu import cuda, probe
from collbench.results import Measurement, Skipped
from collbench.runfile.store import Run
from collbench.units import format_rate, format_size
from tools.gpu import said, scale, sweeps
from tools.gpu.places import ON_GPU


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.measure", description="Sweeps of a GPU.")
    parser.add_argument(
        "--ranks", type=int, help="that share the first GPU; 0: one on every GPU; default: 2, 4, 8, all"
    )
    parser.add_argument("--pairs", action="store_true", help="messages between pairs of ranks, by NCCL")
    parser.add_argument("--out", type=Path, help="folder to make; default: one under results/")
    chosen = parser.parse_args(arguments)
    gpus = len(probe.memories())
    if not gpus:
        return said.no_gpu("measured")
    several = [0] if gpus > 1 else []
    if chosen.ranks == 0 and gpus < 2:
        return said.skip("there is one GPU only")
    arrangements = [chosen.ranks] if chosen.ranks is not None else [2, 4, 8, *several]
    arrangements = [*dict.fromkeys(map(scale.chosen().ranks, arrangements))]
    what = (scale.chosen().pairs, "nccl") if chosen.pairs else (scale.chosen().swept, sweeps.names())
    return max(sweep(ranks, chosen.out or named(ranks or gpus, 1 if ranks else gpus), *what) for ranks in arrangements)


def sweep(ranks: int, folder: Path, collectives: str, implementations: str) -> int:
    """One run file with its plots."""
    command = ("sweep", "--op", collectives, "--impl", implementations, *scale.chosen().sweep)
    try:
        found = sweeps.run(command, folder, ranks)
    except CollbenchError as error:
        return said.wrong(str(error))
    for line in best(found):
        said.key(line)
    if defects := sweeps.defects(found, ranks):
        return said.all_wrong(defects)
    reasons = {result.reason for result in found.results if isinstance(result, Skipped)}
    if all(isinstance(result, Skipped) for result in found.results):
        return said.skip("; ".join(sorted(reasons)))
    return said.GOOD if list(folder.glob("*.png")) else said.wrong(f"{folder} has no plot")


def best(found: Run) -> Iterator[str]:
    """The fastest implementation that is exact, of every collective at its smallest and its largest size."""
    exact = {way.name for way in ON_GPU if not way.wire}
    rows = [row for row in found.results if isinstance(row, Measurement) and row.right and row.implementation in exact]
    for name in dict.fromkeys(row.case.collective.name for row in rows):
        of_it = [row for row in rows if row.case.collective.name == name]
        for nbytes in dict.fromkeys((of_it[0].case.nbytes, of_it[-1].case.nbytes)):
            first = min((one for one in of_it if one.case.nbytes == nbytes), key=lambda one: one.typical)
            took = f"{first.typical * 1e6:.2f} us, algbw {format_rate(first.algbw)} GB/s"
            yield f"{name} of {format_size(nbytes)}, {first.case.ranks} ranks: {first.implementation} is first, {took}"


def named(ranks: int, gpus: int) -> Path:
    """`results/nvidia-h200-1-gpu-4-ranks-2026-11-22`."""
    return Path("results", f"{device_name()}-{gpus}-gpu{'s' if gpus > 1 else ''}-{ranks}-ranks-{date.today()}")


def device_name() -> str:
    """`nvidia-h200`, from a child, since whoever asks CUDA keeps the GPU open."""
    question = f"from {cuda.__name__} import load_cupy as load; "
    question += "print(load().cuda.runtime.getDeviceProperties(0)['name'].decode())"
    done = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    return re.sub(r"[^a-z0-9]+", "-", done.stdout.strip().lower())


if __name__ == "__main__":
    sys.exit(main())
