"""`python -m tools.gpu.settings --out FOLDER`: `collbench sweep --ab` on ranks that share a GPU, under two settings."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.analysis.compare import compare
from collbench.commands.sweep.ab import AS_IS
from collbench.errors import CollbenchError
from collbench.platforms.gpu import probe
from collbench.runfile.store import read
from tools.gpu import said, scale, sweeps


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.settings", description="A sweep under two settings.")
    parser.add_argument("--ranks", type=int, default=4, help="that share the first GPU")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("measured")
    command = ("sweep", "--no-plot", "--out", str(chosen.out), *sweeps.sharing(scale.chosen().ranks(chosen.ranks)))
    status, _ = sweeps.printed((*command, *scale.chosen().settings))
    try:
        folders = sorted((path.parent for path in chosen.out.glob("*/run.jsonl")), key=lambda path: path.name != AS_IS)
        runs = list(map(read, folders))
        defects = [defect for run in runs for defect in sweeps.defects(run, chosen.ranks)]
        if len(runs) == 2:
            said.key(f"B against A: {compare(*runs).counts}")
    except CollbenchError as error:
        return said.wrong(str(error))
    if len(runs) != 2:
        defects.append(f"collbench sweep --ab left {len(runs)} run files, exit status {status}")
    return said.all_wrong(defects)


if __name__ == "__main__":
    sys.exit(main())
