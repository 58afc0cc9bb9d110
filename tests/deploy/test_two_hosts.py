"""Ranks on two hosts that only a network joins, started by the launchers of MPICH and of Open MPI.

A host is a process that waits for the end of its input, with a network, a host name, a /dev/shm, a /sys, an /etc/hosts
and System V memory of its own, and a CPU of the machine.  Whoever is to be on a host enters the namespaces of that
process; they and the cable are gone with it, also where a test is killed.  Needs root, iproute2 and util-linux.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from collbench.results import Measurement
from collbench.results.collectives import Skipped
from collbench.runfile.store import Run, read
from tests.conftest import of_a_user
from tests.deploy.programs import program, run

pytestmark = pytest.mark.deploy

AGENT = {  # the variables by which launchers are told of a program in the place of ssh
    "mpich": lambda agent: {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent},
    "openmpi": lambda agent: {"OMPI_MCA_plm_rsh_agent": agent},
}
MEGABITS = 100
PAYLOAD = 1448 / 1514
"""The share of an Ethernet frame of 1514 bytes, which the limit counts, that is data: the headers of Ethernet take 14,
of IPv4 20, and of TCP with time stamps 32."""
NAMESPACES = ("--net", "--uts", "--mount", "--ipc")
DEVICE = "wire"
ADDRESSES = {"alpha": "10.213.0.1", "bravo": "10.213.0.2"}
SCRIPT = """#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
read -r process cpu <{folder}/"$1".process || exit 255
shift
exec nsenter --target="$process" {namespaces} taskset --cpu-list "$cpu" sh -c "$*"
"""


@dataclass(frozen=True)
class Host:
    """A host, and the program that reaches it as ssh would: `agent [OPTION...] HOST WORD...`."""

    name: str
    process: int  # that holds its namespaces
    agent: Path

    def run(
        self, *words: str, cwd: Path = Path("/"), env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(self.agent, self.name, f"cd {shlex.quote(str(cwd))} && exec {shlex.join(words)}", env=env)


@contextmanager
def two_hosts(folder: Path, rate: str) -> Iterator[Host]:
    """The first of two that reach each other; `rate` (as tc has it) limits what each sends, whole frames.

    The test is skipped where the kernel gives this user no namespaces.
    """
    for name in ("ip", "tc", "unshare", "nsenter", "taskset"):
        program(name)
    if reason := run("unshare", *NAMESPACES, "true").stderr.strip():
        pytest.skip(reason)
    lines = [f"{address} {name}" for name, address in ADDRESSES.items()]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    agent = folder / "agent"
    agent.write_text(SCRIPT.format(folder=shlex.quote(str(folder)), namespaces=" ".join(NAMESPACES)))
    agent.chmod(0o755)
    cpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        hosts = []
        for place, name in enumerate(ADDRESSES):
            hosts.append(Host(name, stack.enter_context(held(folder, name, cpus[place % len(cpus)])), agent))
        first, second = hosts
        succeed(first, f"ip link add {DEVICE} type veth peer name {DEVICE} netns {second.process}")
        for host in hosts:
            succeed(host, f"ip address add {ADDRESSES[host.name]}/24 dev {DEVICE}")
            succeed(host, "ip link set lo up")
            succeed(host, f"ip link set {DEVICE} up")
            succeed(host, f"tc qdisc add dev {DEVICE} root tbf rate {rate} burst 32kb latency 50ms")
        for host in hosts:  # the kernel says only up to a second later that a cable is plugged in, and UCX believes it
            while host.run("cat", f"/sys/class/net/{DEVICE}/operstate").stdout.strip() != "up":
                time.sleep(0.02)
        yield first


@contextmanager
def held(folder: Path, name: str, cpu: int) -> Iterator[int]:
    """The process that holds a host's namespaces, by its number, once it has made them."""
    steps = (
        f"hostname {name}",
        f"mount --bind {shlex.quote(str(folder / 'hosts'))} /etc/hosts",
        "mount -t tmpfs none /dev/shm",
        "mount -t sysfs none /sys",  # whose list of devices is that of the network it was mounted in
        "echo",
        "exec cat",
    )
    command = ["unshare", *NAMESPACES, "sh", "-c", " && ".join(steps)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        try:
            assert holder.stdout.readline() == b"\n", f"{name} has no namespaces"
            (folder / f"{name}.process").write_text(f"{holder.pid} {cpu}\n")
            yield holder.pid
        finally:
            holder.stdin.close()


def succeed(host: Host, command: str) -> None:
    done = host.run(*command.split())
    assert done.returncode == 0, (command, done.stderr)


def swept(host: Host, launcher: str, folder: Path, hosts: str, *words: str) -> tuple[Run, str]:
    """A sweep that is started by what `collbench launch` makes, with its stderr."""
    launch = ("launch", "--launcher", launcher, "--hosts", hosts, "--go", "--")
    sweep = ("sweep", "--on", "cpu", "-n", "5", "--no-plot", "--out", launcher, *words)
    agent = AGENT[launcher](str(host.agent))
    done = host.run(sys.executable, "-m", "collbench", *launch, *sweep, cwd=folder, env=of_a_user() | agent)
    assert done.returncode == 0, (launcher, done.stderr)
    return read(folder / launcher), done.stderr


def test_a_sweep_on_two_hosts_says_so_and_measures_their_cable_and_skips_what_needs_one_memory(tmp_path: Path) -> None:
    """Of a broadcast n bytes take the cable one way, and the fastest sample counts, as other programs delay ranks.

    Hosts with different numbers of ranks measure too, where those of a single host share its core.
    """
    expected = MEGABITS * 1e6 / 8 * PAYLOAD
    with two_hosts(tmp_path, f"{MEGABITS}mbit") as alpha:
        for launcher in ("mpich", *(["openmpi"] if shutil.which("mpirun.openmpi") else [])):
            words = ("--impl", "mpi,ring-flags", "--op", "broadcast", "-b", "4M", "-e", "4M")
            made, said = swept(alpha, launcher, tmp_path, "alpha:1,bravo:1", *words)
            assert made.header.environment.host == "alpha", launcher
            assert made.header.topology.name.startswith("2 ranks on 2 nodes, the first with "), launcher
            assert "2 ranks on 2 nodes" in said, launcher
            results = {result.implementation: result for result in made.results}
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
