"""What a plan is reckoned from: a job, curves and a machine, as the values that terms need."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from collbench.model.steps import CONTENTION, slowest
from collbench.planner.candidates import CODES, data_stride, node_replicas
from collbench.planner.curves import Curves, Modelled
from collbench.planner.job import GRADIENTS, OPTIMISERS, PRECISIONS, STACKS, Job
from collbench.planner.layout import SHARDINGS
from collbench.planner.machine import Machine, machine_of

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """All that a plan is made from, but for the layout."""

    job: Job
    curves: Curves
    machine: Machine
    loader: float = inf  # samples/s that can be read

    @property
    def capacity(self) -> float:
        """Bytes of a GPU's memory."""
        return self.machine.product.memory


def setting(job: Job, curves: Modelled, loader: float = inf) -> Setting:
    """On a described system."""
    return Setting(job.checked(), curves, machine_of(curves.system), loader)


def inputs(given: Setting) -> dict[str, Any]:
    """What terms need that no layout changes."""
    return _of_model(given.job) | _of_software(given.job) | _of_hardware(given)


def _of_model(job: Job) -> dict[str, Any]:
    model = job.model
    moe = model.moe_layers / model.layers
    worked = (model.worked - model.attention_weights - moe * model.hidden * model.experts) / model.matrices
    names = ("layers", "hidden", "heads", "queries", "keys", "vocabulary", "matrices", "gated", "worked", "top_k")
    more = ("layer_parameters", "routed_parameters", "embedding", "output")
    return {name: getattr(model, name) for name in (*names, *more)} | {
        "width_worked": worked / model.hidden,
        "moe_share": moe,
        "routed": model.routed,
        "grouped_worked": model.routed * model.expert_weights,
        "dropout": 0 if model.gated or STACKS[job.stack].fused_attention else 1,
        "sequence": job.sequence,
        "batch": job.batch,
        "gpus": job.gpus,
    }


def _of_software(job: Job) -> dict[str, Any]:
    stack, kept = STACKS[job.stack], OPTIMISERS[job.optimiser]
    return {
        "fused": stack.fused_attention,
        "hidden_tensor": stack.tensor,
        "hidden_pipeline": stack.pipeline,
        "hidden_expert": 0.0,
        "overlapped": stack.data,
        "gather_rate": stack.gather,
        "gradient_bytes": GRADIENTS[job.gradients],
        "state_bytes": kept.states,
        "state_traffic": kept.traffic,
        "reserve": job.reserve,
        "efficiency": job.efficiency,
        "slowing": CONTENTION,
        "slowest": slowest(job.gpus, job.noise),
    }


def _of_hardware(given: Setting) -> dict[str, Any]:
    known, gpu = given.machine.constants, given.machine.product
    fp8 = PRECISIONS[given.job.precision].fp8
    return {
        "peak16": gpu.flops,
        "peak": gpu.flops_fp8 * known.fp8 if fp8 and gpu.flops_fp8 > gpu.flops else gpu.flops,
        "product_efficiency": known.products,
        "grouped_efficiency": known.grouped,
        "fused_efficiency": known.fused,
        "fused_half": known.half,
        "unfused_efficiency": known.unfused,
        "memory_efficiency": known.memory,
        "memory_rate": gpu.memory_rate,
        "capacity": gpu.memory,
        "process": given.machine.process,
        "pcie_rate": given.machine.pcie_rate,
        "host_rate": given.machine.host_rate,
        "loader": given.loader,
    }


def choices(arrays: dict[str, Any], given: Setting) -> dict[str, Any]:
    """What terms need of layouts."""
    levels = np.array([sharding.level for sharding in SHARDINGS.values()])
    hybrids = np.array([sharding.hybrid for sharding in SHARDINGS.values()])
    place = np.asarray(arrays["sharding"], np.int64)
    stride = data_stride(arrays)
    inside = node_replicas(arrays, given.curves.system)
    apart = arrays["tensor"] * arrays["context"] * np.where(np.asarray(arrays["placement"]) == 1, 1.0, arrays["data"])
    return {name: arrays[name] for name in arrays if name not in CODES} | {
        "shard": levels[place],
        "hybrid": hybrids[place],
        "full": np.asarray(arrays["recompute"]) == 2,
        "selective": np.asarray(arrays["recompute"]) == 1,
        "sequential": np.asarray(arrays["sequential"]) == 1,
        "spread": np.where(np.asarray(arrays["sequential"]) == 1, arrays["tensor"], 1.0),
        "offload": np.asarray(arrays["offload"]) == 1,
        "zero_bubble": np.asarray(arrays["schedule"]) == CODES["schedule"].index("zb"),
        "data_stride": stride,
        "stage_stride": apart,
        "node_replicas": inside,
        "replica_stride": stride * inside,
    }
