"""Machines that nobody has at hand, as NVML knows them."""

from dataclasses import replace

import pynvml
import pytest

from tools.stand_in.nvml import GPU, SWITCH, FakeGpu, FakeNvml, bus


@pytest.fixture
def dgx_h100() -> FakeNvml:
    """8 GPUs with 18 links each, all to switches, on a fabric that is up."""
    links = tuple((SWITCH, f"00000000:{0xC0 + link % 4:02X}:00.0") for link in range(18))
    gpu = FakeGpu("NVIDIA H100 80GB HBM3", "", links, link_speed=26562, fabric=(3, 0))
    gpus = [replace(gpu, bus_id=bus(16 * i + 10), numa=i // 4) for i in range(8)]
    return FakeNvml(gpus, p2p={0: 0, 1: 0, 2: 0})


@pytest.fixture
def pairs() -> FakeNvml:
    """4 RTX A6000: two pairs with 4 links each inside, PCIe between the pairs."""
    line = {"link_version": pynvml.NVML_NVLINK_VERSION_3_1, "link_speed": 14062}
    kind = {"architecture": pynvml.NVML_DEVICE_ARCH_AMPERE, "capability": (8, 6)}
    gpu = FakeGpu("NVIDIA RTX A6000", "", pcie=(4, 16, 4, 16), **line, **kind)
    gpus = [replace(gpu, bus_id=bus(i + 1), links=((GPU, bus((i ^ 1) + 1)),) * 4) for i in range(4)]
    return FakeNvml(gpus, p2p={0: 0, 1: 0})


@pytest.fixture
def pcie_box() -> FakeNvml:
    """2 consumer GPUs whose driver refuses peer access; the second has half its lanes."""
    kind = {"architecture": pynvml.NVML_DEVICE_ARCH_ADA, "capability": (8, 9), "mig": None, "numa": None}
    gpu = FakeGpu("NVIDIA GeForce RTX 4090", bus(1), pcie=(1, 16, 4, 16), **kind)
    p2p = {0: pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED, 1: pynvml.NVML_P2P_STATUS_OK}
    both = [gpu, replace(gpu, bus_id=bus(2), pcie=(1, 8, 4, 16))]
    return FakeNvml(both, level=pynvml.NVML_TOPOLOGY_HOSTBRIDGE, p2p=p2p)


@pytest.fixture
def h200() -> FakeNvml:
    """One GPU of a machine with switches, passed through to a virtual machine."""
    links = ((SWITCH, "00000000:FF:FF.F"),) * 18
    return FakeNvml([FakeGpu("NVIDIA H200", bus(0x0A), links, memory=141 * 2**30, fabric=(3, 0))])
