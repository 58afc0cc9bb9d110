"""Plan a training run: layouts that fit, time of a step, bottleneck, and cost.

For example:
  collbench train --model gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536
  collbench train --model llama3-8b --on dgx-h100 --gpus 64 --batch 512 --price 2.5
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import click

from collbench.cli.options import folder_option, given, options_of, print_basis
from collbench.cli.running import say_where, software
from collbench.commands.train import section as analysis
from collbench.commands.train.library import Gain, TrainingPlan, TrainRequest, sensitivities, train
from collbench.commands.train.rows import PlannedStep, words
from collbench.commands.train.search import OnSystem, Plan
from collbench.present.columns import USEFUL, Column
from collbench.present.terminal import lines
from collbench.requests.sweeps import new_folder
from collbench.topology.products import GIB
from collbench.topology.system import is_named
from collbench.units import counted, format_rounded


@click.command(params=[*options_of(TrainRequest), folder_option("run file")])
def command(**options: Any) -> int:
    """Plan a training run: layouts that fit, time of a step, bottleneck, and cost.

    Try every layout (data, tensor, pipeline, context, expert and sequence parallelism, ZeRO, FSDP, recomputation,
    offloading) against GPU memory.  Time the layouts that fit by the model's collectives on a described system, which
    `collbench predict --fit` can fit to a run.  Nothing runs.
    """
    out = options.pop("out")
    plan = train(**options)
    name = re.sub(r"[^a-z0-9]+", "-", f"train-{plan.title}".lower()).strip("-")
    with plan.session(out or new_folder(["allreduce"], name)) as session:
        list(session.run())
    if not session.leader:
        return 0
    asked, taken = plan.request.model.lower(), plan.plan.setting.job.model.name
    if asked in taken and asked != taken:
        click.echo(f"collbench: --model {asked} means {taken}", err=True)
    system = plan.plan.setting.curves.system
    place = replace(system, nodes=math.ceil(plan.plan.setting.job.gpus / system.gpus))
    print_basis(place.title, [*_assumed(plan), *software(session)])
    click.echo("\n".join(_lines(plan)))
    click.echo(f"\n{LEGEND}", err=True)
    say_where(session, plot=False)
    return 0


def _assumed(planned: TrainingPlan) -> list[str]:
    """Return the assumptions of the plan that the user did not give."""
    job = planned.plan.setting.job
    words = {
        "model": job.model.name,
        "gpus": counted(job.gpus, "GPU"),
        "batch": f"{counted(job.batch, 'sample')} a step",
        "precision": job.precision,
        "optimiser": job.optimiser,
    }
    if planned.priced:
        usual = "as published" if job.model.trained else "20 per active parameter"
        words["tokens"] = f"{planned.priced[0].total:.3g} tokens ({usual})"
    return [words[name] for name in words if name not in given()]


def _lines(planned: TrainingPlan) -> Iterator[str]:
    plan, best = planned.plan, planned.best
    yield from (answer(planned), "")
    yield from heading(plan)
    if planned.anchor:
        at = plan.setting.job.efficiency
        yield f"anchored on {planned.anchor.implementation}: computing is {at:.2f} times as fast as expected"
    for part in (ranking(planned.ranked), [shares(best)], gains(sensitivities(plan)), memory(best)):
        yield from chain([""], part)
    if planned.request.scale:
        yield from chain([""], scaling(planned.sizes, planned.scaled))
    if planned.systems:
        rows = [place.best for place in planned.systems if place.best]
        yield from chain([""], lines(analysis.columns("system,GPUs,step,MFU,tokens/s,comp.,sent,bubble,layout"), rows))
        yield from (f"{place.system}  none: {place.reason}" for place in planned.systems if place.reason)
    if planned.priced:
        row = _priced(planned)
        yield f"\na run of {row.total:.3g} tokens at {row.price:g} {row.currency} a GPU-hour"
        yield from costs(planned.priced)


def answer(planned: TrainingPlan) -> str:
    """Return one line: the best layout, its near ties, and if requested the fastest system and the cost."""
    parts = [analysis.best_in_words(planned.ranked)]
    if planned.systems:
        parts.append(analysis.fastest_in_words([place.best for place in planned.systems if place.best]))
    if planned.priced:
        row = _priced(planned)
        what = counted(row.gpus, "GPU") + ("" if row.gpus == planned.best.gpus else f" as {row.implementation}")
        parts.append(f"{what}: {analysis.duration_text(row)} for {analysis.cost_text(row)}")
    return f"answer: {'; '.join(parts)}"


def _priced(planned: TrainingPlan) -> PlannedStep:
    """Return the priced plan with the number of GPUs closest to the requested one."""
    gpus = planned.plan.setting.job.gpus
    return min(planned.priced, key=lambda row: abs(row.gpus - gpus))


LEGEND = (
    "step: the likely time; nine in ten: nine of ten measured steps should lie in this range\n"
    "Fastest first; of layouts within 1 % of each other, the one with the smallest memory first.\n"
    "MFU: share of the data sheet's FLOP/s, without recomputation; sent: exposed communication"
)


def heading(plan: Plan) -> Iterator[str]:
    """Yield the model, job, GPUs and curves of the plan, and the number of layouts."""
    given = plan.setting
    job, model = given.job, given.job.model
    active = f", {model.active / 1e9:.4g} billion active" if model.experts else ""
    yield (
        f"{model.name}: {model.parameters / 1e9:.4g} billion parameters{active}; "
        f"{counted(job.batch, 'sample')} of {counted(job.sequence, 'token')} a step"
    )
    yield (
        f"{counted(job.gpus, 'GPU')} of {given.machine.name}, {given.capacity / GIB:.3g} GiB each; "
        f"{job.precision}, {job.optimiser}, gradients {job.gradients}; software {job.stack}"
    )
    yield f"curves: {given.curves.origin}"
    if not is_named(given.curves.system):
        yield "unknown GPU name: the figures are those of its architecture; [gpu] in a system's file overrides them"
    yield f"{counted(plan.tried, 'layout')}, {plan.fits:,} fit into memory"


def ranking(plans: Sequence[PlannedStep]) -> list[str]:
    """Return the table of layouts."""
    ranks = {plan.implementation: rank for rank, plan in enumerate(plans, 1)}
    rank = Column[PlannedStep]("", lambda row: ranks[row.implementation], importance=USEFUL + 6, form=">")
    return lines([rank, *analysis.columns("layout,step,nine in ten,MFU,tokens/s,comp.,sent,bubble,memory")], plans)


def shares(best: PlannedStep) -> str:
    """Return the parts of the best layout's step, the largest share first."""
    parts = sorted(best.parts.items(), key=lambda part: -part[1])
    listed = [f"{words(name)} {seconds / best.typical:.0%}" for name, seconds in parts]
    return f"{best.implementation}: {', '.join(words for words in listed if not words.endswith(' 0%'))}"


def memory(best: PlannedStep) -> Iterator[str]:
    """Yield the table of a GPU's memory by part."""
    sizes = {words(name): size for name, size in best.memory.items() if size >= 2**20}
    sizes[f"all, of {best.capacity / GIB:.3g} GiB"] = best.needed
    yield f"memory of a GPU, {best.implementation}"
    for name, size in sizes.items():
        yield f"  {name:<22} {size / GIB:>8.2f} GiB {size / best.capacity:>5.0%}"


def gains(most_first: Sequence[Gain]) -> Iterator[str]:
    """Yield the table of sensitivities."""
    yield "speed-up of a step from     10 % more       twice"
    for gain in most_first:
        yield f"  {gain.resource:<24} {gain.tenth:>9.3f}x {gain.twice:>9.3f}x as fast"


def scaling(sizes: Sequence[OnSystem], rows: Sequence[PlannedStep]) -> Iterator[str]:
    """Yield the table by number of GPUs, and below it the numbers on which nothing fits."""
    curve = analysis.scaled(rows)
    table = analysis.columns("GPUs,layout,step,nine in ten,tokens/s")
    if curve:
        table.append(Column("efficiency", curve.efficiency, "{:.1%}".format, form=">"))
    yield from lines(table, rows)
    yield from (f"{size.gpus:>7,}  none: {size.reason}" for size in sizes if size.reason)
    if curve:
        yield analysis.efficiency_in_words(curve)


def costs(plans: Sequence[PlannedStep]) -> list[str]:
    """Return the table of costs by number of GPUs; it marks the Pareto front."""
    best = analysis.front(plans)

    def million(row: PlannedStep) -> str:
        return format_rounded(row.cost / row.total * 1e6, analysis.certain_digits(row))

    table = [
        *analysis.columns("GPUs"),
        Column[PlannedStep]("whole run (nine in ten)", analysis.duration_text, form="<"),
        Column[PlannedStep]("cost (nine in ten)", analysis.cost_text, form="<"),
        Column[PlannedStep]("of 1M tokens", million, importance=USEFUL, form=">"),
        Column[PlannedStep]("", lambda row: "Pareto" if row in best else ""),
    ]
    return lines(table, plans)
