"""CPUs from the files of made-up machines, and GPUs as NVML shows them."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from collbench.errors import PlatformError
from collbench.topology import discover_cpu, discover_gpu
from collbench.topology.discover_gpu import normalize
from collbench.topology.discovered import Cache, DriverInfo, FabricInfo, Gpu, LinkKind, NumaNode, NvLink, Pcie, Socket
from tools.stand_in.nvml import SWITCH, FakeGpu, FakeNvml, Slice, bus

XEON = "model name\t: Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz"
NEOVERSE = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}"


def dual_socket():
    """Two sockets of two cores with two threads each; CPUs n and n+4 share a core."""
    files = {"sys/devices/system/cpu/online": "0-3,4-7", "proc/meminfo": "MemTotal:       1024 kB\nMemFree: 512 kB"}
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
    topology = discover_cpu.discover(root=tree(dual_socket()), usable=range(8))
    assert topology.sockets == (Socket("Intel Xeon Platinum 8480C", cores=2, threads=4),) * 2
    (link,) = topology.links
    assert (link.kind, link.p2p) == (LinkKind.SHARED_MEMORY, "yes")
    host = topology.host
    assert host.caches == (Cache("L1d", 48 * 1024, 4, 2), Cache("L1i", 32 * 1024, 4, 2), Cache("L3", 105 * 2**20, 2, 4))
    assert host.numa == (NumaNode(0, (0, 1, 4, 5), 512 * 1024), NumaNode(1, (2, 3, 6, 7), 512 * 1024))
    assert host.memory == 1024 * 1024
    some = discover_cpu.discover(root=tree(dual_socket()), usable=[0, 2, 5])
    assert (some.ranks, some.name) == (3, "3 ranks on 2 x Intel Xeon Platinum 8480C, 4 cores")


def test_missing_files_and_files_of_nonsense_are_no_error(tree, tmp_path):
    for missing in ("proc", "sys/devices/system/cpu/cpu3", "sys/devices/system/node"):
        root = missing.replace("/", "-")
        files = {f"{root}/{name}": text for name, text in dual_socket().items() if not name.startswith(missing)}
        found = discover_cpu.discover(root=tree(files) / root)
        assert sum(socket.threads for socket in found.sockets) == 8, missing
    files = dict.fromkeys(dual_socket(), "N/A") | {"proc/self/cgroup": "x", "sys/fs/cgroup/cpu.max": "N/A"}
    assert discover_cpu.discover(root=tree(files)).devices
    assert discover_cpu.discover(root=tree({"dev/shm/x": ""})).host.shm_free > 0
    without = discover_cpu.discover(root=tmp_path / "none")
    assert (without.host.shm_free, without.sockets[0].threads) == (None, os.cpu_count())
    assert without.sockets[0].name


def test_processors_are_named_without_what_is_counted_beside(tree):
    for cpuinfo, name in (
        ("processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654"),
        (NEOVERSE.format("0x41", "0xd4f"), "Arm Neoverse V2"),
        (NEOVERSE.format("0x99", "0x001"), "arm64 (implementer 0x99, part 0x001)"),
    ):
        found = discover_cpu.discover(root=tree({"proc/cpuinfo": cpuinfo}))
        assert found.sockets == (Socket(name, threads=1),)


def test_the_lowest_limit_above_counts_in_either_version_of_control_groups(tree):
    files = {
        "proc/self/cgroup": "0::/user/job",
        "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        "sys/fs/cgroup/user/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpu.max": "800000 100000",
    }
    host = discover_cpu.discover(root=tree(files), usable=range(4)).host
    assert (host.cpu_limit, host.capacity) == (1.5, 1)
    docker = {"proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/"}
    root = {"proc/self/cgroup": "2:cpu:/"}
    for files, folder, quota, limit in ((docker, "cpu,cpuacct", "200000", 2.0), (root, "cpu", "-1", None)):
        files[f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us"] = quota
        files[f"sys/fs/cgroup/{folder}/cpu.cfs_period_us"] = "100000"
        assert discover_cpu.discover(root=tree(files)).host.cpu_limit == limit


def test_nvswitch_joins_every_pair(dgx_h100):
    topology = discover_gpu.discover(nvml=dgx_h100)
    assert len(topology.links) == 28
    assert {(link.kind, link.nvlink.count, link.rate) for link in topology.links} == {(LinkKind.NVSWITCH, 18, 450e9)}
    assert {(link.p2p, link.reason) for link in topology.links} == {("unprobed", "the driver claims it")}
    assert topology.name == "8 x NVIDIA H100 80GB HBM3, NVSwitch"
    assert len(discover_gpu.discover(2, nvml=dgx_h100).gpus) == 2, "GPUs without a rank are left out"
    second = dgx_h100.gpus[1]
    dgx_h100.gpus = [dgx_h100.gpus[0], replace(second, fabric=(3, 1))]
    assert discover_gpu.discover(nvml=dgx_h100).links[0].kind == LinkKind.PCIE, "another clique of the fabric"


def test_facts_of_a_gpu_are_in_si_units_and_cudas_spelling(dgx_h100):
    found = discover_gpu.discover(nvml=dgx_h100)
    first = found.gpus[0]
    assert (first.bus_id, first.architecture, first.capability) == ("0000:0a:00.0", "Hopper", "9.0")
    assert (first.memory, first.mig) == (80 * 2**30, False)
    assert [gpu.numa for gpu in found.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert first.pcie == Pcie(1, 16, 5, 16)
    assert first.nvlink == NvLink(4, 18, 26.562e9)
    assert first.switch_links == 18
    assert first.fabric == FabricInfo("completed", "00" * 16, 0)
    assert found.driver == DriverInfo("570.86.15", "12.8")


def test_direct_links_join_only_the_gpus_at_their_ends_and_pcie_has_the_slower_slot(pairs, pcie_box):
    links = {(link.a, link.b): link for link in discover_gpu.discover(nvml=pairs).links}
    assert {pair for pair, link in links.items() if link.kind == LinkKind.NVLINK} == {(0, 1), (2, 3)}
    assert links[0, 1].nvlink == NvLink(3, 4, 14.062e9)
    assert links[0, 1].rate == pytest.approx(56.248e9)
    assert (links[0, 2].kind, links[0, 2].path) == (LinkKind.PCIE, "between NUMA nodes")
    (link,) = discover_gpu.discover(nvml=pcie_box).links
    assert (link.kind, link.path, link.pcie.width) == (LinkKind.PCIE, "through one CPU host bridge", 8)
    assert (link.p2p, link.reason) == ("no", "the driver says: chipset not supported")


def test_gpus_come_in_the_order_of_cuda(dgx_h100):
    wanted = ("0000:2a:00.0", "0000:0a:00.0")
    assert tuple(device.bus_id for device in discover_gpu.discover(bus_ids=wanted, nvml=dgx_h100).gpus) == wanted
    for spelling in ("0000:0a:00.0", "00000000:0A:00.0", " 0:a:0.0 "):
        assert normalize(spelling) == "0000:0a:00.0"


A, B, C = ("0011223344556677889900aabbccdd" + end for end in ("0a", "0b", "0c"))


@pytest.fixture
def mig():
    """A GPU in MIG mode with two slices, one whose index is empty between them, and a GPU that is used whole."""
    first, second = (Slice(f"NVIDIA H200 MIG 1g.{n}gb", f"MIG-{uuid}", n * 2**30) for n, uuid in ((18, A), (35, B)))
    whole = FakeGpu("NVIDIA H200", bus(1), ((SWITCH, "x"),) * 18, memory=141 * 2**30)
    return FakeNvml([replace(whole, mig=1, slices=(first, None, second)), replace(whole, bus_id=bus(2))])


def test_a_mig_slice_has_its_name_uuid_and_memory_and_no_nvlink(mig):
    def gpu(uuid):
        return discover_gpu.discover(bus_ids=["0000:01:00.0"], uuids=[uuid], nvml=mig).gpus[0]

    found, hidden = gpu(B), gpu(C)
    assert (found.name, found.uuid, found.memory) == ("NVIDIA H200 MIG 1g.35gb", f"MIG-{B}", 35 * 2**30)
    assert (found.slice, found.mig, found.nvlink, found.capability) == (True, True, None, "9.0")
    assert gpu(A[:4]).uuid == f"MIG-{A}", "cut short"
    assert (hidden.name, hidden.uuid, hidden.memory) == ("NVIDIA H200 MIG slice", f"MIG-{C}", None)
    mig.nvmlDeviceGetUUID = lambda gpu: "GPU-00000000-0100-0000"
    for uuid in ("", "0000000001000000"):  # CUDA uses the GPU whole
        assert (gpu(uuid).name, gpu(uuid).slice, gpu(uuid).mig) == ("NVIDIA H200", False, True)


def test_mig_slices_have_no_peer_access(mig):
    mig.p2p = {0: 0, 1: 0, 2: 0}
    found = discover_gpu.discover(bus_ids=["0000:01:00.0"] * 2 + ["0000:02:00.0"], uuids=[A, B, "ff"], nvml=mig)
    assert [link.kind for link in found.links] == [LinkKind.SAME_GPU, LinkKind.PCIE, LinkKind.PCIE]
    assert {(link.p2p, link.reason) for link in found.links} == {("no", "MIG slices reach no other GPU's memory")}
    assert not found.shared
    assert found.name == "1 x NVIDIA H200 MIG 1g.18gb + 1 x NVIDIA H200 MIG 1g.35gb + 1 x NVIDIA H200, same gpu + PCIe"


def test_what_is_not_supported_is_none(dgx_h100, pairs):
    bare = {"links": (), "pcie": None, "memory": None, "architecture": None, "capability": None}
    bare |= {"mig": None, "fabric": None, "numa": None}
    dgx_h100.gpus = [replace(device, **bare) for device in dgx_h100.gpus[:2]]
    dgx_h100.level, dgx_h100.p2p = None, {}
    topology = discover_gpu.discover(nvml=dgx_h100)
    assert topology.gpus[0] == Gpu(topology.gpus[0].name, "0000:0a:00.0", "GPU-00000000:0A:00.0", pcie=Pcie())
    (link,) = topology.links
    assert (link.kind, link.rate, link.p2p, link.reason) == (LinkKind.PCIE, None, "unprobed", "")
    # NVLinks whose ends a virtual machine hides have no count.
    pairs.gpus = [replace(device, links=((None, "ffff:ff:ff.f"),) * 4) for device in pairs.gpus[:2]]
    pairs.p2p[2] = pynvml.NVML_P2P_STATUS_OK
    (link,) = discover_gpu.discover(nvml=pairs).links
    assert (link.kind, link.nvlink.count, link.rate) == (LinkKind.NVLINK, None, None)


def test_the_state_of_a_fabric_is_a_word_and_ranks_share_a_single_gpu(h200):
    shared = discover_gpu.discover(4, nvml=h200)
    assert (shared.name, shared.links) == ("4 ranks sharing 1 x NVIDIA H200", ())
    assert shared.link(0, 3).kind == LinkKind.SAME_GPU
    for state, word in ((1, "not started"), (2, "in progress"), (3, "completed"), (0, None)):
        h200.gpus = [replace(h200.gpus[0], fabric=(state, 0))]
        fabric = discover_gpu.discover(nvml=h200).gpus[0].fabric
        assert (fabric and fabric.state) == word, state


def test_where_no_gpu_can_be_shown_the_message_has_the_way_out(h200, monkeypatch):
    unknown = r"0000:99:00\.0, which NVML does not show \(it shows 0000:0a:00\.0\)"
    with pytest.raises(PlatformError, match=unknown):
        discover_gpu.discover(bus_ids=["0000:99:00.0"], nvml=h200)
    assert h200.opened == 0, "NVML is closed again"
    h200.gpus = []
    with pytest.raises(PlatformError, match="the NVIDIA driver shows no GPU: check `nvidia-smi`"):
        discover_gpu.discover(nvml=h200)
    errors = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: r"NVML cannot be used \(Driver Not Loaded\): check `nvidia-smi`",
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: r"Not Found.: a container needs NVIDIA_DRIVER_CAPABILITIES=compute",
    }
    for h200.init_error, message in errors.items():
        with pytest.raises(PlatformError, match=message):
            discover_gpu.discover(nvml=h200)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(PlatformError, match="pip install nvidia-ml-py"):
        discover_gpu.discover()


def test_names_and_numbers_of_nvml_are_those_of_nvidia_ml_py():
    source = Path(discover_gpu.__file__).read_text()
    source = re.sub(r'""".*?"""', "", source, flags=re.DOTALL)
    names = set(re.findall(r"nvml\w+|NVML_\w+|c_nvml\w+", source)) - {"nvmlReturn"}
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []

    def constants(prefix):
        return {name.removeprefix(prefix): getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)}

    for table, prefix in (
        (discover_gpu.PATHS, "NVML_TOPOLOGY_"),
        (discover_gpu.REFUSALS, "NVML_P2P_STATUS_"),
        (discover_gpu.FABRIC_STATES, "NVML_GPU_FABRIC_STATE_"),
    ):
        assert set(table) <= set(constants(prefix).values()), prefix
    versions = constants("NVML_NVLINK_VERSION_")
    generations = {number: int(name[0]) for name, number in versions.items() if name != "INVALID"}
    assert generations.items() >= discover_gpu.NVLINK_GENERATIONS.items()
    known = constants("NVML_DEVICE_ARCH_")
    names = {number: name for number, name in discover_gpu.GENERATIONS.items() if number}  # AMD's have none
    assert {known[name.upper()]: name for name in names.values()} == names
