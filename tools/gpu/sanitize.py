"""`python -m tools.gpu.sanitize --tool memcheck`: every rung under a tool of compute-sanitizer.

memcheck finds accesses outside of allocations, racecheck races in shared memory, synccheck barriers that some threads
miss.  The tools run one kernel after the other, which suits a grid with all ranks; NCCL's kernels, one a rank, would
wait for ever.  Exit status: said.py; a machine without compute-sanitizer skips.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from collbench.errors import CollbenchError, Unsupported
from collbench.platforms.gpu import probe
from tools.gpu import refusals, said
from tools.gpu.checks import SMALL, case, expect_right
from tools.gpu.places import ON_GPU, SCALE, Place, opened
from tools.gpu.stages import TOOLS

RANKS = (2, 4, 8)
SIZES = (SMALL, SCALE.sanitized)
FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")  # of toolkits, if it is not on the path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.sanitize", description="Every rung under compute-sanitizer.")
    parser.add_argument("--tool", choices=TOOLS, required=True)
    parser.add_argument("--inside", type=int, metavar="RANKS", help="what the tool watches")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("sanitized")
    if chosen.inside:
        return inside(chosen.inside)
    program = toolkit("compute-sanitizer")
    if not program:
        return said.skip("there is no compute-sanitizer on the path: it comes with the CUDA toolkit")
    return max(
        _under([program, "--tool", chosen.tool, "--error-exitcode", "9"], chosen.tool, ranks)
        for ranks in RANKS
        if ranks <= SCALE.most_ranks
    )


def toolkit(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))


def _under(prefix: list[str], tool: str, ranks: int) -> int:
    """Run the tool in one process for these ranks, and pass its output through."""
    command = [sys.executable, "-m", "tools.gpu.sanitize", "--tool", tool, "--inside", str(ranks)]
    status = subprocess.run([*prefix, *command], stderr=subprocess.STDOUT, check=False).returncode
    if status:
        return said.wrong(f"{tool} is NOT clean with {ranks} ranks: exit status {status}, its lines above say why")
    said.key(f"{tool} is clean with {ranks} ranks")
    return said.GOOD


def inside(ranks: int) -> int:
    """Run every rung at a few sizes, under the tool."""
    failures = 0
    for implementation in (way for way in ON_GPU if not way.library):
        try:
            with opened(Place(1, ranks, graph=False)) as platform:
                here = refusals.here_of(platform)
                expect_right(platform, implementation, [case(platform, nbytes=nbytes) for nbytes in SIZES])
            print(f"{implementation.name}, {ranks} ranks: ok", flush=True)
        except Unsupported as reason:
            defect = refusals.unjust(implementation.name, str(reason), here)
            failures += said.wrong(defect) if defect else 0
            print(f"{implementation.name}, {ranks} ranks: {said.SKIP}{reason}", flush=True)
        except (AssertionError, CollbenchError) as error:
            failures += said.wrong(f"{implementation.name}, {ranks} ranks: {error}")
    return min(failures, said.BAD)


if __name__ == "__main__":
    sys.exit(main())
