"""GPU architectures and products, a record each: what links carry, and what data sheets promise.

Of architectures, `nvlink` and `pcie` are what NCCL's search takes for a link (2.30: src/graph/topo.h), a little less
than what data sheets promise and close to what arrives; `spec` is the data sheet's.  Bytes/s of one direction.

A system's file may say otherwise of its GPUs ([gpu] tflops, fp8_tflops, memory, memory_bw).  Rates of matrix products
are dense, without sparsity, and accumulated in 32 bits.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from collbench.topology.discovered import PCIE_RATES


class Architecture(NamedTuple):
    """GPUs of one compute capability."""

    name: str
    nvml: int  # NVML_DEVICE_ARCH_*
    products: str  # a pattern of their names; "" where no name tells them
    memory: float  # bytes/s of its memory by a data sheet
    packets: float  # bytes/s of data in packets within a node: the most NCCL's tuner takes for LL (src/graph/tuning.cc)
    pcie: int  # generation of its slot
    nvlinks: int = 0  # number that the largest product has
    nvlink: float = 0.0  # rate that NCCL takes for an NVLink
    spec: float = 0.0  # rate that the data sheet promises of an NVLink
    adds: bool = False  # whether its NVSwitches add
    usual: str = ""  # the product (products.py) that a system's GPUs are taken for if it does not name them


ARCHITECTURES = {
    "sm60": Architecture("Pascal", 4, r"P100", 0.73e12, 39e9, 3, 4, 18.0e9, 20e9, usual="P100"),
    "sm70": Architecture("Volta", 5, r"V100|TITAN V", 0.9e12, 39e9, 3, 6, 20.0e9, 25e9, usual="V100"),
    "sm75": Architecture("Turing", 6, r"RTX 20\d\d|Quadro RTX|T4\b", 0.62e12, 39e9, 3, 2, 20.0e9, 25e9, usual="T4"),
    "sm80": Architecture("Ampere", 7, r"A100|A800|A30\b", 2.0e12, 87.7e9, 4, 12, 20.0e9, 25e9, usual="A100"),
    "sm86": Architecture(
        "Ampere", 7, r"RTX (30\d\d|A\d000)|A(40|10|16|2)\b", 0.7e12, 87.7e9, 4, 4, 12.0e9, 14.0625e9, usual="A40"
    ),
    "sm89": Architecture("Ada", 8, r"RTX 40\d\d|L4\b|L40|Ada", 1.0e12, 87.7e9, 4, usual="L40S"),
    "sm90": Architecture(
        "Hopper", 9, r"G?H[12]00|H800|H20\b", 3.35e12, 141e9, 5, 18, 20.6e9, 25e9, adds=True, usual="H100"
    ),
    "sm100": Architecture("Blackwell", 10, r"G?B[12]00", 8.0e12, 282e9, 5, 18, 40.1e9, 50e9, adds=True, usual="B200"),
    "sm103": Architecture("Blackwell", 10, r"[GB]B?300", 8.0e12, 282e9, 6, 18, 40.1e9, 50e9, adds=True, usual="B300"),
    "sm120": Architecture("Blackwell", 10, r"RTX 50\d\d|RTX PRO \d000", 1.79e12, 282e9, 5, usual="RTX PRO 6000"),
    "sm121": Architecture("Blackwell", 10, r"GB10\b", 0.273e12, 282e9, 5, usual="GB10"),
}
"""`memory` is that of P100, V100, RTX 2080 Ti, A100 80 GB, A40, RTX 4090, H100, B200, B300, RTX PRO 6000, GB10.

NCCL takes an NVLink of capability 100 or more for the same (topo.h of 2.30: ncclTopoNVLinkBw), so of B200 and of B300.
GB10 hangs on its CPU by NVLink-C2C, which no other GPU reaches: it has no NVLink here, and a slot stands for C2C.
"""

TRAYS = r"\bGB[23]00\b"
"""A pattern of names of GPUs whose hosts are trays of a rack: its NVLinks join them, so the rack is the node."""
ADDING = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.adds)

SOCKET_RATES = {"intel": 10e9, "amd": 16e9, "arm": 6e9, "power": 32e9}
"""What NCCL takes for the link between two CPU sockets; Intel's with PCIe 5 are at SOCKET_RATE_INTEL_5."""
SOCKET_RATE_INTEL_5 = 22e9
SOCKET_LINKS = {"intel": 20e9, "amd": 64e9, "arm": 64e9, "power": 32e9}
"""What the link between sockets carries of GPUs' traffic: AMD's machines are limited by their slots, Intel's not."""


def pcie_rate(generation: int, lanes: int = 16) -> float:
    """Return what NCCL takes for a slot: 0.75 GB/s a lane in generation 3, and twice that in each later generation."""
    return float(0.75e9 * 2 ** (generation - 3) * lanes)


def pcie_spec(generation: int, lanes: int = 16) -> float:
    """Return what a slot carries after encoding."""
    return PCIE_RATES[generation] * lanes


def socket_rate(cpu: str, pcie_generation: int) -> float:
    """Return what NCCL takes for the link between sockets."""
    return SOCKET_RATE_INTEL_5 if cpu == "intel" and pcie_generation >= 5 else SOCKET_RATES[cpu]


def capability(arch: str) -> int:
    """Return 90 for "sm90": a compute capability without its point."""
    return int(arch.removeprefix("sm"))


GIB = 2**30
TERA = 1e12


@dataclass(frozen=True)
class Product:
    """One GPU by its data sheet."""

    flops: float  # FLOP/s of matrix products on 16 bits (bfloat16; half before Ampere)
    flops_fp8: float  # on 8 bits; that of 16 where it has none
    memory: float  # bytes
    memory_rate: float  # bytes/s
    flops_fp32: float = 0.0  # on 32 bits, of a GPU before Ampere: its tensor cores have no TF32; 0 of all others

    @property
    def flops_tf32(self) -> float:
        """FLOP/s of matrix products on TF32: half of those on 16 bits from Ampere on, before it those on 32 bits."""
        return self.flops_fp32 or self.flops / 2


def _product(tera: float, tera_fp8: float, gibibytes: float, terabytes: float, tera_fp32: float = 0.0) -> Product:
    return Product(tera * TERA, (tera_fp8 or tera) * TERA, gibibytes * GIB, terabytes * TERA, tera_fp32 * TERA)


PRODUCTS: tuple[tuple[str, Product], ...] = (  # a pattern of names: the first that fits
    (r"P100", _product(18.7, 0, 16, 0.73, 9.3)),
    (r"V100.*16 ?GB", _product(125, 0, 16, 0.9, 15.7)),
    (r"V100|TITAN V", _product(125, 0, 32, 0.9, 15.7)),
    (r"T4\b", _product(65, 0, 16, 0.32, 8.1)),
    (r"RTX 2080 ?Ti", _product(53.8, 0, 11, 0.616, 13.4)),
    (r"A[18]00.*40 ?GB", _product(312, 0, 40, 1.555)),
    (r"A100.*PCIe", _product(312, 0, 80, 1.935)),
    (r"A100|A800", _product(312, 0, 80, 2.039)),
    (r"A40\b", _product(149.7, 0, 48, 0.696)),
    (r"A10\b", _product(125, 0, 24, 0.6)),
    (r"RTX 3090", _product(71, 0, 24, 0.936)),
    (r"RTX 4090", _product(165.2, 330.3, 24, 1.008)),
    (r"L40S", _product(362, 733, 48, 0.864)),
    (r"L40\b", _product(181, 362, 48, 0.864)),
    (r"\bL4\b", _product(121, 242, 24, 0.3)),
    (r"H100.*NVL", _product(835, 1671, 94, 3.9)),
    (r"H100.*PCIe", _product(756, 1513, 80, 2.0)),
    (r"GH200", _product(989.4, 1978.9, 96, 4.0)),
    (r"H200", _product(989.4, 1978.9, 141, 4.8)),
    (r"H20\b", _product(148, 296, 96, 4.0)),
    (r"H[18]00", _product(989.4, 1978.9, 80, 3.35)),
    (r"GB200", _product(2500, 5000, 186, 8.0)),
    (r"B200", _product(2250, 4500, 180, 8.0)),
    (r"GB300", _product(2500, 5000, 279, 8.0)),
    (r"B300", _product(2250, 4500, 270, 8.0)),
    (r"GB10\b", _product(125, 250, 119, 0.273)),
    (r"RTX 5090", _product(209.5, 419, 32, 1.792)),
    (r"RTX PRO 6000", _product(503.8, 1007.6, 96, 1.792)),
)
"""NVIDIA's data sheets and white papers of these products, and of GeForce those of their architectures.

GB10's says 1 PFLOP/s on FP4 with sparsity, of which RTX PRO 6000's tensor cores (4 PFLOP/s) have a quarter on 8 bits
and an eighth on 16; its 128 GB (119 GiB) are the CPU's memory too.  Data sheets round TF32: H100's 494.7 is half of
989.4, A100's 156 of 312, B200's 1100 of 2250.
"""


def product_named(name: str) -> Product | None:
    """Return the product of that name; None if it is unknown."""
    return next((product for pattern, product in PRODUCTS if re.search(pattern, name, re.IGNORECASE)), None)


def usual_product(arch: str) -> Product:
    """Return the usual product of an architecture, or of the newest before it that has one."""
    for older in sorted(ARCHITECTURES, key=capability, reverse=True):
        product = product_named(ARCHITECTURES[older].usual) if ARCHITECTURES[older].usual else None
        if product and capability(older) <= capability(arch):
            return product
    return PRODUCTS[0][1]
