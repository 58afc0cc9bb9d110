"""Ranks that must share cores: MPI is started so that it yields there, and without locks elsewhere."""

import os
import re
import subprocess
import sys
from typing import NoReturn

import pytest

from collbench.platforms import processes
from tests.conftest import ROOT, mpiexec

LEVELS = """
from collbench.platforms.mpi_processes import MpiProcesses
world = MpiProcesses.of_world()
from mpi4py import MPI
print({MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_MULTIPLE: "multiple"}[MPI.Query_thread()])
"""


def test_more_processes_than_cores_are_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getppid()
    for own, of_parent, started, crowded in (
        (2, 2, 2, False),
        (2, 2, 3, True),
        (1, 8, 8, False),  # each bound to a core
        (1, 4, 8, True),  # to one that another is bound to as well
        (2, None, 2, False),  # a container's first process
        (2, None, 3, True),
    ):
        cores = {0: range(own)} | ({parent: range(of_parent)} if of_parent else {})
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(cores.get(pid) or no_such_process()))
        monkeypatch.setattr(processes, "neighbours", lambda started=started: started)
        assert processes.crowded() is crowded, (own, of_parent, started)


def no_such_process() -> NoReturn:
    raise ProcessLookupError


def test_mpi_yields_only_where_ranks_share_a_core() -> None:
    for ranks, level in ((1, "funneled"), (2, "multiple")):
        done = subprocess.run(
            [mpiexec(), "-n", str(ranks), sys.executable, "-c", LEVELS],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert re.findall(r"funneled|multiple", done.stdout) == ranks * [level], done.stderr  # in whatever lines
