"""Training jobs: the model, the batch, the software, and everything else that is the same for all layouts."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from collbench.commands.train.models import MOST, Model
from collbench.errors import UsageError, unknown
from collbench.notebook import Shown

MOST_GPUS = 2**20
MOST_BATCH = 2**30


PRECISIONS = ("bf16", "fp8", "tf32")
"""Of matrix products; weights, activations and messages have 16 bits, but 32 with TF32."""


class Optimiser(NamedTuple):
    """Bytes a parameter: states, and what a step reads and writes besides gradients and weights."""

    states: int
    traffic: int


GRADIENTS = {"fp32": 4, "bf16": 2}
"""Bytes of a gradient, as it is added up and as it is sent."""


@dataclass(frozen=True)
class Stack:
    """A generation of software: inputs of formulas that say what it overlaps and fuses, and which choices it has."""

    fused: bool = False  # attention: FlashAttention and the like: the matrix of scores is never in memory
    hidden_tensor: float = 0.0  # the share of tensor parallelism's collectives that computing hides
    overlapped: bool = False  # whether gradients are sent while the backward pass goes on
    hidden_pipeline: float = 0.0  # the share of what stages send each other that computing hides
    launches: float = 2e-4  # seconds in which the host launches a layer's kernels, forward: some 25 of 8 us
    calls: float = 1e-4  # and the collectives of tensor parallelism, where there is any
    synced: bool = False  # whether stages add up gradients that are not sharded after every micro-batch
    reserve: float = 0.0  # of the memory, beyond which its allocator frees and allocates again and again
    activation_factor: float = 1.0  # on activations, against kernels that are fused
    bucket: float = inf  # bytes of gradients that are sent together
    tensors: int = 0  # of a layer that are sent one by one where replicas share them out; 0: in buckets, too
    gather_rate: float = inf  # bytes/s of a sharded layer that a GPU can take up, however fast the network is
    # Choices that it has, where these are not all.
    options: Mapping[str, tuple[int | str | bool, ...]] = field(default_factory=dict)


_SOFTWARE = tomllib.loads(Path(__file__).with_name("software.toml").read_text(encoding="utf-8"))
OPTIMISERS = {name: Optimiser(*counts) for name, counts in _SOFTWARE["optimisers"].items()}
STACKS = {name: msgspec.convert(stack, Stack) for name, stack in _SOFTWARE["stacks"].items()}


@dataclass(frozen=True)
class TrainingJob(Shown):
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
    noise: float = 0.01  # standard deviation of GPUs' speeds over their mean, from step to step
    efficiency: float = 1.0  # of computing against what is expected, by an anchor

    def checked(self) -> "TrainingJob":
        """Return the job itself; UsageError for a value that is impossible."""
        self.model.checked()
        for name, most in (("gpus", MOST_GPUS), ("batch", MOST_BATCH), ("sequence", MOST)):
            if not 1 <= getattr(self, name) <= most:
                raise UsageError(f"--{name} {getattr(self, name)} is impossible; give 1 to {most}")
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
