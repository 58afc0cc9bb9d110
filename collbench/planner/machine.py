"""What a plan computes on: GPUs of a described system, or the ranks that a run was measured with."""

from dataclasses import dataclass, replace

from collbench.planner.constants import Constants, constants_of
from collbench.topology.products import GIB, TERA, Product, capability
from collbench.topology.system import System, is_named, product_of


@dataclass(frozen=True)
class Machine:
    """GPUs, all alike."""

    name: str
    gpus: int  # of a node
    product: Product
    constants: Constants
    pcie_rate: float  # bytes/s between a GPU and the memory of its CPU
    host_rate: float = 25e9  # bytes/s of that memory for each GPU, for an optimiser that lives there
    process: float = GIB  # bytes that a process takes for itself, and as many for what it exchanges with others
    unit: str = "GPUs"  # what they are called
    note: str = ""  # where their rates are from, if it is not a data sheet
    known: bool = True  # whether the product is, and not its architecture alone
    stack: str = "modern"  # the software that its constants were fitted to


OLDER = "megatron-2021"
"""The software of GPUs up to Ampere's A100: that of the published runs that their constants are fitted to."""
_LAST_OLDER = 80  # their compute capability


def machine_of(system: System) -> Machine:
    """A described system's."""
    constants = constants_of(system.arch)
    return Machine(
        system.name,
        system.gpus,
        product_of(system),
        constants,
        system.pcie_rate,
        known=is_named(system),
        stack=OLDER if capability(system.arch) <= _LAST_OLDER else "modern",
    )


def said(machine: Machine, tera: float | None, gibibytes: float | None) -> Machine:
    """With what a user says of a GPU: dense TFLOP/s on 16 bits, and GiB of memory."""
    product = machine.product
    if tera:
        doubled = 2 if product.flops_fp8 > product.flops else 1
        product = replace(product, flops=tera * TERA, flops_fp8=doubled * tera * TERA)
    if gibibytes:
        product = replace(product, memory=gibibytes * GIB)
    return replace(machine, product=product)
