"""Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

For example:
  collbench train --model gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536
  collbench train --model llama3-8b --on dgx-h100 --gpus 64 --batch 512 --price 2.5
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import click

from collbench.analysis import plans as analysis
from collbench.api.requests import new_folder
from collbench.api.training import TrainingPlan, train
from collbench.cli.options import TIME, option, writes
from collbench.cli.running import say_where
from collbench.cli.tables import Table, grid
from collbench.planner.cost import OnSystem
from collbench.planner.memory import PARTS as MEMORY_PARTS
from collbench.planner.search import Plan, Planned
from collbench.planner.sensitivity import Gain, explain_best, sensitivities
from collbench.planner.setting import Setting
from collbench.results import PlannedStep, words
from collbench.topology.products import GIB
from collbench.units import (
    counted,
    format_count,
    format_duration,
    format_interval,
    format_range,
    format_rounded,
    format_seconds,
)

_OPTIONS = [
    option(
        "--model",
        "A preset, a file, or dimensions: layers=32,hidden=4096,heads=32.",
        default="llama3-8b",
        metavar="NAME|FILE.toml|KEY=N,...",
    ),
    option("--on", "What it is trained on.", default="dgx-h100", metavar="SYSTEM|FILE.toml|RUN"),
    option("-g --gpus", "How many GPUs.  [default: 64; of a run its ranks]", type=int),
    option("--batch", "Samples of a step, all GPUs together.", type=int, default=512),
    option("--sequence", "Tokens of a sample.  [default: the model's]", type=int),
    option("--precision", "Type of matrix products.", default="bf16", metavar="bf16|fp8"),
    option("--optimiser", "adam, adam8bit, adam-bf16 or sgd.", default="adam", metavar="NAME"),
    option("--gradients", "Type of gradients, summed and sent.", default="fp32", metavar="fp32|bf16"),
    option(
        "--stack",
        "Software: modern, megatron-2022, megatron-2021, deepspeed-2021.  [default: of the GPUs' published runs]",
        metavar="NAME",
    ),
    option("--layout", 'Choices that are fixed, such as "tp8 pp16 mb1 full zero1".', metavar="WORDS"),
    option("--top", "Layouts to show.", type=click.IntRange(1, 100), default=10),
    option("--anchor", "A measured step: 32s, 45%, 32s,gpus=1024,layout=tp8 pp16.", metavar="STEP|MFU%[,...]"),
    option("--loader", "Samples that can be read in a second.", type=float, metavar="SAMPLES/S"),
    option("--scale", "Also on these numbers of GPUs: 8..8192 doubles.", metavar="N..N"),
    option("--compare-interconnects", "Also on these systems, as they are.", metavar="SYSTEM,..."),
    option(
        "--what-if",
        "Change the network cards or switches: nic.rate=25 (GB/s), nic.per_node=4; others: see `predict --help`.",
        multiple=True,
        metavar="CHANGE",
    ),
    option("--price", "Price of a GPU-hour, by default in USD: shows what the run costs.", metavar="2.5|2.5EUR"),
    option("--deadline", "With --price: mark the cheapest that is in time.", metavar="30d|12h"),
    option("--tokens", "Tokens of the run: 300B.  [default: as published, or 20 a parameter]", metavar="N"),
    option("--checkpoint", "With --price: time that a checkpoint holds the run up.", type=TIME, default="10s"),
    option("--reserve", "Per cent of memory lost to fragments.", type=float, default=6.0),
    option("--noise", "Standard deviation of GPUs' speeds, per cent.", type=float, default=1.0),
    option("--tflops", "TFLOP/s of a GPU, dense, on 16 bits.  [default: its data sheet's]", type=float),
    option("--memory", "Memory of a GPU in GiB.  [default: its data sheet's]", type=float),
    option("--fitted", "With a run: the fit to its curves instead of its points.", is_flag=True),
    option("--machine", "With a run: the machine it is of.", metavar="SYSTEM|FILE.toml"),
    *writes("run file and pictures"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

    Every way to deal the model out (data, tensor, pipeline, context, expert and sequence parallelism, ZeRO, FSDP,
    recomputation, offloading) is tried against the memory of a GPU, and timed by curves of collectives: modelled for a
    described system, measured or fitted for a run.  Nothing runs.
    """
    checkpoint, formats, out = (options.pop(name) for name in _SHOWN)
    plan = train(**options)
    name = re.sub(r"[^a-z0-9]+", "-", f"train-{plan.title}".lower()).strip("-")
    with plan.session(out or new_folder(["allreduce"], name)) as session:
        list(session.run())
    if not session.leader:
        return 0
    asked, taken = options["model"].lower(), plan.plan.setting.job.model.name
    if asked in taken and asked != taken:
        click.echo(f"collbench: --model {asked} is taken for {taken}", err=True)
    click.echo("\n".join(_lines(plan, checkpoint, options)))
    anchor, waits = " but the anchor" if plan.anchor else "", STARVING if plan.best.parts["loading"] else ""
    click.echo(f"\n{LEGEND.format(anchor)}{waits}", err=True)
    say_where(session, formats)
    return 0


_SHOWN = ("checkpoint", "formats", "out")  # options of what is shown, not of the plan


def _lines(planned: TrainingPlan, checkpoint: float, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield everything as lines of text."""
    plan, best = planned.plan, planned.best
    yield from (answer(planned), "")
    yield from heading(plan)
    if planned.anchor:
        at = plan.setting.job.efficiency
        yield f"anchored on {planned.anchor.layout.name}: computing is {at:.2f} times as fast as expected"
    for part in (
        [*ranking(planned.ranked), *stages(best)],
        explain_best(plan),
        gains(sensitivities(plan.setting, best.layout, plan.fixed)),
        memory(plan.setting, best),
    ):
        yield from chain([""], part)
    if options["scale"]:
        yield from chain([""], scaling(planned.sizes, planned.scaled))
    if planned.systems:
        yield from chain([""], on_systems([planned.here(), *planned.systems]))
    if planned.priced:
        yield f"\na run of {planned.tokens:.3g} tokens at {planned.price:g} {planned.currency} a GPU-hour"
        if not options["tokens"]:
            usual = "as published" if plan.setting.job.model.trained else "20 for each parameter at work"
            yield f"(tokens: {usual}; --tokens sets them)"
        yield from costs(planned.priced, planned.deadline)
        yield failing(_priced(planned), checkpoint)


def answer(planned: TrainingPlan) -> str:
    """Return one line: the best layout, how sure its place is, and where asked for the system and the cost."""
    best, others = planned.best, planned.ranked[1:]
    step = f"{format_seconds(best.step)} a step{format_interval(best.low, best.high, format_seconds)}"
    memory = f"{best.needed / GIB:.0f} of {planned.plan.setting.capacity / GIB:.3g} GiB"
    parts = [f"{best.layout.name}, {step}, {best.utilisation:.0%} MFU, {memory}"]
    if level := sum(other.low <= best.step for other in others):
        which = "all others" if level == len(others) else f"{level} of the {counted(len(others), 'other')}"
        parts.append(f"{which} shown may be as fast")
    if planned.unchanged:
        parts.append(f"{format_seconds(planned.unchanged.step)} a step as the system is described")
    if planned.systems:
        compared = (planned.here(), *planned.systems)
        places = sorted((one.best.step, one.best.low, one.system.name) for one in compared if one.best)
        fastest = [f"{name}, {format_seconds(step)}" for step, low, name in places if low <= places[0][0]]
        parts.append(f"likely fastest: {' or '.join(fastest)}")
    if planned.priced:
        row = _priced(planned)
        late = planned.deadline and row.seconds > planned.deadline
        tried = f"{planned.priced[0].gpus:,} to {planned.priced[-1].gpus:,} GPUs (--scale tries others)"
        what = f"none of {tried} is done in {format_duration(planned.deadline)}: the quickest, " if late else ""
        what += counted(row.gpus, "GPU") + ("" if row.gpus == best.layout.gpus else f" as {row.implementation}")
        parts.append(f"{what}: {analysis.duration_text(row)} for {analysis.cost_text(row)}")
    return f"answer: {'; '.join(parts)}"


def _priced(planned: TrainingPlan) -> PlannedStep:
    """Return the cheapest number of GPUs in time or else the quickest; without a deadline the requested one."""
    if planned.deadline:
        return analysis.cheapest(planned.priced, planned.deadline) or min(planned.priced, key=lambda row: row.seconds)
    gpus = planned.plan.setting.job.gpus
    return min(planned.priced, key=lambda row: abs(row.gpus - gpus))


_HEADS = {"rank": "", "band": "nine in ten", "tokens": "tokens/s", "computing": "comp."}
LEGEND = (
    "nothing here is measured{}; step: the likely time; nine in ten: where nine of ten measured steps should lie\n"
    "Fastest first; layouts within 1 % of each other: the one that needs less memory first.\n"
    "MFU: share of the data sheet's FLOP/s, recomputing not counted; sent: communication that nothing hides"
)
STARVING = "\nThe order is that of steps without the wait for samples, which makes all of them as long."


def heading(plan: Plan) -> Iterator[str]:
    """Yield what is planned, on what, and by which curves."""
    given = plan.setting
    job, model = given.job, given.job.model
    active = f", {model.active / 1e9:.4g} billion at work" if model.experts else ""
    yield (
        f"{model.name}: {model.parameters / 1e9:.4g} billion parameters{active}; "
        f"{counted(job.batch, 'sample')} of {counted(job.sequence, 'token')} a step"
    )
    yield (
        f"{counted(job.gpus, given.machine.unit)} of {given.machine.name}, {given.capacity / GIB:.3g} GiB each; "
        f"{job.precision}, {job.optimiser}, gradients {job.gradients}; software {job.stack}"
    )
    yield "; ".join(filter(None, (f"curves: {given.curves.origin}", given.machine.note)))
    if not given.machine.known:
        yield "GPUs not known by name: figures of their architecture are taken, --tflops and --memory set others"
    yield f"{counted(plan.tried, 'layout')}, {plan.fits:,} fit into memory"


def ranking(plans: Sequence[Planned]) -> Iterator[str]:
    """Yield the table of layouts."""
    width = max(len(plan.layout.name) for plan in plans)
    form = (
        f"{{rank:>3}}  {{layout:<{width}}} {{step:>8}} {{band:>19}} {{MFU:>6}} {{tokens:>9}} {{memory:>8}}  "
        "{computing:>6} {sent:>7} {bubble:>6}  {note}"
    )
    table = Table(form, heads=_HEADS, last_out=("computing", "tokens", "bubble", "sent", "band", "MFU", "rank"))
    yield table.heading()
    for rank, plan in enumerate(plans, 1):
        yield table.row(rank=rank, **_cells(plan))


def stages(best: Planned) -> Iterator[str]:
    """Yield how many layers the stages of a layout have, if not all have equally many."""
    layers, fullest = best.job.model.layers, int(best.values["own_layers"])
    if fewer := fullest * best.layout.pipeline - layers:
        what = f"{counted(layers, 'layer')} on {counted(best.layout.pipeline, 'stage')}, {fullest} in the fullest"
        yield f"{best.layout.name}: {what}; the others have {fewer} fewer in all, first of all the last, for its output"


def memory(given: Setting, best: Planned) -> Iterator[str]:
    """Yield what the memory of a GPU is needed for."""
    lines = {words(name): best.memory[name] for name in MEMORY_PARTS if best.memory[name] >= 2**20}
    lines[f"all, of {given.capacity / GIB:.3g} GiB"] = best.needed
    yield f"memory of a GPU, {best.layout.name}"
    for name, size in lines.items():
        yield f"  {name:<22} {size / GIB:>8.2f} GiB {size / given.capacity:>5.0%}"


def gains(most_first: Sequence[Gain]) -> Iterator[str]:
    """Yield the table of sensitivities."""
    yield "a step with 10 % more of"
    for gain in most_first:
        yield f"  {gain.resource:<24} {gain.factor:.3f}x as fast"


def scaling(sizes: Sequence[OnSystem], rows: Sequence[PlannedStep]) -> Iterator[str]:
    """Yield the table by number of GPUs; `rows` are those that fit, in their order."""
    curves = analysis.scaled(rows)
    width = max((len(row.implementation) for row in rows), default=0)
    form = f"{{GPUs:>7}}  {{layout:<{width}}} {{step:>8}} {{band:>19}} {{tokens:>9}} {{efficiency:>10}}  {{note}}"
    table = Table(form, heads=_HEADS, last_out=("tokens", "band"))
    yield table.heading()
    planned = {row.gpus: row for row in rows}
    for size in sizes:
        if size.best:
            efficiency = f"{curves[0].efficiency(planned[size.gpus]):.1%}" if curves else ""
            yield table.row(efficiency=efficiency, **_cells(size.best))
        else:
            yield f"{size.gpus:>7,}  none: {size.reason}"
    for curve in curves:
        words = [
            f"below {level:.0%} {f'from about {gpus:,.0f} GPUs on' if gpus else 'nowhere in this table'}"
            for level, gpus in analysis.leaving(curve).items()
        ]
        yield f"efficiency against {counted(curve.rows[0].gpus, 'GPU')} with the same batch: {', '.join(words)}"


def on_systems(places: Sequence[OnSystem]) -> Iterator[str]:
    """Yield the table by system."""
    width = max([6, *(len(one.system.name) for one in places)])
    names = max([6, *(len(one.best.layout.name) for one in places if one.best)])
    form = (
        f"{{system:<{width}}} {{GPUs:>6}}  {{layout:<{names}}} {{step:>8}} {{MFU:>6}} {{tokens:>9}} "
        f"{{computing:>6}} {{sent:>6}} {{bubble:>6}}  {{note}}"
    )
    table = Table(form, heads=_HEADS, last_out=("computing", "bubble", "sent", "tokens", "MFU", "layout"))
    yield table.heading()
    for one in places:
        if not one.best:
            yield f"{one.system.name:<{width}} {one.gpus:>6,}  none: {one.reason}"
            continue
        yield table.row(system=one.system.name, **_cells(one.best))


def _cells(plan: Planned) -> dict[str, str]:
    """Return the cells of a layout that several tables share."""
    sent = sum(plan.parts[name] for name in analysis.UNHIDDEN)
    return {
        "layout": plan.layout.name,
        "GPUs": f"{plan.layout.gpus:,}",
        "step": format_seconds(plan.step),
        "band": format_range(plan.low, plan.high, format_seconds),
        "memory": f"{plan.needed / GIB:.1f} GiB",
        "MFU": f"{plan.utilisation:.1%}",
        "tokens": format_count(plan.tokens_per_second),
        "computing": f"{plan.parts['computing'] / plan.step:.0%}",
        "sent": f"{sent / plan.step:.1%}",
        "bubble": f"{plan.parts['bubble'] / plan.step:.1%}",
    }


def costs(plans: Sequence[PlannedStep], deadline: float) -> Iterator[str]:
    """Yield the table of costs by number of GPUs; marks the Pareto front and the cheapest in time."""
    best, chosen = analysis.front(plans), analysis.cheapest(plans, deadline) if deadline else None
    rows = [("GPUs", "whole run (nine in ten)", "cost (nine in ten)", "of 1M tokens", "")]
    for plan in plans:
        marks = ["Pareto"] if plan in best else []
        if plan is chosen:
            late = plan.high / plan.typical * plan.seconds > deadline
            marks.append(f"cheapest in time{', likely' if late else ''}")
        million = format_rounded(plan.cost / plan.total * 1e6, analysis.certain_digits(plan))
        taken, paid = analysis.duration_text(plan), analysis.cost_text(plan)
        rows.append((f"{plan.gpus:,}", taken, paid, million, ", ".join(marks)))
    yield from grid(rows, right=(0, 3), first_out=(3,))


def failing(plan: PlannedStep, checkpoint: float) -> str:
    """Return what failures to expect of a run, and what they cost it."""
    found = analysis.restarts(plan, checkpoint)
    between, every = (format_duration(seconds, 2) for seconds in (found.between, found.every))
    failures = f"about {format_rounded(found.failures, 2)} failures on {counted(plan.gpus, 'GPU')}, 1 in {between}"
    return (
        f"restarts: {failures} (as often as Llama 3 405B: 419 in 54 days on 16,384 H100); a checkpoint every {every}, "
        f"{checkpoint:g} s each, and {format_duration(analysis.RESTART)} a restart make the run {found.lost:.1%} longer"
    )
