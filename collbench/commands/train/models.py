"""Models and training jobs: dimensions, presets, files, batch and software."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from collbench.errors import UsageError, unknown
from collbench.host.sanitize import read_toml
from collbench.host.sanitize import text as cleaned
from collbench.notebook import Shown
from collbench.records import convert
from collbench.units import counted

MOST = 2**32  # of any dimension
MOST_COUNTED = 2**16  # layers, heads and experts
MOST_GPUS = 2**20
MOST_BATCH = 2**30
PRECISIONS = ("bf16", "fp8", "tf32")
"""Of matrix products; weights, activations and messages have 16 bits, but 32 with TF32."""


@dataclass(frozen=True)
class Model(Shown):
    """A decoder-only transformer.

    `gated` models follow LLaMA: three feed-forward matrices, no biases, rotary positions, a separate output matrix.
    Others follow GPT: two feed-forward matrices, biases, learned positions, an output that shares the embedding.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0  # 0: as many as heads
    ffn: int = 0  # width of the feed-forward part or of an expert; 0: 4 times hidden
    sequence: int = 2048
    vocabulary: int = 51200
    gated: bool = False
    experts: int = 0  # routed experts; 0: dense
    top_k: int = 1  # routed experts per token
    shared: int = 0  # experts that every token uses
    moe_every: int = 1  # every how many layers has experts
    dense_ffn: int = 0  # feed-forward width of layers without experts in a model with experts; 0: as ffn
    head: int = 0  # elements of a head; 0: hidden over heads
    tied: bool | None = None  # whether the output shares the embedding's matrix; None: only if not gated
    trained: float = 0.0  # tokens of its published training; 0: unknown

    @property
    def queries(self) -> int:
        """Elements of all heads together."""
        return self.heads * self.head_size

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.head or self.hidden // self.heads

    @property
    def keys(self) -> int:
        """Elements of all key heads; values have as many."""
        return (self.kv_heads or self.heads) * self.head_size

    @property
    def width(self) -> int:
        """Width of the feed-forward part, or of an expert."""
        return self.ffn or 4 * self.hidden

    @property
    def matrices(self) -> int:
        """Number of matrices of the feed-forward part."""
        return 3 if self.gated else 2

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return self.layers // self.moe_every if self.experts else 0

    @property
    def attention_weights(self) -> int:
        """Weights of attention in a layer: queries, keys, values and the projection."""
        return 2 * self.hidden * (self.queries + self.keys)

    @property
    def dense_weights(self) -> int:
        """Weights of the feed-forward part of a layer without experts."""
        width = (self.dense_ffn or self.width) if self.experts else self.width
        return self.matrices * self.hidden * width

    @property
    def expert_weights(self) -> int:
        """Weights of an expert."""
        return self.matrices * self.hidden * self.width if self.experts else 0

    @property
    def layer_extras(self) -> int:
        """Weights of norms and biases of a layer: in GPT 13 times hidden if ffn is 4 times hidden."""
        if self.gated:
            return 2 * self.hidden
        return 4 * self.hidden + self.queries + 2 * self.keys + self.hidden + self.width + self.hidden

    @property
    def embedding(self) -> int:
        """Weights of the vocabulary's embedding and of learned positions."""
        return self.vocabulary * self.hidden + (0 if self.gated else self.sequence * self.hidden)

    @property
    def output(self) -> int:
        """Weights of the output matrix, if it is not the embedding's, and of the last norm."""
        shared = not self.gated if self.tied is None else self.tied
        own = 0 if shared else self.vocabulary * self.hidden
        return own + (1 if self.gated else 2) * self.hidden

    @property
    def layer_parameters(self) -> float:
        """Parameters of a layer without its routed experts, as the mean over all layers."""
        moe = self.moe_layers / self.layers
        router = self.hidden * self.experts
        own = self.attention_weights + self.layer_extras
        return own + (1 - moe) * self.dense_weights + moe * (router + self.shared * self.expert_weights)

    @property
    def routed_parameters(self) -> float:
        """Parameters of the routed experts of a layer, as the mean over all layers."""
        return self.moe_layers / self.layers * self.experts * self.expert_weights

    @property
    def parameters(self) -> float:
        """Number of all parameters."""
        return self.layers * (self.layer_parameters + self.routed_parameters) + self.embedding + self.output

    @property
    def active(self) -> float:
        """Number of parameters that a token uses."""
        spared = self.moe_layers * (self.experts - self.top_k) * self.expert_weights if self.experts else 0.0
        return self.parameters - spared

    @property
    def routed(self) -> float:
        """Routed experts per token in a layer, as the mean over all layers."""
        return self.moe_layers / self.layers * self.top_k

    @property
    def worked(self) -> float:
        """Number of weights that multiply a token in a layer, as the mean over all layers."""
        moe = self.moe_layers / self.layers
        everywhere = self.attention_weights + (1 - moe) * self.dense_weights + moe * self.hidden * self.experts
        return everywhere + (self.routed + moe * self.shared) * self.expert_weights

    def flops(self, sequence: int) -> float:
        """Return the FLOPs of a token, forward and backward, as in MFU: unmasked attention, no recomputation.

        6 per weight; 12 per layer, head element and sequence token (Chowdhery et al., PaLM, 2022, appendix B).
        """
        return self.layers * (6 * self.worked + 12 * self.queries * sequence) + 6 * self.hidden * self.vocabulary

    def checked(self) -> "Model":
        """Return the model itself; UsageError for dimensions that no transformer has."""
        for problem in self._problems():
            raise UsageError(f"{self.name}: {problem}")
        return self

    def _problems(self) -> Iterator[str]:
        least = dict.fromkeys(("layers", "hidden", "heads", "sequence", "vocabulary", "moe_every", "top_k"), 1)
        for name in (*least, "kv_heads", "ffn", "experts", "shared", "dense_ffn", "head"):
            value, low = getattr(self, name), least.get(name, 0)
            most = MOST_COUNTED if name in ("layers", "heads", "kv_heads", "experts", "shared") else MOST
            if not low <= value <= most:
                yield f"{name} = {value} is impossible; give {low} to {most}"
        if not self.head and self.hidden % self.heads:
            near = self.heads * max(1, round(self.hidden / self.heads))
            fix = f"give hidden {near}, {_divisor(self.hidden, self.heads)} heads, or head for the size of one"
            yield f"hidden {self.hidden} is not divisible by {self.heads} heads; {fix}"
        if self.kv_heads and self.heads % self.kv_heads:
            fix = f"give {_divisor(self.heads, self.kv_heads)}"
            yield f"{self.heads} heads are not divisible by {self.kv_heads} kv_heads; {fix}"
        if self.experts and self.top_k > self.experts:
            yield f"top_k {self.top_k} is more than its {counted(self.experts, 'expert')}; give {self.experts} or fewer"
        if self.experts and self.moe_every > self.layers:
            yield f"moe_every {self.moe_every} is more than its {counted(self.layers, 'layer')}; give 1 for all of them"


@lru_cache(maxsize=4096)
def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _divisor(number: int, near: int) -> int:
    return min(divisors(number), key=lambda divisor: abs(divisor - near))


_PRESETS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MODELS = {name: Model(name, **shape) for name, shape in _PRESETS.items()}
ALIASES = {"gpt3": "gpt3-175b", "1t": "megatron-1t", "530b": "megatron-530b", "gpt2": "gpt2-small"}


def listed() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the models for `collbench train --model`, the heading first."""
    yield "model", "parameters", "active", "layers", "width"
    for name, model in MODELS.items():
        parameters, active = (f"{count / 1e9:.3g} B" for count in (model.parameters, model.active))
        yield name, parameters, active if model.experts else "", str(model.layers), str(model.hidden)


KEYS = tuple(field.name for field in fields(Model) if field.name != "trained")
"""Keys of a model file."""
_SUFFIXES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}


def load_model(text: str) -> Model:
    """Return the model from a preset or part of its name, a TOML file, or dimensions; UsageError otherwise."""
    if text.endswith(".toml"):
        return described(read_toml(Path(text), UsageError), text)
    if "=" in text:
        try:
            dimensions = tomllib.loads(text.replace(",", "\n"))
        except ValueError as error:
            raise UsageError(f"--model {text}: {error}; write it as layers=32,hidden=4096,heads=32") from None
        return described(dimensions, text)
    name = ALIASES.get(text.lower(), text.lower())
    if name not in MODELS:
        # Numbers match as a whole: 8b matches llama3-8b, but 3b does not match gpt3-1.3b.
        before, after = (r"(?<![\d.])" * name[:1].isdigit(), r"(?![\d.])" * name[-1:].isdigit())
        near = [known for known in MODELS if re.search(f"{before}{re.escape(name)}{after}", known)]
        if len(near) != 1:
            raise unknown("--model", text, (*MODELS, "FILE.toml", "layers=32,hidden=4096,heads=32"))
        name = near[0]
    return MODELS[name]


def described(fixed: Mapping[str, Any], where: str) -> Model:
    """Return the model with the keys of a file; UsageError for unknown, missing or wrong keys."""
    fixed = fixed["model"] if set(fixed) == {"model"} and isinstance(fixed["model"], dict) else fixed
    for key in fixed:
        if key not in KEYS:
            raise unknown(f"key in {where}", key, KEYS)
    for needed in ("layers", "hidden", "heads"):
        if needed not in fixed:
            raise UsageError(f"{where}: {needed} is missing; give layers, hidden and heads")
    usual = Path(where).stem if where.endswith(".toml") else "model"
    try:
        model = convert({"name": usual} | dict(fixed), Model)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    return replace(model, name=cleaned(model.name, 60)).checked()


def parse_count(value: Any, where: str) -> float:
    """Return a number such as `13B` or `1.5T`; UsageError if the text is no number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([MBT]?)", str(value).upper().replace("E", "e"))
    if not match or isinstance(value, bool):
        raise UsageError(f"{where} = {cleaned(repr(value), 40)} is no number; write one such as 7e9, 13B or 1.5T")
    return float(match[1]) * _SUFFIXES[match[2]]


def usual_tokens(model: Model) -> float:
    """Return the default tokens of a run: as published, or 20 per active parameter.

    Source: Hoffmann et al. 2022, arXiv:2203.15556, table A3, which has about 20 at every size.
    """
    return model.trained or 20 * model.active


class Optimiser(NamedTuple):
    """Bytes per parameter: states, and reads and writes of a step except gradients and weights."""

    states: int
    traffic: int


GRADIENTS = {"fp32": 4, "bf16": 2}
"""Bytes of a gradient in sums and messages."""


@dataclass(frozen=True)
class Stack:
    """A generation of training software: its overlap, fusion and layout choices, as inputs of formulas."""

    fused: bool = False  # FlashAttention or similar: the matrix of scores is never in memory
    hidden_tensor: float = 0.0  # hidden share of tensor parallelism's collectives
    overlapped: bool = False  # whether gradients are sent during the backward pass
    hidden_pipeline: float = 0.0  # hidden share of messages between stages
    launches: float = 2e-4  # the host's seconds to launch a layer's forward kernels: some 25 of 8 us
    calls: float = 1e-4  # the host's additional seconds for collectives of tensor parallelism
    synced: bool = False  # whether stages reduce unsharded gradients after every micro-batch
    reserve: float = 0.0  # share of memory that must stay free, or the allocator thrashes
    activation_factor: float = 1.0  # activations relative to fused kernels
    bucket: float = inf  # bytes of gradients per message
    tensors: int = 0  # messages per layer with sharded states; 0: in buckets as well
    gather_rate: float = inf  # bytes/s at which a GPU can take up a sharded layer, on any network
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # allowed layout choices, where not all are


_SOFTWARE = tomllib.loads(Path(__file__).with_name("software.toml").read_text(encoding="utf-8"))
OPTIMISERS = {name: Optimiser(*counts) for name, counts in _SOFTWARE["optimisers"].items()}
STACKS = {name: Stack(**stack) for name, stack in _SOFTWARE["stacks"].items()}


@dataclass(frozen=True)
class TrainingJob(Shown):
    """A model, its training settings, and the variation of GPUs."""

    model: Model
    gpus: int
    batch: int  # samples of a step, all GPUs together
    sequence: int
    precision: str = "bf16"
    optimiser: str = "adam"
    gradients: str = "fp32"
    stack: str = "modern"
    reserve: float = 0.06  # share of memory lost to fragments
    noise: float = 0.01  # standard deviation of GPUs' speeds over their mean, from step to step
    efficiency: float = 1.0  # speed of computing over the expected speed, from an anchor

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
        """FLOPs of a step, as MFU counts them."""
        return self.model.flops(self.sequence) * self.tokens
