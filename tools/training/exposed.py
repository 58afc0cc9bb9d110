"""What data parallelism cost Megatron-LM in October 2020: iterations alone and with 128 replicas, milliseconds.

Source: Megatron-LM caa9dca529, images/scaling-mp.png and scaling-dp.png, DGX A100.  What the runs had in common was
that gradients were sent during the backward pass.  By the model the difference is then mostly that of waiting for the
slowest GPU, so the anchor (the first row) sets how much GPUs' speeds differ, which for this machine nobody published.
"""

from collections.abc import Iterator
from typing import NamedTuple

from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.job import Job
from collbench.commands.train.layouts import Layout
from collbench.commands.train.models import Model
from collbench.commands.train.search import evaluate_layout
from collbench.commands.train.setting import Setting, machine_of
from collbench.topology.files import load

REPLICAS = 128


class Run(NamedTuple):
    """A model on so many GPUs of a node, alone and 128 times."""

    tensor: int
    model: Model
    alone: float  # ms
    together: float


def _model(name: str, layers: int, hidden: int, heads: int) -> Model:
    return Model(name, layers, hidden, heads, sequence=1024)


RUNS = (
    Run(1, _model("1.2b", 40, 1536, 16), 1076, 1153),
    Run(2, _model("2.5b", 54, 1920, 20), 1026, 1101),
    Run(4, _model("4.2b", 64, 2304, 24), 1162, 1242),
    Run(8, _model("8.3b", 72, 3072, 32), 1343, 1380),
)


def planned(run: Run, replicas: int, noise: float, efficiency: float) -> float:
    """Seconds of a step of the run, with eight samples a replica."""
    system = load("dgx-a100")
    job = Job(
        run.model, run.tensor * replicas, 8 * replicas, 1024,
        gradients="bf16", stack="modern", noise=noise, efficiency=efficiency,
    )  # fmt: skip
    given = Setting(job, ModelCurves(system), machine_of(system))
    return evaluate_layout(given, Layout(tensor=run.tensor, data=replicas, micro=8)).typical


def exposed(run: Run, noise: float) -> float:
    """Milliseconds that 128 replicas add, with computing as fast as it was alone."""
    low, high = 0.05, 5.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if planned(run, 1, noise, middle) > run.alone / 1e3 else (low, middle)
    return 1e3 * (planned(run, REPLICAS, noise, middle) - planned(run, 1, noise, middle))


def exposed_rows() -> Iterator[tuple[int, float, float]]:
    """Tensor parallelism, published and planned milliseconds."""
    low, high = 1e-4, 0.2
    first = RUNS[0]
    for _ in range(30):
        noise = (low * high) ** 0.5
        low, high = (noise, high) if exposed(first, noise) < first.together - first.alone else (low, noise)
    for run in RUNS:
        yield run.tensor, run.together - run.alone, exposed(run, noise)
