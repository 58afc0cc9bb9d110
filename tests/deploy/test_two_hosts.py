"""Ranks on two hosts that only a network joins, started by the launchers of MPICH and of Open MPI."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.results import Measurement, Result
from collbench.results.collectives import Skipped
from collbench.runfile.header import Header
from collbench.runfile.store import read
from tests.conftest import ROOT, of_a_user
from tests.deploy.hosts import ADDRESSES, Host, lacking, refused, two_hosts

pytestmark = pytest.mark.deploy

AGENT = {  # the variables by which launchers are told of a program in the place of ssh
    "mpich": lambda agent: {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent},
    "openmpi": lambda agent: {"OMPI_MCA_plm_rsh_agent": agent},
}
MEGABITS = 100
PAYLOAD = 1448 / 1514
"""The share of an Ethernet frame of 1514 bytes, which the limit counts, that is data: the headers of Ethernet take 14,
of IPv4 20, and of TCP with time stamps 32."""


@pytest.fixture(autouse=True)
def possible() -> None:
    """Skip where there can be no hosts on a user's machine; what can be installed is missing nowhere in CI."""
    if missing := lacking():
        if "CI" in os.environ:
            pytest.fail(f"missing: {missing} (Debian's packages iproute2 and util-linux)")
        pytest.skip(f"missing: {missing}")
    if reason := refused():
        pytest.skip(reason)


def launchers() -> list[str]:
    """The MPI libraries here whose ranks can be on two hosts."""
    return [name for name, there in (("mpich", True), ("openmpi", shutil.which("mpirun.openmpi"))) if there]


def swept(
    host: Host, launcher: str, folder: Path, *words: str, counts: tuple[int, int] = (1, 1)
) -> tuple[Header, list[Result], str]:
    """A sweep with so many ranks on each host, started by what `collbench launch` makes, with its stderr."""
    agent = AGENT[launcher](str(host.agent))
    named = ",".join(f"{name}:{count}" for name, count in zip(ADDRESSES, counts, strict=True))
    hosts = ("--hosts", named)
    sweep = ("sweep", "--on", "cpu", "-n", "5", "--no-plot", "--out", launcher, *words)
    started = (sys.executable, "-m", "collbench", "launch", "--launcher", launcher, *hosts, "--go", "--", *sweep)
    done = host.run(*started, cwd=folder, env=of_a_user() | agent)
    assert done.returncode == 0, (launcher, done.stderr)
    run = read(folder / launcher)
    return run.header, list(run.results), done.stderr


def test_a_sweep_on_two_hosts_says_so_and_leaves_out_what_needs_one_memory(tmp_path: Path) -> None:
    """Its messages take the cable, each host's many."""
    with two_hosts(tmp_path) as (alpha, bravo):
        assert [host.run("hostname").stdout.strip() for host in (alpha, bravo)] == list(ADDRESSES)
        for launcher in launchers():
            before = alpha.sent(), bravo.sent()
            words = ("--impl", "mpi,ring-flags", "-b", "8", "-e", "1M", "-f", "131072")
            header, results, said = swept(alpha, launcher, tmp_path, *words)
            assert header.environment.host == "alpha", launcher
            assert header.topology.name.startswith("2 ranks on 2 nodes, the first with "), launcher
            assert "2 ranks on 2 nodes" in said, launcher
            rows = [row for row in results if isinstance(row, Measurement)]
            assert [(row.implementation, row.case.nbytes) for row in rows] == [("mpi", 8), ("mpi", 2**20)], launcher
            assert all(row.right for row in rows), launcher
            for row in results:
                if row.implementation == "ring-flags":
                    assert isinstance(row, Skipped), launcher
                    assert "is on another node" in row.reason, launcher
            for host, sent in zip((alpha, bravo), before, strict=True):
                assert host.sent() - sent > 3 * 2**20, (launcher, host.name)


def test_hosts_with_different_numbers_of_ranks_measure_alike(tmp_path: Path) -> None:
    """Where those of a single host share its core, too."""
    with two_hosts(tmp_path) as (alpha, _):
        for launcher in launchers():
            _, rows, _ = swept(alpha, launcher, tmp_path, "--impl", "mpi", "-e", "8", counts=(1, 2))
            assert [(row.case.ranks, isinstance(row, Measurement) and row.right) for row in rows] == [(3, True)], (
                launcher
            )


def test_a_cable_of_100_megabits_is_measured_as_what_tcp_leaves_of_it(tmp_path: Path) -> None:
    """Of a broadcast n bytes take it one way; the fastest sample counts, as other programs delay ranks and no cable."""
    expected = MEGABITS * 1e6 / 8 * PAYLOAD
    with two_hosts(tmp_path, f"{MEGABITS}mbit") as (alpha, _):
        for launcher in launchers():
            words = ("--impl", "mpi", "--op", "broadcast", "-b", "4M", "-e", "4M")
            _, (row,), _ = swept(alpha, launcher, tmp_path, *words)
            assert isinstance(row, Measurement), (launcher, row)
            assert row.right, launcher
            assert row.case.nbytes / min(row.times) == pytest.approx(expected, rel=0.1), launcher


def test_hosts_are_gone_with_the_test_also_where_it_is_killed(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts:
        processes = [host.process for host in hosts]
    assert not any(map(alive, processes))
    hold = (
        "import pathlib, sys, time; from tests.deploy.hosts import two_hosts\n"
        "with two_hosts(pathlib.Path(sys.argv[1])) as hosts:\n"
        "    print(*(host.process for host in hosts), flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        processes = [int(word) for word in holder.stdout.readline().split()]
        assert len(processes) == 2
        assert all(map(alive, processes))
        holder.send_signal(signal.SIGKILL)
    while any(map(alive, processes)):  # the test's time-out ends it otherwise
        time.sleep(0.01)


def alive(process: int) -> bool:
    """Whether a process runs: a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
