"""Layouts: how a training run is dealt out to GPUs, their names, and all those that a job can have.

The name, such as tp8 pp16 dp8 v2 mb1 zero1 full, is what tables show and what --layout takes; what it leaves out is
chosen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from collbench.errors import UsageError, unknown
from collbench.planner.curves import Array, Where
from collbench.planner.job import MOST_GPUS, STACKS, Job


class Sharding(NamedTuple):
    """What of the weights every replica keeps a part of only."""

    level: int  # 1: the optimiser's states, 2: gradients too, 3: weights too
    hybrid: bool = False  # only among the GPUs of a node


SHARDINGS = {
    "ddp": Sharding(0),
    "zero1": Sharding(1),
    "zero2": Sharding(2),
    "zero3": Sharding(3),
    "hsdp": Sharding(3, hybrid=True),
}
SHARDING_ALIASES = {"fsdp": "zero3", "distributed-optimizer": "zero1", "hybrid": "hsdp"}
RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("1f1b", "interleaved", "zb")
"""How a pipeline is run: one forward, one backward; the same with several chunks a stage; or zero-bubble (ZB-H1)."""
PLACEMENTS = ("dp-inside", "pp-inside")
"""Which GPUs are next to each other behind those of tensor and context parallelism: replicas, or stages."""


@dataclass(frozen=True)
class Layout:
    """All choices of a training run."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1  # a part of data times context
    chunks: int = 1  # of a stage's layers, dealt out in turn: interleaved if there are several
    micro: int = 1  # samples of a micro-batch
    sharding: str = "ddp"
    recompute: str = "none"
    schedule: str = "1f1b"
    sequential: bool = False  # sequence parallelism beside tensor parallelism
    offload: bool = False  # whether the optimiser's states live in the memory of the CPU
    placement: str = "dp-inside"

    @property
    def gpus(self) -> int:
        """How many it takes."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def name(self) -> str:
        """What is not as it is by default."""
        sizes = [f"{short}{value}" for short, name in _SIZES.items() if (value := getattr(self, name)) > 1]
        words = [*sizes, f"dp{self.data}", f"mb{self.micro}", self.sharding]
        words += [self.recompute] if self.recompute != "none" else []
        words += [word for word, name in _FLAGS.items() if getattr(self, name)]
        words += [self.schedule] if self.schedule != _usual(self.chunks) else []
        words += [self.placement] if self.placement != PLACEMENTS[0] else []
        return " ".join(words)


def _usual(chunks: int) -> str:
    """The schedule of stages with so many chunks, if it is not said."""
    return "interleaved" if chunks > 1 else "1f1b"


_SIZES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "v": "chunks"}
_COUNTS = _SIZES | {"dp": "data", "mb": "micro"}
_FLAGS = {"sp": "sequential", "offload": "offload"}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "sharding": tuple(SHARDINGS),
    "recompute": RECOMPUTE,
    "schedule": SCHEDULES,
    "placement": PLACEMENTS,
}
Said = Mapping[str, int | str | bool]


def parse_layout(text: str) -> Said:
    """What a layout's name says, by the names of Layout's fields; UsageError for a word that is none."""
    said: dict[str, int | str | bool] = {}
    for word in re.split(r"[\s,]+", text.strip().lower()):
        name, value = _meaning(word)
        if said.get(name, value) != value:
            raise UsageError(f"--layout says {name} twice: {said[name]} and {value}; give one")
        said[name] = value
    if "chunks" in said and "schedule" not in said:
        said["schedule"] = _usual(int(said["chunks"]))
    return said


def _meaning(word: str) -> tuple[str, int | str | bool]:
    word = SHARDING_ALIASES.get(word, word)
    count = re.fullmatch(r"([a-z]+)=?(\d{1,9})", word)
    if count and count[1] in _COUNTS and int(count[2]) > 0:
        return _COUNTS[count[1]], int(count[2])
    flag = re.fullmatch(r"(no-)?([a-z]+)", word)
    if flag and flag[2] in _FLAGS:
        return _FLAGS[flag[2]], not flag[1]
    for name, words in _WORDS.items():
        if word in words:
            return name, word
    choices = [f"{short}N" for short in _COUNTS] + [*_FLAGS] + [one for words in _WORDS.values() for one in words]
    raise unknown("word of a layout", word, choices)


def in_words(said: Said) -> str:
    """What is said as a layout's name has it."""
    shorts = {name: short for short, name in (_COUNTS | _FLAGS).items()}
    words = []
    for name, value in said.items():
        if isinstance(value, bool):
            words.append(shorts[name] if value else f"no-{shorts[name]}")
        else:
            words.append(f"{shorts.get(name, '')}{value}")
    return " ".join(words)


def layout_of(values: Said) -> Layout:
    """The layout with these fields."""
    names = {field.name for field in fields(Layout)}
    assert set(values) <= names
    return Layout(**values)  # type: ignore[arg-type]


MICROS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
SHORTEST = 4096  # tokens of a sample that are left to a GPU where context parallelism cuts it
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
"""Choices that stand in arrays as their place here."""


def candidates(job: Job, system: Where, said: Said) -> dict[str, Array]:
    """Every combination that numbers allow and that agrees with what is said; UsageError, with a way out, if none."""
    shapes = list(_shapes(job, system, said))
    if not shapes:
        raise UsageError(_why_none(job, system, said))
    options = {
        name: words
        for name, words in STACKS[job.stack].options.items()
        if not (name == "schedule" and "chunks" in said)
    }
    allowed = {name: (said[name],) if name in said else options.get(name, words) for name, words in CODES.items()}
    codes = [[place for place, value in enumerate(words) if value in allowed[name]] for name, words in CODES.items()]
    combined = np.array(list(product(*codes)), np.float64)
    columns = np.repeat(np.array(shapes, np.float64), len(combined), axis=0).T
    rows = np.tile(combined, (len(shapes), 1)).T
    arrays = dict(zip((*FIELDS, *CODES), (*columns, *rows), strict=True))
    sensible = _sensible(arrays, system, said)
    if not sensible.any():
        raise UsageError(
            f"--layout {in_words(said)} is none of {job.model.name} on {job.gpus} GPUs: sp needs tp, zb and v need pp, "
            "v micro-batches in whole rounds of the stages, zero1 to zero3 replicas (dp), hsdp several in a node and "
            "several nodes; leave one of them out"
        )
    return {name: array[sensible] for name, array in arrays.items()}


def layouts(arrays: Mapping[str, Array], places: Iterable[int]) -> list[Layout]:
    """Those at these places."""
    return [layout_of(_decoded(arrays, int(place))) for place in places]


def _decoded(arrays: Mapping[str, Array], place: int) -> Said:
    numbers: dict[str, int | str | bool] = {name: int(arrays[name][place]) for name in FIELDS}
    return numbers | {name: words[int(arrays[name][place])] for name, words in CODES.items()}


def coded(layout: Layout) -> dict[str, float]:
    """A layout as the arrays have it."""
    numbers = {name: float(getattr(layout, name)) for name in FIELDS}
    return numbers | {name: float(words.index(getattr(layout, name))) for name, words in CODES.items()}


@lru_cache(maxsize=4096)
def divisors(number: int) -> list[int]:
    """In order."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _chosen(said: Said, name: str, usual: Sequence[int]) -> Sequence[int]:
    wanted = said.get(name)
    return usual if wanted is None else [int(wanted)]


def _shapes(job: Job, system: Where, said: Said) -> Iterator[Shape]:
    """All numbers of GPUs, micro-batches and chunks."""
    model, gpus = job.model, job.gpus
    node = min(system.gpus, gpus)
    for tensor in _chosen(said, "tensor", [one for one in divisors(node) if model.heads % one == 0]):
        if gpus % tensor or model.heads % tensor:
            continue
        for pipeline in _chosen(said, "pipeline", divisors(gpus // tensor)):
            if gpus % (tensor * pipeline) or not _divides(model.layers, pipeline):
                continue
            for context in _chosen(said, "context", _contexts(job)):
                if gpus % (tensor * pipeline * context) or job.sequence % context:
                    continue
                data = gpus // (tensor * pipeline * context)
                if said.get("data", data) == data and job.batch % data == 0:
                    yield from _more(job, said, (tensor, pipeline, context, data))


def _more(job: Job, said: Said, sizes: tuple[int, int, int, int]) -> Iterator[Shape]:
    tensor, pipeline, context, data = sizes
    own = job.batch // data
    experts = [one for one in divisors(max(1, job.model.experts)) if data * context % one == 0]
    for micro in _chosen(said, "micro", [one for one in MICROS if own % one == 0]):
        if own % micro:
            continue
        for chunks in _chosen(said, "chunks", _chunks(job.model.layers, pipeline, own // micro)):
            if chunks > 1 and (pipeline == 1 or not _divides(job.model.layers, pipeline * chunks)):
                continue
            for expert in _chosen(said, "expert", experts):
                if data * context % expert == 0 and max(1, job.model.experts) % expert == 0:
                    yield tensor, pipeline, context, expert, data, micro, chunks


def _divides(layers: int, stages: int) -> bool:
    """Whether stages have as many layers each; embedding and output may count as one each (LLaMA 3, section 3.3.2)."""
    return stages <= layers and (layers % stages == 0 or (layers + 2) % stages == 0)


def _contexts(job: Job) -> list[int]:
    if "context" in STACKS[job.stack].options:
        return [1]
    return [2**power for power in range(8) if power == 0 or job.sequence // 2**power >= SHORTEST]


def _chunks(layers: int, pipeline: int, micro_batches: int) -> list[int]:
    """Interleaving wants whole rounds of micro-batches (Narayanan et al. 2021, section 2.2.2)."""
    if pipeline == 1 or micro_batches % pipeline:
        return [1]
    return [one for one in range(1, MOST_CHUNKS + 1) if one == 1 or _divides(layers, pipeline * one)]


def _sensible(arrays: dict[str, Array], system: Where, said: Said) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Without those that are another one under a second name; what is said stays."""
    replicas = arrays["data"] * arrays["context"]
    sharding = arrays["sharding"]
    inside = node_replicas(arrays, system)
    hybrid = sharding == CODES["sharding"].index("hsdp")
    alone = (replicas == 1) & (sharding > sharding.min())  # the least that is allowed stays
    same = hybrid & ((inside <= 1) | (inside >= replicas)) & ("sharding" not in said)
    lonely = (arrays["tensor"] == 1) & (arrays["sequential"] == 1) & ("sequential" not in said)
    zero_bubble = arrays["schedule"] == CODES["schedule"].index("zb")
    unpiped = zero_bubble & (arrays["pipeline"] == 1) & ("schedule" not in said)
    unpiped |= (arrays["schedule"] == CODES["schedule"].index("interleaved")) != (arrays["chunks"] > 1)
    placed = (arrays["placement"] == 1) & ((arrays["pipeline"] == 1) | (replicas == 1)) & ("placement" not in said)
    return np.asarray(~(alone | same | lonely | unpiped | placed))


def node_replicas(arrays: dict[str, Array], system: Where) -> Array:
    """Replicas of a GPU's weights that live in its node."""
    stride = data_stride(arrays)
    replicas = np.asarray(arrays["data"] * arrays["context"], np.int64)
    return np.asarray(np.gcd(replicas, _fit(stride, system)), np.float64)


def _fit(stride: Array, system: Where) -> Any:
    return np.maximum(1, system.gpus // stride).astype(np.int64)


def data_stride(arrays: dict[str, Array]) -> Array:
    """GPUs from one replica to the next."""
    return np.asarray(arrays["tensor"] * np.where(arrays["placement"] == 1, arrays["pipeline"], 1), np.float64)


def _why_none(job: Job, system: Where, said: Said) -> str:
    """Which of the numbers stand in the way, and ones that do not."""
    model, experts = job.model, max(1, job.model.experts)
    stages = [one for one in range(1, min(model.layers, job.gpus) + 1) if _divides(model.layers, one)]
    even = {
        "tensor": (f"{model.heads} heads", divisors(model.heads)),
        "pipeline": (f"{model.layers} layers", stages),
        "context": (f"samples of {job.sequence} tokens", divisors(job.sequence)),
        "expert": (f"{experts} experts", divisors(experts)),
    }
    for name, (what, fitting) in even.items():
        if name in said and int(said[name]) not in fitting:
            nearest = sorted(fitting, key=lambda one: abs(one - int(said[name])))
            near = next((one for one in nearest if _any(job, system, {**said, name: one})), nearest[0])
            return f"{in_words({name: said[name]})} cannot deal out the {what} of {model.name} evenly; give {near}"
    words = in_words(said)
    begun = f"no layout of {model.name} on {job.gpus} GPUs{f' has {words}' if words else ''} with --batch {job.batch}"
    return f"{begun}; {_way_out(job, system, said)}"


def _way_out(job: Job, system: Where, said: Said) -> str:
    """The nearest batch with which there is a layout, or else number of GPUs, or what is not to be said."""
    for least in sorted({data * int(said.get("micro", 1)) for data in _data_sizes(job, system, said)}):
        batch = least * max(1, round(job.batch / least))
        if _any(replace(job, batch=batch), system, said):
            return f"give a multiple of {least}, such as --batch {batch}"
    taken = prod(int(said.get(name, 1)) for name in ("tensor", "pipeline", "context", "data"))
    counts = sorted({taken * one for one in divisors(job.batch)}, key=lambda gpus: abs(gpus - job.gpus))
    for gpus in counts:
        if gpus <= MOST_GPUS and _any(job.on(gpus), system, said):
            return f"give --gpus {gpus}"
    for name in said:
        if _any(job, system, {other: value for other, value in said.items() if other != name}):
            return f"leave out {in_words({name: said[name]})}"
    return "give another --batch, --gpus and --layout"


def _any(job: Job, system: Where, said: Said) -> bool:
    return next(_shapes(job, system, said), None) is not None


def _data_sizes(job: Job, system: Where, said: Said) -> set[int]:
    """All sizes of the data-parallel part that the model allows: those of a batch that any of them divides."""
    return {shape[4] for shape in _shapes(replace(job, batch=job.gpus), system, dict(said) | {"micro": 1})}
