# ruff: noqa: T201 - a program of its own, which prints
"""`python -m tests.gpu.sanitize` from a checkout with a GPU: every rung under compute-sanitizer.

memcheck finds accesses outside of what was allocated, racecheck races in shared memory.  Both run kernels one after
the other, which a grid that holds all ranks survives; NCCL's kernels, one a rank, would wait for ever.
Exit status 0 clean, 1 not, 2 where there is no GPU or no compute-sanitizer.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from collbench.errors import CollbenchError, Unsupported
from collbench.platforms import gpu
from tests.gpu.checks import ON_GPU, SMALL, Place, case, expect_right, opened

TOOLS = ("memcheck", "racecheck")
RANKS = (2, 4, 8)
SIZES = (SMALL, 40_012)
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")  # where toolkits put it, should it not be on the path
PATIENCE = 500  # seconds for one tool


def main() -> int:
    tool = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    if not gpu.available() or not tool:
        missing = "compute-sanitizer" if gpu.available() else "GPU"
        print(f"collbench: error: no {missing} here, so nothing was sanitized", file=sys.stderr)
        return 2
    return max(_under([tool, "--tool", name, "--error-exitcode", "9"], name) for name in TOOLS)


def _under(prefix: list[str], name: str) -> int:
    command = [*prefix, sys.executable, "-m", __spec__.name if __spec__ else "tests.gpu.sanitize", "inside"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "=====" in line or "error" in line]
    print(f"{name}: {'clean' if done.returncode == 0 else 'NOT clean'}: {said[-1] if said else 'nothing said'}")
    if done.returncode:
        print("\n".join(said[:40]))
        Path(f"sanitize-{name}.log").write_text(done.stdout + done.stderr)
    return int(bool(done.returncode))


def inside() -> None:
    """What the tools watch: every rung, a few sizes."""
    for ranks in RANKS:
        for implementation in ON_GPU:
            if implementation.library:
                continue
            try:
                with opened(Place(1, ranks, graph=False)) as platform:
                    expect_right(platform, implementation, [case(platform, nbytes=nbytes) for nbytes in SIZES])
            except Unsupported as reason:
                print(f"{implementation.name}, {ranks} ranks: skipped: {reason}")
            except (AssertionError, CollbenchError) as error:
                print(f"error: {implementation.name}, {ranks} ranks: {error}")
                sys.exit(1)


if __name__ == "__main__":
    sys.exit(inside() if "inside" in sys.argv else main())
