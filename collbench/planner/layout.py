"""A layout: how a training run is dealt out to GPUs, and its name, `tp8 pp16 dp8 v2 mb1 zero1 full`.

The name is what tables show and what `--layout` and `--explain` take; what it leaves out is chosen.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from collbench.errors import UsageError, unknown


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
