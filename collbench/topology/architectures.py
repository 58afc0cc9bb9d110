"""GPU architectures, a record each: what their GPUs bring along, for systems that say no more than its name.

`nvlink` and `pcie` are what NCCL's search takes for a link (2.30: src/graph/topo.h), which is a little less than
what data sheets promise and close to what arrives; `spec` is the data sheet's.  Bytes/s of one direction.
"""

from typing import NamedTuple

from collbench.topology.devices import PCIE_RATES


class Architecture(NamedTuple):
    """GPUs of one compute capability."""

    name: str
    nvml: int  # NVML_DEVICE_ARCH_*
    products: str  # a pattern of their names; "" where no name tells them
    memory: float  # bytes/s of its memory by a data sheet
    packets: float  # bytes/s of data in packets within a node: the most NCCL's tuner takes for LL (src/graph/tuning.cc)
    pcie: int  # generation of its slot
    nvlinks: int = 0  # of the largest product
    nvlink: float = 0.0  # what NCCL takes for one
    spec: float = 0.0  # what the data sheet promises of one
    adds: bool = False  # whether its NVSwitches add
    usual: str = ""  # the product (products.py) that a system's GPUs are taken for if it does not name them


ARCHITECTURES = {
    "sm60": Architecture("Pascal", 4, r"P100", 0.73e12, 39e9, 3, 4, 18.0e9, 20e9, usual="P100"),
    "sm70": Architecture("Volta", 5, r"V100|TITAN V", 0.9e12, 39e9, 3, 6, 20.0e9, 25e9, usual="V100"),
    "sm75": Architecture("Turing", 6, r"RTX 20\d\d|Quadro RTX|T4\b", 0.62e12, 39e9, 3, 2, 20.0e9, 25e9, usual="T4"),
    "sm80": Architecture("Ampere", 7, r"A100|A800|A30\b", 2.0e12, 87.7e9, 4, 12, 20.0e9, 25e9, usual="A100"),
    "sm86": Architecture(
        "Ampere",
        7,
        r"RTX 30\d\d|RTX A\d000|A40\b|A10\b|A16\b|A2\b",
        0.7e12,
        87.7e9,
        4,
        4,
        12.0e9,
        14.0625e9,
        usual="A40",
    ),
    "sm89": Architecture("Ada", 8, r"RTX 40\d\d|L4\b|L40|Ada", 1.0e12, 87.7e9, 4, usual="L40S"),
    "sm90": Architecture(
        "Hopper", 9, r"G?H[12]00|H800|H20\b", 3.35e12, 141e9, 5, 18, 20.6e9, 25e9, adds=True, usual="H100"
    ),
    "sm100": Architecture("Blackwell", 10, r"G?B[12]00", 8.0e12, 282e9, 5, 18, 40.1e9, 50e9, adds=True, usual="B200"),
    "sm103": Architecture("Blackwell", 10, r"[GB]B?300", 8.0e12, 282e9, 5, 18, 40.1e9, 50e9, adds=True, usual="B300"),
    "sm120": Architecture("Blackwell", 10, r"RTX 50\d\d|RTX PRO \d000", 1.79e12, 282e9, 5, usual="RTX PRO 6000"),
    "sm121": Architecture("Blackwell", 10, "", 0.27e12, 282e9, 5, usual="L4"),
}
"""`memory` is that of P100, V100, RTX 2080 Ti, A100 80 GB, A40, RTX 4090, H100, B200, B300, RTX PRO 6000, GB10."""

ADDING = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.adds)

SOCKET_RATES = {"intel": 10e9, "amd": 16e9, "arm": 6e9, "power": 32e9}
"""What NCCL takes for the way from one CPU socket to the other; Intel's with PCIe 5 are at SOCKET_RATE_INTEL_5."""
SOCKET_RATE_INTEL_5 = 22e9
SOCKET_LINKS = {"intel": 20e9, "amd": 64e9, "arm": 64e9, "power": 32e9}
"""What the way between sockets carries of GPUs' traffic: AMD's boxes are bound by their slots, Intel's not."""


def pcie_rate(generation: int, lanes: int = 16) -> float:
    """What NCCL takes for a slot: 0.75 GB/s a lane in generation 3, and twice that in each later one."""
    return float(0.75e9 * 2 ** (generation - 3) * lanes)


def pcie_spec(generation: int, lanes: int = 16) -> float:
    """What a slot carries after encoding."""
    return PCIE_RATES[generation] * lanes


def socket_rate(cpu: str, pcie_generation: int) -> float:
    """What NCCL takes for the way between sockets."""
    return SOCKET_RATE_INTEL_5 if cpu == "intel" and pcie_generation >= 5 else SOCKET_RATES[cpu]


def capability(arch: str) -> int:
    """90 for "sm90": a compute capability without its point."""
    return int(arch.removeprefix("sm"))
