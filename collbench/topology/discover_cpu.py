"""Discovery of CPUs, caches and memory, from Linux's /sys and /proc.

Containers hide some of these files and other systems have none of them, so every fact may be missing.  `root` stands in
for `/` where tests describe other machines.
"""

import os
import platform
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import combinations
from pathlib import Path

from collbench.topology.discovered import Cache, Host, Link, LinkKind, NumaNode, Socket, Topology

ARM_CORES = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0xc0", "0xac3"): "Ampere-1",
}
"""Names for `CPU implementer` and `CPU part` (Arm's MIDR_EL1): arm64 Linux prints no `model name`."""

_CACHE_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


def discover(ranks: int | None = None, root: Path = Path("/"), usable: Collection[int] | None = None) -> Topology:
    """Discover the sockets of this machine, whose /proc and /sys are below the root; by default with a rank a CPU.

    `usable` are the CPUs that all ranks together may run on.  The default is this process's affinity mask, which is too
    small in a rank that a launcher has bound to a core.
    """
    cpuinfo = read_text(root / "proc/cpuinfo")
    counted = tuple(map(int, re.findall(r"^processor\s*: (\d+)$", cpuinfo, re.MULTILINE)))
    cpus = cpu_list(read_text(root / "sys/devices/system/cpu/online")) or counted or tuple(range(os.cpu_count() or 1))
    sockets = _sockets(root, cpus, _model_name(cpuinfo))
    pairs = combinations(range(len(sockets)), 2)
    host = Host(
        usable=tuple(sorted(os.sched_getaffinity(0) if usable is None else usable)),
        cpu_limit=_cpu_limit(root),
        caches=_caches(root, cpus),
        numa=_numa(root),
        memory=kilobytes(read_text(root / "proc/meminfo"), "MemTotal"),
        shm_free=free(root / "dev/shm"),
    )
    links = tuple(Link(a, b, LinkKind.SHARED_MEMORY, "between CPU sockets", p2p="yes") for a, b in pairs)
    return Topology("cpu", ranks or host.capacity, sockets=sockets, links=links, host=host)


def read_text(path: Path) -> str:
    """Return the text of a file of /proc or /sys, empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list in the kernel's notation: `0-3,8` is 0, 1, 2, 3 and 8."""
    cpus: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def _sockets(root: Path, cpus: tuple[int, ...], name: str) -> tuple[Socket, ...]:
    """The sockets in their order; where the kernel does not say which CPU is where, one socket of all CPUs."""
    cores: dict[int, set[str]] = {}
    threads: Counter[int] = Counter()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        package = read_text(folder / "physical_package_id")
        # The siblings rather than core_id: arm64 counts core_id anew in each cluster.
        siblings = read_text(folder / "core_cpus_list") or read_text(folder / "thread_siblings_list")
        core = siblings or read_text(folder / "core_id")
        if not core or not re.fullmatch(r"-?\d+", package):
            return (Socket(name, threads=len(cpus)),)
        cores.setdefault(int(package), set()).add(core)
        threads[int(package)] += 1
    return tuple(Socket(name, cores=len(cores[package]), threads=threads[package]) for package in sorted(cores))


def _model_name(cpuinfo: str) -> str:
    """The processor's name without what every name has: `Intel Xeon Platinum 8480C`, `AMD EPYC 9654`."""

    def line(key: str) -> str:
        match = re.search(rf"^{key}\s*: (.+)$", cpuinfo, re.MULTILINE)
        return match[1].strip() if match else ""

    name = line("model name") or line("cpu model")
    implementer, part = line("CPU implementer"), line("CPU part")
    if not name and implementer and part:
        name = ARM_CORES.get((implementer, part)) or f"arm64 (implementer {implementer}, part {part})"
    name = re.sub(r"\((?:R|TM|tm)\)| CPU\b| @ .*| \d+-Core Processor.*", "", name or platform.processor())
    return " ".join(name.split()) or platform.machine() or "CPU"


def _caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    # Every CPU lists the caches that it uses, so those with the same sharers are one cache.
    sizes: dict[str, dict[str, int]] = {}
    for cpu in cpus:
        for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            level, kind = read_text(folder / "level"), _CACHE_TYPES.get(read_text(folder / "type"))
            sharers, size = read_text(folder / "shared_cpu_list"), re.match(r"(\d+)([KM])", read_text(folder / "size"))
            if level and kind is not None and sharers and size:
                nbytes = int(size[1]) * {"K": 2**10, "M": 2**20}[size[2]]
                sizes.setdefault(f"L{level}{kind}", {})[sharers] = nbytes
    caches = []
    for name, by_sharers in sorted(sizes.items()):
        shared_by = max(len(cpu_list(sharers)) for sharers in by_sharers)
        caches.append(Cache(name, max(by_sharers.values()), len(by_sharers), shared_by))
    return tuple(caches)


def _numa(root: Path) -> tuple[NumaNode, ...]:
    nodes = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        memory = kilobytes(read_text(folder / "meminfo"), "MemTotal")
        nodes.append(NumaNode(int(folder.name[4:]), cpu_list(read_text(folder / "cpulist")), memory))
    return tuple(sorted(nodes, key=lambda node: node.number))


def kilobytes(text: str, key: str) -> int | None:
    """Return the bytes of a line such as `MemTotal:  1024 kB`; None where there is none."""
    match = re.search(rf"\b{key}:\s*(\d+) kB", text)
    return int(match[1]) * 1024 if match else None


def free(folder: Path) -> int | None:
    """Return the bytes that are free in the file system of a folder; None where there is no such folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups that limit this process, of versions 1 and 2, from its own to the mount.

    In a container the path may be the host's, of which only the mount's own files are to be seen.
    """
    mount = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        group = Path(*(part for part in Path(path).parts if part not in ("/", "..")))
        mounts = []
        if not controllers:  # version 2
            mounts = [mount]
        elif controller in controllers.split(","):
            mounts = [mount / controllers, mount / controller]  # one of them may be missing in a container
        for top in mounts:
            yield from (top / part for part in (group, *group.parents))


def _cpu_limit(root: Path) -> float | None:
    """CPUs' worth of time that the control groups above this process allow; the lowest limit counts."""
    limits = []
    for group in control_groups(root, "cpu"):
        quota, _, period = read_text(group / "cpu.max").partition(" ")
        if not quota:  # control groups version 1
            quota, period = read_text(group / "cpu.cfs_quota_us"), read_text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)
