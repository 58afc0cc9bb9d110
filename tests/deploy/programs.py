"""Programs and files that the tests of deploy/ share."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
SLOWED = ROOT / "results" / "cpu-ab-slowed-ring"
GOOD, SLOW = (
    f"--run {SLOWED}/{run} --reference {SLOWED}/as-is --slower 10%" for run in ("as-is", "COLLBENCH_KERNELS=my-kernels")
)
"""Options with which a check measures nothing, and is OK or SLOW."""
FIX = "make test-deploy, and apt-get install prometheus slurm-wlm munge iproute2 openssh-server"


def program(name: str) -> str:
    """The program's path; where there is none the test is skipped, and under CI it fails."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    path = shutil.which(name, path=beside)
    if path is None:
        missing = f"{name} is not installed: {FIX}"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=250, **options)


def passes(*words: str | Path, **options: Any) -> str:
    """Carry a command out that must not complain, and return its output."""
    done = run(program(str(words[0])), *words[1:], **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def written(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def stand_in(folder: Path, name: str, script: str) -> Path:
    """Make a program of that name in a folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return folder


def collbench_with(folder: Path, options: str) -> Path:
    """Make a `collbench` in a folder that is the real one, with more options behind what it is given."""
    return stand_in(folder, "collbench", f'exec {sys.executable} -m collbench "$@" {options}')
