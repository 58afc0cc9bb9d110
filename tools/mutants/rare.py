"""Count how often a sweep sees a wrong sum that only one launch in N has: `python -m tools.mutants.rare [RUNS]`.

The kernel spoils its first element in launches that a hash of their number draws.  A row is seen to be wrong with the
probability that one of its checked launches is drawn, 1 - (1 - 1/N)^checked; the share tells how many were checked.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from collbench.cases import USUAL_STARTS
from collbench.measure.checks import MOST
from collbench.results import Outcome
from collbench.runfile.store import read
from tools.mutants.trial import Mutant, Trial, copied, environment

SPOILED = """
  unsigned drawn = call.number * 0x9E3779B9u;
  drawn = (drawn ^ drawn >> 15) * 0x85EBCA6Bu;
  if (!rank && !call.block && !threadIdx.x && (drawn ^ drawn >> 13) % {rarity} == 7) target[0] ^= 1;
  call.leave();
"""
TRIAL = Trial("one-shot-ll", size="4K", more=("-b", "8", "-f", "2"))
LEAST, MOST_CHECKED = USUAL_STARTS * (1 + 16 + 1), USUAL_STARTS * (1 + MOST + 32 + 1)
"""Launches of a small case that are checked: of each start the first, those back to back, with delays, and the last."""


def main(runs: int) -> int:
    """Print a line for each N; exit status 1 where fewer or more are seen than follows from the launches."""
    off = []
    with tempfile.TemporaryDirectory() as scratch:
        for rarity in (10, 100, 1000, 10_000):
            changes = (("  call.leave();\n", SPOILED.replace("{rarity}", str(rarity)).lstrip("\n")),)
            mutant = Mutant(f"one in {rarity}", "kernels/one_shot_ll.cu", changes, TRIAL)
            rows = []
            with copied(Path(scratch), mutant) as place:
                for run in range(runs):
                    command = [sys.executable, "-P", "-m", "collbench", *TRIAL.words(place / f"out{run}")]
                    variables = dict(environment(place, TRIAL, Path(scratch, "cache")))
                    subprocess.run(command, cwd=place, env=variables, capture_output=True, check=False)
                    rows += read(place / f"out{run}").results
            seen = sum(row.outcome is not Outcome.OK for row in rows)
            low, high = (len(rows) * (1 - (1 - 1 / rarity) ** checked) for checked in (LEAST, MOST_CHECKED))
            sys.stdout.write(f"one launch in {rarity:,}: {seen} of {len(rows)} rows, of {low:.1f} to {high:.1f}\n")
            off.append(not low - 3 * low**0.5 <= seen <= high + 3 * high**0.5)
    return int(any(off))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
