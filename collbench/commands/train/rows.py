"""The row of a planned step in run files."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from collbench.results.base import FromModel, Timed
from collbench.units import Duration, Seconds

PART_WORDS = {"end_activations": "embedding and output", "context_memory": "CUDA context"}
"""Descriptions of parts of a step or of memory, where the name alone is unclear."""

MOST_BYTES = 2**62

_Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
_SecondsByPart = Annotated[Mapping[_Name, Duration], Meta(max_length=32)]
_BytesByPart = Annotated[Mapping[_Name, Annotated[float, Meta(ge=0, le=MOST_BYTES)]], Meta(max_length=32)]


def words(part: str) -> str:
    """Return the words for a part of a step or of memory, even one of a newer version."""
    return PART_WORDS.get(part) or part.replace("_parallel", " parallelism").replace("_", " ")


class PlannedStep(FromModel, Timed, frozen=True, tag="planned"):
    """The predicted step of a layout of a training run.

    The case is the all-reduce of its gradients, with as many ranks as GPUs.  The implementation is the layout's name.
    """

    SHOWN = ("implementation", "typical", "low", "high", "utilisation", "needed")

    purpose: Annotated[str, Meta(pattern="^(layout|scale|interconnect|cost)$")]
    system: str  # of the planned run
    parts: _SecondsByPart  # seconds of the step by part
    memory: _BytesByPart  # bytes of a GPU by part
    capacity: Annotated[float, Meta(gt=0, le=MOST_BYTES)]  # bytes of a GPU
    low: Duration
    high: Seconds
    tokens: Annotated[float, Meta(gt=0, le=1e30)]  # of a step, all GPUs together
    utilisation: Annotated[float, Meta(ge=0, le=10)]  # MFU: share of the data sheet's 16-bit FLOP/s
    price: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  # of a GPU-hour; 0: unknown
    total: Annotated[float, Meta(ge=0, le=1e30)] = 0.0  # tokens of the whole run; 0: unknown
    currency: Annotated[str, Meta(pattern="^([A-Z]{3})?$")] = ""  # ISO 4217 code of the price; empty: unknown
    platform: str = "model"

    @property
    def typical(self) -> float:
        """Seconds of a step."""
        return sum(self.parts.values())

    @property
    def check(self) -> str:
        """The word `planned`."""
        return "planned"

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.case.ranks

    @property
    def needed(self) -> float:
        """Bytes of a GPU that the layout needs."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, or of a step if the run's length is unknown."""
        return self.typical * (self.total / self.tokens if self.total else 1.0)

    @property
    def cost(self) -> float:
        """Cost of `seconds`, in the price's currency."""
        return self.seconds / 3600 * self.gpus * self.price
