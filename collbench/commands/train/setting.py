"""The setting of a plan: the job, the machine, and both as the values that formulas take."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.layouts import CODES, RECOMPUTE, SCHEDULES, SHARDINGS, data_stride, node_replicas
from collbench.commands.train.models import GRADIENTS, OPTIMISERS, STACKS, TrainingJob
from collbench.errors import UsageError
from collbench.model.predict import CONTENTION, slowest
from collbench.notebook import Shown
from collbench.topology.products import GIB, Product, capability, is_amd
from collbench.topology.system import System, product_of


@dataclass(frozen=True)
class Constants:
    """Shares of a data sheet's rates that computing reaches; all of them, unless fits say less."""

    spread: float  # of computing's time, up and down: what nine of ten published steps lie within
    spread_experts: float  # the same where there are experts
    products: float = 1.0  # that matrix products reach
    fused: float = 1.0  # of that: what fused attention reaches of long samples
    half: float = 0.0  # tokens of a sample at which it reaches half of that
    fp8: float = 1.0  # of that: what products on 8 bits reach, each of their own peak
    narrow: float = 0.0  # width of an expert whose products reach half of that
    few: float = 0.0  # tokens of an expert with which they reach half of that
    older: float = 1.0  # of that: what software up to 2022 reaches
    unfused: float = 1.0  # the same of attention's batched products; the scores' way through memory is apart
    memory: float = 1.0  # of the memory's rate: what all else reaches
    generation: int = 0  # the compute capability that they were fitted to


_RATES = tomllib.loads(Path(__file__).with_name("rates.toml").read_text(encoding="utf-8"))
FITTED = {
    int(generation): Constants(**_RATES["all"], **products, generation=int(generation))
    for generation, products in _RATES["generations"].items()
}


def constants_of(arch: str) -> Constants:
    """Return the constants of the newest known generation not newer than the architecture, or the oldest."""
    not_newer = [generation for generation in FITTED if generation <= capability(arch)]
    return FITTED[max(not_newer, default=min(FITTED))]


@dataclass(frozen=True)
class GpuMachine(Shown):
    """What a plan computes on: GPUs, all alike."""

    name: str
    product: Product
    constants: Constants
    pcie_rate: float  # bytes/s between a GPU and the memory of its CPU
    stack: str  # the software that its constants were fitted to


PROCESS = GIB
"""Bytes that a process takes for itself, and as many for what it exchanges with others."""
HOST_RATE = 25e9
"""Bytes/s of a CPU's memory for each GPU, for an optimiser that lives there."""
OLDER = "megatron-2021"
"""The software of GPUs up to Ampere's A100: that of the published runs that their constants are fitted to."""


def machine_of(system: System) -> GpuMachine:
    """Return the machine of a described system; UsageError for AMD's GPUs, of which no training run was fitted."""
    if is_amd(system.arch):
        raise UsageError(f"nothing is known of training on {system.name}; choose a system of NVIDIA's GPUs")
    stack = OLDER if capability(system.arch) <= capability("sm80") else "modern"
    return GpuMachine(system.name, product_of(system), constants_of(system.arch), system.pcie_rate, stack)


@dataclass(frozen=True)
class PlanSetting(Shown):
    """Everything that a plan is made from, except the layout."""

    job: TrainingJob
    curves: ModelCurves
    machine: GpuMachine
    inside: float = 1.0  # times the bandwidth of links inside a node, as if the library used all of it
    across: float = 1.0  # the same of network cards

    @property
    def capacity(self) -> float:
        """Bytes of memory of a GPU."""
        return self.machine.product.memory


def inputs(given: PlanSetting) -> dict[str, Any]:
    """Return the inputs of formulas that are the same for all layouts: of the model, the software and the hardware."""
    job, model = given.job, given.job.model
    moe = model.moe_layers / model.layers
    stack, optimiser = STACKS[job.stack], OPTIMISERS[job.optimiser]
    known, gpu = given.machine.constants, given.machine.product
    on_32_bits = job.precision == "tf32"  # types of weights that need no 32-bit copy in the optimiser's states
    reached = known.products * (1 if stack.fused else known.older)
    usual = gpu.flops_tf32 if on_32_bits else gpu.flops
    on_8_bits = job.precision == "fp8" and gpu.flops_fp8 > gpu.flops
    names = "layers hidden heads queries keys vocabulary matrices gated worked width top_k"
    more = "layer_parameters routed_parameters embedding output routed"
    return {
        **{name: getattr(model, name) for name in (*names.split(), *more.split())},
        **{field.name: getattr(stack, field.name) for field in fields(stack) if field.name != "options"},
        **{name: getattr(job, name) for name in ("sequence", "batch", "gpus", "efficiency")},
        "width_worked": (model.worked - model.attention_weights - moe * model.hidden * model.experts)
        / model.matrices
        / model.hidden,
        "moe_share": moe,
        "grouped_worked": model.routed * model.expert_weights,
        "dropout": 0 if model.gated or stack.fused else 1,
        "gradient_bytes": GRADIENTS[job.gradients],
        "element": 4 if on_32_bits else 2,
        "state_bytes": optimiser.states - (4 if on_32_bits else 0),
        "state_traffic": optimiser.traffic,
        "reserve": max(job.reserve, stack.reserve),
        "slowing": CONTENTION,
        "slowest": slowest(job.gpus, job.noise),
        "peak16": gpu.flops,
        "product_rate": (gpu.flops_fp8 * known.fp8 if on_8_bits else usual) * reached,
        "product_rate_16": usual * reached,
        "narrow": known.narrow,
        "few": known.few,
        "experts": max(1, model.experts),
        "fused_efficiency": known.fused,
        "fused_half": known.half,
        "unfused_efficiency": known.unfused,
        "bandwidth": gpu.memory_rate * known.memory,
        "capacity": gpu.memory,
        "process": PROCESS,
        "pcie_rate": given.machine.pcie_rate,
        "host_rate": HOST_RATE,
    }


def choices(arrays: dict[str, Any], given: PlanSetting) -> dict[str, Any]:
    """Return the inputs of formulas that differ from layout to layout."""
    sharding = np.asarray(arrays["sharding"], np.int64)
    stride = data_stride(arrays)
    inside = node_replicas(arrays, given.curves.system)
    sequential, recompute = np.asarray(arrays["sequential"]) == 1, np.asarray(arrays["recompute"])
    apart = arrays["tensor"] * arrays["context"] * np.where(np.asarray(arrays["placement"]) == 1, 1.0, arrays["data"])
    return {name: arrays[name] for name in arrays if name not in CODES} | {
        "shard": np.array(list(SHARDINGS.values()))[sharding],
        "hybrid": sharding == CODES["sharding"].index("hsdp"),
        "full": recompute == RECOMPUTE.index("full"),
        "selective": recompute == RECOMPUTE.index("selective"),
        "sequential": sequential,
        "spread": np.where(sequential, arrays["tensor"], 1.0),
        "offload": np.asarray(arrays["offload"]) == 1,
        "zero_bubble": np.asarray(arrays["schedule"]) == SCHEDULES.index("zb"),
        "data_stride": stride,
        "stage_stride": apart,
        "node_replicas": inside,
        "replica_stride": stride * inside,
    }
