"""`collbench topo`: topologies and systems as text, and a made-up machine that is looked at."""

import json
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from collbench.cli.group import group
from collbench.errors import PlatformError, UsageError
from collbench.platforms.gpu import discover as cuda_gpus
from collbench.platforms.gpu import probe
from collbench.topology import files, render
from collbench.topology.discover_gpu import discover
from collbench.topology.discovered import Host, Socket, Topology, caveats
from tools.stand_in.cuda import Machine
from tools.stand_in.nvml import FakeNvml

NO_DRIVER, NO_LIBRARY = 9, 12  # NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND


def topo(*arguments):
    return CliRunner().invoke(group, ["topo", *arguments], catch_exceptions=False)


def shown(*arguments):
    return Topology.from_json(json.loads(topo(*arguments, "--json").output))


def text(topology, width=80):
    return "\n".join(render.topology_lines(topology, width))


def drawn(system, width=80):
    return "\n".join(render.system_lines(system, width))


def flat(shown):
    return " ".join(shown.split())


def cpu(ranks=2, **facts):
    host = Host(**({"usable": (0, 1, 2, 3)} | facts))
    return Topology("cpu", ranks, sockets=(Socket("AMD EPYC", 2, 4),), host=host)


def test_no_line_is_wider_than_the_terminal(dgx_h100, pairs, pcie_box, h200):
    for machine in (dgx_h100, pairs, pcie_box, h200):
        for width in (40, 80, 120):
            topology = discover(nvml=machine)
            assert max(map(len, render.topology_lines(topology, width))) <= width, topology.name
    for name in files.names():
        system = files.load(name)
        for part, width in ((system, 40), (system.of(12_500), 63), (system.part(1), 80), (system.part(2), 200)):
            assert max(map(len, render.system_lines(part, width))) <= min(width, 80), name


def test_gpus_have_a_matrix_with_a_label_for_each_kind_of_connection(dgx_h100, pcie_box):
    topology = discover(nvml=dgx_h100)
    assert "GPU 7 nvswitch nvswitch nvswitch nvswitch nvswitch nvswitch nvswitch -" in text(topology)
    assert "nvswitch  18 x NVLink 4 through NVSwitch, 450.0 GB/s each way;" in text(topology)
    fewer = [replace(link, nvlink=replace(link.nvlink, count=9)) for link in topology.links[:2]]
    unlike = replace(topology, links=(*fewer, *topology.links[2:]))
    assert "nvswitch a  9 x NVLink 4" in text(unlike)
    narrow = flat(text(unlike, 40))
    assert "(0-1, 0-2) nvswitch b 18 x NVLink 4" in narrow
    assert "GPU 0 -" not in narrow
    box = text(discover(nvml=pcie_box))
    assert "GPU 1   NVIDIA GeForce RTX 4090 (Ada 8.9), 80 GiB, PCIe 4 x8" in box
    assert "peer access no (the driver says: chipset not supported)" in flat(box)


def test_a_good_machine_has_no_caveats_and_every_doubt_has_one(dgx_h100, pcie_box, h200):
    assert caveats(cpu(2)) == caveats(discover(nvml=dgx_h100)) == ()
    assert "usable  5 CPUs (0-2,5,8)" in text(cpu(usable=(0, 1, 2, 5, 8)))
    assert "one rank: nothing to connect" in text(discover(nvml=h200))
    lacking, one = FakeNvml(list(dgx_h100.gpus)), h200.gpus[0]
    lacking.gpus[0] = replace(lacking.gpus[0], links=lacking.gpus[0].links[:17])
    for topology, note in (
        (cpu(5), "5 ranks on 4 usable CPUs: they take turns"),
        (cpu(3), "3 ranks on 2 cores: some share one core"),
        (cpu(1, cpu_limit=1.5), "the control group allows 1.5 CPUs' worth of time"),
        (cpu(shm_free=2**26), "only 64 MiB free in /dev/shm, where MPI libraries share memory; in Docker: --shm-size"),
        (discover(nvml=pcie_box), "GPU 1: fewer PCIe lanes in use"),
        (discover(nvml=lacking), "GPU 0 has 17 active NVLinks, others have 18"),
        (discover(nvml=FakeNvml([replace(one, mig=1)])), "GPU 0 is in MIG mode"),
        (discover(nvml=FakeNvml([replace(one, fabric=(2, 0))])), "GPU 0 has not joined its fabric (in progress)"),
    ):
        assert note in " ".join(caveats(topology))


def test_nodes_fold_into_one_and_the_network_has_as_many_switches_as_they_need():
    system = files.load("dgx-h100")
    assert drawn(system.of(12_500)).startswith("DGX H100, 12,500 nodes of 8 GPUs: 100,000 GPUs\n")
    shown = flat(drawn(system.of(100)))
    assert "leaf 4 switches on each rail, 32 nodes under each, full rate up" in shown
    assert shown.index("spine") < shown.index("leaf 4") < shown.index("each of 100 nodes:")
    narrow = replace(system, tiers=(replace(system.tiers[0], oversubscription=3.0), *system.tiers[1:]))
    assert "oversubscribed 3:1" in flat(drawn(narrow.of(100)))
    assert [tier.name for tier, _ in render.tiers(system.of(32))] == ["leaf"]
    assert "leaf" not in drawn(system)


def test_a_node_is_drawn_with_its_links_rates_and_what_it_cannot_do():
    h100 = files.load("dgx-h100")
    for system, words in (
        (h100, "NVSwitch; 18 links from each GPU; 370.8 GB/s each way, 450 in the data sheet; the switches add"),
        (replace(h100, nvls=False), "NVLS is off"),
        (files.load("dgx-1v"), "GPU 3 NV2 NV1 NV2 - - - - NV1"),
        (files.load("pcie4-4090"), "peer access refused: through the memory of the host"),
        (files.load("aws-p3dn"), "NICs 1 x EFA, 12.5 GB/s each way; through the memory of the host"),
    ):
        assert words in flat(drawn(system))
    assert "0-3 NV2, 0-4 NV2" in flat(drawn(files.load("dgx-1v"), 40))


def test_the_command_takes_presets_files_nodes_and_ranks(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "Mine"\n[gpu]\narch = "sm89"\n[node]\ngpus = 2\nfabric = "pcie"\n')
    for arguments, first in (
        ("dgx-h100 --nodes 4 --ranks 16", "DGX H100, 2 nodes of 8 GPUs: 16 GPUs\n"),
        ("dgx-h100 --ranks 4", "DGX H100, 4 GPUs\n"),
        (str(path), "Mine, 2 GPUs\n"),
    ):
        assert topo(*arguments.split()).output.split("\n", 1)[1].startswith(first)
    record = json.loads(topo("dgx-h100", "--nodes", "2", "--json").output)
    assert (record["nodes"], record["gpu_rate"]) == (2, files.load("dgx-h100").gpu_rate)
    for arguments, message in (
        ("--nodes 2", "--nodes needs a described system"),
        ("moon", "unknown system 'moon'; choose from: "),
    ):
        with pytest.raises(UsageError, match=message):
            topo(*arguments.split())


@pytest.fixture
def nvml(monkeypatch, dgx_h100):
    monkeypatch.setitem(sys.modules, "pynvml", dgx_h100)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return dgx_h100


@pytest.fixture
def cuda(nvml, monkeypatch):
    """CuPy on a machine of which CUDA shows what it is told to."""
    machines = []

    def show(**changes):
        machines.append(Machine(**changes))
        monkeypatch.setattr(probe, "missing", lambda: "")
        monkeypatch.setattr(cuda_gpus, "load_cupy", machines[-1].cupy)
        return machines[-1]

    yield show
    for machine in machines:
        machine.stop()


def test_gpus_come_before_the_cpu_unless_there_are_none_or_it_is_asked_for(nvml, monkeypatch):
    words = "peer access unprobed (needs CuPy: pip install 'collbench[cuda12]' (or cuda13))"
    assert words in flat(topo().output)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "CUDA_VISIBLE_DEVICES is not applied" in topo().stderr
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert topo("cpu", "--ranks", "3").output.startswith("3 ranks on ")
    nvml.init_error = NO_DRIVER
    assert " on " in topo().stdout.splitlines()[0]
    message = r"^no GPU can be used: NVML .* \(Driver Not Loaded\).*, or choose cpu \(--on cpu\)$"
    with pytest.raises(PlatformError, match=message):
        topo("gpu")


def test_without_nvml_gpus_are_named_as_cuda_has_them(nvml, cuda, monkeypatch):
    nvml.init_error = NO_LIBRARY
    cuda(devices=2)
    monkeypatch.setattr(probe, "available", lambda: True)
    words = flat(topo("--ranks", "4").stdout)
    assert words.startswith("4 ranks sharing 2 x Test GPU what joins them is not known same gpu ranks on one device")
    reason = "NVML cannot be used (NVML Shared Library Not Found)"
    assert f"note: links and slots of the GPUs are not known: {reason}" in words
    assert [(gpu.bus_id, gpu.uuid) for gpu in shown("--ranks", "1").gpus] == [("0000:00:00.0", "01" * 16)]
    monkeypatch.setattr(probe, "missing", lambda: "CuPy")
    with pytest.raises(
        PlatformError, match=r"^no GPU can be used: NVML cannot be used .*, or choose cpu \(--on cpu\)$"
    ):
        topo("gpu")


def test_gpus_are_probed_in_the_order_of_cuda(cuda):
    machine = cuda(devices=2, buses={0: 0x2A, 1: 0x0A})
    assert shown().links[0].p2p == "yes"
    assert not machine.blocks, "the probe's buffers are given back"
    cuda(devices=2, buses={0: 0x2A, 1: 0x0A}, losing_copies={(1, 0)})
    found = shown()
    assert tuple(gpu.bus_id for gpu in found.gpus) == ("0000:2a:00.0", "0000:0a:00.0")
    assert (found.links[0].p2p, found.links[0].reason) == ("no", "a copy gave wrong data")


def test_cuda_that_shows_no_gpu_or_another_one_is_the_reason(cuda, monkeypatch):
    machine = cuda(devices=2, buses={0: 0x99, 1: 0x0A})
    words = "peer access unprobed (CUDA uses the GPU at 0000:99:00.0, which NVML does not show"
    assert words in flat(topo().stdout)
    assert not machine.streams, "nothing was probed"
    cuda(devices=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    result = topo()
    assert "peer access unprobed (no GPU found (cudaErrorNoDevice: " in flat(result.stdout)
    assert "CUDA_VISIBLE_DEVICES is not applied (no GPU found" in result.stderr
