"""The setting of a plan: job, machine, and the inputs of formulas."""

import tomllib
from dataclasses import dataclass
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
    """Achieved shares of a data sheet's rates; 1 unless fitted."""

    spread: float  # relative spread of computing time that holds nine of ten published steps
    spread_experts: float  # the same with experts
    products: float = 1.0  # matrix products, as a share of peak
    fused: float = 1.0  # fused attention on long samples, relative to products
    half: float = 0.0  # tokens of a sample at which fused attention reaches half of that
    fp8: float = 1.0  # 8-bit products, relative to products, each to its own peak
    narrow: float = 0.0  # width of an expert at which its products reach half
    few: float = 0.0  # tokens per expert at which its products reach half
    older: float = 1.0  # software up to 2022, relative to products
    unfused: float = 1.0  # batched products of unfused attention, without the memory traffic of scores
    memory: float = 1.0  # all other work, as a share of memory bandwidth
    generation: int = 0  # compute capability of the fit


_RATES = tomllib.loads(Path(__file__).with_name("rates.toml").read_text(encoding="utf-8"))
FITTED = {
    int(generation): Constants(**_RATES["all"], **products, generation=int(generation))
    for generation, products in _RATES["generations"].items()
}


def constants_of(arch: str) -> Constants:
    """Return the constants of the newest fitted generation up to the architecture, or of the oldest."""
    not_newer = [generation for generation in FITTED if generation <= capability(arch)]
    return FITTED[max(not_newer, default=min(FITTED))]


@dataclass(frozen=True)
class GpuMachine(Shown):
    """The identical GPUs of a plan."""

    name: str
    product: Product
    constants: Constants
    pcie_rate: float  # bytes/s between a GPU and CPU memory
    stack: str  # the software of the fitted constants


PROCESS = GIB
"""Bytes of a process itself, and as many for its communication buffers."""
HOST_RATE = 25e9
"""Bytes/s of CPU memory per GPU, for an offloaded optimiser."""
OLDER = "megatron-2021"
"""The software of GPUs up to the A100, from the published runs of the fit."""


def machine_of(system: System) -> GpuMachine:
    """Return the machine of a described system; UsageError for AMD GPUs, which have no fitted training run."""
    if is_amd(system.arch):
        raise UsageError(f"training on {system.name} has no fitted constants; choose a system of NVIDIA GPUs")
    stack = OLDER if capability(system.arch) <= capability("sm80") else "modern"
    return GpuMachine(system.name, product_of(system), constants_of(system.arch), system.pcie_rate, stack)


@dataclass(frozen=True)
class PlanSetting(Shown):
    """All inputs of a plan except the layout."""

    job: TrainingJob
    curves: ModelCurves
    machine: GpuMachine
    inside: float = 1.0  # factor of the bandwidth of links inside a node, assumed fully used
    across: float = 1.0  # the same for network cards

    @property
    def capacity(self) -> float:
        """Bytes of memory of a GPU."""
        return self.machine.product.memory


def inputs(given: PlanSetting) -> dict[str, Any]:
    """Return the inputs of formulas that all layouts share: model, software and hardware."""
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
        **{name: value for name, value in vars(stack).items() if name not in ("options", "reserve")},
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
        "slowing": CONTENTION,
        "slowest": slowest(job.gpus, job.noise),
        "product_rate": (gpu.flops_fp8 * known.fp8 if on_8_bits else usual) * reached,
        "product_rate_16": usual * reached,
        "narrow": known.narrow,
        "few": known.few,
        "experts": max(1, model.experts),
        "fused_efficiency": known.fused,
        "fused_half": known.half,
        "unfused_efficiency": known.unfused,
        "bandwidth": gpu.memory_rate * known.memory,
        "fragments": max(job.reserve, stack.reserve) * gpu.memory,
        "context_memory": PROCESS,
        "process": PROCESS,
        "pcie_rate": given.machine.pcie_rate,
        "host_rate": HOST_RATE,
    }


def choices(arrays: dict[str, Any], given: PlanSetting) -> dict[str, Any]:
    """Return the inputs of formulas that differ between layouts."""
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
        "replicas": arrays["data"] * arrays["context"],
        "data_stride": stride,
        "stage_stride": apart,
        "node_replicas": inside,
        "replica_stride": stride * inside,
    }
