"""`python -m tools.gpu.host_alone --out FOLDER`: `ring-host` alone and in a full sweep must take the same time.

What others left behind them (streams, graphs, communicators) must not slow it down, nor they it.  It is measured
alone, among all, and alone again; the medians of the lone runs, each size's mean, are held against those of the full.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.errors import CaseFailed, CollbenchError
from collbench.platforms.gpu import probe
from collbench.units import format_size
from tools.gpu import said, scale, sweeps

NAME = "ring-host"
RUNS = {"alone": NAME, "among-all": sweeps.names(), "alone-again": NAME}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.host_alone", description="ring-host alone and among all.")
    parser.add_argument("--ranks", type=int, default=4, help="that share the first GPU")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    ranks = scale.chosen().ranks(chosen.ranks)
    if not probe.available():
        return said.no_gpu("measured")
    try:
        runs = [measured(impl, chosen.out / name, ranks) for name, impl in RUNS.items()]
    except CollbenchError as error:
        return said.wrong(str(error))
    alone, full = sweeps.mean([runs[0], runs[2]]), runs[1]
    for name, nbytes in alone:
        both = f"{alone[name, nbytes] * 1e6:.1f} us alone, {full.get((name, nbytes), 0) * 1e6:.1f} us among all"
        said.key(f"{NAME}, {name} of {format_size(nbytes)}: {both}")
    apart = sweeps.disagreements(alone, full, scale.chosen().agreement)
    return said.wrong(f"{NAME} alone and among all: {'; '.join(apart)}") if apart else said.GOOD


def measured(impl: str, folder: Path, ranks: int) -> sweeps.Times:
    """The times of `ring-host` in a sweep of these; CaseFailed if that was cut."""
    command = ("sweep", "--op", "allreduce", "--no-plot", *scale.chosen().few, "--impl", impl)
    found = sweeps.run(command, folder, ranks)
    if said := sweeps.cut(found):
        raise CaseFailed(f"{folder.name}: {said[0]}")
    return sweeps.medians(found, NAME)


if __name__ == "__main__":
    sys.exit(main())
