"""`python -m tools.gpu.verified --ranks 4`: `collbench verify`, all types and reductions, on ranks that share a GPU."""

import argparse
import re
import sys
from collections.abc import Sequence

from collbench.platforms.gpu import probe
from tools.gpu import said, scale, sweeps

_COUNTS = re.compile(r"^\d+ right, .*$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.verified", description="collbench verify on a GPU.")
    parser.add_argument("--ranks", type=int, default=4, help="that share the first GPU")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("checked")
    where = sweeps.sharing(scale.chosen().ranks(chosen.ranks))
    status, text = sweeps.printed(("verify", *where, *scale.chosen().verified))
    counts = _COUNTS.search(text)
    if counts:
        said.key(f"collbench verify: {counts[0]}")
    if status or not counts:
        return said.wrong(f"collbench verify {sweeps.how_it_ended(status)}: {said.reason(text)}")
    return said.GOOD


if __name__ == "__main__":
    sys.exit(main())
