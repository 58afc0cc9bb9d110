"""A real torchrun, where torch is installed: its wheel needs gigabytes, so nothing installs it for tests."""

import importlib.util
import sys
from pathlib import Path

import pytest

from collbench.results import Measurement, Skipped
from collbench.runfile.store import read
from tests.conftest import of_a_user
from tests.deploy.programs import run

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed: pip install torch"),
]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "collbench")
SWEEP = ("sweep", "--on", "cpu", "--impl", "mpi,ring-flags", "-b", "64", "-e", "64", "-n", "3", "--no-plot")


def test_ranks_of_torchrun_meet_in_its_store(tmp_path: Path) -> None:
    done = run(sys.executable, *TORCHRUN, *SWEEP, "--out", "out", cwd=tmp_path, env=of_a_user())
    assert done.returncode == 0, done.stderr
    measured = read(tmp_path / "out")
    library, ring = measured.results
    assert measured.whole
    assert isinstance(library, Skipped)
    assert isinstance(ring, Measurement)
    assert ring.right
