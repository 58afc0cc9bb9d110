"""Ranks on two hosts that only a network joins, started by the launchers of MPICH and of Open MPI."""

import shutil
import sys
from pathlib import Path

import pytest

from collbench.results import Measurement
from collbench.results.collectives import Skipped
from collbench.runfile.store import Run, read
from tests.conftest import of_a_user
from tests.deploy.hosts import Host, two_hosts

pytestmark = pytest.mark.deploy

AGENT = {  # the variables by which launchers are told of a program in the place of ssh
    "mpich": lambda agent: {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent},
    "openmpi": lambda agent: {"OMPI_MCA_plm_rsh_agent": agent},
}
MEGABITS = 100
PAYLOAD = 1448 / 1514
"""The share of an Ethernet frame of 1514 bytes, which the limit counts, that is data: the headers of Ethernet take 14,
of IPv4 20, and of TCP with time stamps 32."""


def swept(host: Host, launcher: str, folder: Path, hosts: str, *words: str) -> tuple[Run, str]:
    """A sweep that is started by what `collbench launch` makes, with its stderr."""
    launch = ("launch", "--launcher", launcher, "--hosts", hosts, "--go", "--")
    sweep = ("sweep", "--on", "cpu", "-n", "5", "--no-plot", "--out", launcher, *words)
    agent = AGENT[launcher](str(host.agent))
    done = host.run(sys.executable, "-m", "collbench", *launch, *sweep, cwd=folder, env=of_a_user() | agent)
    assert done.returncode == 0, (launcher, done.stderr)
    return read(folder / launcher), done.stderr


def test_a_sweep_on_two_hosts_says_so_and_measures_their_cable_and_skips_what_needs_one_memory(
    tmp_path: Path,
) -> None:
    """Of a broadcast n bytes take the cable one way, and the fastest sample counts, as other programs delay ranks.

    Hosts with different numbers of ranks measure too, where those of a single host share its core.
    """
    expected = MEGABITS * 1e6 / 8 * PAYLOAD
    with two_hosts(tmp_path, f"{MEGABITS}mbit") as alpha:
        for launcher in ("mpich", *(["openmpi"] if shutil.which("mpirun.openmpi") else [])):
            words = ("--impl", "mpi,ring-flags", "--op", "broadcast", "-b", "4M", "-e", "4M")
            run, said = swept(alpha, launcher, tmp_path, "alpha:1,bravo:1", *words)
            assert run.header.environment.host == "alpha", launcher
            assert run.header.topology.name.startswith("2 ranks on 2 nodes, the first with "), launcher
            assert "2 ranks on 2 nodes" in said, launcher
            results = {result.implementation: result for result in run.results}
            library, ring = results["mpi"], results["ring-flags"]
            assert isinstance(library, Measurement), (launcher, library)
            assert library.right, launcher
            assert library.case.nbytes / min(library.times) == pytest.approx(expected, rel=0.1), launcher
            assert isinstance(ring, Skipped), launcher
            assert "is on another node" in ring.reason, launcher
            shutil.rmtree(tmp_path / launcher)
            (row,) = swept(alpha, launcher, tmp_path, "alpha:1,bravo:2", "--impl", "mpi", "-e", "8")[0].results
            assert isinstance(row, Measurement), launcher
            assert (row.case.ranks, row.right) == (3, True), launcher
