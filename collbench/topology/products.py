"""GPU products, a record each: what their data sheets promise of arithmetic and memory.

A system's file may say otherwise ([gpu] tflops, fp8_tflops, memory, memory_bw).  Rates of matrix products are dense,
without sparsity, and accumulated in 32 bits.
"""

import re
from dataclasses import dataclass

from collbench.topology.architectures import ARCHITECTURES, capability
from collbench.topology.system import System

GIB = 2**30
TERA = 1e12


@dataclass(frozen=True)
class Product:
    """One GPU by its data sheet."""

    flops: float  # FLOP/s of matrix products on 16 bits (bfloat16; half before Ampere)
    flops_fp8: float  # on 8 bits; that of 16 where it has none
    memory: float  # bytes
    memory_rate: float  # bytes/s


def _product(tera: float, tera_fp8: float, gibibytes: float, terabytes: float) -> Product:
    return Product(tera * TERA, (tera_fp8 or tera) * TERA, gibibytes * GIB, terabytes * TERA)


PRODUCTS: tuple[tuple[str, Product], ...] = (  # a pattern of names: the first that fits
    (r"P100", _product(18.7, 0, 16, 0.73)),
    (r"V100.*16 ?GB", _product(125, 0, 16, 0.9)),
    (r"V100|TITAN V", _product(125, 0, 32, 0.9)),
    (r"T4\b", _product(65, 0, 16, 0.32)),
    (r"RTX 2080 ?Ti", _product(53.8, 0, 11, 0.616)),
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
    (r"B300", _product(2500, 5000, 270, 8.0)),
    (r"RTX 5090", _product(209.5, 419, 32, 1.792)),
    (r"RTX PRO 6000", _product(503.8, 1007.6, 96, 1.792)),
)
"""NVIDIA's data sheets and white papers of these products, and of GeForce those of their architectures."""


def product_of(system: System) -> Product:
    """What a GPU of the system can do: by its file, its product, or its architecture, in that order."""
    known = _named(system.gpu) or _usual(system.arch)
    doubled = 2 * system.flops if known.flops_fp8 > known.flops else system.flops
    return Product(
        system.flops or known.flops,
        system.flops_fp8 or doubled or known.flops_fp8,
        system.memory or known.memory,
        system.memory_rate or known.memory_rate,
    )


def is_named(system: System) -> bool:
    """Whether the product is known, and not only its architecture."""
    return _named(system.gpu) is not None


def _named(name: str) -> Product | None:
    return next((product for pattern, product in PRODUCTS if re.search(pattern, name, re.IGNORECASE)), None)


def _usual(arch: str) -> Product:
    """Of an architecture, or where it has none of the newest before it that has."""
    older = [one for one in ARCHITECTURES if capability(one) <= capability(arch)]
    names = [ARCHITECTURES[one].usual for one in sorted(older, key=capability, reverse=True)]
    return next((product for product in map(_named, filter(None, names)) if product), PRODUCTS[0][1])
