"""Whole commands on a machine with made-up GPUs (described.py), as a user runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools import ROOT
from tools.stand_in.ipc import build_driver

MADE_UP = ROOT / "tools" / "stand_in" / "made_up"
SECONDS = 60  # for a command


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a process that finds the made-up driver, and none of a launcher's variables."""
    hidden = ("PMI", "OMPI", "MPI_", "SLURM", "NCCL", "CUDA")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return kept | {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(folder), "TMPDIR": str(folder)}


def on_gpus(
    folder: Path,
    *words: str,
    launcher: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    module: str = "collbench",
    **machine: Any,
) -> subprocess.CompletedProcess[str]:
    """`collbench ...`, or another module, in that folder to its end, on a machine with these fields."""
    build_driver(folder, machine["devices"])
    environment = surroundings(folder) | {"MADE_UP_MACHINE": json.dumps({"multiprocessors": 8} | machine)}
    environment["PYTHONPATH"] = os.pathsep.join((str(MADE_UP), str(ROOT)))
    environment |= variables
    return subprocess.run(
        [*launcher, sys.executable, "-m", module, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
