"""CPUs, caches, memory and limits, from the files of made-up machines."""

import os

from collbench.topology.devices import Cache, Kind, NumaNode, Socket
from collbench.topology.discover_cpu import discover

XEON = "model name\t: Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz"
NEOVERSE = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}"


def dual_socket():
    """Two sockets of two cores with two threads each; CPUs n and n+4 share a core."""
    files = {"sys/devices/system/cpu/online": "0-7", "proc/meminfo": "MemTotal:       1024 kB\nMemFree: 512 kB"}
    files["proc/cpuinfo"] = "\n\n".join(f"processor\t: {cpu}\n{XEON}" for cpu in range(8))
    kinds = ((0, 1, "Data", "48K"), (1, 1, "Instruction", "32K"), (3, 3, "Unified", "105M"))
    for cpu in range(8):
        folder, core = f"sys/devices/system/cpu/cpu{cpu}", cpu % 4
        files[f"{folder}/topology/physical_package_id"] = str(core // 2)
        files[f"{folder}/topology/core_id"] = str(core % 2)
        files[f"{folder}/topology/thread_siblings_list"] = f"{core},{core + 4}"
        for index, level, kind, size in kinds:
            cache = f"{folder}/cache/index{index}"
            socket = "0-1,4-5" if core < 2 else "2-3,6-7"
            files |= {f"{cache}/level": str(level), f"{cache}/type": kind, f"{cache}/size": size}
            files[f"{cache}/shared_cpu_list"] = socket if level == 3 else f"{core},{core + 4}"
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        files[f"sys/devices/system/node/node{node}/cpulist"] = cpus
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal:       512 kB"
    return files


def test_sockets_cores_threads_caches_and_memory_are_counted(tree):
    topology = discover(root=tree(dual_socket()), usable=range(8))
    assert topology.sockets == (Socket("Intel Xeon Platinum 8480C", cores=2, threads=4),) * 2
    (link,) = topology.links
    assert (link.kind, link.p2p) == (Kind.SHARED_MEMORY, "yes")
    host = topology.host
    assert host.caches == (
        Cache("L1d", 48 * 1024, 4, 2),
        Cache("L1i", 32 * 1024, 4, 2),
        Cache("L3", 105 * 2**20, 2, 4),
    )
    assert host.numa == (NumaNode(0, (0, 1, 4, 5), 512 * 1024), NumaNode(1, (2, 3, 6, 7), 512 * 1024))
    assert host.memory == 1024 * 1024
    some = discover(root=tree(dual_socket()), usable=[0, 2, 5])
    assert (some.ranks, some.name) == (3, "3 ranks on 2 x Intel Xeon Platinum 8480C, 4 cores")


def test_cpuinfo_alone_tells_sockets_and_cores(tree):
    blocks = [f"processor\t: {n}\n{XEON}\nphysical id\t: 0\ncore id\t\t: {n // 2}" for n in range(4)]
    topology = discover(root=tree({"proc/cpuinfo": "\n\n".join(blocks)}))
    assert topology.sockets == (Socket("Intel Xeon Platinum 8480C", cores=2, threads=4),)
    assert (topology.host.caches, topology.host.numa, topology.host.memory) == ((), (), None)


def test_missing_files_and_files_of_nonsense_are_no_error(tree, tmp_path):
    for missing in ("proc", "sys/devices/system/cpu/cpu3", "sys/devices/system/node"):
        root = missing.replace("/", "-")
        files = {f"{root}/{name}": text for name, text in dual_socket().items() if not name.startswith(missing)}
        assert discover(root=tree(files) / root).devices, missing
    files = dict.fromkeys(dual_socket(), "N/A") | {"proc/self/cgroup": "x", "sys/fs/cgroup/cpu.max": "N/A"}
    assert discover(root=tree(files)).devices
    assert discover(root=tree({}) / "none").host.shm_free is None
    assert discover(root=tree({"dev/shm/x": ""})).host.shm_free > 0
    without = discover(root=tmp_path / "none").sockets[0]
    assert (without.threads, bool(without.name)) == (os.cpu_count(), True)


def test_processors_are_named_without_what_is_counted_beside(tree):
    amd = tree({"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor"})
    assert discover(root=amd).sockets[0].name == "AMD EPYC 9654"
    for implementer, part, name in (
        ("0x41", "0xd4f", "Arm Neoverse V2"),
        ("0x99", "0x001", "arm64 (implementer 0x99, part 0x001)"),
    ):
        root = tree({"proc/cpuinfo": NEOVERSE.format(implementer, part)})
        assert discover(root=root).sockets == (Socket(name, threads=1),)


def test_the_lowest_limit_above_counts_in_either_version_of_control_groups(tree):
    files = {
        "proc/self/cgroup": "0::/user/job",
        "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        "sys/fs/cgroup/user/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpu.max": "800000 100000",
    }
    host = discover(root=tree(files), usable=range(4)).host
    assert (host.cpu_limit, host.capacity) == (1.5, 1)
    docker = {"proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/"}
    root = {"proc/self/cgroup": "2:cpu:/"}
    for files, folder, quota, limit in ((docker, "cpu,cpuacct", "200000", 2.0), (root, "cpu", "-1", None)):
        files[f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us"] = quota
        files[f"sys/fs/cgroup/{folder}/cpu.cfs_period_us"] = "100000"
        assert discover(root=tree(files)).host.cpu_limit == limit


def test_this_machine_has_a_topology_that_json_brings_back():
    topology = discover(2)
    assert topology.ranks == 2
    assert type(topology).from_json(topology.to_json()) == topology
