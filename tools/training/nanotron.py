"""Published layouts of one framework on 1 to 64 nodes, and what the planner would choose of them.

nanotron_layouts.json says where they are from.  What it does not say is as in the script that made the runs
(github.com/huggingface/nanotron, scripts/scaling_benchmarks.py): the models' dimensions, as many heads of keys as of
queries, sequence parallelism beside tensor parallelism.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.job import Job
from collbench.commands.train.layouts import Layout
from collbench.commands.train.models import Model
from collbench.commands.train.search import evaluate_layout
from collbench.commands.train.setting import Setting, machine_of
from collbench.results import PlannedStep
from collbench.topology.files import load

SEQUENCE, BATCH = 4096, 256
MODELS = {
    "1B": Model("1B", 16, 2048, 32, ffn=8192, gated=True, sequence=SEQUENCE, vocabulary=49152, tied=True),
    "8B": Model("8B", 32, 4096, 32, ffn=14336, gated=True, sequence=SEQUENCE, vocabulary=49152),
}
WITHIN = 8
"""GPUs of a node; tensor parallelism over more is no choice of the planner."""


@dataclass(frozen=True)
class Run:
    """One layout: the seconds of a step, infinite where it crashed or ran out of memory, and what is planned for it."""

    model: str
    nodes: int
    measured: float
    memory: float  # bytes
    layout: Layout
    planned: PlannedStep

    @property
    def fits(self) -> bool:
        """Whether it should fit into memory."""
        return self.planned.needed <= self.planned.capacity


@cache
def runs(stack: str = "nanotron") -> tuple[Run, ...]:
    """All layouts, planned for a software."""
    rows = json.loads(Path(__file__).with_name("nanotron_layouts.json").read_text())["rows"]
    return tuple(_run(row, stack) for row in rows)


def _run(row: dict[str, Any], stack: str) -> Run:
    gpus = WITHIN * row["nodes"]
    curves = ModelCurves(load("aws-p5"), gpus)
    given = Setting(Job(MODELS[row["model"]], gpus, BATCH, SEQUENCE, stack=stack), curves, machine_of(curves.system))
    layout = Layout(
        tensor=row["tp"], pipeline=row["pp"], data=row["dp"], micro=row["mbs"], sequential=row["tp"] > 1,
        sharding="zero1" if row["zero"] and row["dp"] > 1 else "ddp",
    )  # fmt: skip
    seconds = BATCH * SEQUENCE / max(row["tokens_s_gpu"]) / gpus if row["ran"] else np.inf
    memory = max(row["memory_gb"]) * 1e9 if row["ran"] else np.inf
    return Run(row["model"], row["nodes"], seconds, memory, layout, evaluate_layout(given, layout))


def groups(stack: str = "nanotron") -> Iterator[tuple[str, int, list[Run]]]:
    """Layouts that ran, by model and number of nodes."""
    ran = [run for run in runs(stack) if np.isfinite(run.measured)]
    for model, nodes in sorted({(run.model, run.nodes) for run in ran}):
        yield model, nodes, [run for run in ran if (run.model, run.nodes) == (model, nodes)]


def first_choice(found: Sequence[Run]) -> Run:
    """The layout that the planner puts first: the shortest of those that should fit."""
    return min(found, key=lambda run: (not run.fits, run.planned.typical))


def reached(found: Sequence[Run]) -> float:
    """What the planner's first choice reaches of the best layout."""
    return min(run.measured for run in found) / first_choice(found).measured


def layout_table() -> Iterator[str]:
    """A row for every model and number of nodes."""
    from scipy.stats import spearmanr

    yield "| model | nodes | layouts | first choice | by `modern` | planned over measured, best | rank correlation |"
    yield "|---|---|---|---|---|---|---|"
    others = {(model, nodes): reached(found) for model, nodes, found in groups("modern")}
    for model, nodes, found in groups():
        best = min(found, key=lambda run: run.measured)
        order = spearmanr([run.planned.typical for run in found], [run.measured for run in found]).statistic
        yield (
            f"| {model} | {nodes} | {len(found)} | {reached(found):.0%} | {others[model, nodes]:.0%} | "
            f"{best.planned.typical / best.measured:.2f} | {order:.2f} |"
        )
