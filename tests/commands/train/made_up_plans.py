"""Made-up plans of a training run, with every part of a step and of a memory, for each of their purposes."""

from dataclasses import replace

from collbench.commands.train.communication import PARTS as STEP_PARTS
from collbench.commands.train.formulas import PARTS as MEMORY_PARTS
from collbench.commands.train.rows import PlannedStep
from collbench.datatypes import DATATYPES
from collbench.results import Note, Result
from tests.conftest import case

GIB = 2.0**30

PLAN = PlannedStep(
    case(nbytes=2**30, dtype=DATATYPES["bfloat16"], ranks=1024),
    "tp8 pp16 dp8 v2 mb1 zero1 full",
    purpose="layout",
    system="dgx-a100",
    parts={"computing": 10.0, "bubble": 1.5, "loading": 0.0},
    memory={"weights": 2e9, "activations": 3.5e10},
    capacity=8e10,
    low=10.0,
    high=13.0,
    tokens=3145728.0,
    utilisation=0.45,
    price=2.5,
    total=3e11,
    currency="EUR",
    note=Note.of("1 of 2 nodes"),
)
"""A plan as run files have it, with everything that may be known."""


def plan(purpose: str, name: str = "tp8 pp4 dp2 mb1 zero1 full", **changes: object) -> PlannedStep:
    """One on 64 GPUs, of 10 s, most of it computing; `seconds` and `gpus` change that."""
    seconds, gpus = float(changes.pop("seconds", 10.0)), changes.pop("gpus", 64)  # type: ignore[arg-type]
    rest = 0.4 * seconds / (len(STEP_PARTS) - 1)
    row = PlannedStep(
        case(nbytes=2**30, dtype=DATATYPES["bfloat16"], ranks=gpus),
        name,
        purpose=purpose,
        system="dgx-h100",
        parts=dict.fromkeys(STEP_PARTS, rest) | {"computing": 0.6 * seconds},
        memory={part: (2 + place) * GIB for place, part in enumerate(MEMORY_PARTS)},
        capacity=80 * GIB,
        low=0.9 * seconds,
        high=1.2 * seconds,
        tokens=2.0**20,
        utilisation=0.4,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


PIPELINES = ("tp8 pp4 v2 dp2 mb1 zero1", "tp8 pp4 dp2 mb1 zero1 zb", "tp8 pp64 dp2 mb1 zero1 full")


def ranked() -> list[Result]:
    piped = [plan("layout", name, seconds=11.0 + place) for place, name in enumerate(PIPELINES)]
    return [plan("layout", "tp8 dp8 mb1 zero3"), *piped]


def grown() -> list[Result]:
    return [
        plan("scale", f"tp8 dp{2**power} mb1", gpus=8 * 2**power, seconds=10.0 / 1.92**power) for power in range(1, 12)
    ]


def paid() -> list[Result]:
    """Two systems at two prices; the second is dearer and slower for each number of GPUs."""
    return [
        plan("cost", f"dp{gpus}", gpus=gpus, seconds=640 / gpus**0.9 * times, price=2 * times, system=name, total=1e11)
        for name, times in (("dgx-h100", 1.0), ("dgx-a100", 1.5))
        for gpus in (64, 128, 256, 512)
    ]


def compared() -> list[Result]:
    systems = {"gb200-nvl72": 6.0, "dgx-h100": 10.0, "pcie4-4090-p2p": 40.0}
    return [plan("interconnect", f"tp8 dp{8} mb1", seconds=seconds, system=name) for name, seconds in systems.items()]
