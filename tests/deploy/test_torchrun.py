"""A real torchrun, where torch is installed: its wheel needs gigabytes, so nothing installs it for tests."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.results import Measurement, Skipped
from collbench.runfile.store import read
from tests.conftest import of_a_user

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed: pip install torch"),
]
SWEEP = ("sweep", "--on", "cpu", "--impl", "mpi,ring-flags", "-b", "64", "-e", "64", "-n", "3", "--no-plot")


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Two ranks by torchrun, whose agent has the store in which they meet."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "collbench",
    ]
    surroundings = of_a_user() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [*command, *words], cwd=folder, env=surroundings, capture_output=True, text=True, timeout=250, check=False
    )


def test_ranks_of_torchrun_meet_in_its_store(tmp_path: Path) -> None:
    done = started(tmp_path, *SWEEP, "--out", "out")
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    library, ring = run.results
    assert run.whole
    assert isinstance(library, Skipped)
    assert isinstance(ring, Measurement)
    assert ring.right
