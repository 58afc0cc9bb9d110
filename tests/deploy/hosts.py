"""Two hosts on this machine, for launchers that start ranks on several: network namespaces joined by a cable.

A host is a process that waits for the end of its input, with a network, a host name, a /dev/shm, a /etc/hosts and System V
memory of its own; files and processes are those of the machine.  Whoever is to be on a host enters the namespaces of that
process (nsenter).  Namespaces and cable are gone with the processes in them, also where the test is killed: then the
inputs end.  Needs root, iproute2 (`ip`, `tc`) and util-linux (`unshare`, `nsenter`).
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SEPARATE = ("--net", "--uts", "--mount", "--ipc")
PROGRAMS = ("ip", "tc", "unshare", "nsenter")
DEVICE = "wire"
NAMES = ("alpha", "bravo")
ADDRESSES = {name: f"10.213.0.{number}" for number, name in enumerate(NAMES, 1)}


@dataclass(frozen=True)
class Host:
    """A host, by the process that holds its namespaces."""

    name: str
    process: int
    agent: Path  # a program that is called as ssh is, `agent [OPTION...] HOST WORD...`, and reaches both hosts

    @property
    def address(self) -> str:
        return ADDRESSES[self.name]

    def inside(self, *words: str) -> list[str]:
        """The command that carries these words out on the host."""
        return ["nsenter", f"--target={self.process}", *SEPARATE, f"--wd={Path.cwd()}", *words]

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Carry a command out on the host, to its end."""
        command = ["nsenter", f"--target={self.process}", *SEPARATE, f"--wd={cwd or Path.cwd()}", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)

    def sent(self) -> int:
        """Bytes that the host has put on the cable so far."""
        (device,) = json.loads(self.run("ip", "-json", "-statistics", "link", "show", DEVICE).stdout)
        return int(device["stats64"]["tx"]["bytes"])


def missing() -> str:
    """What two hosts need and this machine has not; empty where nothing is missing."""
    programs = [name for name in PROGRAMS if not shutil.which(name)]
    if programs:
        return f"no {', '.join(programs)} (Debian's packages iproute2 and util-linux)"
    tried = subprocess.run(["unshare", *SEPARATE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


@contextmanager
def two_hosts(folder: Path, rate: str = "") -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other; `rate` (of tc, `100mbit`) limits what each sends."""
    names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    agent = folder / "agent"
    with ExitStack() as stack:
        processes = {name: stack.enter_context(_held(folder, name)) for name in NAMES}
        agent.write_text(_AGENT.format(separate=" ".join(SEPARATE), folder=shlex.quote(str(folder))))
        agent.chmod(0o755)
        hosts = [Host(name, process, agent) for name, process in processes.items()]
        first, second = hosts
        ends = f"type veth peer name {DEVICE} netns {second.process}"
        _succeed(first.run("ip", "link", "add", DEVICE, *ends.split()))
        for host in hosts:
            _succeed(host.run("ip", "address", "add", f"{host.address}/24", "dev", DEVICE))
            for device in ("lo", DEVICE):
                _succeed(host.run("ip", "link", "set", device, "up"))
            if rate:
                limit = f"qdisc add dev {DEVICE} root tbf rate {rate} burst 32kb latency 50ms"
                _succeed(host.run("tc", *limit.split()))
        yield first, second


_AGENT = """#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
process=$(cat {folder}/"$1".process) || exit 255
shift
exec nsenter --target="$process" {separate} sh -c "$*"
"""


@contextmanager
def _held(folder: Path, name: str) -> Iterator[int]:
    """The process that holds a host's namespaces, by its number, once it has made them."""
    hosts = shlex.quote(str(folder / "hosts"))
    steps = f"hostname {name} && mount --bind {hosts} /etc/hosts && mount -t tmpfs none /dev/shm && mount -t sysfs none /sys && echo && exec cat"
    command = ["unshare", *SEPARATE, "sh", "-c", steps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == b"\n", "no namespaces"
        (folder / f"{name}.process").write_text(str(holder.pid))
        try:
            yield holder.pid
        finally:
            holder.stdin.close()


def _succeed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, (done.args, done.stderr)
