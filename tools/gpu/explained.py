"""`python -m tools.gpu.explained --ranks 4 --out FOLDER`: `collbench explain` says of every rung where time goes."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.platforms.gpu import probe
from collbench.results import PARTS
from collbench.units import format_size
from tools.gpu import said, scale, sweeps


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.explained", description="Where the time goes, rung by rung.")
    parser.add_argument("--ranks", type=int, default=4, help="that share the first GPU")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    ranks = scale.chosen().ranks(chosen.ranks)
    if not probe.available():
        return said.no_gpu("explained")
    try:
        found = sweeps.run(
            ("explain", "--impl", sweeps.names(library=False), *scale.chosen().explained), chosen.out, ranks
        )
    except CollbenchError as error:
        return said.wrong(str(error))
    explained = sweeps.explanations(found)
    for result in explained:
        most = max(PARTS, key=result.share)
        took = f"{result.seconds * 1e6:.2f} us, {result.overhead:+.0%} with a log"
        said.key(f"{result.implementation}, {format_size(result.case.nbytes)}: {took}; {result.share(most):.0%} {most}")
    defects = sweeps.defects(found, ranks) or ([] if explained else ["nothing was explained"])
    return said.wrong("; ".join(defects)) if defects else said.GOOD


if __name__ == "__main__":
    sys.exit(main())
