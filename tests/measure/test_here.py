"""Hydra, where that starts ranks, starts them on this machine, whatever batch system or file of hosts is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.launcher import unlaunched
from collbench.platforms.cpu.libraries import KINDS
from tools.faults.surroundings import BATCH, STARTERS

HYDRA = Path(sys.executable).with_name("mpiexec")
BRIEF = "echo here; sleep 0.3"
"""What is started; of programs that end at once Hydra itself may die by SIGPIPE, as it writes to its proxy of them."""


@pytest.mark.parametrize("system", BATCH)
def test_ranks_are_started_here(system: str, tmp_path: Path) -> None:
    """No program that starts processes elsewhere is called, and no variable of its own changes that."""
    for name in STARTERS:
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/called\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("elsewhere\n")
    variables = {name: value.replace("@", str(tmp_path)) for name, value in BATCH[system].items()}
    given = unlaunched(os.environ | variables | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    command = [str(HYDRA), *KINDS["mpich"].options, "-n", "2", "sh", "-c", BRIEF]
    done = subprocess.run(
        command, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "here\nhere\n"), done.stderr
    assert not (tmp_path / "called").exists()


def test_every_hydra_is_told_so() -> None:
    """The options that this page of tests is about."""
    for kind in KINDS.values():
        if "mpiexec.hydra" in kind.launchers and kind.key != "cray":  # whose launcher is mostly another
            assert kind.options == ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost"), kind.name
