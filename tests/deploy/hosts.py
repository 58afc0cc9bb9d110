"""Two hosts on this machine, for launchers that start ranks on several: network namespaces joined by a cable.

A host is a process that waits for the end of its input, with a network, a host name, a /dev/shm, a /sys, an /etc/hosts
and System V memory of its own, and a CPU of the machine; files and processes are those of the machine.  Whoever is to
be on a host enters the namespaces of that process.  Namespaces and cable are gone with the last process in them, also
where a test is killed, since then the inputs end.

Needs root, iproute2 (`ip`, `tc`) and util-linux (`unshare`, `nsenter`, `taskset`).
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.programs import program, run

NAMESPACES = ("--net", "--uts", "--mount", "--ipc")
DEVICE = "wire"
ADDRESSES = {"alpha": "10.213.0.1", "bravo": "10.213.0.2"}
_AGENT = """#!/bin/sh
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
        """Carry a command out on the host, to its end."""
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
    agent.write_text(_AGENT.format(folder=shlex.quote(str(folder)), namespaces=" ".join(NAMESPACES)))
    agent.chmod(0o755)
    cpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        hosts = []
        for place, name in enumerate(ADDRESSES):
            hosts.append(Host(name, stack.enter_context(_held(folder, name, cpus[place % len(cpus)])), agent))
        first, second = hosts
        _succeed(first, f"ip link add {DEVICE} type veth peer name {DEVICE} netns {second.process}")
        for host in hosts:
            _succeed(host, f"ip address add {ADDRESSES[host.name]}/24 dev {DEVICE}")
            _succeed(host, "ip link set lo up")
            _succeed(host, f"ip link set {DEVICE} up")
            _succeed(host, f"tc qdisc add dev {DEVICE} root tbf rate {rate} burst 32kb latency 50ms")
        for host in hosts:  # the kernel says only up to a second later that a cable is plugged in, and UCX believes it
            while host.run("cat", f"/sys/class/net/{DEVICE}/operstate").stdout.strip() != "up":
                time.sleep(0.02)
        yield first


@contextmanager
def _held(folder: Path, name: str, cpu: int) -> Iterator[int]:
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


def _succeed(host: Host, command: str) -> None:
    done = host.run(*command.split())
    assert done.returncode == 0, (command, done.stderr)
