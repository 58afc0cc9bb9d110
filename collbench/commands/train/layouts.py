"""Layouts of training runs on GPUs, their names, and all candidates for a job.

Tables show a layout's name, such as tp8 pp16 dp8 v2 mb1 zero1 full.  --layout accepts it, and omitted choices are free.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from collbench.commands.train.curves import Array
from collbench.commands.train.models import MOST_GPUS, STACKS, TrainingJob, divisors
from collbench.errors import UsageError, unknown
from collbench.topology.system import System
from collbench.units import counted

SHARDINGS = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}
"""ZeRO levels: 1 shards the optimiser's states, 2 also gradients, 3 also weights; `hsdp` shards within a node."""
SHARDING_ALIASES = {"fsdp": "zero3", "distributed-optimizer": "zero1", "hybrid": "hsdp"}
RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("1f1b", "interleaved", "zb")
"""Pipeline schedules: one forward, one backward; the same with several chunks per stage; or zero-bubble (ZB-H1)."""
PLACEMENTS = ("dp-inside", "pp-inside")
"""Order of GPUs after tensor and context parallelism: adjacent replicas, or adjacent stages."""


@dataclass(frozen=True)
class Layout:
    """All choices in dividing a training run among GPUs."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1  # a divisor of data times context
    chunks: int = 1  # of a stage's layers; interleaved if there are several
    micro: int = 1  # samples of a micro-batch
    sharding: str = "ddp"
    recompute: str = "none"
    schedule: str = "1f1b"
    sequential: bool = False  # sequence parallelism in addition to tensor parallelism
    offload: bool = False  # whether the optimiser's states are in CPU memory
    placement: str = "dp-inside"

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def name(self) -> str:
        """The layout's name: its sizes, and every other choice that is not the default."""
        sizes = [f"{short}{value}" for short, name in _SIZES.items() if (value := getattr(self, name)) > 1]
        words = [*sizes, f"dp{self.data}", f"mb{self.micro}", self.sharding]
        words += [self.recompute] if self.recompute != "none" else []
        words += [word for word, name in _FLAGS.items() if getattr(self, name)]
        words += [self.schedule] if self.schedule != _usual(self.chunks) else []
        words += [self.placement] if self.placement != PLACEMENTS[0] else []
        return " ".join(words)


def _usual(chunks: int) -> str:
    return "interleaved" if chunks > 1 else "1f1b"


_SIZES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "v": "chunks"}
_COUNTS = _SIZES | {"dp": "data", "mb": "micro"}
_FLAGS = {"sp": "sequential", "offload": "offload"}
Choices = Mapping[str, int | str | bool]


def parse_layout(text: str) -> Choices:
    """Return the choices in a layout's name, by field of Layout; UsageError for an unknown word."""
    fixed: dict[str, int | str | bool] = {}
    for word in re.split(r"[\s,]+", text.strip().lower()):
        name, value = _meaning(word)
        if fixed.get(name, value) != value:
            raise UsageError(f"--layout says {name} twice: {fixed[name]} and {value}; give one")
        fixed[name] = value
    if "chunks" in fixed and "schedule" not in fixed:
        fixed["schedule"] = _usual(int(fixed["chunks"]))
    return fixed


def _meaning(word: str) -> tuple[str, int | str | bool]:
    word = SHARDING_ALIASES.get(word, word)
    count = re.fullmatch(r"([a-z]+)=?(\d{1,9})", word)
    if count and count[1] in _COUNTS and int(count[2]) > 0:
        return _COUNTS[count[1]], int(count[2])
    flag = re.fullmatch(r"(no-)?([a-z]+)", word)
    if flag and flag[2] in _FLAGS:
        return _FLAGS[flag[2]], not flag[1]
    for name, words in CODES.items():
        if word in words:
            return name, word
    named = [choice for words in CODES.values() for choice in words if isinstance(choice, str)]
    raise unknown("word of a layout", word, [*(f"{short}N" for short in _COUNTS), *_FLAGS, *named])


def layout_of(name: str) -> Layout:
    """Return the layout with that `Layout.name`; UsageError for an unknown word."""
    fixed: dict[str, Any] = dict(parse_layout(name))
    return Layout(**fixed)


def in_words(fixed: Choices) -> str:
    """Return choices in the words of a layout's name."""
    shorts = {name: short for short, name in (_COUNTS | _FLAGS).items()}
    words = []
    for name, value in fixed.items():
        if isinstance(value, bool):
            words.append(shorts[name] if value else f"no-{shorts[name]}")
        else:
            words.append(f"{shorts.get(name, '')}{value}")
    return " ".join(words)


MICROS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
SHORTEST = 4096  # minimum tokens of a sample per GPU with context parallelism
MOST_CHUNKS = 32
Shape = tuple[int, int, int, int, int, int, int]
FIELDS = ("tensor", "pipeline", "context", "expert", "data", "micro", "chunks")
CODES: dict[str, Sequence[Any]] = {
    "sharding": tuple(SHARDINGS),
    "recompute": RECOMPUTE,
    "sequential": (False, True),
    "offload": (False, True),
    "placement": PLACEMENTS,
    "schedule": SCHEDULES,
}
"""Choices that arrays hold as indices into these tuples."""


def candidates(job: TrainingJob, system: System, fixed: Choices) -> dict[str, Array]:
    """Return all layouts with the fixed choices, as arrays by choice; UsageError if there are none."""
    shapes = list(_shapes(job, system, fixed))
    if not shapes:
        raise UsageError(_why_none(job, system, fixed))
    options = dict(STACKS[job.stack].options)
    if "chunks" in fixed:  # a number of chunks implies a schedule, even one that the stack lacks
        options.pop("schedule", None)
    codes = []
    for name, words in CODES.items():
        allowed = (fixed[name],) if name in fixed else options.get(name, words)
        codes.append([code for code, value in enumerate(words) if value in allowed])

    # Combine every shape with every combination of the other choices.
    combined = np.array(list(product(*codes)), np.float64)
    columns = np.repeat(np.array(shapes, np.float64), len(combined), axis=0).T
    rows = np.tile(combined, (len(shapes), 1)).T
    arrays = dict(zip((*FIELDS, *CODES), (*columns, *rows), strict=True))
    sensible = _sensible(arrays, system, fixed)
    if not sensible.any():
        raise UsageError(
            f"--layout {in_words(fixed)} is impossible for {job.model.name} on {counted(job.gpus, 'GPU')}: sp needs "
            "tp; zb and v need pp; v needs a multiple of pp micro-batches; zero1 to zero3 need replicas (dp); hsdp "
            "needs several replicas in a node and several nodes; leave one of these out"
        )
    return {name: array[sensible] for name, array in arrays.items()}


def layouts(arrays: Mapping[str, Array], places: Iterable[int]) -> list[Layout]:
    """Return the layouts at these indices of the arrays."""
    found = []
    for place in places:
        numbers: dict[str, Any] = {name: int(arrays[name][place]) for name in FIELDS}
        found.append(Layout(**numbers, **{name: words[int(arrays[name][place])] for name, words in CODES.items()}))
    return found


def coded(layout: Layout) -> dict[str, float]:
    """Return a layout as numbers, in the form of the arrays."""
    numbers = {name: float(getattr(layout, name)) for name in FIELDS}
    return numbers | {name: float(words.index(getattr(layout, name))) for name, words in CODES.items()}


def _chosen(fixed: Choices, name: str, usual: Sequence[int]) -> Sequence[int]:
    requested = fixed.get(name)
    return usual if requested is None else [int(requested)]


def _shapes(job: TrainingJob, system: System, fixed: Choices) -> Iterator[Shape]:
    """Yield all possible numbers of GPUs, micro-batches and chunks."""
    model, gpus = job.model, job.gpus
    node = min(system.gpus, gpus)
    for tensor in _chosen(fixed, "tensor", [size for size in divisors(node) if model.heads % size == 0]):
        if gpus % tensor or model.heads % tensor:
            continue
        for context in _chosen(fixed, "context", _contexts(job)):
            if gpus % (tensor * context) or job.sequence % context:
                continue
            for pipeline in _chosen(fixed, "pipeline", _stages(job, gpus // (tensor * context), fixed)):
                if gpus % (tensor * pipeline * context) or pipeline > model.layers:
                    continue
                data = gpus // (tensor * pipeline * context)
                if fixed.get("data", data) == data and job.batch % data == 0:
                    yield from _more(job, fixed, (tensor, pipeline, context, data))


def _more(job: TrainingJob, fixed: Choices, sizes: tuple[int, int, int, int]) -> Iterator[Shape]:
    tensor, pipeline, context, data = sizes
    sequences = job.batch // data
    experts = [size for size in divisors(max(1, job.model.experts)) if data * context % size == 0]
    for micro in _chosen(fixed, "micro", [size for size in MICROS if sequences % size == 0]):
        if sequences % micro:
            continue
        for chunks in _chosen(fixed, "chunks", _chunks(job.model.layers, pipeline, sequences // micro)):
            if chunks > 1 and (pipeline == 1 or pipeline * chunks > job.model.layers):
                continue
            for expert in _chosen(fixed, "expert", experts):
                if data * context % expert == 0 and max(1, job.model.experts) % expert == 0:
                    yield tensor, pipeline, context, expert, data, micro, chunks


def _stages(job: TrainingJob, gpus: int, fixed: Choices) -> list[int]:
    """Return the possible numbers of stages; uneven ones only if fewer stages would have a fuller fullest stage."""
    layers, micro = job.model.layers, int(fixed.get("micro", 1))
    able = []
    for stages in divisors(gpus):
        data = gpus // stages
        if stages <= layers and job.batch * stages % (gpus * micro) == 0 and fixed.get("data", data) == data:
            able.append(stages)

    # The fewest stages by the layers of the fullest stage.
    fewest = {-(-layers // stages): stages for stages in reversed(able)}
    return [stages for stages in able if not uneven(layers, stages) or stages in fewest.values()]


def _contexts(job: TrainingJob) -> list[int]:
    if "context" in STACKS[job.stack].options:
        return [1]
    return [2**power for power in range(8) if power == 0 or job.sequence // 2**power >= SHORTEST]


def _chunks(layers: int, pipeline: int, micro_batches: int) -> list[int]:
    """Return the possible numbers of chunks, for whole rounds of micro-batches and chunks of equal layers.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2.  Fixed chunks may be uneven, as with
    Megatron-Core's --pipeline-model-parallel-layout.
    """
    most = 1 if pipeline == 1 or micro_batches % pipeline else min(MOST_CHUNKS, layers // pipeline)
    return [one for one in range(1, most + 1) if one == 1 or not uneven(layers, pipeline * one)]


def uneven(layers: int, stages: Any) -> Any:
    """Return whether stages have unequal numbers of layers; embedding and output may count as a layer each.

    Sources: LLaMA 3, arXiv:2407.21783, section 3.3.2; Megatron-Core's account_for_{embedding,loss}_in_pipeline_split.
    """
    return (layers % stages > 0) & ((layers + 1) % stages > 0) & ((layers + 2) % stages > 0)


def _sensible(arrays: dict[str, Array], system: System, fixed: Choices) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the candidates without duplicates and dominated ones; fixed choices always stay."""
    replicas = arrays["data"] * arrays["context"]
    sharding = arrays["sharding"]
    inside = node_replicas(arrays, system)
    hybrid = sharding == CODES["sharding"].index("hsdp")
    alone = (replicas == 1) & (sharding > sharding.min())  # the lowest allowed level stays
    same = hybrid & ((inside <= 1) | (inside >= replicas)) & ("sharding" not in fixed)
    lonely = (arrays["tensor"] == 1) & (arrays["sequential"] == 1) & ("sequential" not in fixed)
    zero_bubble = arrays["schedule"] == CODES["schedule"].index("zb")
    unpiped = zero_bubble & (arrays["pipeline"] == 1) & ("schedule" not in fixed)
    unpiped |= (arrays["schedule"] == CODES["schedule"].index("interleaved")) != (arrays["chunks"] > 1)
    in_a_node = arrays["tensor"] * arrays["pipeline"] * replicas <= system.gpus
    anywhere = (arrays["pipeline"] == 1) | (replicas == 1) | in_a_node
    placed = (arrays["placement"] == 1) & anywhere & ("placement" not in fixed)
    # Splitting several samples: more replicas give as many tokens per GPU, with less exchange of keys and values.
    cut = np.gcd(*(arrays[name].astype(np.int64) for name in ("micro", "context"))) > 1
    cut &= fixed.keys().isdisjoint(("micro", "context", "data"))
    return np.asarray(~(alone | same | lonely | unpiped | placed | cut))


def node_replicas(arrays: dict[str, Array], system: System) -> Array:
    """Return the number of replicas of a GPU's weights in its node."""
    replicas = np.asarray(arrays["data"] * arrays["context"], np.int64)
    fit = np.maximum(1, system.gpus // data_stride(arrays)).astype(np.int64)
    return np.asarray(np.gcd(replicas, fit), np.float64)


def data_stride(arrays: dict[str, Array]) -> Array:
    """Return the distance between neighbouring replicas, in GPUs."""
    return np.asarray(arrays["tensor"] * np.where(arrays["placement"] == 1, arrays["pipeline"], 1), np.float64)


def _why_none(job: TrainingJob, system: System, fixed: Choices) -> str:
    """Return the reason for no layout, with numbers that would work."""
    model, experts = job.model, max(1, job.model.experts)
    even = {
        "tensor": (f"{model.heads} heads", divisors(model.heads)),
        "pipeline": (f"{counted(model.layers, 'layer')}", range(1, model.layers + 1)),
        "context": (f"samples of {job.sequence} tokens", divisors(job.sequence)),
        "expert": (f"{counted(experts, 'expert')}", divisors(experts)),
    }
    for name, (what, fitting) in even.items():
        if name in fixed and int(fixed[name]) not in fitting:
            nearest = sorted(fitting, key=lambda one: abs(one - int(fixed[name])))
            near = next((one for one in nearest if _any(job, system, {**fixed, name: one})), nearest[0])
            return f"{in_words({name: fixed[name]})} cannot divide the {what} of {model.name} evenly; give {near}"
    has = f" has {in_words(fixed)}" if fixed else ""
    begun = f"no layout of {model.name} on {counted(job.gpus, 'GPU')}{has} with --batch {job.batch}"
    return f"{begun}; {_way_out(job, system, fixed)}"


def _way_out(job: TrainingJob, system: System, fixed: Choices) -> str:
    """Return advice: the nearest batch or number of GPUs with a layout, or the fixed choice to leave out."""
    every = _shapes(replace(job, batch=job.gpus), system, {**fixed, "micro": 1})
    for least in sorted({shape[4] * int(fixed.get("micro", 1)) for shape in every}):
        batch = least * max(1, round(job.batch / least))
        if _any(replace(job, batch=batch), system, fixed):
            return f"give a multiple of {least}, such as --batch {batch}"
    taken = prod(int(fixed.get(name, 1)) for name in ("tensor", "pipeline", "context", "data"))
    counts = sorted({taken * one for one in divisors(job.batch)}, key=lambda gpus: abs(gpus - job.gpus))
    for gpus in counts:
        if gpus <= MOST_GPUS and _any(replace(job, gpus=gpus), system, fixed):
            return f"give --gpus {gpus}"
    for name in fixed:
        if _any(job, system, {other: value for other, value in fixed.items() if other != name}):
            return f"leave out {in_words({name: fixed[name]})}"
    return "give another --batch, --gpus and --layout"


def _any(job: TrainingJob, system: System, fixed: Choices) -> bool:
    return next(_shapes(job, system, fixed), None) is not None
