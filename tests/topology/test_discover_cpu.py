import os

import pytest

from collbench.topology.devices import Cache, Kind, NumaNode, Socket
from collbench.topology.discover_cpu import discover

XEON = "model name\t: Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz"
NEOVERSE = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}"


def dual_socket():
    """Two sockets of two cores with two threads each; CPUs n and n+4 share a core."""
    files = {"sys/devices/system/cpu/online": "0-7", "proc/meminfo": "MemTotal:       1024 kB\nMemFree: 512 kB"}
    files["proc/cpuinfo"] = "\n\n".join(f"processor\t: {cpu}\n{XEON}" for cpu in range(8))
    for cpu in range(8):
        folder, core = f"sys/devices/system/cpu/cpu{cpu}", cpu % 4
        files[f"{folder}/topology/physical_package_id"] = str(core // 2)
        files[f"{folder}/topology/core_id"] = str(core % 2)
        files[f"{folder}/topology/thread_siblings_list"] = f"{core},{core + 4}"
        for index, level, kind, size in (
            (0, 1, "Data", "48K"),
            (1, 1, "Instruction", "32K"),
            (3, 3, "Unified", "105M"),
        ):
            cache = f"{folder}/cache/index{index}"
            socket = "0-1,4-5" if core < 2 else "2-3,6-7"
            files |= {f"{cache}/level": str(level), f"{cache}/type": kind, f"{cache}/size": size}
            files[f"{cache}/shared_cpu_list"] = socket if level == 3 else f"{core},{core + 4}"
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        files[f"sys/devices/system/node/node{node}/cpulist"] = cpus
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal:       512 kB"
    return files


def test_sockets_cores_and_threads_are_counted(tree):
    """Threads of one core share it; core numbers start anew in each socket."""
    topology = discover(root=tree(dual_socket()), usable=range(8))
    assert topology.sockets == (Socket("Intel Xeon Platinum 8480C", cores=2, threads=4),) * 2


def test_sockets_are_linked_by_memory(tree):
    """Every rank loads and stores what every other does."""
    (link,) = discover(root=tree(dual_socket())).links
    assert (link.kind, link.p2p) == (Kind.SHARED_MEMORY, "yes")


def test_caches_are_counted_once_for_all_that_share_them(tree):
    """Eight CPUs, four cores, two sockets: four L1 and two L3."""
    assert discover(root=tree(dual_socket())).host.caches == (
        Cache("L1d", 48 * 1024, 4, 2),
        Cache("L1i", 32 * 1024, 4, 2),
        Cache("L3", 105 * 2**20, 2, 4),
    )


def test_numa_nodes_have_cpus_and_memory(tree):
    """Memory is in bytes."""
    host = discover(root=tree(dual_socket())).host
    assert host.numa == (NumaNode(0, (0, 1, 4, 5), 512 * 1024), NumaNode(1, (2, 3, 6, 7), 512 * 1024))
    assert host.memory == 1024 * 1024


def test_as_many_ranks_as_can_run(tree):
    """The affinity mask, not the machine, decides how many ranks there are by default."""
    topology = discover(root=tree(dual_socket()), usable=[0, 2, 5])
    assert topology.ranks == 3
    assert topology.name == "3 ranks on 2 x Intel Xeon Platinum 8480C, 4 cores"


def test_a_container_without_sys_still_has_its_sockets(tree):
    """/proc/cpuinfo alone says which core each CPU belongs to."""
    blocks = [f"processor\t: {n}\n{XEON}\nphysical id\t: 0\ncore id\t\t: {n // 2}" for n in range(4)]
    topology = discover(root=tree({"proc/cpuinfo": "\n\n".join(blocks)}))
    assert topology.sockets == (Socket("Intel Xeon Platinum 8480C", cores=2, threads=4),)
    assert (topology.host.caches, topology.host.numa, topology.host.memory) == ((), (), None)


@pytest.mark.parametrize("missing", ["proc", "sys/devices/system/cpu/cpu3", "sys/devices/system/node"])
def test_missing_files_are_no_error(tree, missing):
    """Whatever a container hides, there is an answer."""
    files = {name: text for name, text in dual_socket().items() if not name.startswith(missing)}
    assert discover(root=tree(files)).devices


def test_files_of_nonsense_are_no_error(tree):
    """Unreadable numbers count as missing."""
    files = dict.fromkeys(dual_socket(), "N/A") | {"proc/self/cgroup": "x", "sys/fs/cgroup/cpu.max": "N/A"}
    assert discover(root=tree(files)).devices


def test_without_any_file_the_system_call_counts(tmp_path):
    """As on macOS, where there is neither /sys nor /proc."""
    topology = discover(root=tmp_path)
    assert topology.sockets[0].threads == os.cpu_count()
    assert topology.sockets[0].name


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [("0x41", "0xd4f", "Arm Neoverse V2"), ("0x99", "0x001", "arm64 (implementer 0x99, part 0x001)")],
)
def test_arm_cores_are_named_by_their_part(tree, implementer, part, name):
    """arm64 Linux gives numbers where x86 gives a name."""
    root = tree({"proc/cpuinfo": NEOVERSE.format(implementer, part)})
    assert discover(root=root).sockets == (Socket(name, threads=1),)


def test_amd_names_lose_their_core_count(tree):
    """Cores are counted beside the name."""
    root = tree({"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor"})
    assert discover(root=root).sockets[0].name == "AMD EPYC 9654"


def test_the_lowest_limit_above_counts(tree):
    """A control group gets no more than the groups that it is in."""
    files = {
        "proc/self/cgroup": "0::/user/job",
        "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        "sys/fs/cgroup/user/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpu.max": "800000 100000",
    }
    host = discover(root=tree(files), usable=range(4)).host
    assert host.cpu_limit == 1.5
    assert host.capacity == 1


def test_limits_of_control_groups_version_1(tree):
    """The controller's own folder, and the end of the path that a container sees."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    assert discover(root=tree(files)).host.cpu_limit == 2.0


def test_no_limit_is_none(tree):
    """-1 and max mean as much as there is."""
    files = {
        "proc/self/cgroup": "2:cpu:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert discover(root=tree(files)).host.cpu_limit is None


def test_free_shared_memory_is_measured_where_windows_live(tree):
    """The file system of /dev/shm is asked, if there is one."""
    assert discover(root=tree({"dev/shm/x": ""})).host.shm_free > 0
    assert discover(root=tree({}) / "none").host.shm_free is None


def test_this_machine_has_a_topology():
    """Whatever runs the tests has a CPU, and its JSON comes back."""
    topology = discover(2)
    assert topology.ranks == 2
    assert type(topology).from_json(topology.to_json()) == topology
