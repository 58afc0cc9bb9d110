"""Programs for the people who build collbench, run by hand and nightly; tools/README.md lists them."""

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output_of(
    words: Sequence[str], folder: Path | str, tree: Path = ROOT, statuses: Collection[int] = (0,), **variables: str
) -> str:
    """Return what `collbench ...` of a source tree prints in a folder; SystemExit where it ends with another status."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment = kept | {"PYTHONPATH": str(tree)} | variables
    command = [sys.executable, "-P", "-m", "collbench", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        raise SystemExit(f"collbench {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
