"""Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

For example:
  collbench train --model gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536
  collbench train --model llama3-8b --on dgx-h100 --gpus 64 --batch 512 --price 2.5
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import click

from collbench.analysis.plans import UNHIDDEN, cheapest, front, leaving, scaled
from collbench.api.requests import default_folder, find_system
from collbench.cli.options import FORMATS, PATH, numbers
from collbench.cli.running import modelled_session, say_where
from collbench.errors import UsageError
from collbench.planner.cost import OnSystem, interconnects, same_cost, sizes
from collbench.planner.curves import ModelCurves
from collbench.planner.job import MOST_GPUS, Job
from collbench.planner.layouts import Choices, parse_layout
from collbench.planner.memory import PARTS as MEMORY_PARTS
from collbench.planner.models import load_model, parse_count, parse_duration, usual_tokens, with_sequence
from collbench.planner.rows import Plans, row, sweep_of
from collbench.planner.run_curves import Given, setting_of
from collbench.planner.search import Plan, Planned, plan_on
from collbench.planner.sensitivity import Gain, anchored, explain_best, largest_batch, parse_anchor, sensitivities
from collbench.planner.setting import Setting, machine_of, with_user_rates
from collbench.results import PlannedStep, words
from collbench.runfile.store import NAME, read
from collbench.topology.products import GIB
from collbench.topology.system import System
from collbench.units import format_count, format_duration, format_seconds

GPUS = 64  # of a described system, by default
MOST_COUNTS = 64  # of numbers of GPUs
AROUND = 16
"""How many times fewer and more GPUs than are planned for are priced, where --scale does not say which."""

_OPTIONS = [
    click.Option(
        ["--model"],
        default="llama3-8b",
        metavar="NAME|FILE.toml|KEY=N,...",
        help="A preset, a file, or dimensions: layers=32,hidden=4096,heads=32.",
    ),
    click.Option(["--on"], default="dgx-h100", metavar="SYSTEM|FILE.toml|RUN", help="What it is trained on."),
    click.Option(["-g", "--gpus"], type=int, help="How many GPUs.  [default: 64; of a run its ranks]"),
    click.Option(["--batch"], type=int, default=512, help="Samples of a step, all GPUs together."),
    click.Option(["--sequence"], type=int, help="Tokens of a sample.  [default: the model's]"),
    click.Option(["--precision"], default="bf16", metavar="bf16|fp8", help="Of matrix products."),
    click.Option(["--optimiser"], default="adam", metavar="NAME", help="adam, adam8bit, adam-bf16 or sgd."),
    click.Option(["--gradients"], default="fp32", metavar="fp32|bf16", help="As they are added up and sent."),
    click.Option(
        ["--stack"],
        metavar="NAME",
        help="Software: modern, megatron-2022, megatron-2021, deepspeed-2021.  [default: of the GPUs' published runs]",
    ),
    click.Option(["--layout"], metavar="WORDS", help='What is fixed, such as "tp8 pp16 mb1 full zero1".'),
    click.Option(["--top"], type=click.IntRange(1, 100), default=10, help="Layouts to show."),
    click.Option(
        ["--anchor"], metavar="STEP|MFU%[,...]", help="A measured step: 32s, 45%, 32s,gpus=1024,layout=tp8 pp16."
    ),
    click.Option(["--loader"], type=float, metavar="SAMPLES/S", help="How fast samples are read."),
    click.Option(["--scale"], metavar="N..N", help="Also on these numbers of GPUs: 8..8192 doubles."),
    click.Option(["--compare-interconnects"], metavar="SYSTEM,...", help="Also on these systems."),
    click.Option(["--price"], type=float, metavar="PRICE", help="Of a GPU's hour: what the run costs, by its GPUs."),
    click.Option(["--deadline"], metavar="30d|12h", help="With --price: the cheapest number of GPUs in time."),
    click.Option(["--tokens"], metavar="N", help="Of the whole run: 300B.  [default: 20 a parameter at work]"),
    click.Option(
        ["--up-or-out"], multiple=True, metavar="SYSTEM=PRICE", help="With --price: the same money an hour, elsewhere."
    ),
    click.Option(["--noise-scale"], type=float, default=0.0, metavar="SAMPLES", help="The gradient noise scale."),
    click.Option(["--reserve"], type=float, default=6.0, help="Per cent of the memory that fragments make useless."),
    click.Option(["--noise"], type=float, default=0.22, help="Per cent by which GPUs' speeds differ (deviation)."),
    click.Option(["--tflops"], type=float, help="Of a GPU, dense, on 16 bits.  [default: its data sheet's]"),
    click.Option(["--memory"], type=float, help="GiB of a GPU.  [default: its data sheet's]"),
    click.Option(["--fitted"], is_flag=True, help="Of a run: the fit to its curves instead of its points."),
    click.Option(["--as", "machine"], metavar="SYSTEM|FILE.toml", help="What machine the run is of."),
    click.Option(["--format", "formats"], type=FORMATS, multiple=True, default=["png"]),
    click.Option(["--out"], type=PATH, help="Folder to make for run file and pictures."),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

    Every way to deal the model out (data, tensor, pipeline, context, expert and sequence parallelism, ZeRO, FSDP,
    recomputation, offloading) is tried against the memory of a GPU, and timed by curves of collectives: modelled for a
    described system, measured or fitted for a run.  Nothing runs.
    """
    _refuse(options)
    answer = _Answer(*parse_request(options), options)
    rows = list(answer.rows())
    sweep = sweep_of(rows[0].case)
    name = re.sub(r"[^a-z0-9]+", "-", f"train-{answer.title}".lower()).strip("-")
    folder = options["out"] or default_folder(sweep, name)
    with modelled_session(Plans(rows, answer.topology()), sweep, folder) as session:
        list(session.run())
    if not session.leader:
        return 0
    for line in answer.lines():
        click.echo(line)
    click.echo(f"\n{LEGEND}", err=True)
    say_where(session, options["formats"])
    return 0


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuse options that are useless without another option, and impossible numbers."""
    for name in ("deadline", "up_or_out", "tokens"):
        if options[name] and not options["price"]:
            raise UsageError(f"--{name.replace('_', '-')} needs a --price, of an hour of a GPU")
    price, loader, noise_scale = options["price"], options["loader"], options["noise_scale"]
    if price is not None and not 0 < price < 1e6:
        raise UsageError(f"--price {price:g} is no price of a GPU's hour; give one above 0")
    if not 0 <= noise_scale < 1e15:
        raise UsageError(f"--noise-scale {noise_scale:g} is none; give samples, above 0")
    for name in ("tflops", "memory"):
        if options[name] is not None and not 0 < options[name] < 1e9:
            raise UsageError(f"--{name} {options[name]:g} is impossible; give a number above 0")
    for name in ("reserve", "noise"):
        if not 0 <= options[name] < 100:
            raise UsageError(f"--{name} {options[name]:g} is no share; give per cent from 0 to less than 100")
    if loader is not None and not 0 < loader < inf:
        raise UsageError(f"--loader {loader:g} is no rate; give samples a second, above 0")


def parse_request(options: Mapping[str, Any]) -> tuple[Setting, Choices, Planned | None]:
    """Return the setting, the fixed choices of the layout, and the layout of the anchor.

    UsageError, with a way out, for what cannot be planned.
    """
    model, on, gpus = load_model(options["model"]), Path(options["on"]), options["gpus"]
    if options["sequence"] is not None:
        model = with_sequence(model, options["sequence"])
    fixed = parse_layout(options["layout"]) if options["layout"] else {}
    is_run = on.suffix == ".jsonl" or (on.suffix != ".toml" and (on / NAME).exists())
    run = read(on) if is_run else None
    if gpus is None:
        gpus = run.header.topology.ranks if run else GPUS
    if not 1 <= gpus <= MOST_GPUS:
        raise UsageError(f"--gpus {gpus} is impossible; give 1 to {MOST_GPUS}")

    def job(stack: str) -> Job:
        return Job(
            model,
            gpus,
            options["batch"],
            model.sequence,
            stack=options["stack"] or stack,
            precision=options["precision"],
            optimiser=options["optimiser"],
            gradients=options["gradients"],
            reserve=options["reserve"] / 100,
            noise=options["noise"] / 100,
        ).checked()

    loader = options["loader"] or inf
    if run:
        given = Given(options["machine"], options["tflops"], options["memory"], options["fitted"])
        setting = setting_of(run, job, given, loader)
    else:
        setting = _described(gpus, job, options, loader)
    anchor = None
    if options["anchor"]:
        setting, anchor = anchored(setting, parse_anchor(options["anchor"]), fixed)
    return setting, fixed, anchor


def _described(gpus: int, job: Callable[[str], Job], options: Mapping[str, Any], loader: float) -> Setting:
    """Return the setting on a described system, by the model's curves."""
    if options["fitted"]:
        raise UsageError(f"--fitted is of a run's curves; {options['on']} is described, and has those of the model")
    curves = ModelCurves(find_system(options["on"]), gpus)
    machine = with_user_rates(machine_of(curves.system), options["tflops"], options["memory"])
    return Setting(job(machine.stack), curves, machine, loader)


def parse_priced(words: Sequence[str]) -> list[tuple[System, float]]:
    """Return the systems and prices of `--up-or-out`: `SYSTEM=PRICE`; UsageError without a price."""
    priced = []
    for word in words:
        name, _, price = word.partition("=")
        if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", price) or not float(price):
            raise UsageError(f"--up-or-out {word!r} has no price; write SYSTEM=PRICE, such as dgx-h100=2.5")
        priced.append((find_system(name.strip()), float(price)))
    return priced


class _Answer:
    """Everything that was requested, evaluated."""

    def __init__(self, given: Setting, fixed: Choices, anchor: Planned | None, options: Mapping[str, Any]) -> None:
        self._given, self._fixed, self._anchor, self._options = given, fixed, anchor, options
        self._plan = plan_on(self._given, self._fixed)
        self._ranked = self._plan.ranked(options["top"])
        self._price = options["price"] or 0.0
        self._sizes = list(sizes(self._given, self._fixed, self._counts()))
        names = options["compare_interconnects"]
        systems = [find_system(name.strip()) for name in names.split(",")] if names else []
        self._systems = interconnects(self._given, self._fixed, systems)
        model, tokens, deadline = self._given.job.model, options["tokens"], options["deadline"]
        self._tokens = parse_count(tokens, "--tokens") if tokens else usual_tokens(model)
        if not 1 <= self._tokens <= 1e18:
            raise UsageError(f"--tokens {tokens} is impossible; give 1 to 1e18, such as 300B")
        self._deadline = parse_duration(deadline, "--deadline") if deadline else 0.0
        priced = parse_priced(options["up_or_out"])
        self._same_cost = same_cost(self._given, self._fixed, self._price, priced) if priced else []
        self._scaled = self._by_size("scale") if options["scale"] else []
        self._priced = self._by_size("cost", self._price, self._tokens) if self._price else []
        self.title = f"{model.name} on {self._given.machine.name}"

    def _counts(self) -> Sequence[int]:
        """Return the numbers of GPUs to plan for besides the requested number."""
        if self._options["scale"]:
            text = self._options["scale"]
            counts = numbers(text)
            if not counts or not counts[0]:
                raise UsageError(f"--scale {text!r} is no list of GPUs; write 8..8192, which doubles, or 64,96,128")
            if len(counts) > MOST_COUNTS or counts[-1] > MOST_GPUS:
                most = f"give at most {MOST_COUNTS} numbers, up to {MOST_GPUS} GPUs"
                raise UsageError(f"--scale {text!r} is too much; {most}")
            return counts
        if not self._price:
            return []
        steps = [self._given.job.gpus / AROUND * 2**power for power in range(2 * AROUND.bit_length() - 1)]
        return sorted({round(step * more) for step in steps for more in (1, 1.5) if step * more >= 1})

    def _by_size(self, purpose: str, *more: float) -> list[PlannedStep]:
        return [row(size.best, purpose, self._given.machine.name, *more) for size in self._sizes if size.best]

    def _here(self, price: float = 0.0) -> OnSystem:
        return OnSystem(self._given.machine, self._given.job.gpus, self._ranked[0], price=price)

    def topology(self) -> dict[str, Any]:
        """Return the topology for the header of the run file."""
        curves = self._given.curves
        described = {"system": asdict(curves.system)} if isinstance(curves, ModelCurves) else {}
        where = {"name": self.title, "shared": False, "platform": "gpu", "ranks": self._given.job.gpus, "model": True}
        return {**where, **described, "curves": curves.origin}

    def rows(self) -> Iterator[PlannedStep]:
        """Yield everything as rows of a run file."""
        yield from (row(plan, "layout", self._given.machine.name) for plan in self._ranked)
        yield from (*self._scaled, *self._priced)
        compared = (*self._systems, *self._same_cost)
        for one in (self._here(self._price), *compared) if compared else ():
            if one.best:
                yield row(one.best, "interconnect", one.system.name, one.price)

    def lines(self) -> Iterator[str]:
        """Yield everything as lines of text."""
        yield from heading(self._plan)
        if self._anchor:
            at = self._given.job.efficiency
            yield f"anchored on {self._anchor.layout.name}: computing is {at:.2f} times as fast as expected"
        best = self._ranked[0]
        for part in (
            ranking(self._ranked),
            explain_best(self._plan),
            gains(sensitivities(self._given, best.layout, self._fixed)),
            memory(self._given, best),
            [largest_batch(self._given.job.batch, self._options["noise_scale"])],
        ):
            yield from chain([""], part)
        if self._options["scale"]:
            yield from chain([""], scaling(self._sizes, self._scaled))
        if self._systems:
            yield from chain([""], on_systems([self._here(), *self._systems]))
        if self._same_cost:
            yield "\nfor the same money an hour"
            yield from on_systems([self._here(self._price), *self._same_cost], self._price)
        if self._priced:
            yield f"\na run of {self._tokens:.3g} tokens at {self._price:g} an hour and GPU"
            if not self._options["tokens"]:
                usual = "as many as were published" if self._given.job.model.trained else "20 a parameter at work"
                yield f"({usual}; --tokens says otherwise)"
            yield from costs(self._priced, self._deadline)


_RANK = (
    "{rank:>3}  {layout:<{width}} {step:>8} {band:>19} {mfu:>6} {tokens:>9} {memory:>8}  "
    "{computing:>6} {exposed:>7} {bubble:>6}"
)
_ELSEWHERE = (
    "{system:<{width}} {gpus:>6}  {layout:<{names}} {step:>8} {mfu:>6} {tokens:>9} {computing:>6} {exposed:>6} "
    "{bubble:>6}{cost}"
)
_HEADS = {
    "layout": "layout",
    "step": "step",
    "mfu": "MFU",
    "tokens": "tokens/s",
    "computing": "comp.",
    "exposed": "sent",
    "bubble": "bubble",
}
LEGEND = (
    "nothing here is measured: step is what is likely, nine in ten the band, of the curves' bands and computing's\n"
    "ranked by the mean over the curves' bands, in which the likely step counts four times\n"
    "MFU: of the data sheet's FLOP/s, nothing that is computed twice counted; sent: communication that nothing hides"
)


def heading(plan: Plan) -> Iterator[str]:
    """Yield what is planned, on what, and by which curves."""
    given = plan.setting
    job, model = given.job, given.job.model
    active = f", {model.active / 1e9:.4g} billion at work" if model.experts else ""
    yield (
        f"{model.name}: {model.parameters / 1e9:.4g} billion parameters{active}; "
        f"{job.batch:,} samples of {job.sequence:,} tokens a step"
    )
    yield (
        f"{job.gpus:,} {given.machine.unit} of {given.machine.name}, {given.capacity / GIB:.3g} GiB each; "
        f"{job.precision}, {job.optimiser}, gradients {job.gradients}; software {job.stack}"
    )
    yield "; ".join(filter(None, (f"curves: {given.curves.origin}", given.machine.note)))
    if not given.machine.known:
        yield "GPUs not known by name: they are taken for others of their architecture; --tflops and --memory say it"
    yield f"{plan.searched.tried:,} layouts, of which {plan.fitting:,} fit"


def ranking(plans: Sequence[Planned]) -> Iterator[str]:
    """Yield the table of layouts."""
    width = max(len(plan.layout.name) for plan in plans)
    yield _RANK.format(rank="", width=width, band="nine in ten", memory="memory", **_HEADS)
    for rank, plan in enumerate(plans, 1):
        band = f"{format_seconds(plan.low)} - {format_seconds(plan.high)}"
        needed = f"{plan.needed / GIB:.1f} GiB"
        yield _RANK.format(rank=rank, width=width, band=band, memory=needed, **_cells(plan))


def memory(given: Setting, best: Planned) -> Iterator[str]:
    """Yield what the memory of a GPU is needed for."""
    lines = {words(name): best.memory[name] for name in MEMORY_PARTS if best.memory[name] >= 2**20}
    lines[f"all, of {given.capacity / GIB:.3g} GiB"] = best.needed
    yield f"memory of a GPU, {best.layout.name}"
    for name, size in lines.items():
        yield f"  {name:<22} {size / GIB:>8.2f} GiB {size / given.capacity:>5.0%}"


def gains(most_first: Sequence[Gain]) -> Iterator[str]:
    """Yield the table of sensitivities."""
    yield "ten per cent more of"
    for gain in most_first:
        yield f"  {gain.resource:<24} gives {gain.factor:.3f}x"


def scaling(sizes: Sequence[OnSystem], rows: Sequence[PlannedStep]) -> Iterator[str]:
    """Yield the table by number of GPUs; `rows` are those that fit, in their order."""
    curves = scaled(rows)
    width = max((len(row.implementation) for row in rows), default=0)
    yield f"{'GPUs':>7}  {'layout':<{width}} {'step':>8} {'nine in ten':>19} {'tokens/s':>9} {'efficiency':>10}"
    planned = {row.gpus: row for row in rows}
    for size in sizes:
        if not size.best:
            yield f"{size.gpus:>7,}  none: {size.reason}"
            continue
        row = planned[size.gpus]
        band = f"{format_seconds(row.low)} - {format_seconds(row.high)}"
        efficiency = f"{curves[0].efficiency(row):>10.1%}" if curves else ""
        yield (
            f"{row.gpus:>7,}  {row.implementation:<{width}} {format_seconds(row.typical):>8} {band:>19} "
            f"{format_count(row.tokens / row.typical):>9} {efficiency}"
        )
    for curve in curves:
        words = [
            f"{level:.0%} {f'beyond about {gpus:,.0f} GPUs' if gpus else 'nowhere up to there'}"
            for level, gpus in leaving(curve).items()
        ]
        yield f"against {curve.rows[0].gpus:,} GPUs, the same batch: it leaves {', '.join(words)}"


def on_systems(places: Sequence[OnSystem], price: float = 0.0) -> Iterator[str]:
    """Yield the table by system; with a price, what a million tokens cost."""
    width = max([6, *(len(one.system.name) for one in places)])
    names = max([6, *(len(one.best.layout.name) for one in places if one.best)])
    cost = f" {'of 1M tokens':>12}" if price else ""
    yield _ELSEWHERE.format(system="system", width=width, gpus="GPUs", names=names, cost=cost, **_HEADS)
    for one in places:
        if not one.best:
            yield f"{one.system.name:<{width}} {one.gpus:>6,}  none: {one.reason}"
            continue
        million = one.gpus * one.price / 3600 / one.best.tokens_per_second * 1e6
        cost = f" {million:>12.4g}" if price else ""
        yield _ELSEWHERE.format(
            system=one.system.name, width=width, gpus=f"{one.gpus:,}", names=names, cost=cost, **_cells(one.best)
        )


def _cells(plan: Planned) -> dict[str, str]:
    """Return the cells of a layout that several tables share."""
    exposed = sum(plan.parts[name] for name in UNHIDDEN)
    return {
        "layout": plan.layout.name,
        "step": format_seconds(plan.step),
        "mfu": f"{plan.utilisation:.1%}",
        "tokens": format_count(plan.tokens_per_second),
        "computing": f"{plan.parts['computing'] / plan.step:.0%}",
        "exposed": f"{exposed / plan.step:.1%}",
        "bubble": f"{plan.parts['bubble'] / plan.step:.1%}",
    }


def costs(plans: Sequence[PlannedStep], deadline: float) -> Iterator[str]:
    """Yield the table of costs by number of GPUs; marks the Pareto front and the cheapest in time."""
    best, chosen = front(plans), cheapest(plans, deadline) if deadline else None
    yield f"{'GPUs':>7}  {'whole run':>10} {'cost':>12} {'of 1M tokens':>13}"
    for plan in plans:
        marks = ["Pareto"] if plan in best else []
        if plan is chosen:
            marks.append("cheapest in time")
        million = plan.cost / plan.total * 1e6
        line = f"{plan.gpus:>7,}  {format_duration(plan.seconds):>10} {plan.cost:>12,.0f} {million:>13.4g}"
        yield f"{line}  {', '.join(marks)}" if marks else line
    if deadline and not chosen:
        quickest = min(plans, key=lambda plan: plan.seconds)
        limit, fastest = format_duration(deadline), format_duration(quickest.seconds)
        yield f"none is done in {limit}: the quickest, {quickest.gpus:,} GPUs, takes {fastest}"
