"""Plans as rows of a run file: nothing in it is measured."""

from typing import Any

from collbench.cases import Case, Sweep
from collbench.collectives import find_collective
from collbench.datatypes import find_datatype, find_reduction
from collbench.planner.search import Planned
from collbench.results import PlannedStep
from collbench.results.steps import Pipeline

_DTYPES = {2: "bfloat16", 4: "float"}


def row(planned: Planned, purpose: str, system: str, **money: Any) -> PlannedStep:
    """Return an evaluated layout as a row of a run file, with `price`, `currency` and `total` of PlannedStep if known.

    The case is the all-reduce of the layout's gradients.  In the pipeline, exposed communication counts as part of its
    micro-batch.
    """
    values, layout = planned.values, planned.layout
    size = int(values["gradient_bytes"])
    nbytes = round(float(values["whole"])) * size
    sums = find_datatype(_DTYPES[size]), find_reduction("sum")
    forward, backward = float(values["stage_forward"]), float(values["stage_backward"])
    longer = float(values["micro_seconds"]) / (forward + backward)
    again = float(values["own_layers"]) * float(values["layer_again"])
    pipeline = Pipeline(
        stages=layout.pipeline,
        chunks=layout.chunks,
        micro_batches=int(values["micro_batches"]),
        forward=forward * longer,
        backward=backward * longer,
        weights=(backward - again) / 2 if layout.schedule == "zb" else 0.0,
    )
    return PlannedStep(
        Case(find_collective("allreduce"), nbytes, *sums, 0, layout.gpus, in_place=True),
        layout.name,
        purpose=purpose,
        system=system,
        parts=planned.parts,
        memory=planned.memory,
        capacity=float(values["capacity"]),
        low=planned.low,
        high=planned.high,
        tokens=float(planned.job.tokens),
        utilisation=planned.utilisation,
        pipeline=pipeline,
        **money,
    )


def sweep_of(case: Case) -> Sweep:
    """Return the sweep that the header of the run file names."""
    return Sweep((case.collective,), (case.nbytes,), (case.dtype,), (case.redop,), case.ranks, ("nccl",), in_place=True)
