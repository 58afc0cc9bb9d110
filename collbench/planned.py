"""What a plan of a training run yields: the expected step of a layout, what it is spent on, and the memory it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.observed import Timed
from collbench.outcome import Outcome

PURPOSES = ("layout", "scale", "interconnect", "cost")
"""What a row answers: how to deal a run out, how it scales, on which system, for how much money."""

STEP_WORDS = {
    "computing": "computing",
    "tensor_parallel": "tensor parallelism",
    "context_parallel": "context parallelism",
    "expert_parallel": "expert parallelism",
    "pipeline_parallel": "pipeline parallelism",
    "data_parallel": "data parallelism",
    "bubble": "bubble",
    "optimiser": "optimiser",
    "stragglers": "stragglers",
    "loading": "loading of samples",
}
"""What people are told that a step is spent on, by the names of its parts."""
MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimiser_states": "optimiser states",
    "activations": "activations",
    "end_activations": "embedding and output",
    "buffers": "buffers",
    "context_memory": "CUDA context",
    "fragments": "fragments",
}
"""What a GPU's memory is needed for, likewise."""


def words(part: str) -> str:
    """Of a part of a step or of a memory, also of one that a newer version wrote."""
    return STEP_WORDS.get(part) or MEMORY_WORDS.get(part) or part.replace("_", " ")


@dataclass(frozen=True)
class Pipeline:
    """What the timeline of a step's micro-batches follows from; seconds of one micro-batch in one stage."""

    stages: int
    chunks: int  # of a stage's layers
    micro_batches: int
    forward: float
    backward: float
    weights: float  # of `backward`: the part that nothing waits for, if the schedule moves it into the bubble, or 0


@dataclass(frozen=True)
class PlannedStep(Timed):
    """The expected step of a layout.

    The case stands for its gradients: bytes that its replicas add up, and as many ranks as GPUs.  The implementation
    is the layout's name.
    """

    purpose: str  # one of PURPOSES
    system: str  # that it is planned for
    parts: Mapping[str, float] = field(hash=False)  # seconds of the step by what they are spent on
    memory: Mapping[str, float] = field(hash=False)  # bytes of a GPU by what they are needed for
    capacity: float  # bytes of a GPU
    low: float
    high: float
    tokens: float  # of a step, all GPUs together
    utilisation: float  # of the data sheet's FLOP/s (MFU)
    pipeline: Pipeline
    price: float = 0.0  # of an hour of a GPU; 0: not known
    total: float = 0.0  # tokens of the whole run; 0: not known
    platform: str = "model"
    usual = Outcome.PREDICTED

    @property
    def typical(self) -> float:
        """Seconds of a step."""
        return sum(self.parts.values())

    @property
    def band(self) -> tuple[float, float]:
        """Where it should lie."""
        return self.low, self.high

    @property
    def gpus(self) -> int:
        """How many it takes."""
        return self.case.ranks

    @property
    def needed(self) -> float:
        """Bytes of a GPU."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """Of the whole run; of a step where its length is not known."""
        return self.typical * (self.total / self.tokens if self.total else 1.0)

    @property
    def cost(self) -> float:
        """Of the same, in the price's currency."""
        return self.seconds / 3600 * self.gpus * self.price
