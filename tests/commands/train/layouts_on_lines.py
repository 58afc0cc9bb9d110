"""Small jobs, and the books of a layout on curves whose seconds are bytes over a rate."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from collbench.commands.train import communication, formulas
from collbench.commands.train.curves import TYPICAL, Array, Curve, GpuGroup, Network
from collbench.commands.train.layouts import RECOMPUTE, SCHEDULES, SHARDINGS, Layout, coded
from collbench.commands.train.models import Model, TrainingJob
from collbench.commands.train.search import TERMS, evaluate
from collbench.commands.train.setting import FITTED, Constants, PlanSetting, choices, inputs, machine_of
from collbench.topology.files import load
from collbench.topology.system import System
from tests.commands.train.closed_forms import bus_factor

SYSTEM = load("dgx-h100")
GPT = Model("toy", 8, 1024, 16, sequence=1024, vocabulary=32768)
GATED = Model("toy", 8, 1024, 16, 4, 2816, 1024, 32768, gated=True)
MIXED = replace(GATED, experts=8, top_k=2)
CONSTANTS = replace(FITTED[90], products=0.5, spread=0.1, generation=0)
AT_ONCE = {"launches": 0.0, "calls": 0.0}
"""A host that launches kernels in no time: layers of toys would else take as long as their launches."""


@dataclass
class Lines:
    """Curves of every collective and group without noise, which write down what they are asked."""

    rate: float = 1e9
    latency: float = 0.0
    system: System = SYSTEM
    origin: str = "made up"
    request: list[tuple[str, GpuGroup, float]] = field(default_factory=list)

    def on(self, gpus: int) -> "Lines":
        return self

    def curve(self, collective: str, group: GpuGroup) -> Curve:
        return Line(self, collective, group)


@dataclass(frozen=True)
class Line:
    """One of them."""

    of: Lines
    collective: str
    group: GpuGroup

    def time(self, nbytes: Array, edge: str = TYPICAL) -> Array:
        sizes = np.asarray(nbytes, np.float64)
        self.of.request.extend((self.collective, self.group, float(size)) for size in np.atleast_1d(sizes))
        factor = {"low": 0.8, "high": 1.25}.get(edge, 1.0)
        sent = sizes * bus_factor(self.collective, self.group.ranks)
        return np.asarray(factor * (self.of.latency + sent / self.of.rate))


def request(
    model: Model = GPT, gpus: int = 8, batch: int = 64, curves: Lines | None = None, **job: Any
) -> PlanSetting:  # fmt: skip
    of = TrainingJob(model, gpus, batch, job.pop("sequence", model.sequence), **({"noise": 0.0} | job)).checked()
    sent = curves or Lines()
    return with_constants(PlanSetting(of, sent, machine_of(sent.system)), CONSTANTS)


def with_constants(given: PlanSetting, constants: Constants) -> PlanSetting:
    return replace(given, machine=replace(given.machine, constants=constants))


@dataclass(frozen=True)
class Books:
    """The values of all formulas for a layout."""

    layout: Layout
    values: dict[str, Any]

    @property
    def step(self) -> float:
        return float(self.values["step"])

    @property
    def needed(self) -> float:
        return float(self.values["needed"])

    @property
    def parts(self) -> dict[str, float]:
        return {name: float(self.values[name]) for name in communication.PARTS}

    @property
    def memory(self) -> dict[str, float]:
        return {name: float(self.values[name]) for name in formulas.PARTS}


def evaluated(given: PlanSetting, layout: Layout, **host: float) -> Books:
    """As `evaluate_layout` does it, without the band, which takes four more evaluations; `host` replaces inputs."""
    known = inputs(given) | choices({name: np.asarray(value) for name, value in coded(layout).items()}, given)
    values = evaluate(TERMS, known | host | {"network": Network(given.curves)})
    return Books(layout, values)


def books(layout: Layout, model: Model = GPT, batch: int = 64, **more: Any) -> Books:
    """What a layout comes to, on as many GPUs as it takes, whose host launches at once."""
    return evaluated(request(model, layout.gpus, batch, **more), layout, **AT_ONCE)


FEW = st.sampled_from((1, 2))
CHOICES = st.builds(  # layouts of few GPUs, also such as make no sense
    Layout, tensor=st.sampled_from((1, 2, 8)), pipeline=st.sampled_from((1, 2, 4)), data=st.sampled_from((1, 2, 16)),
    context=FEW, micro=FEW, sharding=st.sampled_from(tuple(SHARDINGS)), recompute=st.sampled_from(RECOMPUTE),
    schedule=st.sampled_from(SCHEDULES), sequential=st.booleans(), offload=st.booleans(),
)  # fmt: skip
