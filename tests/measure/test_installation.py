"""Releases of collbench told apart, and launchers that start ranks on this machine whatever is around."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collbench import __version__
from collbench.host.launcher import unlaunched
from collbench.platforms.cpu.mpi_libraries import KINDS
from tests.conftest import ROOT, mpiexec
from tools.faults.surroundings import BATCH, STARTERS


@pytest.fixture
def other(tmp_path: Path) -> Path:
    for name in ("collbench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / "other" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "other"


def test_ranks_of_a_launcher_with_different_releases_are_refused(
    other: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    door = other / "collbench" / "__init__.py"
    door.write_text(door.read_text() + '\n__version__ = "0.0.1"\n')
    sweep = ("-P", "-m", "collbench", "sweep", "--on", "cpu", "-e", "8", "--no-plot", "--out", "out")
    ranks = [("-n", "1", "env", f"PYTHONPATH={root}", sys.executable, *sweep) for root in (ROOT, other)]
    command = [mpiexec(), *ranks[0], ":", *ranks[1]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: error")]
    assert f"rank 1 runs collbench 0.0.1, but rank 0 runs {__version__}: " in line
    assert not (tmp_path / "out").exists()


def started_here(system: str, folder: Path) -> None:
    """No program that starts processes elsewhere is called, and no variable of the batch system changes that."""
    folder.mkdir()
    for name in STARTERS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>{folder}/called\nexit 1\n")
        (folder / name).chmod(0o755)
    (folder / "nodes").write_text("elsewhere\n")
    variables = {name: value.replace("@", str(folder)) for name, value in BATCH[system].items()}
    given = unlaunched(os.environ | variables | {"PATH": f"{folder}:{os.environ['PATH']}"})
    hydra = str(Path(sys.executable).with_name("mpiexec"))
    brief = "echo here; sleep 0.3"  # of programs that end at once Hydra itself may die by SIGPIPE
    command = [hydra, *KINDS["mpich"].options, "-n", "2", "sh", "-c", brief]
    done = subprocess.run(
        command, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stdout) == (0, "here\nhere\n"), (system, done.stderr)
    assert not (folder / "called").exists(), system


QUICK = ("Slurm's allocation", "PBS", "HYDRA_HOST_FILE")


def test_hydra_starts_ranks_on_this_machine_within_a_batch_system(tmp_path: Path) -> None:
    for system in QUICK:
        started_here(system, tmp_path / system)


def test_every_hydra_is_told_to_start_ranks_here() -> None:
    for kind in KINDS.values():
        if "mpiexec.hydra" in kind.launchers and kind.key != "cray":  # whose launcher is mostly another
            assert kind.options == ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost"), kind.name
