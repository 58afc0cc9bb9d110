"""Training jobs: the model, the batch, the software, and everything else that is the same for all layouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from collbench.errors import UsageError, unknown
from collbench.planner.models import MOST, Model

MOST_GPUS = 2**20
MOST_BATCH = 2**30


PRECISIONS = ("bf16", "fp8", "tf32")
"""Of matrix products; weights, activations and messages have 16 bits, but 32 with TF32."""


class Optimiser(NamedTuple):
    """Bytes a parameter: states, and what a step reads and writes besides gradients and weights."""

    states: int
    traffic: int


OPTIMISERS = {
    "adam": Optimiser(12, 24),  # weights and both moments in 32 bits (Rajbhandari et al., 2020, section 3.1)
    "adam8bit": Optimiser(6, 12),  # weights in 32 bits, both moments in 8 (Dettmers et al., 2022)
    "adam-bf16": Optimiser(8, 16),  # weights in 32 bits, both moments in 16
    "sgd": Optimiser(8, 16),  # weights and one moment in 32 bits
}
GRADIENTS = {"fp32": 4, "bf16": 2}
"""Bytes of a gradient, as it is added up and as it is sent."""


class Stack(NamedTuple):
    """A generation of software: what it overlaps and fuses, and which choices it has."""

    fused_attention: bool  # FlashAttention and the like: the matrix of scores is never in memory
    tensor: float = 0.0  # the share of tensor parallelism's collectives that computing hides
    data: bool = False  # whether gradients are sent while the backward pass goes on
    pipeline: float = 0.0  # the share of what stages send each other that computing hides
    launches: float = 2e-4  # seconds in which the host launches a layer's kernels, forward: some 25 of 8 us
    calls: float = 1e-4  # and the collectives of tensor parallelism, where there is any
    synced: bool = False  # whether stages add up gradients that are not sharded after every micro-batch
    reserve: float = 0.0  # of the memory, beyond which its allocator frees and allocates again and again
    kept: float = 1.0  # of activations, against kernels that are fused
    bucket: float = inf  # bytes of gradients that are sent together
    tensors: int = 0  # of a layer that are sent one by one where replicas share them out; 0: in buckets, too
    gather: float = inf  # bytes/s of a sharded layer that a GPU can take up, however fast the network is
    options: Mapping[str, tuple[int | str | bool, ...]] = {}  # choices that it has, where these are not all


_PLAIN: Mapping[str, tuple[int | str | bool, ...]] = {
    "sharding": ("ddp",),
    "sequential": (False,),
    "context": (1,),
    "schedule": ("1f1b",),
    "offload": (False,),
}
STACKS = {
    # Megatron-Core: overlaps gradients, tensor parallelism by halves, and stages where they are interleaved.
    "modern": Stack(True, tensor=0.5, data=True, pipeline=0.9, bucket=400e6),
    # Korthikanti et al. 2022: selective recomputation and sequence parallelism, nothing overlapped.
    "megatron-2022": Stack(False, options={**_PLAIN, "sequential": (False, True)}),
    # Narayanan et al. 2021: all of its published runs recompute everything; its example of GPT-3 does not interleave.
    "megatron-2021": Stack(False, options={**_PLAIN, "recompute": ("full",)}),
    # Nanotron (github.com/huggingface/nanotron) of 2025: gradients in PyTorch's buckets behind the backward pass.
    "nanotron": Stack(
        True,
        launches=4e-4,
        calls=7e-4,
        kept=2.0,
        reserve=0.16,
        synced=True,
        bucket=25 * 2**20,
        tensors=9,
        options={**_PLAIN, "sharding": ("ddp", "zero1"), "sequential": (False, True)},
    ),
    # ZeRO-3 of the same year; `gather` is fitted to its runs of GPT-3 (docs/training.md).
    "deepspeed-2021": Stack(False, data=True, gather=16e9, options={**_PLAIN, "sharding": ("zero1", "zero2", "zero3")}),
}


@dataclass(frozen=True)
class Job:
    """A model, how it is trained, and what is known of the GPUs' behaviour."""

    model: Model
    gpus: int
    batch: int  # samples of a step, all GPUs together
    sequence: int
    precision: str = "bf16"
    optimiser: str = "adam"
    gradients: str = "fp32"
    stack: str = "modern"
    reserve: float = 0.06  # of the memory, for fragments that are too small to use
    noise: float = 0.0022  # standard deviation of GPUs' speeds over their mean
    efficiency: float = 1.0  # of computing against what is expected, by an anchor

    def checked(self) -> "Job":
        """Return the job itself; UsageError for a value that is impossible."""
        self.model.checked()
        for what, value, most in (
            ("--gpus", self.gpus, MOST_GPUS),
            ("--batch", self.batch, MOST_BATCH),
            ("--sequence", self.sequence, MOST),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"{what} {value} is impossible; give 1 to {most}")
        tables = {"precision": PRECISIONS, "optimiser": OPTIMISERS, "gradients": GRADIENTS, "stack": STACKS}
        for name, table in tables.items():
            if getattr(self, name) not in table:
                raise unknown(f"--{name}", getattr(self, name), table)
        return self

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        return self.batch * self.sequence

    @property
    def flops(self) -> float:
        """FLOPs of a step, as utilisation is counted."""
        return self.model.flops(self.sequence) * self.tokens
