"""GPU architectures and products: link rates and data sheet values.

The records are in products.toml, with their sources.

A system's file may override them ([gpu] tflops, fp8_tflops, memory, memory_bw). Rates of matrix products are dense,
without sparsity, and accumulated in 32 bits.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
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


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ARCHITECTURES: dict[str, Architecture] = {
    name: Architecture(**fields) for name, fields in _TABLES["architectures"].items()
}
TRAYS = r"\bGB[23]00\b"
"""A pattern of names of GPUs whose hosts are trays of a rack: its NVLinks join them, so the rack is the node."""
ADDING = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.adds)

SOCKET_RATES = {"intel": 10e9, "amd": 16e9, "arm": 6e9, "power": 32e9}
"""NCCL's figure for the link between two CPU sockets; Intel's with PCIe 5 are at SOCKET_RATE_INTEL_5."""
SOCKET_RATE_INTEL_5 = 22e9
SOCKET_LINKS = {"intel": 20e9, "amd": 64e9, "arm": 64e9, "power": 32e9}
"""Rate of the link between sockets for GPUs' traffic: AMD's machines are limited by their slots, Intel's not."""


def pcie_rate(generation: int, lanes: int = 16) -> float:
    """Return what NCCL takes for a slot: 0.75 GB/s a lane in generation 3, and twice that in each later generation."""
    return float(0.75e9 * 2 ** (generation - 3) * lanes)


def pcie_spec(generation: int, lanes: int = 16) -> float:
    """Return what a slot carries after encoding."""
    return PCIE_RATES[generation] * lanes


def socket_rate(cpu: str, pcie_generation: int) -> float:
    """Return what NCCL takes for the link between sockets."""
    return SOCKET_RATE_INTEL_5 if cpu == "intel" and pcie_generation >= 5 else SOCKET_RATES[cpu]


def is_amd(arch: str) -> bool:
    """Return whether GPUs are AMD's, joined by xGMI, whose library is RCCL: "gfx942" and the like."""
    return arch.startswith("gfx")


def capability(arch: str) -> int:
    """Return 90 for "sm90": a compute capability without its point; of AMD's GPUs that of Ampere, like RCCL's table."""
    return 80 if is_amd(arch) else int(arch.removeprefix("sm"))


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
        """FLOP/s of matrix products on TF32."""
        # Half of those on 16 bits from Ampere on, before it those on 32 bits.
        return self.flops_fp32 or self.flops / 2


def _product(tera: float, tera_fp8: float, gibibytes: float, terabytes: float, tera_fp32: float = 0.0) -> Product:
    return Product(tera * TERA, (tera_fp8 or tera) * TERA, gibibytes * GIB, terabytes * TERA, tera_fp32 * TERA)


PRODUCTS: tuple[tuple[str, Product], ...] = tuple((name, _product(*figures)) for name, *figures in _TABLES["products"])
"""A pattern of names, and the product: the first that fits."""


def product_named(name: str) -> Product | None:
    """Return the product of that name; None if it is unknown."""
    return next((product for pattern, product in PRODUCTS if re.search(pattern, name, re.IGNORECASE)), None)


def arch_named(name: str) -> str:
    """Return the architecture that the name of a GPU tells; empty if it tells none."""
    return next((arch for arch, gpus in ARCHITECTURES.items() if gpus.products and re.search(gpus.products, name)), "")


def usual_product(arch: str) -> Product:
    """Return the usual product of an architecture, or of the newest before it that has one."""
    for older in (arch, *sorted(ARCHITECTURES, key=capability, reverse=True)):
        usual = ARCHITECTURES[older].usual
        product = product_named(usual) if usual else None
        if product and capability(older) <= capability(arch):
            return product
    return PRODUCTS[0][1]
