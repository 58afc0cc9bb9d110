"""What GPUs of an architecture bring along, for systems that say no more than its name.

`nvlink` and `pcie` are what NCCL's search takes for a link (2.30: src/graph/topo.h), which is a little less than
what data sheets promise and close to what arrives; `spec` is the data sheet's.  Bytes/s of one direction.
"""

from typing import NamedTuple

from collbench.topology.devices import PCIE_RATES


class Architecture(NamedTuple):
    """GPUs of one compute capability."""

    name: str
    pcie: int  # generation of its slot
    nvlinks: int = 0  # of the largest product
    nvlink: float = 0.0  # what NCCL takes for one
    spec: float = 0.0  # what the data sheet promises of one


ARCHITECTURES = {
    "sm60": Architecture("Pascal", 3, 4, 18.0e9, 20e9),
    "sm70": Architecture("Volta", 3, 6, 20.0e9, 25e9),
    "sm75": Architecture("Turing", 3, 2, 20.0e9, 25e9),
    "sm80": Architecture("Ampere", 4, 12, 20.0e9, 25e9),
    "sm86": Architecture("Ampere", 4, 4, 12.0e9, 14.0625e9),
    "sm89": Architecture("Ada", 4),
    "sm90": Architecture("Hopper", 5, 18, 20.6e9, 25e9),
    "sm100": Architecture("Blackwell", 5, 18, 40.1e9, 50e9),
    "sm103": Architecture("Blackwell", 5, 18, 40.1e9, 50e9),
    "sm120": Architecture("Blackwell", 5),
    "sm121": Architecture("Blackwell", 5),
}
ADDING = ("sm90", "sm100", "sm103")  # whose NVSwitches add

SOCKET_RATES = {"intel": 10e9, "amd": 16e9, "arm": 6e9, "power": 32e9}
"""What NCCL takes for the way from one CPU socket to the other; Intel's with PCIe 5 are at SOCKET_RATE_INTEL_5."""
SOCKET_RATE_INTEL_5 = 22e9


def pcie_rate(generation: int, lanes: int = 16) -> float:
    """What NCCL takes for a slot: 0.75 GB/s a lane in generation 3, and twice that in each later one."""
    return float(0.75e9 * 2 ** (generation - 3) * lanes)


def pcie_spec(generation: int, lanes: int = 16) -> float:
    """What a slot carries after encoding."""
    return PCIE_RATES[generation] * lanes


def socket_rate(cpu: str, pcie_generation: int) -> float:
    """What NCCL takes for the way between sockets."""
    return SOCKET_RATE_INTEL_5 if cpu == "intel" and pcie_generation >= 5 else SOCKET_RATES[cpu]
