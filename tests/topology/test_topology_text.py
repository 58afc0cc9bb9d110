from dataclasses import replace

import pytest

from collbench.topology.caveats import caveats
from collbench.topology.devices import Host, Kind, Link, Socket
from collbench.topology.discover_gpu import discover
from collbench.topology.topology import Topology
from collbench.topology.topology_text import lines


def text(topology, width=80):
    return "\n".join(lines(topology, width))


def notes(topology):
    return " ".join(caveats(topology))


def cpu(ranks=2, **facts):
    host = Host(**({"usable": (0, 1, 2, 3)} | facts))
    return Topology("cpu", ranks, sockets=(Socket("AMD EPYC", 2, 4),), host=host)


@pytest.mark.parametrize("machine", ["dgx_h100", "pairs", "pcie_box", "h200"])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(request, machine, width):
    """Eight GPUs fit 80 columns; narrower terminals get a list in place of the matrix."""
    topology = discover(nvml=request.getfixturevalue(machine))
    assert max(map(len, lines(topology, width))) <= width


def test_eight_gpus_have_a_matrix_at_80_columns(dgx_h100):
    """A row for each GPU, a cell for each pair."""
    shown = text(discover(nvml=dgx_h100))
    assert "GPU 7 nvswitch nvswitch nvswitch nvswitch nvswitch nvswitch nvswitch -" in shown
    assert "nvswitch  18 x NVLink 4 through NVSwitch, 450.0 GB/s each way;" in shown


def test_gpus_that_are_alike_are_described_once(pcie_box, dgx_h100):
    """Eight times the same would hide the one that differs."""
    assert "GPU 0-7  NVIDIA H100 80GB HBM3 (Hopper 9.0), 80 GiB" in text(discover(nvml=dgx_h100))
    assert "GPU 1   NVIDIA GeForce RTX 4090 (Ada 8.9), 80 GiB, PCIe 4 x8" in text(discover(nvml=pcie_box))


def test_a_narrow_terminal_lists_the_pairs(dgx_h100):
    """What the matrix would show stands behind each kind of connection."""
    topology = discover(nvml=dgx_h100)
    fewer = [replace(link, nvlink=replace(link.nvlink, count=9)) for link in topology.links[:2]]
    shown = " ".join(text(replace(topology, links=(*fewer, *topology.links[2:])), 40).split())
    assert "(0-1, 0-2) nvswitch b 18 x NVLink 4" in shown
    assert "GPU 0 -" not in shown


def test_connections_that_differ_have_different_labels(dgx_h100):
    """Two kinds of NVLink in one machine are told apart by a letter."""
    topology = discover(3, nvml=dgx_h100)
    first, *others = topology.links
    fewer = replace(first, nvlink=replace(first.nvlink, count=9))
    shown = text(replace(topology, links=(fewer, *others)))
    assert "nvswitch a  9 x NVLink 4" in shown
    assert "nvswitch b  18 x NVLink 4" in shown


def test_peer_access_comes_with_its_reason(pcie_box):
    """A no without a why helps nobody."""
    assert "peer access no (the driver says: chipset not supported)" in " ".join(text(discover(nvml=pcie_box)).split())


def test_ranks_on_one_gpu_are_said_to_share_it(h200):
    """There is no matrix, and the reader is warned."""
    shown = " ".join(text(discover(4, nvml=h200)).split())
    assert "same gpu every pair of ranks: loads and stores in one memory" in shown
    assert "note: 4 ranks share 1 GPU: bus bandwidth means nothing" in shown


def test_one_rank_has_nothing_to_connect(h200):
    """One GPU, one rank."""
    assert "one rank: nothing to connect" in text(discover(nvml=h200))


def test_sockets_are_told_apart():
    """Ranks on two sockets share memory, from nearer or farther."""
    sockets = (Socket("AMD EPYC", 2, 2), Socket("AMD EPYC", 2, 2))
    link = Link(0, 1, Kind.SHARED_MEMORY, "between CPU sockets")
    shown = text(Topology("cpu", 4, sockets=sockets, links=(link,)))
    assert "CPU 0 -             shared memory" in shown
    assert "shared memory  loads and stores in one memory, between CPU sockets" in shown


def test_cpus_are_shown_in_spans():
    """As the kernel writes them."""
    assert "usable  5 CPUs (0-2,5,8)" in text(cpu(usable=(0, 1, 2, 5, 8)))


def test_enough_room_needs_no_note():
    """A good machine has no caveats."""
    assert caveats(cpu()) == ()


def test_more_ranks_than_cpus_take_turns():
    """Oversubscription changes what a time means."""
    assert "5 ranks on 4 usable CPUs: they take turns" in notes(cpu(5))


def test_more_ranks_than_cores_share_units():
    """Two threads of one core are not two cores."""
    assert "3 ranks on 2 cores: some share one core" in notes(cpu(3))


def test_a_limit_on_cpu_time_is_said():
    """A container's limit pauses ranks that spin, whatever the affinity mask says."""
    assert "the control group allows 1.5 CPUs' worth of time" in notes(cpu(1, cpu_limit=1.5))


def test_little_shared_memory_comes_with_the_fix():
    """Docker's 64 MiB are used up quickly."""
    assert "only 64 MiB free in /dev/shm, where MPI libraries share memory; in Docker: --shm-size" in notes(
        cpu(shm_free=2**26)
    )


def test_pcie_lanes_that_are_missing_are_said(pcie_box):
    """Half the lanes are half the bandwidth."""
    assert "GPU 1: fewer PCIe lanes in use" in notes(discover(nvml=pcie_box))


def test_missing_nvlinks_are_said(dgx_h100):
    """One GPU with a link down slows every collective."""
    first = dgx_h100.gpus[0]
    dgx_h100.gpus[0] = replace(first, links=first.links[:17])
    assert "GPU 0 has 17 active NVLinks, others have 18" in notes(discover(nvml=dgx_h100))


def test_mig_is_said(h200):
    """A slice of a GPU is not a GPU."""
    h200.gpus = [replace(h200.gpus[0], mig=1)]
    assert "GPU 0 is in MIG mode" in notes(discover(nvml=h200))


def test_a_fabric_that_is_not_up_is_said(h200):
    """Without the fabric manager CUDA does not start."""
    h200.gpus = [replace(h200.gpus[0], fabric=(2, 0))]
    assert "GPU 0 has not joined its fabric (in progress); check nvidia-fabricmanager" in notes(discover(nvml=h200))
