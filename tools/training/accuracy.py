"""Errors of the planner on published runs: with an anchor, without one, and with a table left out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.layouts import Layout, layout_of
from collbench.commands.train.models import TrainingJob
from collbench.commands.train.rows import PlannedStep
from collbench.commands.train.search import best_of, evaluate_layout
from collbench.commands.train.setting import Constants, PlanSetting, machine_of
from collbench.topology.files import load
from tools.training.published import Row, Table


@dataclass(frozen=True)
class Miss:
    """One run: the published and the planned seconds of a step."""

    row: Row
    layout: Layout
    published: float
    planned: float

    @property
    def relative(self) -> float:
        """Relative error of the planned time."""
        return self.planned / self.published - 1


def sequence_of(table: Table, row: Row) -> int:
    """Return the tokens of a sample."""
    return row.sequence or table.sequence or row.model.sequence


def given(table: Table, row: Row, constants: Constants | None = None, efficiency: float = 1.0) -> PlanSetting:
    curves = ModelCurves(load(table.system), row.gpus)
    job = TrainingJob(
        row.model, row.gpus, row.batch, sequence_of(table, row),
        precision=row.precision, gradients=table.gradients, stack=table.stack, efficiency=efficiency,
    )  # fmt: skip
    machine = machine_of(curves.system)
    return PlanSetting(job, curves, replace(machine, constants=constants or machine.constants))


def chosen(request: PlanSetting, row: Row) -> PlannedStep:
    """Return the fastest layout that agrees with the table; the smallest if none fits by the model."""
    return best_of(request, row.fixed)


def published_seconds(table: Table, row: Row, peak: float = 0.0) -> float:
    """Return the seconds of a step, from the unit of the table."""
    model, sequence = row.model, sequence_of(table, row)
    if table.unit == "s":
        return row.value
    if table.unit == "tokens/s/GPU":
        return row.batch * sequence / (row.value * row.gpus)
    flops = model.flops(sequence) * row.batch * sequence
    if table.unit == "MFU":
        return flops / (row.value * peak * row.gpus)
    if "recomputed" in table.unit:  # the forward pass of all layers once more, without that of the output
        flops += row.batch * sequence * model.layers * (2 * model.worked + 4 * model.queries * sequence)
    return flops / (row.value * 1e12 * row.gpus)


def misses(table: Table, constants: Constants | None = None, anchored: bool = False) -> list[Miss]:
    """Return the errors of all rows; `anchored` scales the computing time so that the first row's step is right."""
    efficiency = anchor(table, constants) if anchored else 1.0
    return [miss(table, row, constants, efficiency) for row in table.rows]


def miss(table: Table, row: Row, constants: Constants | None, efficiency: float) -> Miss:
    """Return the error of a row, with the computing time divided by `efficiency`."""
    request = given(table, row, constants, efficiency)
    plan = chosen(request, row)
    published = published_seconds(table, row, request.machine.product.flops)
    return Miss(row, layout_of(plan.implementation), published, plan.typical)


def anchor(table: Table, constants: Constants | None = None, place: int = 0) -> float:
    """Return the factor by which computing is faster than expected, so that a row's step is right; by bisection."""
    row = table.rows[place]
    low, high = 0.2, 5.0
    layout = layout_of(chosen(given(table, row, constants), row).implementation)
    for _ in range(40):
        middle = (low * high) ** 0.5
        request = given(table, row, constants, middle)
        slow = evaluate_layout(request, layout).typical > published_seconds(table, row, request.machine.product.flops)
        low, high = (middle, high) if slow else (low, middle)
    return middle


def mean_error(found: Iterable[Miss]) -> float:
    errors = [abs(miss.relative) for miss in found]
    return sum(errors) / len(errors)
