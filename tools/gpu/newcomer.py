"""`python -m tools.gpu.newcomer sweep --out FOLDER`: commands as a user of one GPU gives them, with all defaults.

`sweep` is `collbench sweep --op allreduce`; `check` is `collbench check` twice, the second compared with the first.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.platforms.gpu import probe
from collbench.runfile.store import read
from tools.gpu import said, scale, sweeps
from tools.gpu.measure import best


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.newcomer", description="A user's first commands.")
    parser.add_argument("command", choices=("sweep", "check"), help="of collbench")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("measured")
    try:
        return swept(chosen.out) if chosen.command == "sweep" else checked(chosen.out)
    except CollbenchError as error:
        return said.wrong(str(error))


def swept(folder: Path) -> int:
    """The fastest at the smallest and the largest size, and what is wrong with any row."""
    status, text = sweeps.printed(("sweep", "--op", "allreduce", "--out", str(folder), *scale.chosen().newcomer))
    if not (folder / "run.jsonl").exists():
        return said.wrong(f"collbench sweep {sweeps.how_it_ended(status)}: {said.reason(text)}")
    run = read(folder)
    for line in best(run):
        said.key(line)
    return said.all_wrong(sweeps.defects(run, run.header.sweep.ranks))


def checked(folder: Path) -> int:
    """Both verdicts; the second must be compared with the first, whatever comes of it."""
    os.environ["COLLBENCH_STATE"] = str(folder.absolute())
    for _ in range(2):
        status, text = sweeps.printed(("check", *scale.chosen().checked))
        said.key(said.last(text))
    if "earlier good run" not in text:
        return said.wrong(f"the second collbench check {sweeps.how_it_ended(status)}: {said.last(text)}")
    return said.GOOD


if __name__ == "__main__":
    sys.exit(main())
